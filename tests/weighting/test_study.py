"""The MultiMNIST study, on pictures small enough to learn in a moment."""

from pathlib import Path

import pytest
import torch

from taskmix.rng import stream
from taskmix.studies.multimnist import (
    METHODS,
    Data,
    Pairs,
    Setting,
    read_pairs,
    trained,
)
from taskmix.studies.target_results import TargetResult, TargetResults, paired, table


def bars(count, name):
    """Bright bars: the left label says in which row, the right label in which column."""
    labels = torch.from_numpy(stream(1, "bars", name).integers(10, size=(count, 2)))
    images = torch.zeros(count, 28, 28)
    for image, (row, column) in zip(images, labels.tolist(), strict=True):
        image[2 * row + 4 : 2 * row + 6] = 1
        image[:, 2 * column + 4 : 2 * column + 6] = 1
    return Pairs(images, labels)


DATA = Data(bars(96, "train"), bars(32, "dev"), bars(32, "test"))
SETTING = Setting(epochs=2, batch=32)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_repeats_itself(method):
    first, second = (trained(method, ["left"], 1, DATA, SETTING)[0] for _ in range(2))
    assert (first.dev, first.test, first.weights) == (second.dev, second.test, second.weights)
    assert all(sum(row) == pytest.approx(1) for row in first.weights)
    assert 1 <= first.epoch <= 2


def test_seeds_differ():
    scores = {trained("multi", ["left"], seed, DATA, SETTING)[0].dev for seed in (1, 2, 3)}
    assert len(scores) > 1


def test_joint_training_keeps_the_best_snapshot_for_each_target():
    seen = []
    both = trained(
        "multi", ["left", "right"], 1, DATA, Setting(4, 32), lambda _, scores: seen.append(scores)
    )
    for outcome in both:
        assert outcome.dev == max(scores[outcome.target] for scores in seen)


def test_an_outcome_goes_through_its_file(tmp_path: Path):
    outcome = trained("alpha_vil", ["right"], 1, DATA, SETTING)[0]
    outcome.save(tmp_path / "one.json")
    assert TargetResult.load(tmp_path / "one.json") == outcome


def test_what_is_there_is_not_run_again_and_joint_training_serves_all_targets(tmp_path: Path):
    store = TargetResults(tmp_path)
    ask = ["single", "multi"], ["a/b", "c"]
    assert store.left(*ask, [1]) == [
        ("single", ("a/b",), 1),
        ("single", ("c",), 1),
        ("multi", ("a/b", "c"), 1),
    ]
    for method, target, seed in [("multi", "c", 1), ("single", "a/b", 2), ("single", "a/b", 1)]:
        store.save(TargetResult(method, target, seed, 0.5, 0.5, 1, [], [], 0.0))
    assert store.left(*ask, [1]) == [("single", ("c",), 1), ("multi", ("a/b",), 1)]
    found = [(o.method, o.target, o.seed) for o in store.load(*ask)]
    assert found == [("single", "a/b", 1), ("single", "a/b", 2), ("multi", "c", 1)]


def test_the_table_pairs_seeds():
    def outcome(method, seed, test):
        return TargetResult(method, "left", seed, test, test, 1, [], [], 0.0)

    text = table(
        [outcome("multi", seed, 0.90 + seed / 100) for seed in (1, 2, 3)]
        + [outcome("diw", seed, 0.92 + seed / 100 + seed / 1000) for seed in (1, 2, 3)]
    )
    row = next(line for line in text.splitlines() if "| test | diw" in line)
    # By hand: gaps of 2.1, 2.2 and 2.3 points, so t = 2.2 / (0.1 / √3) = 38.1 and p = 0.0007.
    assert row == "| left | test | diw | 3 | 93.10 | 95.30 | 94.20 | 1.10 | +2.20 | 0.0007 |"


def test_two_methods_are_compared_over_the_pairs_that_both_have():
    def outcome(method, target, seed, dev, test):
        return TargetResult(method, target, seed, dev, test, 1, [], [], 0.0)

    found = [
        outcome("diw", "a", 1, 0.8, 0.51),
        outcome("diw", "a", 2, 0.8, 0.62),
        outcome("diw", "b", 1, 0.8, 0.93),
        outcome("diw", "b", 2, 0.8, 0.99),  # the other has none
        outcome("multi", "b", 1, 0.9, 0.90),
        outcome("multi", "a", 2, 0.9, 0.60),
        outcome("multi", "a", 1, 0.9, 0.50),
    ]
    gap, p = paired(found, "diw", "multi")
    # By hand: gaps of 1, 2 and 3 points, so t = 2 / (1 / √3) = 3.464 with 2 degrees of freedom.
    assert gap == pytest.approx(0.02)
    assert p == pytest.approx(0.0742, abs=1e-4)
    assert paired(found, "multi", "diw")[0] == pytest.approx(-0.02)
    gap, _ = paired(found, "diw", "multi", lambda o: o.dev - o.test)
    assert gap == pytest.approx(-0.12)


def test_both_digits_of_real_pairs_are_read_from_the_same_picture(data: Path):
    pairs = read_pairs(data / "mnist", "dev", 20)
    assert pairs.images.shape == (20, 28, 28)
    assert pairs.labels.shape == (20, 2)
    assert float(pairs.images.min()) == pytest.approx(-0.1307 / 0.3081, rel=1e-4)
