"""Two pictures on one canvas, as MultiMNIST lays two digits over each other."""

import numpy as np
from numpy.typing import NDArray

Pixels = NDArray[np.uint8]


def overlay(left: Pixels, right: Pixels, shift: int, canvas: int) -> Pixels:
    """Return the pixelwise maximum of one picture at the top left and one moved down and right.

    Args:
        left: pictures at the top left, shape `(pictures, size, size)`.
        right: pictures over them, of the same shape.
        shift: how many pixels these are moved, down and to the right.
        canvas: height and width of the result.

    >>> ones = np.ones((1, 2, 2), dtype=np.uint8)
    >>> overlay(ones, 2 * ones, shift=1, canvas=3)[0]
    array([[1, 1, 0],
           [1, 2, 2],
           [0, 2, 2]], dtype=uint8)
    """
    count, size, _ = left.shape
    laid = np.zeros((count, canvas, canvas), dtype=np.uint8)
    laid[:, :size, :size] = left
    over = laid[:, shift : shift + size, shift : shift + size]
    np.maximum(over, right, out=over)
    return laid
