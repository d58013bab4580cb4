"""The ways in which a recipe runs: comparisons, AutoSeM, adaptations, the bandit."""

import json
import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig, changed
from taskmix.files import write_whole
from taskmix.studies.compare import LOCKS, compare, run_job, run_seconds
from taskmix.studies.contestants import ALONE, Job
from taskmix.studies.locks import FileLocks, Result
from taskmix.studies.reproduce.measures import MEASURES
from taskmix.studies.reproduce.recipe import (
    SEEDS_APART,
    Adaptation,
    Recipe,
    ScaleName,
    Values,
    series_name,
)
from taskmix.studies.workers import Runner, helpers
from taskmix.training.folder import JOURNAL

if TYPE_CHECKING:
    from taskmix.studies.comparison import Comparison
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher


@dataclass
class Experiment:
    """The runs of a recipe at one size.

    Args:
        recipe: the recipe.
        scale: the size.
        folder: of the runs.
        seeds: of the runs.
        workers: processes on this machine.
        sets: changes of the run file, as in `taskmix run --set`.
        data: the folder of the official data sets.
        watch: creates the watcher of a run.
    """

    recipe: Recipe
    scale: ScaleName
    folder: Path
    seeds: Sequence[int]
    workers: int = 1
    sets: Sequence[str] = ()
    data: str | None = None
    watch: "Callable[[RunConfig, str], Watcher] | None" = None

    def __post_init__(self) -> None:
        self.values: dict[str, dict[int, float]] = {}

    def run(self) -> tuple[Values, float]:
        """Run what is missing; return the values, and the seconds of training."""
        if self.recipe.bandit:
            began = time.monotonic()
            return bandit_values(self.recipe, self.scale, self.workers), time.monotonic() - began
        if self.recipe.autosem is not None:
            self._autosem()
        elif (adaptation := self.recipe.scale(self.scale).adapt) is not None:
            self._adapt(adaptation)
        else:
            self._compare()
        return self.values, sum(run_seconds(p.parent) for p in self.folder.rglob(JOURNAL))

    def _add(self, series: str, seed: int, value: float) -> None:
        self.values.setdefault(series, {})[seed] = value

    def _compare(self) -> None:
        for panel in self.recipe.panels_of(self.scale):
            for number, target in enumerate(self.recipe.targets or ("",)):
                config = self.recipe.config(self.scale, target, panel, self.sets)
                parts = [part.replace("/", "-") for part in (panel, target) if part]
                comparison = self._compared(config, target, self.folder.joinpath(*parts))
                self._measure(comparison, panel, SEEDS_APART * number)

    def _measure(self, comparison: "Comparison", panel: str, offset: int) -> None:
        """Add the measures of all runs of a comparison; a contestant may diverge in all of them."""
        for measure, named in self.recipe.measures.items():
            for name in named or self.recipe.contestants_of(self.scale):
                runs, seeds = comparison.runs.get(name, ()), comparison.seeds.get(name, ())
                folders = comparison.folders.get(name) or [Path()] * len(runs)
                for seed, run, folder in zip(seeds, runs, folders, strict=True):
                    for part, value in MEASURES[measure](run, folder).items():
                        self._add(series_name(name, panel, part), offset + seed, value)

    def _compared(self, config: RunConfig, target: str, folder: Path) -> "Comparison":
        specs = self.recipe.contestants_of(self.scale, target)
        plain = [spec for spec in specs.values() if not _is_learned(spec)]
        comparison = self._run(config, plain, self.seeds, folder)
        for spec in specs.values():
            if _is_learned(spec):
                finished = comparison.seeds.get(spec["learned_from"], ())
                for seed in (seed for seed in self.seeds if seed in finished):
                    learned = _learned(spec, comparison, seed)
                    comparison = self._run(config, [learned], [seed], folder)
        return comparison

    def _run(
        self, config: RunConfig, specs: Sequence[Any], seeds: Sequence[int], folder: Path
    ) -> "Comparison":
        return compare(config, specs, seeds, folder, workers=self.workers, watch=self.watch)

    def _autosem(self) -> None:
        """Run AutoSeM for each target and contestant; the values are those of its final runs."""
        from taskmix.studies.autosem import AutosemSettings, autosem

        for number, target in enumerate(self.recipe.targets):
            config = self.recipe.config(self.scale, target, sets=self.sets)
            for name, spec in self.recipe.contestants.items():
                if spec == ALONE:
                    continue
                settings = AutosemSettings(**self.recipe.autosem_settings(self.scale, name, target))
                folder = self.folder / target.replace("/", "-") / name
                result = autosem(
                    config,
                    target,
                    None,
                    folder,
                    settings=settings,
                    seeds=self.seeds,
                    workers=self.workers,
                    watch=self.watch,
                )
                alone = next(n for n, each in self.recipe.contestants.items() if each == ALONE)
                for series, finals in ((name, result.finals), (alone, result.alone)):
                    for final in finals:
                        if math.isfinite(final.value):  # else it diverged
                            self._add(series, SEEDS_APART * number + final.seed, final.value)

    def _adapt(self, adaptation: Adaptation) -> None:
        """Adapt a trained model to each new task with each fraction of its rows."""
        source = self.recipe.config(self.scale, sets=self.sets)
        trained = self._run(source, [source.decider], self.seeds, self.folder / "source")
        [folders] = trained.folders.values()
        [seeds] = trained.seeds.values()
        sources = dict(zip(seeds, folders, strict=True))
        if 0 in adaptation.fractions:
            self._zero_shot(adaptation.tasks, sources)
        self._train_on_new_tasks(adaptation, sources)

    def _zero_shot(self, tasks: Sequence[str], sources: Mapping[int, Path]) -> None:
        """Add the zero-shot score of each embedding, with the best of the heads that fit."""
        work = {
            f"{task}/seed-{seed}": partial(zero_shot_scores, source, task, self.folder, self.data)
            for seed, source in sources.items()
            for task in tasks
        }
        done = self._shared(work)
        for seed in sources:
            for task in tasks:
                for row, score in done[f"{task}/seed-{seed}"].items():
                    self._add(series_name(row, task), seed, score)

    def _train_on_new_tasks(self, adaptation: Adaptation, sources: Mapping[int, Path]) -> None:
        """Add the score of each contestant on each new task, with each fraction and seed."""
        runner = Runner(watch=self.watch)
        trainings = {
            (name, fraction, SEEDS_APART * number + seed): NewTask(
                source, task, fraction, adaptation.sets, name, seed, self.folder, self.data
            )
            for seed, source in sources.items()
            for number, task in enumerate(adaptation.tasks)
            for fraction in filter(None, adaptation.fractions)
            for name in self.recipe.contestants
        }
        done = self._shared({new.name: partial(new.train, runner) for new in trainings.values()})
        for (name, _, seed), new in trainings.items():
            if (finished := done[new.name]) is not None:  # else it diverged
                self._add(series_name(name, new.percent), seed, finished.tasks[new.task].score)

    def _shared(self, work: Mapping[str, Callable[[], Result]]) -> dict[str, Result]:
        """Do work that is divided among the workers of the folder; return the results by name."""
        if not work:
            return {}
        locks = FileLocks(self.folder / LOCKS)
        with helpers(self.workers - 1, locks.share, work):
            return locks.share(work)


@dataclass(frozen=True)
class NewTask:
    """The training of a contestant on a new task, with a fraction of its rows.

    Args:
        source: the run whose model is adapted.
        task: the new task.
        fraction: of its training rows.
        sets: changes of the run file.
        contestant: `alone`, for the encoder without the other tasks, on the same rows; any other
            name is that of the source's model, all of whose parameters are trained.
        seed: of the source.
        out: the folder of the recipe.
        data: the folder of the official data sets.
    """

    source: Path
    task: str
    fraction: float
    sets: Sequence[str]
    contestant: str
    seed: int
    out: Path
    data: str | None

    @property
    def percent(self) -> str:
        return f"{100 * self.fraction:g}%"

    @property
    def name(self) -> str:
        place = f"{self.task.replace('/', '-')}/{self.percent.removesuffix('%')}"
        return f"{place}/{self.contestant}/seed-{self.seed}"

    def train(self, runner: Runner) -> "Finished | None":
        """Train, resume or read the run; return None if it diverges."""
        label = f"{self.contestant}, {self.task}, {self.percent}"
        folder = self.out / self.name
        return run_job(Job(label, self._config(folder), folder, self.name), runner)

    def _config(self, folder: Path) -> RunConfig:
        from taskmix.config import asked_for
        from taskmix.studies.adapt import BEST, adapted_config, prepare_adaptation
        from taskmix.training.folder import RUN, config_of

        if (folder / RUN).exists():  # the embedding and the head to start from are chosen
            return asked_for(config_of(folder))
        if self.contestant != ALONE:
            return prepare_adaptation(
                self.source,
                self.task,
                source=BEST,
                train_all=True,
                fraction=self.fraction,
                sets=self.sets,
                data=self.data,
            )[0]
        before = config_of(self.source)
        config = adapted_config(before, self.task, self.fraction, self.sets, self.data)
        conditional = config.model.conditional
        frozen = 0 if conditional is None else conditional.freeze
        model = config.model.model_dump() | {"conditional": None, "freeze": frozen}
        return changed(config, {"model": model}, ALONE)


def zero_shot_scores(source: Path, task: str, out: Path, data: str | None) -> dict[str, float]:
    """Return the best zero-shot score of each embedding on a new task; a stored one is read."""
    from taskmix.studies.adapt import adapt

    path = out / "zero-shot" / task.replace("/", "-") / f"{source.name}.json"
    if not path.exists():
        table = adapt(source, task, path.parent, fraction=0, data=data).table
        best = {r.row: max(o.score for o in table if o.row == r.row) for r in table}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(best) + "\n")
    scores: dict[str, float] = json.loads(path.read_text())
    return scores


def _is_learned(spec: Any) -> bool:
    return isinstance(spec, Mapping) and "learned_from" in spec


def _learned(spec: Mapping[str, Any], comparison: "Comparison", seed: int) -> dict[str, Any]:
    """Return the counterfactual policy that is learned from another contestant's run."""
    from taskmix.offpolicy import FarPolicyWarning, Log, improve

    source = spec["learned_from"]
    folders = dict(zip(comparison.seeds[source], comparison.folders[source], strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarPolicyWarning)  # the paper's λ is small for one log
        policy = improve(Log.from_journal(folders[seed]), spec["entropy_weight"])
    shares = dict(zip(policy.tasks, policy.probabilities().tolist(), strict=True))
    return {"name": "fixed", "probabilities": shares, "as": spec["as"]}


def bandit_values(recipe: Recipe, scale: ScaleName, workers: int) -> Values:
    """Return the final score of each policy by bandit: the median over seeds."""
    from taskmix.bandit import CONTENDERS
    from taskmix.bandit import compare as compare_in_bandit
    from taskmix.studies.counterfactual_bandit import counterfactual_curves

    settings = {**recipe.bandit, **recipe.scale(scale).bandit}
    names = [name for name in recipe.contestants if name in CONTENDERS]
    makers = {name: CONTENDERS[name] for name in names}
    played = compare_in_bandit(makers, **settings, workers=workers)
    values = {name: dict(enumerate(played.medians(name).tolist())) for name in names}
    if "counterfactual" in recipe.contestants:
        finals = counterfactual_curves(**settings, seed=0)[:, :, -1]
        values["counterfactual"] = {e: median(scores) for e, scores in enumerate(finals.tolist())}
    return {name: values[name] for name in recipe.contestants}
