"""LeNet against loops over pixels, and against the sizes that the paper gives."""

import torch

from taskmix.models.images import LeNet


def convolved_pooled_rectified(image, weight, bias):
    """The same for one image `(channels, rows, columns)`, written out pixel by pixel."""
    channels, rows, columns = len(weight), image.shape[1] - 4, image.shape[2] - 4
    out = torch.zeros(channels, rows, columns, dtype=image.dtype)
    for channel in range(channels):
        for i in range(rows):
            for j in range(columns):
                patch = image[:, i : i + 5, j : j + 5]
                out[channel, i, j] = (patch * weight[channel]).sum() + bias[channel]
    pooled = out.view(channels, rows // 2, 2, columns // 2, 2).amax((2, 4))
    return pooled.clamp(min=0)


@torch.no_grad()
def test_features_are_those_of_loops_over_pixels():
    torch.manual_seed(1)
    network = LeNet().double()
    images = torch.randn(2, 28, 28, dtype=torch.float64)
    for image, features in zip(images, network(images), strict=True):
        x = convolved_pooled_rectified(image[None], network.conv1.weight, network.conv1.bias)
        x = convolved_pooled_rectified(x, network.conv2.weight, network.conv2.bias)
        expected = (network.hidden.weight @ x.reshape(-1) + network.hidden.bias).clamp(min=0)
        torch.testing.assert_close(features, expected)


def test_the_network_is_the_papers():
    shapes = {name: tuple(p.shape) for name, p in LeNet().named_parameters()}
    assert shapes == {
        "conv1.weight": (10, 1, 5, 5),
        "conv1.bias": (10,),
        "conv2.weight": (20, 10, 5, 5),
        "conv2.bias": (20,),
        "hidden.weight": (50, 320),
        "hidden.bias": (50,),
    }
