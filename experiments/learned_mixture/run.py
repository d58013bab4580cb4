"""Mixtures learned from the scores of one run, beside the usual fixed mixtures.

    python -m experiments.learned_mixture.run [--suites late begun] [--arms uniform learned]

TASKMIX_DATA names the folder of the official data sets. The suites and the rules are in the README.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import stats

from experiments.learned_mixture.images import CLASSES, ImageNetwork, image_tasks
from experiments.shared import (
    EXAMPLES,
    Outcomes,
    add_sets,
    command_line,
    held,
    markdown,
    publish,
    spread,
)
from taskmix import Fixed, Policy, Random, RunConfig, run
from taskmix.bandit import Environment, Rollout, simulate
from taskmix.config import load, parse, with_sets
from taskmix.journal import Evaluation, Step, read
from taskmix.offpolicy.curves import LearningCurves, RateSchedule, ScoredRun, learn_mixture
from taskmix.offpolicy.curves.shapes import FAMILIES
from taskmix.rng import stream

TARGETS = (
    *("reviews", "news", "captions", "science", "tweets", "wikipedia", "questions"),
    "linguistics",
)
"""The target domains of the example; their values are negative losses."""
SUITES: Mapping[str, tuple[str, ...]] = {
    "late": tuple(CLASSES)[:8],
    "begun": tuple(CLASSES)[:5],
    "sizes": tuple(CLASSES)[8:],
    "domains": tuple(f"text/{name}" for name in TARGETS),
    "text": (
        *("glue/qnli", "glue/mnli", "glue/mrpc", "wnut17", "superglue/cb", "glue/rte"),
        "superglue/wsc",
    ),
    "spans": (
        *("wnut17", "mrqa/squad", "glue/stsb", "snli"),
        *("glue/wnli", "superglue/copa", "superglue/wic", "glue/cola"),
    ),
}
IMAGES, FREE_SUITES = ("late", "begun", "sizes"), ("late", "begun")
RULES: Mapping[str, int] = {
    "late": 1,
    "begun": 2,
    "domains": 6,
    "text": 7,
    "sizes": 10,
    "spans": 13,
}
"""The number of each suite's rule on the other arms."""
CALIBRATION: Mapping[tuple[str, ...], tuple[int, int]] = {
    ("late", "begun", "domains"): (3, 4),
    ("text",): (8, 9),
    ("sizes",): (11, 12),
    ("spans",): (14, 15),
}
"""The numbers of the rules on intervals and on signs, by the suites that they are about."""
BANDIT, FREE, HELD_OUT = "bandit", "free", "families"
PILOT, LEARNED, TWICE = "pilot", "learned", "uniform twice"
ARMS: Mapping[str, Any] = {
    "uniform": {"name": "random"},
    LEARNED: None,
    "size": {"name": "task_size"},
    "temperature 2": {"name": "temperature", "temperature": 2},
    "temperature 5": {"name": "temperature", "temperature": 5},
    "aimed": {"name": "aimed"},
    TWICE: {"name": "random"},
}
SUITE_ARMS: Mapping[str, Sequence[str]] = {
    "domains": ("uniform", LEARNED, "aimed"),
    "spans": ("uniform", LEARNED, "size", "temperature 2", TWICE),
}
"""The arms of the suites that do not have all of them."""
PILOT_SEED, SEEDS = 100, range(101, 106)
SUITE_SEEDS: Mapping[str, Sequence[int]] = {"domains": range(101, 104), "sizes": range(101, 111)}
"""The seeds of the suites that do not have `SEEDS`."""
SETS, ENVIRONMENTS, NOISES, EVALUATIONS = (1, 2, 3), 8, (0.0, 0.1), 100
STEPS = 1000  # of the bandit


def configuration(suite: str, sets: Sequence[str]) -> RunConfig:
    if suite == "domains":
        example = load(EXAMPLES / "text-domains.yaml", [], os.environ["TASKMIX_DATA"])
        small = ["model.layers=1", "model.width=64", "model.vocabulary=2000"]
        budget = ["budget.steps=200", "budget.tokens=512"]
        return with_sets(
            example, [*small, *budget, "evaluate.every=20", "evaluate.examples=50", *sets]
        )
    values: dict[str, Any] = {
        "tasks": list(SUITES[suite]),
        "budget": {"steps": 300, "batch": 16},
        "optimizer": {"lr": 2e-3},
        "evaluate": {"keep": "last"},
        "policy": "random",
    }
    if suite in ("text", "spans"):
        spans = suite == "spans"
        values |= {
            "model": {
                "encoder": "minilm",
                "layers": 2,
                "freeze": 1,
                "pooling": "mean",
                "max_length": 64 if spans else 48,
            },
            "budget": {"steps": 300 if spans else 250, "batch": 8},
            "optimizer": {"lr": 3e-4, "head_factor": 10},
            "evaluate": {"every": 30 if spans else 25, "examples": 150, "keep": "last"},
            "data": os.environ["TASKMIX_DATA"],
        }
    return with_sets(parse(values, suite), sets)


def run_arm(
    outcomes: Outcomes, suite: str, arm: str, seed: int, runs: Path, sets: Sequence[str]
) -> None:
    """Run one arm with one seed, unless its outcome is stored."""
    name = f"{suite}-{arm}-{seed}".replace(" ", "-")
    if name in outcomes:
        return
    steps = configuration(suite, sets).budget.steps
    changes = [*sets, f"seed={seed}", f"name={name}"]
    if arm == TWICE:
        changes.append(f"budget.steps={2 * steps}")
    if arm != PILOT:  # of the other runs only the last scores are needed
        changes.append(f"evaluate.every={2 * steps}")
    config = configuration(suite, changes)
    decider, forecast = ARMS.get(arm, {"name": "random"}), {}
    if arm == LEARNED:
        mixture = learn_mixture([ScoredRun.from_journal(runs / f"{suite}-{PILOT}-{PILOT_SEED}")])
        decider = {"name": "fixed", "probabilities": mixture.shares}
        forecast = {"forecast": asdict(mixture)}
    tasks = SUITES[suite]
    images = suite in IMAGES
    result = run(
        config.model_copy(update={"policy": decider}),
        runs / name,
        model=ImageNetwork(seed, tasks) if images else None,
        tasks=image_tasks(tasks) if images else (),
        resume=True,
    )
    losses = suite == "domains"
    values = {task: -of.loss if losses else of.score for task, of in result.tasks.items()}
    scores = {task: values[task] for task in tasks}
    outcomes.add(name, {"suite": suite, "arm": arm, "seed": seed, "scores": scores, **forecast})


def run_free(outcomes: Outcomes, suite: str, seed: int, runs: Path, sets: Sequence[str]) -> None:
    """Compare the scores of batches between two evaluations with the mean of the two dev scores."""
    name = f"{FREE}-{suite}-{seed}"
    if name in outcomes:
        return
    config = configuration(suite, [*sets, f"seed={seed}", f"name={name}", "evaluate.batches=true"])
    tasks = SUITES[suite]
    run(
        config,
        runs / name,
        model=ImageNetwork(seed, tasks),
        tasks=image_tasks(tasks),
        resume=True,
    )
    before: dict[str, float] = {}
    batches: dict[str, list[float]] = {task: [] for task in tasks}
    pairs: list[dict[str, Any]] = []
    for record in read(runs / name / "journal.jsonl"):
        if isinstance(record, Step) and record.batch_score is not None:
            batches[record.task].append(record.batch_score)
        elif isinstance(record, Evaluation):
            pairs += [
                {
                    "task": task,
                    "free": mean(batches[task]),
                    "dev": (before[task] + record.scores[task]) / 2,
                    "batches": len(batches[task]),
                }
                for task in before
                if batches[task]
            ]
            before, batches = record.scores, {task: [] for task in tasks}
    outcomes.add(name, {"pairs": pairs})


def compare_families(outcomes: Outcomes, suite: str, runs: Path) -> None:
    """Predict the last three evaluations of the pilot from the first seven, family by family."""
    name = f"{HELD_OUT}-{suite}"
    if name in outcomes:
        return
    pilot = ScoredRun.from_journal(runs / f"{suite}-{PILOT}-{PILOT_SEED}")
    seen = -(-7 * len(pilot.values) // 10)
    first = replace(pilot, training=pilot.training[:, :seen], values=pilot.values[:seen])
    errors = {}
    for label, families in {**{name: [name] for name in FAMILIES}, "all": list(FAMILIES)}.items():
        curves = LearningCurves([first], families)
        predicted = [
            sample.at(pilot.training[:, seen:, k]).mean(axis=0)
            for k, sample in enumerate(curves.samples)
        ]
        gaps = np.array(predicted).T - pilot.values[seen:]
        errors[label] = float(np.sqrt((gaps**2).mean()))
    outcomes.add(name, {"errors": errors})


def _family_table(outcomes: Outcomes) -> str:
    found = dict(outcomes.items(f"{HELD_OUT}-"))
    if not found:
        return ""
    labels = list(next(iter(found.values()))["errors"])
    rows = [
        [name.split("-")[1], *(f"{100 * values['errors'][label]:.2f}" for label in labels)]
        for name, values in found.items()
    ]
    return f"## Families\n\n{markdown(['suite', *labels], rows)}"


def _free_table(outcomes: Outcomes) -> str:
    pairs = [pair for values in outcomes.values(f"{FREE}-") for pair in values["pairs"]]
    if not pairs:
        return ""
    free, dev, count = (np.array([p[key] for p in pairs]) for key in ("free", "dev", "batches"))
    gaps = 100 * (free - dev)
    expected = 100 * np.sqrt((dev * (1 - dev) / (16 * count)).mean())
    head = ["intervals", "mean of free - dev", "root mean square", "expected of so many examples"]
    row = [str(len(pairs)), f"{gaps.mean():+.1f}", f"{np.sqrt((gaps**2).mean()):.1f}"]
    return f"## Free scores\n\n{markdown(head, [[*row, f'{expected:.1f}']])}"


def run_bandit(outcomes: Outcomes, number: int, noise: float, environments: int) -> None:
    """Learn shares from one random rollout with each seed, and compare them with other rollouts."""
    name = f"{BANDIT}-{number}-{noise}"
    if name in outcomes:
        return
    finals = np.array(
        [
            [_finals(number, place, seed, noise) for seed in range(5)]
            for place in range(environments)
        ]
    )
    random, oracle, learned = np.median(finals, axis=1).T
    values = {"noise": noise, "random": random, "oracle": oracle, "learned": learned}
    outcomes.add(name, {k: v if k == "noise" else v.tolist() for k, v in values.items()})


def _finals(number: int, place: int, seed: int, noise: float) -> list[float]:
    """Return the final scores of RANDOM, ORACLE and the learned shares."""
    environment = Environment.random(8, STEPS, stream(number, "environment", place))

    def rollout(policy: Policy, purpose: str) -> Rollout:
        return simulate(policy, environment, STEPS, stream(number, purpose, place, seed))

    pilot = rollout(Random(environment.tasks), "pilot")
    run = scored_rollout(pilot, noise, stream(number, "noise", place, seed))
    learned = Fixed(learn_mixture([run]).shares)
    policies = (Random(environment.tasks), environment.oracle_policy(), learned)
    return [rollout(policy, "draws").final for policy in policies]


def scored_rollout(rollout: Rollout, noise: float, rng: np.random.Generator) -> ScoredRun:
    """Return a rollout's scores beside the draws of each arm, at every hundredth of its steps."""
    count, steps = len(rollout.tasks), len(rollout.actions)
    drawn = np.eye(count)[rollout.actions].cumsum(axis=0)
    at = np.arange(0, steps, max(1, steps // EVALUATIONS)) + max(1, steps // EVALUATIONS) - 1
    scores = rollout.scores[at] + noise * rng.standard_normal((len(at), count))
    return ScoredRun(
        rollout.tasks,
        np.stack([drawn[at]] * 3),
        scores,
        drawn[-1] / steps,
        np.zeros(count),
        np.full(count, np.nan),
        RateSchedule(steps, 1, None),
        rollout.tasks,
    )


def table(outcomes: Outcomes) -> str:
    parts = [_suite_table(outcomes, suite) for suite in SUITES]
    parts += [_forecasts(outcomes), _bandit_table(outcomes)]
    parts += [_free_table(outcomes), _family_table(outcomes)]
    return "\n\n".join(part for part in parts if part) or "no outcomes yet"


def _scores(outcomes: Outcomes, suite: str, arm: str) -> dict[int, dict[str, float]]:
    return {
        values["seed"]: values["scores"]
        for _, values in outcomes.items(f"{suite}-")
        if values["arm"] == arm
    }


def _means(outcomes: Outcomes, suite: str, arm: str) -> dict[int, float]:
    """By seed, the mean score in percent."""
    scores = _scores(outcomes, suite, arm)
    return {seed: 100 * mean(tasks.values()) for seed, tasks in scores.items()}


def _suite_table(outcomes: Outcomes, suite: str) -> str:
    learned, tasks = _means(outcomes, suite, LEARNED), SUITES[suite]
    rows = []
    for arm in (PILOT, *ARMS):
        scores, means = _scores(outcomes, suite, arm), _means(outcomes, suite, arm)
        if not means:
            continue
        gaps = np.array([learned[seed] - means[seed] for seed in sorted(learned.keys() & means)])
        test = ["", ""]
        if arm != LEARNED and len(gaps) > 1:
            test = [f"{gaps.mean():+.1f}", f"{stats.ttest_1samp(gaps, 0.0).pvalue:.4f}"]
        by_task = [f"{100 * mean(one[task] for one in scores.values()):.1f}" for task in tasks]
        rows.append([arm, str(len(means)), *by_task, spread(list(means.values())), *test])
    if not rows:
        return ""
    head = ["arm", "seeds", *tasks, "mean", "learned - arm", "p"]
    return f"## {suite}\n\n{markdown(head, rows)}\n\n{_verdict(outcomes, suite)}".rstrip()


def _verdict(outcomes: Outcomes, suite: str) -> str:
    """Return whether the suite's rule on the other arms holds."""
    learned = _means(outcomes, suite, LEARNED)
    others = {arm: _means(outcomes, suite, arm) for arm in ARMS if arm not in (LEARNED, TWICE)}
    others = {arm: means for arm, means in others.items() if len(means) > 1}
    if len(learned) < 2 or not others:
        return ""
    best = max(others, key=lambda arm: mean(others[arm].values()))
    seeds = sorted(learned.keys() & others[best])
    gaps = np.array([learned[seed] - others[best][seed] for seed in seeds])
    p = float(stats.ttest_1samp(gaps, 0.0).pvalue)
    gain = float(gaps.mean())
    no_worse = suite in ("begun", "domains")
    holds = gain > 0 or p >= 0.05 if no_worse else gain >= 2 and p < 0.05
    return (
        f"Rule {RULES[suite]} {held(holds)}: `learned` is {gain:+.1f} beside `{best}`, p = {p:.4f}."
    )


def _forecasts(outcomes: Outcomes) -> str:
    """Return how well the forecasts of the learned runs were met."""
    rows: list[list[str]] = []
    covered: dict[str, list[bool]] = {}
    right: dict[str, list[bool]] = {}
    for suite in SUITES:
        uniform = _means(outcomes, suite, "uniform")
        runs = [v for _, v in outcomes.items(f"{suite}-") if v["arm"] == LEARNED]
        if not runs:
            continue
        forecast = runs[0]["forecast"]
        inside = [
            task["score"]["low"] <= values["scores"][task["task"]] <= task["score"]["high"]
            for values in runs
            for task in values["forecast"]["tasks"]
            if task["task"] in SUITES[suite]
        ]
        gains = {v["seed"]: 100 * mean(v["scores"].values()) - uniform[v["seed"]] for v in runs}
        signs = [gain > 0 for gain in gains.values()] if forecast["changed"] else []
        covered[suite], right[suite] = inside, signs
        got = 100 * mean(mean(values["scores"].values()) for values in runs)
        rows.append(
            [
                suite,
                *(f"{100 * forecast['objective'][key]:.1f}" for key in ("mean", "low", "high")),
                f"{got:.1f}",
                f"{sum(inside)} of {len(inside)}",
                *(f"{100 * forecast['gain'][key]:+.1f}" for key in ("mean", "low", "high")),
                f"{mean(gains.values()):+.1f}",
                f"{sum(signs)} of {len(signs)}" if signs else "no gain predicted",
            ]
        )
    if not rows:
        return ""
    score = ["predicted mean", "low", "high", "got", "task scores in their intervals"]
    gain = ["predicted gain over the pilot's shares", "low", "high", "got", "right sign"]
    words = [
        sentence
        for suites, rules in CALIBRATION.items()
        for sentence in _calibration(covered, right, suites, rules)
    ]
    return f"## Forecasts\n\n{markdown(['suite', *score, *gain], rows)}\n\n" + "\n\n".join(words)


def _calibration(
    covered: Mapping[str, list[bool]],
    right: Mapping[str, list[bool]],
    suites: Sequence[str],
    rules: tuple[int, int],
) -> list[str]:
    """Return whether the rules on intervals and on signs hold in some of the suites."""
    inside = [value for suite in suites for value in covered.get(suite, [])]
    signs = [value for suite in suites for value in right.get(suite, [])]
    words = []
    if inside:
        share = mean(inside)
        holds = held(0.83 <= share <= 0.97)
        words.append(f"Rule {rules[0]} {holds}: {share:.0%} of the scores are covered.")
    if signs:
        holds = held(mean(signs) >= 0.9)
        words.append(f"Rule {rules[1]} {holds}: {sum(signs)} of {len(signs)} signs.")
    return words


def _bandit_table(outcomes: Outcomes) -> str:
    rows, holds = [], True
    for noise in NOISES:
        sets = {
            name.split("-")[1]: np.array([values[k] for k in ("random", "oracle", "learned")])
            for name, values in outcomes.items(f"{BANDIT}-")
            if values["noise"] == noise
        }
        if not sets:
            continue
        for number, finals in {**sets, "all": np.concatenate(list(sets.values()), axis=1)}.items():
            random, oracle, learned = finals
            closed = float(np.median((learned - random) / (oracle - random)))
            least = float((learned - random).min())
            rows.append([str(noise), number, f"{closed:.2f}", f"{least:+.3f}"])
        holds = holds and closed >= 0.8 and least >= -0.01  # of all sets
    if not rows:
        return ""
    head = ["noise", "set", "gap closed, median", "worst environment, learned - RANDOM"]
    return f"## Bandit\n\n{markdown(head, rows)}\n\nRule 5 {held(holds)}."


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__ or "", __file__)
    add_sets(parser)
    suites = [*SUITES, BANDIT, FREE]
    parser.add_argument("--suites", nargs="+", default=suites, choices=suites)
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, help="those of the suite if not given")
    parser.add_argument("--environments", type=int, default=ENVIRONMENTS)
    parser.add_argument("--sets", dest="bandit_sets", nargs="+", type=int, default=list(SETS))
    options = parser.parse_args(arguments)
    for suite in [] if options.table else options.suites:
        if suite == BANDIT:
            for number in options.bandit_sets:
                for noise in NOISES:
                    run_bandit(options.outcomes, number, noise, options.environments)
            continue
        if suite == FREE:
            for images, seed in product(FREE_SUITES, (options.seeds or SEEDS)[:2]):
                run_free(options.outcomes, images, seed, options.runs, options.sets)
            continue
        run_arm(options.outcomes, suite, PILOT, PILOT_SEED, options.runs, options.sets)
        compare_families(options.outcomes, suite, options.runs)
        for seed in options.seeds or SUITE_SEEDS.get(suite, SEEDS):
            for arm in options.arms:
                if arm in SUITE_ARMS.get(suite, ARMS):
                    run_arm(options.outcomes, suite, arm, seed, options.runs, options.sets)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
