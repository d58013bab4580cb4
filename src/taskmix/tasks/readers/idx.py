"""IDX, the format in which MNIST is published: a magic number, the shape, then the bytes."""

from pathlib import Path
from struct import unpack

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks.readers.lines import contents

UNSIGNED_BYTES = b"\x00\x00\x08"


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """Return the array of bytes that an IDX file holds, gzipped or plain.

    Args:
        path: the file.
        dimensions: how many the array must have: 3 for images, 1 for labels.
    """
    data = contents(path)
    start = 4 + 4 * dimensions
    if data[:4] != UNSIGNED_BYTES + bytes([dimensions]) or len(data) < start:
        raise UserError(
            f"{path}: not an IDX file of bytes in {dimensions} dimensions, begins with "
            f"{data[:4].hex(' ')!r}."
        )
    shape = unpack(f">{dimensions}I", data[4:start])
    expected = int(np.prod(shape, dtype=object))
    if len(data) - start != expected:
        raise UserError(
            f"{path}: {len(data) - start} bytes follow the header, expected {expected}."
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)
