"""Policies and the best fixed mixture of ten suites of tasks, beside the usual fixed mixtures.

    python -m experiments.mixtures.run compare SUITE
    python -m experiments.mixtures.run headroom SUITE [--trials 24]
    python -m experiments.mixtures.run table

TASKMIX_DATA names the folder of the official data sets. Finished outcomes are not made again; a run
that was killed goes on. Start one process a core, with suites or seeds of its own. The suites and
the rules are in the README.
"""

import argparse
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from experiments.auxiliaries import AUXILIARIES as AUXILIARY_TASKS
from experiments.auxiliaries import PRIMARY, auxiliary_tasks, network
from experiments.shared import EXAMPLES, Outcomes, add_sets, command_line, held, markdown, publish
from taskmix import Policy, RunConfig, run
from taskmix.config import build_decider, changed, load, parse, with_sets
from taskmix.files import write_whole
from taskmix.policies.base import in_order
from taskmix.rng import stream
from taskmix.studies.paired import (
    LOSSES,
    SCORES,
    Unit,
    differences,
    interval_words,
    p_words,
)
from taskmix.training.prepare import by_name, resolve, run_info_before

FIXED_MIXTURES: dict[str, dict[str, Any]] = {
    "uniform": {"name": "random"},
    "task sizes": {"name": "task_size"},
    "temperature 2": {"name": "temperature", "temperature": 2},
    "temperature 5": {"name": "temperature", "temperature": 5},
}
POLICIES = {
    **FIXED_MIXTURES,
    "aimed": {"name": "aimed"},
    "undiscounted": {"name": "aimed", "repeats": None},
}
OURS = ("worth", "worth 2", "worth 3", "aimed")
"""`aimed`, and the three versions of `worth`, which was removed: only their outcomes are left."""
SEEDS = (11, 12, 13, 14, 15)
BED_SEEDS = tuple(range(401, 411))
LATER_SEEDS = {
    "auxiliaries": [range(411, 421), range(421, 431)],
    "text-three": [range(21, 26), range(41, 46)],
    "text-all": [range(41, 46)],
    "nli": [range(21, 26), range(41, 46)],
    "low": [range(21, 26), range(41, 46)],
    "glue": [range(21, 31), range(31, 36), range(41, 46)],
    "glue-long": [range(41, 44)],
    "eighteen": [range(41, 46)],
}
"""By suite, the seeds of the later trials."""
SEARCH_SEED, CHECK_SEEDS = 101, (102, 103)
SMALL = {
    "model": {"encoder": "minilm", "layers": 3, "freeze": 1, "max_length": 64},
    "optimizer": {"lr": 1.0e-4, "head_factor": 10},
    "precision": "bfloat16",
}
AUXILIARIES = ("glue/mnli", "glue/qnli", "glue/cola", "glue/sst2")
GLUE = ("cola", "sst2", "mrpc", "stsb", "rte", "qnli", "mnli", "qqp")
SLICED = (*(f"glue/{name}" for name in GLUE), "snli", "scitail")
TARGETS = ("glue/sst2", "glue/mrpc", "glue/qnli", "glue/qqp", "snli")
SLICES = (100, 200, 300, 400, 500)
LOW = ("superglue/cb", "superglue/copa", "glue/rte")
DEV_ROWS, UNSCORED_ROWS = 200, 20


@dataclass(frozen=True)
class Outcome:
    """The objective and the cost of a run.

    Args:
        suite: the suite of tasks.
        arm: the name of the policy, or of the shares that a search tried.
        seed: of the run.
        objective: the value of the suite's objective; higher is better.
        tasks: by task, its dev score, or its negative dev loss where the objective is a loss.
        shares: by task, its share of the draws; empty where a policy decides.
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
    return load(EXAMPLES / "text-domains.yaml", [], os.environ["TASKMIX_DATA"])


def auxiliaries(made: Path) -> RunConfig:
    """A target with few examples, one task that helps it, and two that do not."""
    values = {
        "tasks": [PRIMARY, *AUXILIARY_TASKS],
        "objective": PRIMARY,
        "budget": {"steps": 400, "batch": 16},
        "optimizer": {"lr": 3e-3, "head_factor": 1},
        "evaluate": {"every": 400, "keep": "last"},
    }
    return parse(values, "auxiliaries")


def text_three(made: Path) -> RunConfig:
    """The same domains, three of them targets."""
    scored = ["text/science", "text/wikipedia", "text/linguistics"]
    return changed(text(made), {"objective": {"loss": scored}}, "text-three")


def text_all(made: Path) -> RunConfig:
    """The same domains, all of them targets."""
    config = text(made)
    scored = config.task_names
    return changed(config, {"objective": {"loss": scored}}, "text-all")


def glue(made: Path) -> RunConfig:
    """Eight GLUE tasks, all of them targets."""
    return _small({"tasks": [f"glue/{name}" for name in GLUE]}, steps=600)


def glue_long(made: Path) -> RunConfig:
    """The same with more steps."""
    return _small({"tasks": [f"glue/{name}" for name in GLUE]}, steps=2000)


def eighteen(made: Path) -> RunConfig:
    """The tasks of the example, of every kind, all of them targets."""
    tasks = load(EXAMPLES / "eighteen.yaml", [], os.environ["TASKMIX_DATA"]).tasks
    return _small({"tasks": tasks}, steps=900, examples=300)


def low(made: Path) -> RunConfig:
    """The same tasks; three with few examples are the targets."""
    tasks = eighteen(made).tasks
    return _small({"tasks": tasks, "objective": list(LOW)}, examples=300)


def nli(made: Path) -> RunConfig:
    """Two targets, four auxiliaries of unknown value, and one with permuted labels."""
    source = _catalogue("snli")
    rows = [*islice(_rows(source, "train"), 20_000)], [*islice(_rows(source, "dev"), 500)]
    labels = [row["label"] for row in rows[0]]
    order = stream(1, "permuted").permutation(len(labels)).tolist()
    permuted = [row | {"label": labels[place]} for row, place in zip(rows[0], order, strict=True)]
    tasks: list[Any] = ["snli", "scitail", *AUXILIARIES]
    tasks.append(_own("permuted", made, permuted, rows[1]))
    return _small({"tasks": tasks, "objective": ["snli", "scitail"]})


def fifty(made: Path) -> RunConfig:
    """Slices of ten data sets; the smallest slices of five are the targets."""
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
    "auxiliaries": auxiliaries,
    "text-three": text_three,
    "text-all": text_all,
    "nli": nli,
    "fifty": fifty,
    "glue": glue,
    "glue-long": glue_long,
    "eighteen": eighteen,
    "low": low,
}


KIN = {f"{name.removeprefix('glue/')}-{count}" for name in TARGETS for count in SLICES}
FIFTY = [f"{name.removeprefix('glue/')}-{count}" for name in SLICED for count in SLICES]
COUNTED = [f"{name.removeprefix('glue/')}-{min(SLICES)}" for name in TARGETS]
TEXTS = ("reviews", "news", "captions", "tweets", "questions", "questions2", "genres")
ENTAILMENT = ("glue/mnli", "glue/qnli", "glue/wnli", "snli", "scitail")
SIMILARITY = ("glue/mrpc", "glue/stsb", "glue/qqp")
READING = ("superglue/multirc", "mrqa/squad")
OTHERS = ("glue/cola", "glue/sst2", "superglue/wic", "superglue/wsc", "wnut17")
GROUPS: dict[str, Sequence[Sequence[str]]] = {
    "text-three": [
        ["text/science"],
        ["text/wikipedia"],
        ["text/linguistics"],
        ["text/noise", "text/template"],
        [f"text/{name}" for name in TEXTS],
    ],
    "fifty": [
        COUNTED,
        [task for task in FIFTY if task in KIN and task not in COUNTED],
        [task for task in FIFTY if task not in KIN],
    ],
    "low": [*([name] for name in LOW), ENTAILMENT, SIMILARITY, [*READING, *OTHERS]],
    "eighteen": [[*ENTAILMENT, *LOW], SIMILARITY, READING, OTHERS],
}
"""By suite, the groups of tasks that share one weight in a search; one group a task by default."""


def _small(values: Mapping[str, Any], steps: int = 400, examples: int = 500) -> RunConfig:
    length = {
        "budget": {"steps": steps, "batch": 16},
        "evaluate": {"every": steps, "examples": examples, "keep": "last"},
    }
    whole = {**SMALL, **length, **values, "data": os.environ["TASKMIX_DATA"]}
    return parse(whole, "mixtures")


def _catalogue(name: str) -> Any:
    [task] = resolve(parse({"tasks": [name], "data": os.environ["TASKMIX_DATA"]}, name))
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
    """Write rows to files, and return the entry of a run file for them."""
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


def python_parts(suite: str, seed: int) -> dict[str, Any]:
    """Return the model and the tasks of a suite that are made in Python."""
    if suite == "auxiliaries":
        return {"model": network(seed)(), "tasks": auxiliary_tasks(seed)}
    return {"model": None, "tasks": ()}


def seeds_of(suite: str) -> tuple[int, ...]:
    """Return the seeds of the first trial of a suite."""
    return BED_SEEDS if suite == "auxiliaries" else SEEDS


class Mixtures:
    """Runs the arms of a suite whose outcomes are missing, and stores their outcomes."""

    def __init__(self, suite: str, options: argparse.Namespace) -> None:
        self.suite, self.options = suite, options
        config = SUITES[suite](options.runs / "made" / suite)
        self.config = with_sets(config, options.sets)
        self.info = run_info_before(self.config, by_name(python_parts(suite, SEARCH_SEED)["tasks"]))
        self.began = time.monotonic()

    def outcome(self, arm: str, decider: Mapping[str, Any], seed: int) -> Outcome:
        """Run a policy with a seed, unless its outcome is stored; return the outcome."""
        name = f"{arm.replace(' ', '-')}-{seed}"
        outcomes: Outcomes = self.options.outcomes
        if f"{self.suite}/{name}" in outcomes:
            return Outcome(**outcomes[f"{self.suite}/{name}"])
        asked: dict[str, Any] = {"policy": dict(decider), "seed": seed, "name": name}
        if self.config.budget.tokens is None:  # steps of equal tokens cost the same
            asked["budget"] = self.config.budget.model_dump() | {"count": "compute"}
        config = changed(self.config, asked, "mixtures")
        folder = self.options.runs / self.suite / name
        start = time.monotonic()
        done = run(config, folder, resume=True, **python_parts(self.suite, seed))
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
        outcomes.add(f"{self.suite}/{name}", asdict(outcome))
        shutil.rmtree(folder)  # some hundred encoders would fill a disk
        minutes = (time.monotonic() - self.began) / 60
        line = f"[{minutes:.1f} min] {self.suite} {arm} seed {seed}: {done.objective:.4f}"
        print(line, file=sys.stderr, flush=True)
        return outcome

    def compare(self) -> None:
        """Run all policies with all seeds."""
        for seed in self.options.seeds or seeds_of(self.suite):
            for arm in self.options.arms or POLICIES:
                self.outcome(arm, POLICIES[arm], seed)

    def headroom(self) -> None:
        """Search for the best fixed shares, and run them again with two other seeds."""
        import optuna

        from taskmix.search import GPHedgeSampler

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        groups = GROUPS.get(self.suite, [[task] for task in self.info.tasks])
        starts = self.starts(groups)
        study = optuna.create_study(
            direction="maximize", sampler=GPHedgeSampler(seed=1, initial=len(starts) + 2)
        )
        for start in starts:
            study.enqueue_trial(start)

        def objective(trial: optuna.Trial) -> float:
            found = [10 ** trial.suggest_float(g[0], LEAST_WEIGHT, 0.0) for g in groups]
            by_task = {task: w for w, g in zip(found, groups, strict=True) for task in g}
            weights = in_order(by_task, self.info.tasks, "groups")
            total = sum(weights.values())
            shares = {task: weight / total for task, weight in weights.items()}
            arm = f"shares {trial.number}"
            return self.outcome(
                arm, {"name": "fixed", "probabilities": shares}, SEARCH_SEED
            ).objective

        study.optimize(objective, n_trials=self.options.trials)
        best = self.outcome(f"shares {study.best_trial.number}", {}, SEARCH_SEED)
        decider = {"name": "fixed", "probabilities": best.shares}
        for seed in CHECK_SEEDS:
            self.outcome("uniform", FIXED_MIXTURES["uniform"], seed)
            self.outcome("best shares", decider, seed)

    def starts(self, groups: Sequence[Sequence[str]]) -> list[dict[str, float]]:
        """Return the shares of the policies as logarithms of weights, where the groups allow it."""
        found: list[dict[str, float]] = []
        for decider in POLICIES.values():
            shares = self.shares_of(decider)
            start = {group[0]: _log_weight(shares[group[0]], shares) for group in groups}
            alike = all(shares[task] == shares[group[0]] for group in groups for task in group)
            if alike and start not in found:
                found.append(start)
        return found

    def shares_of(self, decider: Mapping[str, Any]) -> dict[str, float]:
        """Return the distribution that a policy draws from at first."""
        policy = build_decider(changed(self.config, {"policy": decider}, "mixtures"), self.info)
        assert isinstance(policy, Policy)
        shares = dict(zip(policy.tasks, policy.probabilities().tolist(), strict=True))
        return in_order(shares, self.info.tasks, "shares")


LEAST_WEIGHT = -2.5
"""Weights are searched from 10 to this power up to 1."""


def _log_weight(share: float, shares: Mapping[str, float]) -> float:
    return max(LEAST_WEIGHT, round(math.log10(max(share, 1e-9) / max(shares.values())), 6))


def table(outcomes: Outcomes) -> str:
    """Return, suite by suite, the policies, the rules and the headroom."""
    lines: list[str] = []
    for suite in SUITES:
        found = [Outcome(**values) for values in outcomes.values(f"{suite}/")]
        if not found:
            continue
        unit = LOSSES if found[0].objective < 0 else SCORES
        lines += [f"## {suite}", ""]
        gains: dict[str, float] = {}
        for seeds in (seeds_of(suite), *LATER_SEEDS.get(suite, ())):
            if any(outcome.seed in seeds for outcome in found):
                lines += [f"Seeds {min(seeds)} to {max(seeds)}:", ""]
                gains = compare_policies(lines, found, unit, seeds) | gains
                lines.append("")
        compare_headroom(lines, found, unit, gains)
    return "\n".join([*lines, *rule_12(outcomes)]).rstrip()


def rule_12(outcomes: Outcomes) -> Iterator[str]:
    """Yield the difference between `worth` and uniform sampling over `glue` and `eighteen`."""
    suites = [outcomes.values(f"{suite}/") for suite in ("glue", "eighteen")]
    found = [Outcome(**values) for suite in suites for values in suite]
    pairs: dict[str, dict[int, float]] = {"uniform": {}, "worth 3": {}}
    for outcome in found:
        if outcome.arm in pairs and outcome.seed in range(41, 46):
            number = outcome.seed + (1000 if outcome.suite == "glue" else 0)
            pairs[outcome.arm][number] = outcome.objective
    if all(pairs.values()):
        [apart] = differences(pairs, "uniform").values()
        words = f"{interval_words(apart, SCORES)}, p {p_words(apart)}"
        yield "## Rule 12"
        yield ""
        yield f"worth 3 above uniform, seeds 41 to 45 of glue and eighteen: {words}"


def compare_policies(
    lines: list[str], found: Sequence[Outcome], unit: Unit, seeds: Sequence[int]
) -> dict[str, float]:
    """Append the policies and the rules; return how far ours are above uniform sampling."""
    scores = {
        arm: {o.seed: o.objective for o in found if o.arm == arm and o.seed in seeds}
        for arm in (*FIXED_MIXTURES, *OURS, "undiscounted")
    }
    scores = {arm: runs for arm, runs in scores.items() if runs}
    fixed = [arm for arm in FIXED_MIXTURES if arm in scores]
    if not fixed:
        return {}
    levels = {arm: mean(runs.values()) for arm, runs in scores.items()}
    best = max(fixed, key=lambda arm: levels[arm])
    apart = differences(scores, best)
    rows = []
    for arm, runs in scores.items():
        level = f"{unit.level(levels[arm])} ({unit.range([*runs.values()])})"
        difference = interval_words(apart[arm], unit) if arm in apart else ""
        rows.append([arm, str(len(runs)), level, difference])
    lines += [markdown(["policy", "seeds", "objective", f"{unit.better} {best}"], rows), ""]
    for arm in OURS:
        if arm in scores:
            alone = differences({name: scores[name] for name in (arm, best)}, best)[arm]
            above = held(alone.mean > 0 and alone.significant)
            below = held(not (alone.mean < 0 and alone.significant))
            lines.append(f"- {arm} above {best}: p {p_words(alone)}, {above}; not below: {below}")
    if "uniform" not in levels:
        return {}
    return {arm: levels[arm] - levels["uniform"] for arm in OURS if arm in levels}


def compare_headroom(
    lines: list[str], found: Sequence[Outcome], unit: Unit, gains: Mapping[str, float]
) -> None:
    """Append the best fixed shares, and the part of their gain that our policies get."""
    uniform = {o.seed: o.objective for o in found if o.arm == "uniform"}
    best = {o.seed: o for o in found if o.arm == "best shares"}
    headroom = [run.objective - uniform[seed] for seed, run in best.items() if seed in uniform]
    if not headroom:
        return
    trials = sum(o.arm.startswith("shares ") for o in found)
    values = ", ".join(map(unit.difference, headroom))
    lines.append(f"Headroom over uniform sampling, {trials} trials: {values}")
    if min(headroom) <= 0:
        lines.append("(not confirmed by both seeds)")
        gains = {}
    lines.append("")
    for arm, gain in gains.items():
        part = gain / mean(headroom)
        lines.append(f"- {arm} gets {part:.0%} of it, {held(part >= 0.5)}")
    shares = sorted(next(iter(best.values())).shares.items(), key=lambda pair: -pair[1])
    lines.append("- best shares: " + ", ".join(f"{t} {share:.0%}" for t, share in shares[:12]))
    lines.append("")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("what", choices=("headroom", "compare", "table"))
    parser.add_argument("suite", nargs="?", choices=SUITES)
    parser.add_argument("--seeds", type=int, nargs="+", help="instead of the suite's own")
    parser.add_argument("--arms", nargs="+", choices=POLICIES, help="some of the policies")
    parser.add_argument("--trials", type=int, default=24)
    add_sets(parser)
    options = parser.parse_args(arguments)
    if options.what != "table":
        if options.suite is None:
            parser.error("expected a suite")
        getattr(Mixtures(options.suite, options), options.what)()
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
