"""The estimated gain of learned policies where no policy can gain: on the same log, cross-fitted.

    python -m experiments.coverage.promises [--logs 200] [--table]

Finished rows are not simulated again. The table goes to `promises.md`.
"""

import os
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from experiments.shared import Outcomes, command_line, markdown, publish
from taskmix.offpolicy import (
    Course,
    Estimate,
    FarPolicyWarning,
    Log,
    SmallSampleWarning,
    estimate,
    estimate_improved,
    improve,
)
from taskmix.rng import stream

TASKS = (20, 50)
WEIGHTS: tuple[float | Literal["auto"], ...] = ("auto", 0.25, 0.1, 0.05)


@dataclass(frozen=True)
class Promise:
    """The estimates of learned policies where all tasks have the same mean reward.

    Args:
        gain: how far the estimate is above the true value, on the mean over logs.
        covered: the share of logs whose 95% interval covers the true value.
    """

    gain: float
    covered: float


def promises(
    tasks: int, entropy_weight: float | Literal["auto"], logs: int, steps: int = 1000, seed: int = 1
) -> tuple[Promise, Promise]:
    """Learn policies from logs; estimate them from the same log, and cross-fitted."""
    rng = stream(seed, "alike", tasks)
    names = [f"task{k}" for k in range(tasks)]
    found: tuple[list[Estimate], list[Estimate]] = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallSampleWarning)
        warnings.simplefilter("ignore", FarPolicyWarning)
        for _ in range(logs):
            course = Course(np.zeros(1, dtype=np.int64), np.full((1, tasks), 1 / tasks))
            log = Log(names, rng.integers(0, tasks, steps), course, rng.random(steps))
            found[0].append(estimate(log, improve(log, entropy_weight)))
            found[1].append(estimate_improved(log, entropy_weight))
    return _promise(found[0], 0.5), _promise(found[1], 0.5)


def _promise(estimates: Sequence[Estimate], truth: float) -> Promise:
    gain = float(np.mean([found.value - truth for found in estimates]))
    intervals = [found.interval for found in estimates if found.interval is not None]
    covered = float(np.mean([low <= truth <= high for low, high in intervals]))
    return Promise(gain, covered)


def name_of(tasks: int, weight: float | str) -> str:
    return f"promise-{tasks}-{weight}"


def table(outcomes: Outcomes) -> str:
    rows = []
    for tasks in TASKS:
        for weight in WEIGHTS:
            if name_of(tasks, weight) in outcomes:
                values = outcomes[name_of(tasks, weight)]
                pair = [Promise(**values[key]) for key in ("fitted", "crossed")]
                cells = [f"{promise.gain:+.3f}, {promise.covered:.0%}" for promise in pair]
                rows.append([str(tasks), str(weight), *cells])
    by = "by the log learned from: gain, covered"
    return markdown(["tasks", "λ", by, "cross-fitted: gain, covered"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--logs", type=int, default=200)
    options = parser.parse_args(arguments)
    for tasks in () if options.table else TASKS:
        for weight in WEIGHTS:
            if name_of(tasks, weight) not in options.outcomes:
                fitted, crossed = promises(tasks, weight, options.logs)
                values = {
                    "logs": options.logs,
                    "fitted": asdict(fitted),
                    "crossed": asdict(crossed),
                }
                options.outcomes.add(name_of(tasks, weight), values)
    publish(options.outcomes, table(options.outcomes), "promises.md")


if __name__ == "__main__":
    main()
