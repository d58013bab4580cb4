"""The small convolutional network of Kourdis et al. (2020), with convolutions made for CPUs."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional


class LeNet(nn.Module):
    """Two 5x5 convolutions, each max-pooled 2x2 and rectified, and a hidden layer.

    The encoder of Kourdis, Gordon-Hall and Gorinski (2020), Figure 2: 1 → 10 → 20 channels,
    320 → 50 features; its heads are linear, 50 → 10.

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
        """Images `(batch, 28, 28)` to features `(batch, 50)`."""
        x = images.permute(1, 2, 0).unsqueeze(0)
        for layer in (self.conv1, self.conv2):
            assert layer.bias is not None
            x = conv_pool_relu(x, layer.weight, layer.bias)
        return functional.relu(self.hidden(x.flatten(0, 2).T))


def conv_pool_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """relu(max_pool2d(conv2d(x, weight, bias), 2)), batch last.

    On a CPU the whole of it is one matrix product: the batch is the innermost axis, so that
    patches are gathered in long runs, and each 6x6 patch gives the four outputs that one pooled
    pixel is the maximum of. Same values and gradients as torch's own three operations.

    Args:
        x: shape `(channels, rows, columns, batch)`; even numbers of rows and columns.
        weight: shape `(outputs, channels, 5, 5)`.
        bias: shape `(outputs,)`.

    Returns:
        Shape `(outputs, rows / 2 - 2, columns / 2 - 2, batch)`.
    """
    result: Tensor = _ConvPoolRelu.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return result


_CORNERS = ((0, 0), (0, 1), (1, 0), (1, 1))


class _ConvPoolRelu(torch.autograd.Function):
    """`conv_pool_relu`; of equal maxima the first gets the gradient, as in torch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        patches = _patches(x)
        spread = _spread(weight)
        four = torch.mm(spread, patches.flatten(0, 2).flatten(1)).view(4, len(weight), -1)
        upper, lower = torch.maximum(four[0], four[1]), torch.maximum(four[2], four[3])
        left = four[0] >= four[1], four[2] >= four[3], upper >= lower
        result = torch.maximum(upper, lower, out=upper).add_(bias[:, None]).relu_()
        ctx.save_for_backward(patches, spread, result, *left)
        ctx.shapes = x.shape, weight.shape
        return result.view(len(weight), *patches.shape[3:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        patches, spread, result, *left = ctx.saved_tensors
        shape, weight_shape = ctx.shapes
        gradient = gradient.flatten(1) * (result > 0)
        four = _unpool(gradient, *left).flatten(0, 1)
        of_weight = torch.mm(four, patches.flatten(0, 2).flatten(1).T)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_patches = torch.mm(spread.T, four).view(patches.shape)
            of_x = _unpatched(of_patches, shape)
        return of_x, _gathered(of_weight, weight_shape), gradient.sum(1)


def _patches(x: Tensor) -> Tensor:
    """All 6x6 patches, two apart: `(channels, 6, 6, rows / 2 - 2, columns / 2 - 2, batch)`."""
    return x.unfold(1, 6, 2).unfold(2, 6, 2).permute(0, 4, 5, 1, 2, 3).contiguous()


def _unpatched(patches: Tensor, shape: torch.Size) -> Tensor:
    """The transpose of `_patches`: what each pixel gets from the patches it is in."""
    x = patches.new_zeros(shape)
    rows, columns = patches.shape[3:5]
    for i in range(6):
        for j in range(6):
            x[:, i : i + 2 * rows : 2, j : j + 2 * columns : 2] += patches[:, i, j]
    return x


def _spread(weight: Tensor) -> Tensor:
    """The kernel at the four corners of a 6x6 patch, `(4 * outputs, channels * 36)`."""
    outputs, channels = weight.shape[:2]
    spread = weight.new_zeros(4, outputs, channels, 6, 6)
    for kernel, (i, j) in zip(spread, _CORNERS, strict=True):
        kernel[:, :, i : i + 5, j : j + 5] = weight
    return spread.view(4 * outputs, channels * 36)


def _gathered(spread: Tensor, shape: torch.Size) -> Tensor:
    """The transpose of `_spread`."""
    corners = spread.view(4, *shape[:2], 6, 6)
    weight = spread.new_zeros(shape)
    for kernel, (i, j) in zip(corners, _CORNERS, strict=True):
        weight += kernel[:, :, i : i + 5, j : j + 5]
    return weight


def _unpool(gradient: Tensor, left_above: Tensor, left_below: Tensor, above: Tensor) -> Tensor:
    """The gradient at the winner of each four, 0 at the others: `(4, outputs, pixels)`."""
    four = gradient.new_empty(4, *gradient.shape)
    upper = gradient * above
    lower = gradient - upper
    for half, left, pair in ((upper, left_above, four[:2]), (lower, left_below, four[2:])):
        torch.mul(half, left, out=pair[0])
        torch.sub(half, pair[0], out=pair[1])
    return four
