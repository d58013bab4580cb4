"""Encoders of images: a small convolutional network, and LeNet."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from taskmix.errors import UserError
from taskmix.models.encoders import Encoder, Representation
from taskmix.models.spec import ModelSpec

MNIST_PIXELS = (0.1307, 0.3081)
"""Mean and standard deviation of a pixel of MNIST, scaled to 0..1."""


class ImageEncoder(Encoder):
    """A network on images of bytes `(batch, height, width)`, which it standardises."""

    def __init__(self, network: nn.Module, width: int, mean: float, scale: float) -> None:
        super().__init__()
        self.network = network
        self.width = width
        self._mean = mean
        self._scale = scale

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        images = (inputs["pixels"].float() / 255 - self._mean) / self._scale
        return Representation(self.network(images))


class CNN(nn.Module):
    """Two convolutions and a hidden layer, for small grey images of any size."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, width),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images.unsqueeze(1))
        return features


class LeNet(nn.Module):
    """Two 5x5 convolutions, each max-pooled 2x2 and rectified, and a hidden layer.

    The encoder of Kourdis, Gordon-Hall and Gorinski (2020), Figure 2: 1 → 10 → 20 channels,
    320 → 50 features; its heads are linear, 50 → 10.

    >>> import torch
    >>> LeNet()(torch.zeros(4, 28, 28)).shape
    torch.Size([4, 50])
    """

    width: ClassVar[int] = 50

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.hidden = nn.Linear(320, self.width)

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.hidden(self.channels(images).flatten(1)))

    def channels(self, images: Tensor) -> Tensor:
        """Return the channels of the second convolution, shape `(batch, 20, 4, 4)`."""
        x = images.unsqueeze(1)
        for convolution in (self.conv1, self.conv2):
            x = functional.relu(functional.max_pool2d(convolution(x), 2))
        return x


def build_image_encoder(spec: ModelSpec) -> Encoder:
    """Make `cnn` or `lenet`, with random weights."""
    if spec.encoder == "lenet":
        return ImageEncoder(LeNet(), LeNet.width, *MNIST_PIXELS)
    if spec.encoder not in (None, "cnn"):
        raise UserError(f"model.encoder: {spec.encoder!r} reads texts, but the tasks are images")
    return ImageEncoder(CNN(), 64, *MNIST_PIXELS)
