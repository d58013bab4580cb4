"""CA-MTL (Pilault et al. 2021) in our numbers: Table 1's ladder, Figure 7, SciTail, the start.

    python -m experiments.camtl.run [--seeds 1 2 3] [--table]

TASKMIX_DATA names the folder of the official data sets. Finished outcomes are not made again; an
unfinished run is resumed. Start one process a core, each with seeds of its own. The rules are in
the README.
"""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from experiments.shared import Outcomes, command_line, held, publish, spread
from taskmix import RunConfig, run
from taskmix.config import changed
from taskmix.journal import Opening, SelectionStep, Step, read
from taskmix.models.multitask import MultiTaskModel
from taskmix.studies.adapt import adapt
from taskmix.studies.analyse import task_sigma
from taskmix.tasks.parts import rows_of
from taskmix.training.evaluation import evaluate
from taskmix.training.folder import CHECKPOINTS, JOURNAL, RUN, Finished, config_of
from taskmix.training.inference import load_run
from taskmix.training.prepare import read_split, resolve
from taskmix.training.run import resume_run

GLUE = [f"glue/{name}" for name in ("cola", "sst2", "mrpc", "stsb", "rte", "qnli", "mnli", "qqp")]
SUPERGLUE = [f"superglue/{name}" for name in ("cb", "copa", "multirc", "wic", "wsc")]
OTHERS = ["snli", "scitail", "mrqa/squad", "wnut17"]
FROZEN, BATCH, STEPS = 3, 16, 500
PASSES = 4
"""Dropout masks with which MT-Uncertainty scores the one regression, STS-B."""
RUNGS: dict[str, tuple[str, ...]] = {
    "mtl": (),
    "attention": ("attention",),
    "alignment+norm": ("attention", "alignment", "norm"),
    "bottleneck": ("attention", "alignment", "norm", "bottleneck"),
    "mt-uncertainty": ("attention", "alignment", "norm", "bottleneck"),
    "mt-uncertainty-paid": ("attention", "alignment", "norm", "bottleneck"),
}
STAGES = {"glue": GLUE, "all": GLUE + SUPERGLUE + OTHERS}
FRACTIONS = (0.01, 0.1)
STARTS = ((1.0, 1), (1.0, 3), (1.0, 10), (0.02, 10))
"""Standard deviations of the initial task embeddings, and factors of the learning rate."""
START_TASKS = ["glue/sst2", "glue/mrpc", "glue/stsb", "glue/qnli"]
START_FROZEN = {"half": 1, "all": 2}
START_LAYERS, START_STEPS, START_EXAMPLES, START_LENGTH = 2, 100, 200, 64
STUDIES = ("start", "ladder", "figure7", "scitail")


@dataclass(frozen=True)
class Outcome:
    """The scores and the cost of a run."""

    study: str
    arm: str
    seed: int
    scores: dict[str, float]  # by task, on the dev set, of the kept model
    steps: int
    forward: int  # examples that passed forward, in training and scoring
    backward: int
    used: float  # share of all training examples that were trained on at least once
    seconds: float  # of training
    note: str = ""  # for an adaptation, the embedding that it started from
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)  # by task; not in old ones

    def average(self, tasks: Sequence[str] = GLUE) -> float:
        """Return the mean score over the tasks, in percent."""
        return 100 * mean(self.scores[task] for task in tasks if task in self.scores)

    def sigma(self) -> float:
        """Return task sigma over the GLUE tasks, in percent."""
        metrics = self.metrics or {task: {"score": score} for task, score in self.scores.items()}
        return 100 * task_sigma({task: metrics[task] for task in GLUE if task in metrics})


class Study:
    """Runs the arms whose outcomes are missing, and stores their outcomes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.outcomes: Outcomes = options.outcomes
        self.began = time.monotonic()

    def folder(self, study: str, arm: str, seed: int) -> Path:
        return Path(self.options.runs / f"{study}-{arm}-{seed}")

    def done(self, study: str, arm: str, seed: int) -> bool:
        return f"{study}-{arm}-{seed}" in self.outcomes

    def config(
        self, tasks: Sequence[str], parts: Sequence[str], seed: int, steps: int
    ) -> RunConfig:
        rows = self.options.rows
        model: dict[str, Any] = {"encoder": "minilm", "max_length": 128}
        if parts:
            model["conditional"] = {"parts": list(parts), "freeze": FROZEN, "embedding_start": 1.0}
        else:
            model["freeze"] = FROZEN
        return RunConfig(
            name="camtl",
            tasks=[{"name": task, "rows": rows} if rows else task for task in tasks],
            model=model,
            policy="random",
            budget={"steps": steps, "batch": BATCH},
            optimizer={"lr": 1e-4, "conditional_factor": 1},
            evaluate={"examples": self.options.examples, "every": max(1, steps // 4)},
            precision="bfloat16",
            seed=seed,
            data=os.environ["TASKMIX_DATA"],
            device="cpu",
        )

    def train(self, config: RunConfig, study: str, arm: str) -> None:
        """Run, or go on with the run, unless its outcome is stored."""
        if not self.done(study, arm, config.seed):
            folder = self.folder(study, arm, config.seed)
            scores = run(config, folder, resume=True)
            self.store(scores, folder, study, arm, config.seed)

    def store(
        self, scores: Finished, folder: Path, study: str, arm: str, seed: int, note: str = ""
    ) -> None:
        seconds, used = cost(folder)
        outcome = Outcome(
            study,
            arm,
            seed,
            {task: of_task.score for task, of_task in scores.tasks.items()},
            config_of(folder).budget.steps,
            scores.forward,
            scores.backward,
            used,
            round(seconds, 1),
            note,
            {task: of_task.metrics for task, of_task in scores.tasks.items()},
        )
        self.outcomes.add(f"{study}-{arm}-{seed}", asdict(outcome))
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        minutes = (time.monotonic() - self.began) / 60
        line = f"{study} {arm} seed {seed}: {100 * scores.score:.1f}"
        print(f"[{minutes:.1f} min] {line} {note}", file=sys.stderr, flush=True)

    def ladder(self, seed: int) -> None:
        """Table 1: one part more a rung, then MT-Uncertainty."""
        steps = self.options.steps
        for rung in self.options.rungs:
            parts = RUNGS[rung]
            config = self.config(GLUE, parts, seed, steps)
            if rung.startswith("mt-uncertainty"):
                selector = {"name": "mt_uncertainty", "passes": PASSES}
                affordable = paid_steps(steps) if rung.endswith("paid") else steps
                config = self.config(GLUE, parts, seed, affordable)
                config = changed(config, {"policy": None, "selection": selector}, rung)
            self.train(config, "ladder", rung)

    def figure7(self, seed: int) -> None:
        """All tasks, plain against conditioned; GLUE alone is the ladder's."""
        tasks = STAGES["all"]
        steps = self.options.steps * len(tasks) // len(GLUE)
        for arm, parts in (("plain", ()), ("conditioned", RUNGS["bottleneck"])):
            self.train(self.config(tasks, parts, seed, steps), "figure7", f"{arm}-all")

    def start(self, seed: int) -> None:
        """Plain and conditioned models with four starts, half and all of the layers frozen."""
        for frozen in self.options.frozen:
            count = START_FROZEN[frozen]
            self.train(self.start_config(seed, {"freeze": count}), "start", f"{frozen}-plain")
            for embedding, factor in STARTS:
                arm = f"{frozen}-{embedding:g}-{factor:g}"
                conditional = {"freeze": count, "embedding_start": embedding}
                config = self.start_config(seed, {"conditional": conditional}, factor)
                self.train(config, "start", arm)
                self.shuffle("start", arm, seed)

    def start_config(self, seed: int, model: dict[str, Any], factor: float = 1) -> RunConfig:
        steps = min(START_STEPS, self.options.steps)
        config = self.config(START_TASKS, (), seed, steps)
        values = {
            "model": {
                "encoder": "minilm",
                "layers": START_LAYERS,
                "max_length": START_LENGTH,
                **model,
            },
            "optimizer": {"lr": 2e-4, "conditional_factor": factor},
            "evaluate": {
                "examples": min(START_EXAMPLES, self.options.examples),
                "every": steps,
            },
        }
        return changed(config, values, "start")

    def shuffle(self, study: str, arm: str, seed: int) -> None:
        """Score the kept model with the id of the next task for every sequence."""
        name = f"{arm}-shuffled"
        folder = self.folder(study, arm, seed)
        if self.done(study, name, seed):
            return
        config, trained = config_of(folder), load_run(folder)
        model = trained.model
        assert isinstance(model, MultiTaskModel)
        tasks = list(model.kinds)
        model._ids = {task: (number + 1) % len(tasks) for number, task in enumerate(tasks)}
        scores = {}
        for task in tasks:
            split = read_split(trained.task(task), "dev", trained.tokenizer, None)
            split = split.at_most(config.evaluate.examples)
            result = evaluate(
                model, trained.task(task), split, 64, torch.device("cpu"), bfloat16=True
            )
            scores[task] = result.score
        outcome = Outcome(study, name, seed, scores, 0, 0, 0, 0.0, 0.0)
        self.outcomes.add(f"{study}-{name}-{seed}", asdict(outcome))

    def scitail(self, seed: int) -> None:
        """Few-shot SciTail: adapted from the ladder's model, and the encoder alone."""
        source = self.folder("ladder", "bottleneck", seed)
        steps = max(2, self.options.steps * 2 // 5)
        sets = [f"budget.steps={steps}", f"evaluate.every={max(1, steps // 5)}"]
        for fraction in FRACTIONS:
            for arm, train_all in (("adapted", True), ("adapted-frozen", False)):
                name = f"{arm}-{fraction:g}"
                if self.done("scitail", name, seed):
                    continue
                folder = self.folder("scitail", name, seed)
                if (folder / RUN).exists():
                    adapted = config_of(folder).model.adapt
                    scores, row = resume_run(folder), None if adapted is None else adapted.row
                else:
                    adaptation = adapt(
                        source,
                        "scitail",
                        folder,
                        source="best",
                        train_all=train_all,
                        fraction=fraction,
                        sets=sets,
                    )
                    assert adaptation.finished is not None
                    scores, row = adaptation.finished, adaptation.row
                self.store(scores, folder, "scitail", name, seed, f"from {row or 'random'}")
            self.train(self.alone(fraction, seed, steps), "scitail", f"alone-{fraction:g}")

    def alone(self, fraction: float, seed: int, steps: int) -> RunConfig:
        """The encoder alone on the same rows of SciTail that an adaptation sees."""
        config = self.config(["scitail"], (), seed, steps)
        [task] = resolve(config)
        rows = max(2, round(fraction * rows_of(task.split("train"))))
        return changed(config, {"tasks": [{"name": "scitail", "rows": rows}]}, "scitail")


def paid_steps(steps: int) -> int:
    """Return the number of steps of MT-Uncertainty that cost as much as the uniform policy's.

    A step of the uniform policy passes b examples forward and b backward. A step of MT-Uncertainty
    scores b candidates of each task, those of the regression once for each dropout mask, and then
    trains on b.
    """
    scored = (len(GLUE) - 1 + PASSES) * BATCH
    return max(1, steps * 2 * BATCH // (scored + 2 * BATCH))


def cost(folder: Path) -> tuple[float, float]:
    """Return the seconds of training, and the share of the training data that was used."""
    seconds, used = 0.0, None
    seen: dict[str, int] = {}
    opening, *records = read(folder / JOURNAL)
    assert isinstance(opening, Opening)
    sizes = opening.sizes
    for record in records:
        if isinstance(record, SelectionStep):
            used, seconds = record.used, seconds + (record.seconds or 0)
        elif isinstance(record, Step):
            seconds += record.seconds or 0
            seen[record.task] = seen.get(record.task, 0) + (record.examples or 0)
    if used is None:  # an epoch has each example once
        used = sum(min(count, sizes[task]) for task, count in seen.items()) / sum(sizes.values())
    return seconds, used


def of(found: Sequence[Outcome], study: str, arm: str) -> list[Outcome]:
    return sorted((o for o in found if (o.study, o.arm) == (study, arm)), key=lambda o: o.seed)


def ladder_table(found: Sequence[Outcome]) -> Iterator[str]:
    short = [task.removeprefix("glue/") for task in GLUE]
    head = ["rung", "seeds", "average", "task σ", "data used", *short]
    yield f"| {' | '.join([*head, 'forward', 'backward'])} |"
    yield "|---" * (len(GLUE) + 7) + "|"
    for rung in RUNGS:
        runs = of(found, "ladder", rung)
        if not runs:
            continue
        cells = [spread([100 * o.scores[task] for o in runs]) for task in GLUE]
        yield (
            f"| {rung} | {len(runs)} | {spread([o.average() for o in runs])} | "
            f"{spread([o.sigma() for o in runs])} | {mean(o.used for o in runs):.1%} | "
            f"{' | '.join(cells)} | {mean(o.forward for o in runs) / 1000:.0f}k | "
            f"{mean(o.backward for o in runs) / 1000:.0f}k |"
        )


def stage_outcomes(found: Sequence[Outcome], arm: str, stage: str) -> list[Outcome]:
    if stage == "glue":
        return of(found, "ladder", "mtl" if arm == "plain" else "bottleneck")
    return of(found, "figure7", f"{arm}-{stage}")


def figure7_table(found: Sequence[Outcome]) -> Iterator[str]:
    head = [f"{stage} ({len(tasks)})" for stage, tasks in STAGES.items()]
    yield f"| tasks | {' | '.join(head)} |"
    yield "|---" * (len(STAGES) + 1) + "|"
    for arm in ("plain", "conditioned"):
        cells = [
            spread([o.average() for o in stage_outcomes(found, arm, stage)]) for stage in STAGES
        ]
        yield f"| {arm}, mean of the GLUE tasks | {' | '.join(cells)} |"


def scitail_table(found: Sequence[Outcome]) -> Iterator[str]:
    yield "| SciTail | " + " | ".join(f"{fraction:.0%}" for fraction in FRACTIONS) + " |"
    yield "|---" * (len(FRACTIONS) + 1) + "|"
    for arm in ("adapted", "adapted-frozen", "alone"):
        cells = [
            spread([100 * o.scores["scitail"] for o in of(found, "scitail", f"{arm}-{f:g}")])
            for f in FRACTIONS
        ]
        yield f"| {arm} | {' | '.join(cells)} |"


def start_arms(frozen: str) -> list[str]:
    return [f"{frozen}-{embedding:g}-{factor:g}" for embedding, factor in STARTS]


def start_table(found: Sequence[Outcome]) -> Iterator[str]:
    yield "| embeddings | factor | half frozen | ids shuffled | all frozen | ids shuffled |"
    yield "|---" * 6 + "|"
    plain = [averages(found, f"{frozen}-plain") for frozen in START_FROZEN]
    yield f"| plain | | {spread(list(plain[0].values()))} | | {spread(list(plain[1].values()))} | |"
    for number, (embedding, factor) in enumerate(STARTS):
        arms = [start_arms(frozen)[number] for frozen in START_FROZEN]
        names = [name for arm in arms for name in (arm, f"{arm}-shuffled")]
        cells = [spread(list(averages(found, name).values())) for name in names]
        yield f"| {embedding:g} | {factor:g} | {' | '.join(cells)} |"


def averages(found: Sequence[Outcome], arm: str) -> dict[int, float]:
    """Return the averages of an arm of the study of the start, by seed."""
    return {o.seed: o.average(START_TASKS) for o in of(found, "start", arm)}


def start_gaps(found: Sequence[Outcome], ours: str, theirs: str) -> list[float]:
    """Return the differences of two arms, by the number of frozen layers and by seed."""
    pairs = [
        (averages(found, f"{frozen}-{ours}"), averages(found, f"{frozen}-{theirs}"))
        for frozen in START_FROZEN
    ]
    return [one[seed] - other[seed] for one, other in pairs for seed in one if seed in other]


def start_rules(found: Sequence[Outcome]) -> Iterator[str]:
    names = [arm.partition("-")[2] for arm in start_arms("half")]
    usual, *others = names
    above = {name: start_gaps(found, name, usual) for name in others}
    if any(len(values) < 2 for values in above.values()):
        return
    best = max(others, key=lambda name: mean(above[name]))
    error = stdev(above[best]) / len(above[best]) ** 0.5
    better = mean(above[best]) > error
    chosen = best if better else usual
    yield (
        f"6. {best} less {usual}: {shown(above[best])}, mean {mean(above[best]):+.1f}, standard "
        f"error {error:.1f}: the default is {chosen}"
    )
    lost = start_gaps(found, chosen, f"{chosen}-shuffled")
    yield f"7. {chosen} less shuffled ids: {shown(lost)}: {held(min(lost) > 0)}"
    gained = start_gaps(found, chosen, "plain")
    middle = len(gained) // 2
    both = [mean(gained[:middle]), mean(gained[middle:])]
    yield f"8. {chosen} less plain, half and all frozen: {shown(both)}: {held(min(both) > 0)}"


def gaps(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[float]:
    """Return the differences of the averages, seed by seed."""
    other = {o.seed: o for o in theirs}
    return [o.average() - other[o.seed].average() for o in ours if o.seed in other]


def rules(found: Sequence[Outcome]) -> Iterator[str]:
    """Yield what became of the rules whose runs are stored."""
    runs = {rung: of(found, "ladder", rung) for rung in RUNGS}
    if all(runs.values()):
        above = gaps(runs["bottleneck"], runs["mtl"])
        yield f"1. all parts less plain MTL: {shown(above)}: {held(min(above) >= 0)}"
        means = [mean(o.average() for o in runs[rung]) for rung in list(RUNGS)[:5]]
        rising = all(b >= a for a, b in pairwise(means))
        yield f"1. the ladder, {' '.join(f'{m:.1f}' for m in means)}: {held(rising)}"
        sigmas = [mean(o.sigma() for o in runs[rung]) for rung in ("mtl", "mt-uncertainty")]
        yield f"2. task sigma {sigmas[0]:.1f} to {sigmas[1]:.1f}: {held(sigmas[1] < sigmas[0])}"
        used = [mean(o.used for o in runs[rung]) for rung in ("bottleneck", "mt-uncertainty")]
        yield f"3. data used {used[0]:.1%} to {used[1]:.1%}: {held(used[1] < used[0])}"
        level = gaps(runs["mt-uncertainty-paid"], runs["bottleneck"])
        yield f"3. paid less random: {shown(level)}: {held(mean(level) >= 0)}"
    changes = {
        arm: gaps(stage_outcomes(found, arm, "all"), stage_outcomes(found, arm, "glue"))
        for arm in ("plain", "conditioned")
    }
    if all(changes.values()):
        better = mean(changes["conditioned"]) > mean(changes["plain"])
        words = ", ".join(f"{arm} {shown(change)}" for arm, change in changes.items())
        yield f"4. from GLUE to all tasks: {words}: {held(better)}"
    for fraction in FRACTIONS:
        pair = [of(found, "scitail", f"{arm}-{fraction:g}") for arm in ("adapted", "alone")]
        if all(pair):
            above = [
                100 * (a.scores["scitail"] - b.scores["scitail"])
                for a, b in zip(*pair, strict=False)
            ]
            yield f"5. SciTail {fraction:.0%}: {shown(above)}: {held(min(above) > 0)}"


def shown(values: Sequence[float]) -> str:
    return " ".join(f"{value:+.1f}" for value in values)


def table(outcomes: Outcomes) -> str:
    found = [Outcome(**values) for values in outcomes.values()]
    tables = [ladder_table(found), figure7_table(found), scitail_table(found), start_table(found)]
    lines = [f"- {line}" for line in [*rules(found), *start_rules(found)]]
    return "\n\n".join("\n".join(part) for part in [*tables, lines])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--rungs", nargs="+", choices=RUNGS, default=list(RUNGS))
    parser.add_argument(
        "--frozen", nargs="+", choices=START_FROZEN, default=list(START_FROZEN), help="of start"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="of a GLUE run")
    parser.add_argument("--examples", type=int, default=400, help="dev examples of a task, at most")
    parser.add_argument("--rows", type=int, help="training rows of a task; all if not given")
    options = parser.parse_args(arguments)
    study = Study(options)
    for seed in [] if options.table else options.seeds:
        for name in options.only:
            getattr(study, name)(seed)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
