"""The hand-made convolutions are torch's own."""

import pytest
import torch
from torch.nn import functional

from bursar.models.lenet import LeNet, conv_pool_relu


def plain(x, weight, bias):
    """The same from torch's operations, batch last."""
    convolved = functional.conv2d(x.permute(3, 0, 1, 2), weight, bias)
    return functional.relu(functional.max_pool2d(convolved, 2)).permute(1, 2, 3, 0)


def arguments(channels, rows, columns, batch):
    rng = torch.Generator().manual_seed(1)
    x = torch.randn(channels, rows, columns, batch, generator=rng, dtype=torch.float64)
    x[:, : rows // 2] = -0.4  # an even background, where all four of a pool are equal
    weight = torch.randn(3, channels, 5, 5, generator=rng, dtype=torch.float64)
    bias = torch.randn(3, generator=rng, dtype=torch.float64)
    return [tensor.requires_grad_() for tensor in (x, weight, bias)]


SEVERAL_RUNS = (1, 28, 28, 573)  # 82,512 columns in five runs, the last one shorter


@pytest.mark.parametrize("shape", [(1, 28, 28, 2), (10, 12, 12, 3), (2, 8, 6, 1), SEVERAL_RUNS])
def test_values_and_gradients_are_those_of_torch(shape):
    given = arguments(*shape)
    ours, theirs = conv_pool_relu(*given), plain(*given)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    along = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2)).double()
    for got, wanted in zip(
        torch.autograd.grad(ours, given, along),
        torch.autograd.grad(theirs, given, along),
        strict=True,
    ):
        torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)


def test_the_network_is_the_papers():
    network = LeNet()
    shapes = {name: tuple(p.shape) for name, p in network.named_parameters()}
    assert shapes == {
        "conv1.weight": (10, 1, 5, 5),
        "conv1.bias": (10,),
        "conv2.weight": (20, 10, 5, 5),
        "conv2.bias": (20,),
        "hidden.weight": (50, 320),
        "hidden.bias": (50,),
    }


def test_features_are_those_of_torchs_own_layers():
    network = LeNet().double()
    images = torch.rand(5, 28, 28, dtype=torch.float64)
    x = images.unsqueeze(1)
    for layer in (network.conv1, network.conv2):
        x = functional.relu(functional.max_pool2d(layer(x), 2))
    expected = functional.relu(network.hidden(x.flatten(1)))
    torch.testing.assert_close(network(images), expected)
