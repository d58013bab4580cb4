"""CA-MTL (Pilault et al. 2021) in our numbers: Table 1's ladder, Figure 7's question, SciTail.

    python scripts/camtl_ladder.py --runs studies/camtl --out docs/outcomes/camtl

TASKMIX_DATA names the folder of the official data sets. Every finished run is a JSON file in OUT and
is not run again, an unfinished one is resumed; the tables are printed from what is there. Start it
once a core with seeds of its own.

MiniLM with 6 layers, the lower 3 and the embeddings frozen, mean pooling, bfloat16; 500 steps of 16
for the eight GLUE tasks; at most 400 dev examples of a task; the best of four evaluations is kept;
one learning rate for all rungs. Rungs up to the bottleneck draw tasks at random. MT-Uncertainty
comes twice: with as many steps, and `paid`, with as many examples passed forward and backward in
all as the random rungs, so that scoring is paid for.

Rules, written before the first run (means over three seeds, compared seed by seed):

1. All parts under random draws have an average at or above plain MTL's with every seed. The ladder
   is reproduced if no rung's mean is below that of the rung before; otherwise it is not, and the
   table says where. (Paper: 80.61, 82.41, 82.90, 83.12, 84.03.)
2. Task sigma of all parts with MT-Uncertainty is below plain MTL's. (Paper: 14.41 to 10.02.)
3. MT-Uncertainty uses less of the data than random draws at equal steps (paper: 66.3% against
   100%), and `paid` has an average at or above that of all parts under random draws.
4. Figure 7: from GLUE alone to all tasks, the conditioned model's average over the eight GLUE tasks
   changes by more (falls by less) than the plain model's. Steps grow with the tasks, so that a task
   keeps its expected examples.
5. SciTail at 1% and at 10%: adapted from the GLUE model (best embedding, all trained), the accuracy
   is above that of the encoder alone with every seed. MiniLM was made with NLI pairs, so that
   neither is clean.

A rule that does not hold is reported as not held.
"""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # start one a core, each with seeds of its own

from taskmix.config import RunConfig, changed
from taskmix.files import write_whole
from taskmix.journal import SelectionStep, Step, read
from taskmix.studies.adapt import adapt
from taskmix.studies.analyse import task_sigma
from taskmix.tasks.sizes import rows_of
from taskmix.training.folder import CHECKPOINTS, JOURNAL, RUN, Finished, config_of
from taskmix.training.prepare import resolve
from taskmix.training.run import resume_run, run

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
STUDIES = ("ladder", "figure7", "scitail")


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Args:
        study: which of the studies.
        arm: which of its arms.
        seed: of the run.
        scores: by task, the dev score of the kept model.
        steps: optimiser steps.
        forward: examples that passed forward in training and scoring.
        backward: examples that passed backward.
        used: the share of all training examples that were trained on at least once.
        seconds: of training.
        note: what else there is to say: the embedding that an adaptation started from.
    """

    study: str
    arm: str
    seed: int
    scores: dict[str, float]
    steps: int
    forward: int
    backward: int
    used: float
    seconds: float
    note: str = ""

    def average(self, tasks: Sequence[str] = GLUE) -> float:
        """The mean score over the tasks, of 100."""
        return 100 * mean(self.scores[task] for task in tasks if task in self.scores)

    def sigma(self) -> float:
        """Task sigma over the GLUE tasks, of 100."""
        return 100 * task_sigma({task: self.scores[task] for task in GLUE if task in self.scores})


class Study:
    """Runs what is missing, and keeps what it came to."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.began = time.monotonic()
        options.out.mkdir(parents=True, exist_ok=True)

    def place(self, study: str, arm: str, seed: int) -> Path:
        return self.options.out / f"{study}-{arm.replace('/', '-')}-{seed}.json"

    def folder(self, study: str, arm: str, seed: int) -> Path:
        return self.options.runs / f"{study}-{arm}-{seed}"

    def config(
        self, tasks: Sequence[str], parts: Sequence[str], seed: int, steps: int
    ) -> RunConfig:
        model: dict[str, Any] = {"encoder": "minilm", "max_length": 128}
        if parts:
            model["conditional"] = {"parts": list(parts), "freeze": FROZEN}
        else:
            model["freeze"] = FROZEN
        return RunConfig(
            name="camtl",
            tasks=list(tasks),
            model=model,
            budget={"steps": steps, "batch": BATCH},
            optimizer={"lr": 1e-4},
            evaluate={"examples": self.options.examples, "every": max(1, steps // 4)},
            precision="bfloat16",
            seed=seed,
            data=os.environ["TASKMIX_DATA"],
            device="cpu",
        )

    def play(self, config: RunConfig, study: str, arm: str) -> None:
        """Run, or go on with, a run, unless its outcome is there."""
        if self.place(study, arm, config.seed).exists():
            return
        folder = self.folder(study, arm, config.seed)
        done = resume_run(folder) if (folder / RUN).exists() else run(config, folder)
        self.keep(done, folder, study, arm, config.seed)

    def keep(
        self, done: Finished, folder: Path, study: str, arm: str, seed: int, note: str = ""
    ) -> None:
        seconds, used = told(folder)
        outcome = Outcome(
            study,
            arm,
            seed,
            {task: scores.score for task, scores in done.tasks.items()},
            config_of(folder).budget.steps,
            done.forward,
            done.backward,
            used,
            round(seconds, 1),
            note,
        )
        write_whole(self.place(study, arm, seed), json.dumps(asdict(outcome), indent=1) + "\n")
        shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
        minutes = (time.monotonic() - self.began) / 60
        what = f"{study} {arm} seed {seed}: {100 * done.score:.1f}"
        print(f"[{minutes:.1f} min] {what} {note}", file=sys.stderr, flush=True)

    def ladder(self, seed: int) -> None:
        """Table 1: one part more a rung, then MT-Uncertainty."""
        steps = self.options.steps
        for rung, parts in RUNGS.items():
            config = self.config(GLUE, parts, seed, steps)
            if rung.startswith("mt-uncertainty"):
                taken = paid(steps) if rung.endswith("paid") else steps
                chooser = {"name": "mt_uncertainty", "passes": PASSES}
                config = self.config(GLUE, parts, seed, taken)
                config = changed(config, {"policy": None, "selection": chooser}, rung)
            self.play(config, "ladder", rung)

    def figure7(self, seed: int) -> None:
        """All tasks, plain against conditioned; GLUE alone is the ladder's."""
        tasks = STAGES["all"]
        steps = self.options.steps * len(tasks) // len(GLUE)
        for arm, parts in (("plain", ()), ("conditioned", RUNGS["bottleneck"])):
            self.play(self.config(tasks, parts, seed, steps), "figure7", f"{arm}-all")

    def scitail(self, seed: int) -> None:
        """Few-shot SciTail: adapted from the ladder's model, and the encoder alone."""
        source = self.folder("ladder", "bottleneck", seed)
        steps = max(2, self.options.steps * 2 // 5)
        sets = [f"budget.steps={steps}", f"evaluate.every={max(1, steps // 5)}"]
        for fraction in FRACTIONS:
            for arm, train_all in (("adapted", True), ("adapted-frozen", False)):
                name = f"{arm}-{fraction:g}"
                if self.place("scitail", name, seed).exists():
                    continue
                folder = self.folder("scitail", name, seed)
                if (folder / RUN).exists():
                    found = config_of(folder).model.adapt
                    done, row = resume_run(folder), found.row if found is not None else None
                else:
                    made = adapt(
                        source,
                        "scitail",
                        folder,
                        source="best",
                        train_all=train_all,
                        fraction=fraction,
                        sets=sets,
                    )
                    assert made.finished is not None
                    done, row = made.finished, made.row
                self.keep(done, folder, "scitail", name, seed, f"from {row or 'random'}")
            self.play(self.alone(fraction, seed, steps), "scitail", f"alone-{fraction:g}")

    def alone(self, fraction: float, seed: int, steps: int) -> RunConfig:
        """The encoder alone on the same rows of SciTail that an adaptation sees."""
        config = self.config(["scitail"], (), seed, steps)
        [task] = resolve(config)
        rows = max(2, round(fraction * rows_of(task.split("train"))))
        return changed(config, {"tasks": [{"name": "scitail", "rows": rows}]}, "scitail")

    def outcomes(self) -> list[Outcome]:
        paths = sorted(self.options.out.glob("*.json"))
        return [Outcome(**json.loads(path.read_text())) for path in paths]


def paid(steps: int) -> int:
    """Steps of MT-Uncertainty that cost as many examples, forward and backward, as random steps.

    A random step passes b examples forward and b backward. A step of MT-Uncertainty scores b
    candidates of each task, those of the regression once for each mask, and then trains on b.
    """
    scored = (len(GLUE) - 1 + PASSES) * BATCH
    return max(1, steps * 2 * BATCH // (scored + 2 * BATCH))


def told(folder: Path) -> tuple[float, float]:
    """Seconds of training, and the share of the training data that was used, from the journal."""
    seconds, used, seen = 0.0, None, {}
    records = list(read(folder / JOURNAL))
    sizes: dict[str, int] = records[0].sizes
    for record in records:
        if isinstance(record, SelectionStep):
            used, seconds = record.used, seconds + (record.seconds or 0)
        elif isinstance(record, Step):
            seconds += record.seconds or 0
            seen[record.task] = seen.get(record.task, 0) + (record.examples or 0)
    if used is None:  # an epoch has each example once
        used = sum(min(count, sizes[task]) for task, count in seen.items()) / sum(sizes.values())
    return seconds, used


def figure(values: Sequence[float]) -> str:
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{spread}" if values else "-"


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
        cells = [figure([100 * o.scores[task] for o in runs]) for task in GLUE]
        yield (
            f"| {rung} | {len(runs)} | {figure([o.average() for o in runs])} | "
            f"{figure([o.sigma() for o in runs])} | {mean(o.used for o in runs):.1%} | "
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
            figure([o.average() for o in stage_outcomes(found, arm, stage)]) for stage in STAGES
        ]
        yield f"| {arm}, mean of the GLUE tasks | {' | '.join(cells)} |"


def scitail_table(found: Sequence[Outcome]) -> Iterator[str]:
    yield "| SciTail | " + " | ".join(f"{fraction:.0%}" for fraction in FRACTIONS) + " |"
    yield "|---" * (len(FRACTIONS) + 1) + "|"
    for arm in ("adapted", "adapted-frozen", "alone"):
        cells = [
            figure([100 * o.scores["scitail"] for o in of(found, "scitail", f"{arm}-{f:g}")])
            for f in FRACTIONS
        ]
        yield f"| {arm} | {' | '.join(cells)} |"


def gaps(ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[float]:
    """Differences of the averages, seed by seed."""
    other = {o.seed: o for o in theirs}
    return [o.average() - other[o.seed].average() for o in ours if o.seed in other]


def rules(found: Sequence[Outcome]) -> Iterator[str]:
    """What became of the rules, where the runs are there."""
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


def held(holds: bool) -> str:
    return "held" if holds else "NOT held"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the run folders")
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--steps", type=int, default=STEPS, help="of a GLUE run")
    parser.add_argument("--examples", type=int, default=400, help="dev examples of a task, at most")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    study = Study(options)
    for seed in [] if options.table else options.seeds:
        for name in options.only:
            getattr(study, name)(seed)
    found = study.outcomes()
    for lines in (ladder_table, figure7_table, scitail_table, rules):
        print(*lines(found), sep="\n")
        print()


if __name__ == "__main__":
    main()
