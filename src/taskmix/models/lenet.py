"""The small convolutional network of Kourdis et al. (2020)."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional


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
        """Return the features `(batch, 50)` of images `(batch, 28, 28)`."""
        return functional.relu(self.hidden(self.channels(images).flatten(1)))

    def channels(self, images: Tensor) -> Tensor:
        """Return what the second convolution's channels make of images, `(batch, 20, 4, 4)`."""
        x = images.unsqueeze(1)
        for convolution in (self.conv1, self.conv2):
            x = functional.relu(functional.max_pool2d(convolution(x), 2))
        return x
