import gzip
from pathlib import Path
from struct import pack

import numpy as np
import pytest

from taskmix.errors import UserError
from taskmix.tasks.catalogue import find
from taskmix.tasks.catalogue.multimnist import read_idx
from taskmix.tasks.rows import ImageRow


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    (tmp_path / "mnist").mkdir()
    for prefix, count in (("train", 60), ("t10k", 20)):
        images = rng.integers(256, size=(count, 28, 28))
        images[:, 0, 0] = np.arange(count)  # tells the left image of a pair
        images[:, 27, 27] = np.arange(count)  # and the right one
        folder = tmp_path / "mnist"
        (folder / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (folder / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(np.arange(count) % 10))
    return tmp_path


def rows(mnist: Path, side: str, split: str) -> list[ImageRow]:
    return list(find(f"multimnist/{side}", mnist).split(split).rows())  # type: ignore[arg-type]


def test_every_image_is_once_the_left_digit(mnist: Path) -> None:
    train, dev = rows(mnist, "left", "train"), rows(mnist, "left", "dev")
    assert (len(train), len(dev)) == (50, 10)
    assert sorted(row.at for row in train + dev) == list(range(1, 61))
    for row in train + dev + rows(mnist, "left", "test"):
        assert row.pixels[0, 0] == row.at - 1
        assert row.label == str((row.at - 1) % 10)


def test_a_picture_is_the_maximum_on_the_canvas_read_at_the_nearest_pixels(mnist: Path) -> None:
    images = read_idx(mnist / "mnist" / "t10k-images-idx3-ubyte.gz", 3)
    found = zip(rows(mnist, "left", "test"), rows(mnist, "right", "test"), strict=True)
    for left_row, right_row in found:
        assert (left_row.pixels == right_row.pixels).all()
        left = images[left_row.at - 1]
        candidates = [j for j in range(20) if str(j % 10) == right_row.label]
        assert any(same(left_row.pixels, left, images[j]) for j in candidates)


def same(picture: np.ndarray, left: np.ndarray, right: np.ndarray) -> bool:
    for i in range(28):
        for j in range(28):
            y, x = int(np.floor(i * 36 / 28)), int(np.floor(j * 36 / 28))
            a = left[y, x] if y < 28 and x < 28 else 0
            b = right[y - 6, x - 6] if 6 <= y < 34 and 6 <= x < 34 else 0
            if picture[i, j] != max(a, b):
                return False
    return True


def test_both_tasks_are_asked_about_the_same_pictures(mnist: Path) -> None:
    left, right = rows(mnist, "left", "train"), rows(mnist, "right", "train")
    assert all((a.pixels == b.pixels).all() for a, b in zip(left, right, strict=True))
    assert [row.label for row in left] != [row.label for row in right]
    prints = [
        find(f"multimnist/{side}", mnist).split(split).fingerprint()
        for side in ("left", "right")
        for split in ("train", "dev", "test")
    ]
    assert len(set(prints)) == 6


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"nothing like it", "not an IDX file of bytes in 3 dimensions"),
        (bytes([0, 0, 8, 3]), "not an IDX file"),
        (idx(np.zeros((2, 28, 28)))[:-15], "damaged or truncated"),
        (gzip.decompress(idx(np.zeros((2, 28, 28))))[:-1], "1567 bytes follow .*, expected 1568"),
        (idx(np.zeros((2, 20, 20))), "expected 28 by 28"),
        (idx(np.zeros((2, 28, 28))), "2 images, but 60 labels"),
    ],
)
def test_a_damaged_file_gets_one_sentence(mnist: Path, content: bytes, sentence: str) -> None:
    path = mnist / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=rf"train-images-idx3-ubyte\.gz: .*{sentence}"):
        rows(mnist, "left", "train")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no file .*mnist/train-images-idx3-ubyte"):
        find("multimnist/left", tmp_path).split("train").rows()
