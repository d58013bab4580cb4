"""The MultiMNIST study, on pictures small enough to learn in a moment."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from experiments.multimnist.study import METHODS, TARGETS, Setting, run_study, task_name
from experiments.shared import Outcomes
from experiments.targets import TargetResult, TargetResults, paired, table
from taskmix.rng import stream
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.rows import ImageRow
from taskmix.tasks.task import Task

SETTING = Setting(epochs=2, pairs=90, dev=30, batch=32)


@dataclass(frozen=True)
class Bars:
    """Bright bars: the left label says in which row, the right label in which column."""

    side: str
    split: str
    count: int

    @property
    def where(self) -> str:
        return f"{self.side}, {self.split}"

    def rows(self) -> Iterator[ImageRow]:
        labels = stream(1, "bars", self.split).integers(10, size=(self.count, 2))
        for at, (row, column) in enumerate(labels.tolist(), 1):
            pixels = np.zeros((28, 28), dtype=np.uint8)
            pixels[2 * row + 4 : 2 * row + 6] = 255
            pixels[:, 2 * column + 4 : 2 * column + 6] = 255
            yield ImageRow(at, pixels, str(row if self.side == "left" else column))

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return repr(self)


SIZES = {"train": 96, "dev": 32, "test": 32}
TASKS = [
    Task(
        task_name(side),
        Classify(tuple("0123456789")),
        {split: Bars(side, split, count) for split, count in SIZES.items()},
        (ACCURACY,),
    )
    for side in TARGETS
]


def outcome_of(method: str, folder: Path, seed: int = 1, setting: Setting = SETTING):
    return run_study(method, "left", seed, setting, folder, TASKS, folder.parent / "cache")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_and_repeats_itself(method, tmp_path: Path):
    first, second = (outcome_of(method, tmp_path / name) for name in ("one", "two"))
    assert (first.dev, first.test, first.weights) == (second.dev, second.test, second.weights)
    assert all(sum(row) == pytest.approx(1) for row in first.weights)
    assert 1 <= first.epoch <= 2


def test_seeds_differ(tmp_path: Path):
    setting = Setting(epochs=6, pairs=90, dev=30, batch=32)
    found = [outcome_of("multi", tmp_path / str(seed), seed, setting) for seed in (1, 2, 3)]
    assert len({(outcome.dev, outcome.test) for outcome in found}) > 1


def test_an_outcome_goes_through_its_file(tmp_path: Path):
    outcome = outcome_of("alpha_vil", tmp_path / "run")
    results = TargetResults(Outcomes(tmp_path / "outcomes.jsonl"), "0.05/", {"lr": 0.05})
    results.add(outcome)
    assert results.load(["alpha_vil"], TARGETS) == [outcome]
    assert outcome_of("alpha_vil", tmp_path / "run") == outcome  # the run is finished


def test_what_is_there_is_not_run_again_and_joint_training_serves_all_targets(tmp_path: Path):
    store = TargetResults(Outcomes(tmp_path / "outcomes.jsonl"))
    ask = ["single", "multi"], ["a/b", "c"]
    assert store.missing(*ask, [1]) == [
        ("single", ("a/b",), 1),
        ("single", ("c",), 1),
        ("multi", ("a/b", "c"), 1),
    ]
    for method, target, seed in [("multi", "c", 1), ("single", "a/b", 2), ("single", "a/b", 1)]:
        store.add(TargetResult(method, target, seed, 0.5, 0.5, 1, [], [], 0.0))
    assert store.missing(*ask, [1]) == [("single", ("c",), 1), ("multi", ("a/b",), 1)]
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


def test_real_pairs_are_learned_by_the_words_of_a_run_file(data: Path, tmp_path: Path):
    setting = Setting(epochs=1, pairs=200, dev=50, data=str(data))
    outcome = run_study("multi", "right", 1, setting, tmp_path / "run", cache=tmp_path)
    assert 0 < outcome.test < 1
    assert outcome.weights == [[0.5, 0.5]]
