"""Table 2 of Kourdis et al. (2020) in our numbers: five language tasks, each the target in turn.

    python scripts/five_nlu.py --out OUTCOMES

TASKMIX_DATA names the folder of the official data sets. Every finished run is a JSON file in
OUTCOMES and is not run again, an unfinished one is resumed; the tables are printed from what is
there.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # start one a core, each with seeds of its own

from taskmix.config import RunConfig, changed, load
from taskmix.journal import Evaluation, Round, read
from taskmix.studies.target_results import TargetResult, TargetResults, paired, table
from taskmix.training import checkpoints
from taskmix.training.evaluation import baseline
from taskmix.training.folder import CHECKPOINTS, JOURNAL, MODEL, RUN
from taskmix.training.inference import load_run
from taskmix.training.prepare import read_split, resolve, tokenizer_of
from taskmix.training.run import resume_run, run

FILE = Path(__file__).parent.parent / "examples" / "five-nlu.yaml"
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--table", action="store_true", help="only print what is there")
    return parser.parse_args()


def names(config: RunConfig) -> list[str]:
    return [entry if isinstance(entry, str) else entry["name"] for entry in config.tasks]


def play(config: RunConfig, method: str, targets: Sequence[str], seed: int, folder: Path) -> None:
    """The run in its folder: begun, gone on with, or found finished."""
    weighting = METHODS[method] | {"target": targets[0], "fraction": SHARE}
    values = {"weighting": weighting, "seed": seed, "name": folder.name}
    if len(targets) > 1:  # every snapshot may be the best for somebody
        values["checkpoint"] = {"every": 1, "keep": config.budget.rounds}
    if (folder / RUN).exists():
        resume_run(folder)
    else:
        run(changed(config, values, method), folder)


def best_steps(folder: Path, targets: Sequence[str]) -> dict[str, int]:
    """By target, the round after which it scored best on its dev set; of equal ones the first."""
    scored = [record for record in read(folder / JOURNAL) if isinstance(record, Evaluation)]
    return {
        target: max(scored, key=lambda record: (record.scores[target], -record.step)).step
        for target in targets
    }


def judged(folder: Path, method: str, targets: Sequence[str], seed: int) -> Iterator[TargetResult]:
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
    lines = [f"| method | {' | '.join(targets)} | mean |", "|---" * (len(targets) + 2) + "|"]
    for method in METHODS:
        cells, means = [], []
        for target in targets:
            of = [o for o in found if (o.method, o.target) == (method, target)]
            both = [[100 * o.dev for o in of], [100 * o.test for o in of]]
            cells.append(" / ".join(figure(scores) for scores in both))
            means += [[mean(scores) for scores in both]] if of else []
        columns = zip(*means, strict=True) if len(means) == len(targets) else []
        total = " / ".join(f"{mean(column):.1f}" for column in columns) or "-"
        lines.append(f"| {method} | {' | '.join(cells)} | {total} |")
    return "\n".join(lines)


def figure(scores: Sequence[float]) -> str:
    spread = f" ± {stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{mean(scores):.1f}{spread}" if scores else "-"


def guesses(config: RunConfig) -> dict[str, float]:
    """By task, the test score of predicting without looking."""
    tasks = resolve(config)
    tokenizer = tokenizer_of(tasks, config.model)
    found = {}
    for task in tasks:
        train, test = (read_split(task, name, tokenizer) for name in ("train", "test"))
        found[task.name] = mean(baseline(task, train.items, test).values())
    return found


def rules(found: Sequence[TargetResult], guessed: Mapping[str, float]) -> Iterator[str]:
    """What became of the rules in docs/results.md."""
    for target, guess in guessed.items():
        by_method = {
            method: [100 * o.test for o in found if (o.method, o.target) == (method, target)]
            for method in METHODS
        }
        method, scores = max(by_method.items(), key=lambda pair: mean(pair[1]))
        gap, error = mean(scores) - 100 * guess, stdev(scores) / len(scores) ** 0.5
        yield (
            f"1. {target}: guessing {100 * guess:.1f}, best {method} {mean(scores):.1f}, "
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


def main() -> None:
    options = arguments()
    config = load(FILE)
    targets = names(config)
    options.out.mkdir(parents=True, exist_ok=True)
    outcomes, began = TargetResults(options.out), time.monotonic()
    todo = [] if options.table else outcomes.left(options.methods, targets, options.seeds)
    for done, (method, left, seed) in enumerate(todo, 1):
        folder = options.out / "runs" / outcomes.place(method, left[0], seed).stem
        play(config, method, left, seed, folder)
        for outcome in judged(folder, method, left, seed):
            outcomes.save(outcome)
            minutes = (time.monotonic() - began) / 60
            scores = f"dev {100 * outcome.dev:.1f} test {100 * outcome.test:.1f}"
            what = f"{method} {outcome.target} seed {seed}: {scores} (round {outcome.epoch})"
            print(f"[{done}/{len(todo)}, {minutes:.1f} min] {what}", file=sys.stderr, flush=True)
        for heavy in (CHECKPOINTS, MODEL):
            shutil.rmtree(folder / heavy)
    found = outcomes.load(list(METHODS), targets)
    print(short_table(found, targets))
    print()
    print(table(found))
    if not outcomes.left(list(METHODS), targets, options.seeds):
        print()
        print(*rules(found, guesses(config)), sep="\n")


if __name__ == "__main__":
    main()
