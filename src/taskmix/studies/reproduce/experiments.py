"""The ways in which a recipe runs: comparisons, AutoSeM, adaptations, the bandit."""

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig, changed
from taskmix.studies.compare import compare, run_seconds
from taskmix.studies.contestants import ALONE
from taskmix.studies.reproduce.measures import MEASURES
from taskmix.studies.reproduce.recipe import Adaptation, Recipe, ScaleName, Values, series_name
from taskmix.training.folder import JOURNAL

if TYPE_CHECKING:
    from taskmix.studies.comparison import Comparison
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher

_SEEDS_APART = 1000
"""Added to the seeds of each further target, so that pairs of target and seed differ."""
ADAPTED, FROZEN = "adapted", "adapted, frozen"
"""Contestants of an adaptation: all parameters are trained, or the new embedding and head alone."""


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
                self._measure(comparison, panel, _SEEDS_APART * number)

    def _measure(self, comparison: "Comparison", panel: str, offset: int) -> None:
        """Add the measures of all runs of a comparison; a contestant may diverge in all of them."""
        for measure, named in self.recipe.measures.items():
            for name in named or self.recipe.contestants:
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
                settings = AutosemSettings(**self.recipe.autosem_settings(self.scale, name))
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
                        self._add(series, _SEEDS_APART * number + final.seed, final.value)

    def _adapt(self, adaptation: Adaptation) -> None:
        """Adapt a trained model to each new task with each fraction of its rows."""
        source = self.recipe.config(self.scale, sets=self.sets)
        trained = self._run(source, [source.decider], self.seeds, self.folder / "source")
        [folders] = trained.folders.values()
        [seeds] = trained.seeds.values()
        for seed, folder in zip(seeds, folders, strict=True):
            for number, task in enumerate(adaptation.tasks):
                for fraction in adaptation.fractions:
                    if fraction == 0:
                        self._zero_shot(folder, task, seed)
                    else:
                        new = _NewTask(folder, task, fraction, adaptation.sets)
                        self._adapt_to(new, seed, _SEEDS_APART * number + seed)

    def _zero_shot(self, source: Path, task: str, seed: int) -> None:
        """Add the zero-shot score of each embedding, with the best of the heads that fit."""
        from taskmix.studies.adapt import adapt

        out = self.folder / "zero-shot" / task.replace("/", "-") / f"seed-{seed}"
        table = adapt(source, task, out, fraction=0, data=self.data).table
        for row in dict.fromkeys(result.row for result in table):
            best = max(result.score for result in table if result.row == row)
            self._add(series_name(row, task), seed, best)

    def _adapt_to(self, new: "_NewTask", seed: int, key: int) -> None:
        """Add the score of each contestant on a new task, with one seed."""
        place = self.folder / new.task.replace("/", "-") / new.percent.removesuffix("%")
        for name in self.recipe.contestants:
            out = place / name.replace(", ", "-") / f"seed-{seed}"
            if name == ALONE:
                finished = self._encoder_alone(new, out)
            else:
                finished = self._from_source(new, out, name)
            self._add(series_name(name, new.percent), key, finished.tasks[new.task].score)

    def _from_source(self, new: "_NewTask", out: Path, name: str) -> "Finished":
        from taskmix.studies.adapt import BEST, adapt
        from taskmix.training.folder import RUN
        from taskmix.training.run import resume_run

        if (out / RUN).exists():
            return resume_run(out)
        result = adapt(
            new.source,
            new.task,
            out,
            source=BEST,
            train_all=name == ADAPTED,
            fraction=new.fraction,
            sets=new.sets,
            data=self.data,
            watchers=self._watchers(new, name),
        )
        assert result.finished is not None  # its fraction is not 0
        return result.finished

    def _encoder_alone(self, new: "_NewTask", out: Path) -> "Finished":
        """Train the encoder without the other tasks on the same rows."""
        from taskmix.studies.adapt import adapted_config
        from taskmix.training.folder import config_of
        from taskmix.training.run import run

        before = config_of(new.source)
        config = adapted_config(before, new.task, new.fraction, new.sets, self.data)
        conditional = config.model.conditional
        frozen = 0 if conditional is None else conditional.freeze
        model = config.model.model_dump() | {"conditional": None, "freeze": frozen}
        plain = changed(config, {"model": model}, ALONE)
        return run(plain, out, resume=True, watchers=self._watchers(new, ALONE))

    def _watchers(self, new: "_NewTask", name: str) -> "Sequence[Watcher]":
        from taskmix.training.folder import config_of

        if self.watch is None:
            return []
        return [self.watch(config_of(new.source), f"{name}, {new.task}, {new.percent}")]


@dataclass(frozen=True)
class _NewTask:
    """A task that the model of a source run is adapted to, and the fraction of its rows."""

    source: Path
    task: str
    fraction: float
    sets: Sequence[str]

    @property
    def percent(self) -> str:
        return f"{100 * self.fraction:g}%"


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
