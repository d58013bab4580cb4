"""The small convolutional network of Kourdis et al. (2020), with convolutions made for CPUs."""

import math
from collections.abc import Iterator
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
        x = images.permute(1, 2, 0).contiguous().unsqueeze(0)
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
        patches, spread = _patches(x), _spread(weight)
        flat = patches.flatten(0, 2).flatten(1)
        result = x.new_empty(len(weight), flat.shape[1])
        right, below = result.new_empty(2, *result.shape), torch.empty_like(result)
        for at, (four, rows) in _runs(result, (2, 2), (2,)):
            torch.mm(spread, flat[:, at], out=four.flatten(0, 2))
            torch.sub(four[:, 1], four[:, 0], out=right[:, :, at])
            torch.maximum(four[:, 0], four[:, 1], out=rows)
            torch.sub(rows[1], rows[0], out=below[:, at])
            torch.maximum(rows[0], rows[1], out=result[:, at])
            result[:, at].add_(bias[:, None]).relu_()
        ctx.save_for_backward(patches, spread, result, right, below)
        ctx.shapes = x.shape, weight.shape
        return result.view(len(weight), *patches.shape[3:])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        patches, spread, result, right, below = ctx.saved_tensors
        shape, weight_shape = ctx.shapes
        flat = patches.flatten(0, 2).flatten(1)
        gradient = gradient.flatten(1)
        of_weight, of_bias = torch.zeros_like(spread), gradient.new_zeros(len(gradient))
        of_patches = torch.empty_like(flat) if ctx.needs_input_grad[0] else None
        for at, (part, rows, four) in _runs(gradient, (), (2,), (2, 2)):
            _where_positive(gradient[:, at], result[:, at], part)
            of_bias += part.sum(1)
            _split(part, below[:, at], rows[0], rows[1])
            _split(rows, right[:, :, at], four[:, 0], four[:, 1])
            of_four = four.flatten(0, 2)
            of_weight.addmm_(of_four, flat[:, at].T)
            if of_patches is not None:
                torch.mm(spread.T, of_four, out=of_patches[:, at])
        of_x = None if of_patches is None else _unpatched(of_patches.view(patches.shape), shape)
        return of_x, _gathered(of_weight, weight_shape), of_bias


def _runs(
    like: Tensor, *times: tuple[int, ...], most: int = 20_000
) -> Iterator[tuple[slice, list[Tensor]]]:
    """The columns in even runs, so that what is made of a run is read again from the cache.

    Runs are multiples of 16 columns: the ends of others may be rounded in another way, and then
    equal values are no longer equal.

    Args:
        like: shape `(outputs, columns)`.
        times: how many arrays `(outputs, columns of the run)` to work in, in which shape; they are
            the same memory in every run.
        most: columns of a run.
    """
    outputs, columns = like.shape
    size = 16 * math.ceil(max(1, columns) / max(1, math.ceil(columns / most)) / 16)
    rooms = [like.new_empty(*shape, outputs, size) for shape in times]
    for start in range(0, columns, size):
        end = min(start + size, columns)
        yield slice(start, end), [room[..., : end - start] for room in rooms]


def _patches(x: Tensor) -> Tensor:
    """All 6x6 patches, two apart: `(channels, 6, 6, rows / 2 - 2, columns / 2 - 2, batch)`."""
    return x.unfold(1, 6, 2).unfold(2, 6, 2).permute(0, 4, 5, 1, 2, 3).contiguous()


def _unpatched(patches: Tensor, shape: torch.Size) -> Tensor:
    """The transpose of `_patches`: what each pixel gets from the patches it is in.

    Patches are two apart, so pixels and places in a patch both go by twos: 9 sums in place of 36.
    """
    channels, height, width, batch = shape
    x = patches.new_zeros(channels, height // 2, 2, width // 2, 2, batch)
    rows, columns = patches.shape[3:5]
    twos = patches.view(channels, 3, 2, 3, 2, rows, columns, batch).permute(0, 1, 3, 5, 2, 6, 4, 7)
    for i in range(3):
        for j in range(3):
            x[:, i : i + rows, :, j : j + columns] += twos[:, i, j]
    return x.view(shape)


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


def _split(gradient: Tensor, lead: Tensor, first: Tensor, second: Tensor) -> None:
    """The gradient goes to the second of two where that leads, else to the first."""
    _where_positive(gradient, lead, second)
    torch.sub(gradient, second, out=first)


def _where_positive(gradient: Tensor, x: Tensor, out: Tensor) -> None:
    """The gradient where x > 0, else 0: one pass, where a product with a mask would be three."""
    torch.ops.aten.threshold_backward(gradient, x, 0, grad_input=out)
