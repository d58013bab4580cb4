"""What a mixture is worth: the best fixed shares of a suite, and policies beside what people guess.

    python scripts/mixtures.py headroom SUITE --runs studies/mixtures --out docs/outcomes/mixtures
    python scripts/mixtures.py compare SUITE --runs studies/mixtures --out docs/outcomes/mixtures
    python scripts/mixtures.py table --out docs/outcomes/mixtures

BURSAR_DATA names the folder of the official data sets. What is finished is not run again; a run
that was killed goes on. Start one a core, with suites or seeds of its own.

The suites, each with an objective over some of its tasks:

- `text`: the twelve domains of examples/text-domains.yaml, eight of which count. Policies and their
  options were chosen here, with seed 1.
- `text-three`: the same domains, of which three count: science, wikipedia and linguistics.
- `nli`: SNLI and SciTail count, with five auxiliaries of unknown worth, one of them SNLI's own
  examples with permuted labels. MiniLM with three layers, 400 steps of 16.
- `fifty`: ten data sets cut into five slices of 100 to 500 examples; the smallest slices of five of
  them count, so that the other slices of these may help. MiniLM with three layers, 400 steps of 16.

`headroom` searches for the best fixed shares with one seed: uniform draws, task sizes and the
contestants' shares first, then Gaussian-process search (bursar.search.GPHedgeSampler) over the
logarithms of the weights. The best of them is run again with two other seeds, so that luck in the
search is not taken for headroom.

`compare` runs the contestants with five seeds at equal compute. The rule, written before the runs:
`aimed`, with its defaults, is above the best of uniform, task sizes, temperature 2 and temperature
5 on the suite's objective in `text-three`, `nli` and `fifty`, paired over the seeds, p < 0.05
(t-test, not corrected: it is one comparison), and gets at least half of the headroom. A rule that
does not hold is reported as not held.
"""

import argparse
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from bursar.config import RunConfig, build_decider, changed, load, parse
from bursar.files import write_whole
from bursar.policies import Policy
from bursar.policies.base import in_order
from bursar.rng import stream
from bursar.studies.paired import (
    LOSSES,
    SCORES,
    Unit,
    differences,
    interval_words,
    p_words,
)
from bursar.training.folder import RUN
from bursar.training.prepare import resolve, run_info_before
from bursar.training.run import resume_run, run

EXAMPLES = Path(__file__).parent.parent / "examples"
GUESSES: dict[str, dict[str, Any]] = {
    "uniform": {"name": "random"},
    "task sizes": {"name": "task_size"},
    "temperature 2": {"name": "temperature", "temperature": 2},
    "temperature 5": {"name": "temperature", "temperature": 5},
}
CONTESTANTS = {**GUESSES, "aimed": {"name": "aimed"}}
SEEDS = (11, 12, 13, 14, 15)
SEARCH_SEED, CHECK_SEEDS = 101, (102, 103)
SMALL = {
    "model": {"encoder": "minilm", "layers": 3, "freeze": 1, "max_length": 64},
    "budget": {"steps": 400, "batch": 16},
    "optimizer": {"lr": 1.0e-4, "head_factor": 10},
    "evaluate": {"every": 400, "examples": 500, "keep": "last"},
    "precision": "bfloat16",
}
AUXILIARIES = ("glue/mnli", "glue/qnli", "glue/cola", "glue/sst2")
GLUE = ("cola", "sst2", "mrpc", "stsb", "rte", "qnli", "mnli", "qqp")
SLICED = (*(f"glue/{name}" for name in GLUE), "snli", "scitail")
TARGETS = ("glue/sst2", "glue/mrpc", "glue/qnli", "glue/qqp", "snli")
SLICES = (100, 200, 300, 400, 500)
DEV_ROWS, UNSCORED_ROWS = 200, 20


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Args:
        suite: its suite.
        arm: who decided.
        seed: of the run.
        objective: the value of the suite's objective; higher is better.
        tasks: by task, its dev score, or its loss with the sign turned where these count.
        shares: by task, the part of the draws; empty where a policy decided.
        passed: examples that passed forward and backward.
        seconds: that it took.
    """

    suite: str
    arm: str
    seed: int
    objective: float
    tasks: dict[str, float]
    shares: dict[str, float]
    passed: int
    seconds: float


def text(made: Path) -> RunConfig:
    """The example's domains and objective."""
    return load(EXAMPLES / "text-domains.yaml", [], os.environ["BURSAR_DATA"])


def text_three(made: Path) -> RunConfig:
    """The same, with three domains that count."""
    scored = ["text/science", "text/wikipedia", "text/linguistics"]
    return changed(text(made), {"objective": {"loss": scored}}, "text-three")


def nli(made: Path) -> RunConfig:
    """Two targets, four auxiliaries of unknown worth, and one that is worth nothing."""
    source = _catalogue("snli")
    rows = [*islice(_rows(source, "train"), 20_000)], [*islice(_rows(source, "dev"), 500)]
    labels = [row["label"] for row in rows[0]]
    order = stream(1, "permuted").permutation(len(labels)).tolist()
    permuted = [row | {"label": labels[place]} for row, place in zip(rows[0], order, strict=True)]
    tasks: list[Any] = ["snli", "scitail", *AUXILIARIES]
    tasks.append(_own("permuted", made, permuted, rows[1]))
    return _small({"tasks": tasks, "objective": ["snli", "scitail"]})


def fifty(made: Path) -> RunConfig:
    """Slices of ten data sets, five of which count."""
    tasks: list[Any] = []
    scored = [f"{name.removeprefix('glue/')}-{min(SLICES)}" for name in TARGETS]
    for name in SLICED:
        source = _catalogue(name)
        train = _rows(source, "train")
        dev = [*islice(_rows(source, "dev"), DEV_ROWS)]
        kind = "regress" if name == "glue/stsb" else "classify"
        for count in SLICES:
            title = f"{name.removeprefix('glue/')}-{count}"
            seen = dev if title in scored else dev[:UNSCORED_ROWS]
            tasks.append(_own(title, made, [*islice(train, count)], seen, kind))
    return _small({"tasks": tasks, "objective": scored})


SUITES: dict[str, Callable[[Path], RunConfig]] = {
    "text": text,
    "text-three": text_three,
    "nli": nli,
    "fifty": fifty,
}


def _small(values: Mapping[str, Any]) -> RunConfig:
    return parse({**SMALL, **values, "data": os.environ["BURSAR_DATA"]}, "mixtures")


def _catalogue(name: str) -> Any:
    [task] = resolve(parse({"tasks": [name], "data": os.environ["BURSAR_DATA"]}, name))
    return task


def _rows(task: Any, split: str) -> Any:
    """Yield the labelled rows of a task of the catalogue as mappings."""
    for row in task.split(split).rows():
        if row.label is not None:
            second = {} if row.pair is None else {"pair": row.pair}
            yield {"text": row.text, **second, "label": row.label}


def _own(
    title: str,
    made: Path,
    train: Sequence[Mapping[str, Any]],
    dev: Sequence[Mapping[str, Any]],
    kind: str = "classify",
) -> dict[str, Any]:
    """Write rows to files, and return the task that a run file would name."""
    made.mkdir(parents=True, exist_ok=True)
    task = {"name": title, "kind": kind, "text": "text", "label": "label"}
    if "pair" in train[0]:
        task["pair"] = "pair"
    for split, rows in (("train", train), ("dev", dev)):
        path = made / f"{title}-{split}.jsonl"
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        if not path.exists() or path.read_text() != lines:
            write_whole(path, lines)
        task[split] = str(path)
    return task


class Mixtures:
    """Runs what is missing of a suite, and keeps what it came to.

    Args:
        suite: its name.
        options: of the command line.
    """

    def __init__(self, suite: str, options: argparse.Namespace) -> None:
        self.suite, self.options = suite, options
        self.config = SUITES[suite](options.runs / "made" / suite)
        self.info = run_info_before(self.config)
        self.began = time.monotonic()

    def play(self, arm: str, decider: Mapping[str, Any], seed: int) -> Outcome:
        """Run a decider with a seed, or read what it came to."""
        name = f"{arm.replace(' ', '-')}-{seed}"
        path = self.options.out / self.suite / f"{name}.json"
        if path.exists():
            return Outcome(**json.loads(path.read_text()))
        asked: dict[str, Any] = {"policy": dict(decider), "seed": seed, "name": name}
        if self.config.budget.tokens is None:  # steps of equal tokens cost the same
            asked["budget"] = self.config.budget.model_dump() | {"count": "compute"}
        config = changed(self.config, asked, "mixtures")
        folder = self.options.runs / self.suite / name
        start = time.monotonic()
        done = resume_run(folder) if (folder / RUN).exists() else run(config, folder)
        by_loss = config.objective is not None and config.objective.measure == "loss"
        found = {task: -each.loss if by_loss else each.score for task, each in done.tasks.items()}
        assert done.objective is not None
        outcome = Outcome(
            self.suite,
            arm,
            seed,
            done.objective,
            found,
            dict(decider.get("probabilities", {})),
            done.forward + done.backward,
            round(time.monotonic() - start, 1),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(asdict(outcome), indent=1) + "\n")
        shutil.rmtree(folder)  # some hundred encoders would fill a disk
        minutes = (time.monotonic() - self.began) / 60
        told = f"[{minutes:.1f} min] {self.suite} {arm} seed {seed}: {done.objective:.4f}"
        print(told, file=sys.stderr, flush=True)
        return outcome

    def compare(self) -> None:
        """Run all contestants with all seeds."""
        for seed in self.options.seeds:
            for arm, decider in CONTESTANTS.items():
                self.play(arm, decider, seed)

    def headroom(self) -> None:
        """Search for the best fixed shares, and run them again with other seeds."""
        import optuna

        from bursar.search import GPHedgeSampler

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = optuna.create_study(
            direction="maximize", sampler=GPHedgeSampler(seed=1, initial=len(CONTESTANTS))
        )
        starts = [self.shares_of(decider) for decider in CONTESTANTS.values()]
        for shares in starts:
            weights = {task: _log_weight(share, shares) for task, share in shares.items()}
            study.enqueue_trial(weights)

        def objective(trial: optuna.Trial) -> float:
            weights = {
                task: 10 ** trial.suggest_float(task, LEAST_WEIGHT, 0.0) for task in self.info.tasks
            }
            total = sum(weights.values())
            shares = {task: weight / total for task, weight in weights.items()}
            arm = f"shares {trial.number}"
            return self.play(arm, {"name": "fixed", "probabilities": shares}, SEARCH_SEED).objective

        study.optimize(objective, n_trials=self.options.trials)
        best = self.play(f"shares {study.best_trial.number}", {}, SEARCH_SEED)
        decider = {"name": "fixed", "probabilities": best.shares}
        for seed in CHECK_SEEDS:
            self.play("uniform", GUESSES["uniform"], seed)
            self.play("best shares", decider, seed)

    def shares_of(self, decider: Mapping[str, Any]) -> dict[str, float]:
        """The distribution that a fixed policy of a run file draws from."""
        policy = build_decider(changed(self.config, {"policy": decider}, "mixtures"), self.info)
        assert isinstance(policy, Policy)
        shares = dict(zip(policy.tasks, policy.probabilities().tolist(), strict=True))
        return in_order(shares, self.info.tasks, "shares")


LEAST_WEIGHT = -2.5
"""Weights are searched from 10 to this power up to 1."""


def _log_weight(share: float, shares: Mapping[str, float]) -> float:
    return max(LEAST_WEIGHT, math.log10(max(share, 1e-9) / max(shares.values())))


def table(out: Path) -> None:
    """Print what was found, suite by suite, and what became of the rule."""
    for suite in SUITES:
        paths = sorted((out / suite).glob("*.json"))
        found = [Outcome(**json.loads(path.read_text())) for path in paths]
        if found:
            unit = LOSSES if found[0].objective < 0 else SCORES
            print(f"{suite}\n")
            gain = _contestants(found, unit)
            _headroom(found, unit, gain)
            print()


def _contestants(found: Sequence[Outcome], unit: Unit) -> float | None:
    """Print the contestants and the rule; return how far `aimed` is above uniform draws."""
    scores = {
        arm: {each.seed: each.objective for each in found if each.arm == arm and each.seed in SEEDS}
        for arm in CONTESTANTS
    }
    if not all(scores.values()):
        return None
    levels = {arm: mean(seeds.values()) for arm, seeds in scores.items()}
    best = max(GUESSES, key=lambda arm: levels[arm])
    apart = differences(scores, best)
    print(f"| policy | seeds | objective | {unit.better} {best} |\n|---|---|---|---|")
    for arm, seeds in scores.items():
        spread = f"{unit.level(levels[arm])} ({unit.range([*seeds.values()])})"
        gap = interval_words(apart[arm], unit) if arm in apart else ""
        print(f"| {arm} | {len(seeds)} | {spread} | {gap} |")
    alone = differences({arm: scores[arm] for arm in ("aimed", best)}, best)["aimed"]
    held = "held" if alone.mean > 0 and alone.significant else "NOT held"
    print(f"\naimed above {best}: p {p_words(alone)}, {held}")
    return levels["aimed"] - levels["uniform"]


def _headroom(found: Sequence[Outcome], unit: Unit, gain: float | None) -> None:
    """Print the best fixed shares, and the part of what they are worth that `aimed` gets."""
    uniform = {each.seed: each.objective for each in found if each.arm == "uniform"}
    best = {each.seed: each for each in found if each.arm == "best shares"}
    gains = [run.objective - uniform[seed] for seed, run in best.items() if seed in uniform]
    if not gains:
        return
    print(f"headroom over uniform: {', '.join(map(unit.difference, gains))}")
    if gain is not None:
        part = gain / mean(gains)
        print(f"aimed gets {part:.0%} of it, {'held' if part >= 0.5 else 'NOT held'}")
    shares = sorted(next(iter(best.values())).shares.items(), key=lambda pair: -pair[1])
    print("best shares: " + ", ".join(f"{task} {share:.0%}" for task, share in shares[:12]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("headroom", "compare", "table"))
    parser.add_argument("suite", nargs="?", choices=SUITES)
    parser.add_argument("--runs", type=Path, help="folder of the run folders")
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--trials", type=int, default=24)
    options = parser.parse_args()
    if options.what == "table":
        table(options.out)
        return
    if options.suite is None or options.runs is None:
        parser.error("expected a suite and --runs")
    getattr(Mixtures(options.suite, options), options.what)()


if __name__ == "__main__":
    main()
