"""What runs for the sake of one target came to: stored one by one, put beside each other."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from taskmix.files import write_whole

JOINT = "multi"
"""The method that favours nobody: one run of it serves all targets."""

Job = tuple[str, tuple[str, ...], int]
"""A run: method, targets, seed."""


@dataclass(frozen=True)
class TargetResult:
    """What a run came to, with the snapshot that was best on the dev set.

    Args:
        method: its name.
        target: the task that counts.
        seed: of the weights and the order.
        dev: accuracy on all of the dev set.
        test: accuracy on the test set.
        epoch: or round of the best snapshot, counted from 1.
        alphas: by epoch, α of each task.
        weights: by epoch, share of each task in the weights.
        seconds: how long it took.
    """

    method: str
    target: str
    seed: int
    dev: float
    test: float
    epoch: int
    alphas: list[list[float]]
    weights: list[list[float]]
    seconds: float

    def save(self, path: Path) -> None:
        """Write it aside, then put it in place."""
        write_whole(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> "TargetResult":
        """Read what `save` wrote."""
        return cls(**json.loads(path.read_text()))


@dataclass(frozen=True)
class TargetResults:
    """A folder of outcomes, a JSON file each: what is there is not run again."""

    folder: Path

    def place(self, method: str, target: str, seed: int) -> Path:
        """Return where an outcome is kept."""
        return self.folder / f"{method}-{target.replace('/', '-')}-{seed}.json"

    def left(
        self, methods: Sequence[str], targets: Sequence[str], seeds: Sequence[int]
    ) -> list[Job]:
        """Return the runs that are missing, seed by seed."""
        todo: list[Job] = []
        for seed in seeds:
            for method in methods:
                missing = [t for t in targets if not self.place(method, t, seed).exists()]
                runs = [tuple(missing)] if method == JOINT else [(t,) for t in missing]
                todo += [(method, each, seed) for each in runs if each]
        return todo

    def save(self, outcome: TargetResult) -> None:
        """Keep an outcome."""
        outcome.save(self.place(outcome.method, outcome.target, outcome.seed))

    def load(self, methods: Sequence[str], targets: Sequence[str]) -> list[TargetResult]:
        """Return what is there, in this order of targets and methods, by seed."""
        there = [TargetResult.load(path) for path in self.folder.glob("*.json")]
        return sorted(
            there, key=lambda o: (targets.index(o.target), methods.index(o.method), o.seed)
        )


def paired(
    outcomes: Sequence[TargetResult],
    method: str,
    against: str,
    value: Callable[[TargetResult], float] = lambda outcome: outcome.test,
) -> tuple[float, float]:
    """Return how far a method lies above another over all pairs of target and seed: mean and p.

    A paired t-test, two-sided.

    Args:
        outcomes: of several methods, targets and seeds.
        method: one method.
        against: the other.
        value: what counts of an outcome.
    """
    ours, theirs = (
        {(o.target, o.seed): value(o) for o in outcomes if o.method == name}
        for name in (method, against)
    )
    gaps = np.array([ours[pair] - theirs[pair] for pair in sorted(ours.keys() & theirs.keys())])
    return float(gaps.mean()), float(stats.ttest_1samp(gaps, 0.0).pvalue)


def table(outcomes: Sequence[TargetResult], against: str = JOINT) -> str:
    """Min, max, mean, standard deviation over seeds in percent and a paired t-test, as Markdown.

    Args:
        outcomes: of several methods, targets and seeds; targets and methods keep their order.
        against: the method that the others are tested against, seed by seed.
    """
    targets = dict.fromkeys(outcome.target for outcome in outcomes)
    methods = dict.fromkeys(outcome.method for outcome in outcomes)
    head = "| target | split | method | seeds | min | max | mean | std | mean - {} | p |"
    lines = [head.format(against), "|---|---|---|---|---|---|---|---|---|---|"]
    for target in targets:
        for split in ("dev", "test"):
            base = _scores(outcomes, against, target, split)
            for method in methods:
                scores = _scores(outcomes, method, target, split)
                if scores:
                    lines.append(f"| {target} | {split} | {method} | {_row(scores, base)} |")
    return "\n".join(lines)


def _scores(
    outcomes: Sequence[TargetResult], method: str, target: str, split: str
) -> dict[int, float]:
    """By seed, in percent."""
    return {
        o.seed: 100 * (o.dev if split == "dev" else o.test)
        for o in outcomes
        if (o.method, o.target) == (method, target)
    }


def _row(scores: Mapping[int, float], base: Mapping[int, float]) -> str:
    values = np.array(list(scores.values()))
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    figures = [f"{x:.2f}" for x in (values.min(), values.max(), values.mean(), spread)]
    both = sorted(scores.keys() & base.keys())
    gaps = np.array([scores[seed] - base[seed] for seed in both])
    test = ["", ""]
    if len(gaps) > 1 and gaps.std() > 0:
        test = [f"{gaps.mean():+.2f}", f"{stats.ttest_1samp(gaps, 0.0).pvalue:.4f}"]
    return " | ".join([str(len(values)), *figures, *test])
