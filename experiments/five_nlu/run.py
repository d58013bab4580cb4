"""Table 2 of Kourdis et al. (2020) in our numbers: five language tasks, each the target in turn.

    python -m experiments.five_nlu.run [--table]

TASKMIX_DATA names the folder of the official data sets. Finished outcomes are not made again; an
unfinished run is resumed. Start one process a core, each with seeds of its own.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from experiments.shared import (
    EXAMPLES,
    Outcomes,
    add_sets,
    command_line,
    markdown,
    publish,
    spread,
)
from experiments.targets import TargetResult, TargetResults, paired
from experiments.targets import table as long_table
from taskmix import RunConfig, run
from taskmix.config import changed, load
from taskmix.journal import Evaluation, Round, read
from taskmix.training import checkpoints
from taskmix.training.evaluation import baseline
from taskmix.training.folder import CHECKPOINTS, JOURNAL, MODEL
from taskmix.training.inference import load_run
from taskmix.training.prepare import read_split

FILE = EXAMPLES / "five-nlu.yaml"
SHARE = 0.25  # the paper's
LETTER = {
    "weights_on": "loss",
    "split_dev": False,
    "tuner": {"name": "descent", "lr": 0.001, "batch": 32},
}
METHODS: dict[str, dict[str, Any]] = {
    "single": {"name": "single"},
    "multi": {"name": "joint"},
    "alpha_vil": {"name": "alpha_vil"},
    "alpha_vil_paper": {"name": "alpha_vil", **LETTER},
    "diw": {"name": "diw", "tries": 3},
}


def names(config: RunConfig) -> list[str]:
    return config.task_names


def train(config: RunConfig, method: str, targets: Sequence[str], seed: int, folder: Path) -> None:
    """Run, or go on with the run in the folder."""
    weighting = METHODS[method] | {"target": targets[0], "fraction": SHARE}
    values = {"weighting": weighting, "seed": seed, "name": folder.name}
    if len(targets) > 1:  # each snapshot may be the best for one of the targets
        values["checkpoint"] = {"every": 1, "keep": config.budget.rounds}
    run(changed(config, values, method), folder, resume=True)


def best_steps(folder: Path, targets: Sequence[str]) -> dict[str, int]:
    """By target, the round after which it scored best on its dev set; of equal ones the first."""
    scored = [record for record in read(folder / JOURNAL) if isinstance(record, Evaluation)]
    return {
        target: max(scored, key=lambda record: (record.scores[target], -record.step)).step
        for target in targets
    }


def evaluated(
    folder: Path, method: str, targets: Sequence[str], seed: int
) -> Iterator[TargetResult]:
    """Yield the scores of the best snapshot for each target."""
    rounds = [record for record in read(folder / JOURNAL) if isinstance(record, Round)]
    trained = load_run(folder)
    for target, step in best_steps(folder, targets).items():
        snapshot = checkpoints.load(folder / CHECKPOINTS / f"step-{step}")
        trained.model.load_state_dict(snapshot.model)
        alone = replace(trained, tasks={target: trained.task(target)})
        yield TargetResult(
            method=method,
            target=target,
            seed=seed,
            dev=alone.evaluate("dev")[target].score,
            test=alone.evaluate("test")[target].score,
            epoch=step,
            alphas=[list(record.alphas.values()) for record in rounds],
            weights=[shares(record.weights) for record in rounds],
            seconds=round(sum(record.seconds or 0 for record in rounds), 1),
        )


def shares(weights: Mapping[str, float]) -> list[float]:
    total = sum(weights.values())
    return [weight / total for weight in weights.values()]


def short_table(found: Sequence[TargetResult], targets: Sequence[str]) -> str:
    """Methods against targets: mean and standard deviation over seeds, dev / test, in percent."""
    rows = []
    for method in METHODS:
        cells, means = [], []
        for target in targets:
            of = [o for o in found if (o.method, o.target) == (method, target)]
            both = [[100 * o.dev for o in of], [100 * o.test for o in of]]
            cells.append(" / ".join(spread(scores) for scores in both))
            means += [[mean(scores) for scores in both]] if of else []
        columns = zip(*means, strict=True) if len(means) == len(targets) else []
        total = " / ".join(f"{mean(column):.1f}" for column in columns) or "-"
        rows.append([method, *cells, total])
    return markdown(["method", *targets, "mean"], rows)


def add_baselines(outcomes: Outcomes, folder: Path) -> None:
    """Store the test score of the majority class of the training rows, by task."""
    trained = load_run(folder)
    for name, task in trained.tasks.items():
        if f"baseline-{name}" not in outcomes:
            train, test = (
                read_split(task, split, trained.tokenizer) for split in ("train", "test")
            )
            outcomes.add(f"baseline-{name}", {"baseline": baseline(task, train.items, test)})


def rules(found: Sequence[TargetResult], baselines: Mapping[str, float]) -> Iterator[str]:
    """Yield what became of each rule in the README."""
    for target, guess in baselines.items():
        by_method = {
            method: [100 * o.test for o in found if (o.method, o.target) == (method, target)]
            for method in METHODS
        }
        method, scores = max(by_method.items(), key=lambda pair: mean(pair[1]))
        gap, error = mean(scores) - 100 * guess, stdev(scores) / len(scores) ** 0.5
        yield (
            f"1. {target}: majority class {100 * guess:.1f}, best {method} {mean(scores):.1f}, "
            f"{gap:+.1f} with a standard error of {error:.1f}: "
            f"{'learned' if gap > 2 * error else 'not learned'}"
        )
    for number, method, against, what, value in (
        (2, "alpha_vil", "multi", "test", lambda o: 100 * o.test),
        (2, "alpha_vil_paper", "multi", "test", lambda o: 100 * o.test),
        (3, "diw", "alpha_vil", "dev - test", lambda o: 100 * (o.dev - o.test)),
        (3, "diw", "alpha_vil_paper", "dev - test", lambda o: 100 * (o.dev - o.test)),
    ):
        gap, p = paired(found, method, against, value)
        yield f"{number}. {what}, {method} less {against}: {gap:+.2f}, p {p:.3f}"


def table(outcomes: Outcomes) -> str:
    targets = names(load(FILE))
    results = TargetResults(outcomes).load(list(METHODS), targets)
    parts = [short_table(results, targets), long_table(results)]
    baselines = {n.removeprefix("baseline-"): v["baseline"] for n, v in outcomes.items("baseline-")}
    complete = {(m, t) for m in METHODS for t in targets} == {(o.method, o.target) for o in results}
    if complete and min(o.seed for o in results) < max(o.seed for o in results):
        in_order = {target: baselines[target] for target in targets}
        parts.append("\n".join(f"- {line}" for line in rules(results, in_order)))
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add_sets(parser)
    options = parser.parse_args(arguments)
    config = load(FILE, options.sets, os.environ.get("TASKMIX_DATA"))
    targets = names(config)
    results, began = TargetResults(options.outcomes), time.monotonic()
    jobs = [] if options.table else results.missing(options.methods, targets, options.seeds)
    for number, (method, targets_of_run, seed) in enumerate(jobs, 1):
        folder = options.runs / results.name(method, targets_of_run[0], seed)
        train(config, method, targets_of_run, seed, folder)
        add_baselines(options.outcomes, folder)
        for result in evaluated(folder, method, targets_of_run, seed):
            results.add(result)
            minutes = (time.monotonic() - began) / 60
            scores = f"dev {100 * result.dev:.1f} test {100 * result.test:.1f}"
            line = f"{method} {result.target} seed {seed}: {scores} (round {result.epoch})"
            print(f"[{number}/{len(jobs)}, {minutes:.1f} min] {line}", file=sys.stderr, flush=True)
        for heavy in (CHECKPOINTS, MODEL):
            shutil.rmtree(folder / heavy)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
