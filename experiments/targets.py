"""The results of weightings that serve one target task, and the tables that compare them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields

import numpy as np
from scipy import stats

from experiments.shared import Outcomes

JOINT = "multi"
"""Joint training favours no task: one run of it serves all targets."""

Job = tuple[str, tuple[str, ...], int]
"""A run: method, targets, seed."""


@dataclass(frozen=True)
class TargetResult:
    """The scores of the snapshot of a run that was best on the target's dev set.

    Args:
        method: the name of the weighting.
        target: the target task.
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


@dataclass(frozen=True)
class TargetResults:
    """The results in a file of outcomes, some of them under a prefix of their own.

    Args:
        outcomes: the file.
        prefix: of the names; for runs with other settings.
        settings: stored with each result.
    """

    outcomes: Outcomes
    prefix: str = ""
    settings: Mapping[str, float] = field(default_factory=dict)

    def name(self, method: str, target: str, seed: int) -> str:
        return f"{self.prefix}{method}-{target.replace('/', '-')}-{seed}"

    def missing(
        self, methods: Sequence[str], targets: Sequence[str], seeds: Sequence[int]
    ) -> list[Job]:
        """Return the runs that are missing, seed by seed."""
        jobs: list[Job] = []
        for seed in seeds:
            for method in methods:
                missing = [t for t in targets if self.name(method, t, seed) not in self.outcomes]
                runs = [tuple(missing)] if method == JOINT else [(t,) for t in missing]
                jobs += [
                    (method, targets_of_run, seed) for targets_of_run in runs if targets_of_run
                ]
        return jobs

    def add(self, result: TargetResult) -> None:
        name = self.name(result.method, result.target, result.seed)
        self.outcomes.add(name, {**self.settings, **asdict(result)})

    def load(self, methods: Sequence[str], targets: Sequence[str]) -> list[TargetResult]:
        """Return the results of these methods in this order of targets and methods, by seed."""
        keys = {each.name for each in fields(TargetResult)}
        results = [
            TargetResult(**{key: value for key, value in values.items() if key in keys})
            for _, values in self.outcomes.items(self.prefix)
            if values.get("method") in methods
        ]
        return sorted(
            results, key=lambda o: (targets.index(o.target), methods.index(o.method), o.seed)
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
