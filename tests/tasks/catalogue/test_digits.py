import itertools

import numpy as np
import pytest

from taskmix.tasks.catalogue import find
from taskmix.tasks.catalogue.digits import IMAGES, OTHER_ROWS, TRAIN_ROWS, DigitsSource, overlay


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], list]:
    return {
        (question, split): list(find(f"digits/{question}").split(split).rows())
        for question in TRAIN_ROWS
        for split in IMAGES
    }


def test_the_tasks_are_of_clearly_different_sizes(rows: dict) -> None:
    for question in TRAIN_ROWS:
        assert len(rows[question, "train"]) == TRAIN_ROWS[question]
        assert len(rows[question, "dev"]) == len(rows[question, "test"]) == OTHER_ROWS
    sizes = sorted(TRAIN_ROWS.values())
    assert all(larger > 2 * smaller for smaller, larger in itertools.pairwise(sizes))


def test_reading_twice_gives_the_same_rows(rows: dict) -> None:
    for question in TRAIN_ROWS:
        again = list(DigitsSource(question, "train").rows())
        for a, b in zip(rows[question, "train"], again, strict=True):
            assert a.label == b.label
            assert (a.pixels == b.pixels).all()


def test_no_image_is_in_two_splits() -> None:
    bounds = sorted(IMAGES.values())
    assert bounds[0][0] == 0
    assert bounds[-1][1] == 1797
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))


def test_every_split_has_its_own_fingerprint() -> None:
    prints = {DigitsSource(q, split).fingerprint() for q in TRAIN_ROWS for split in IMAGES}
    assert len(prints) == 9


def test_every_label_occurs_in_every_split(rows: dict) -> None:
    for (question, _), found in rows.items():
        assert {row.label for row in found} == set(find(f"digits/{question}").kind.labels)


def test_the_larger_digit_is_on_the_side_that_the_label_says() -> None:
    """The left corner shows the left digit alone, so that its image can be looked up."""
    from sklearn.datasets import load_digits

    loaded = load_digits()
    corner = np.round(loaded.images * (255 / 16)).astype(np.uint8)
    for row in list(DigitsSource("larger", "train").rows())[:50]:
        left = (corner[:, :3] == row.pixels[:3, :8]).all(axis=(1, 2))
        left &= (corner[:, :, :3] == row.pixels[:8, :3]).all(axis=(1, 2))
        right = (corner[:, 5:] == row.pixels[8:11, 3:11]).all(axis=(1, 2))
        right &= (corner[:, :, 5:] == row.pixels[3:11, 8:11]).all(axis=(1, 2))
        pairs = [(a, b) for a in loaded.target[left] for b in loaded.target[right] if a != b]
        assert any((a > b) == (row.label == "left") for a, b in pairs)


def test_pictures_are_laid_over_each_other_by_their_maximum() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.integers(256, size=(2, 5, 8, 8), dtype=np.uint8)
    laid = overlay(left, right, shift=3, canvas=12)
    for picture, a, b in zip(laid, left, right, strict=True):
        for i in range(12):
            for j in range(12):
                first = a[i, j] if i < 8 and j < 8 else 0
                second = b[i - 3, j - 3] if 3 <= i < 11 and 3 <= j < 11 else 0
                assert picture[i, j] == max(first, second)
