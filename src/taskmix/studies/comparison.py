"""The result of a comparison: its verdict and its tables."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from taskmix.config import Objective
from taskmix.studies.paired import (
    LOSSES,
    SCORES,
    Difference,
    Unit,
    differences,
    how_tested,
    interval_words,
    p_words,
)
from taskmix.studies.verdict import Verdict, verdict
from taskmix.tables import Column, Table, TableCell, Tabled, Value, duration, hundredths
from taskmix.training.folder import Finished

FEW_DEV_ROWS = 30
MAX_NAMES = 3  # of a list in a sentence


@dataclass(frozen=True, repr=False)
class Comparison(Tabled):
    """The finished runs of each contestant.

    Args:
        runs: by contestant, its runs, one a seed, in the same order of seeds.
        folders: by contestant, their folders; those of single-task trainings are left out.
        baseline: the contestant that the others are compared with; the first if None.
        objective: the objective of all runs; None means the mean score over all tasks.
        seeds: by contestant, the seeds of its runs; the same for all contestants if empty.
        looks: by contestant, the numbers of seeds at which it was tested before.
        diverged: by contestant, the seeds with which it diverged, if there are any.
        seconds: by contestant, the training time of each run, where it is known.
    """

    runs: Mapping[str, Sequence[Finished]]
    folders: Mapping[str, Sequence[Path]]
    baseline: str | None = None
    objective: Objective | None = None
    seeds: Mapping[str, Sequence[int]] = field(default_factory=dict)
    looks: Mapping[str, Sequence[int]] = field(default_factory=dict)
    diverged: Mapping[str, Sequence[int]] = field(default_factory=dict)
    seconds: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        """The tasks, in order."""
        return list(next(iter(self.runs.values()))[0].tasks)

    def score(self, policy: str, task: str | None = None) -> list[float]:
        """By seed, a policy's score on a task; on the average over tasks if None."""
        return [run.score if task is None else run.tasks[task].score for run in self.runs[policy]]

    @property
    def unit(self) -> Unit:
        """How tables give its values."""
        return unit_of(self.objective)

    def value(self, policy: str, task: str) -> list[float]:
        """By seed, a policy's score on a task; if the objective is a loss, its loss times -1."""
        if self.unit is LOSSES:
            return [-run.tasks[task].loss for run in self.runs[policy]]
        return self.score(policy, task)

    def outcome(self, policy: str) -> list[float]:
        """By seed, the objective of a policy; the average over tasks if none is named.

        The objective of a weighting's run is then the score of its target, which policies and
        selectors do not have, so the average is used for all deciders.
        """
        if self.objective is None:
            return self.score(policy)
        return [run.score if run.objective is None else run.objective for run in self.runs[policy]]

    def best(self) -> str:
        """Return the policy with the highest mean outcome; one that diverged comes last."""
        return max(
            self.runs, key=lambda policy: (policy not in self.diverged, mean(self.outcome(policy)))
        )

    def differences(self, task: str | None = None) -> dict[str, Difference]:
        """Return how much each policy is better than the baseline on a task; in all if None."""
        scores = {
            policy: self.outcome(policy) if task is None else self.value(policy, task)
            for policy in self.runs
        }
        by_seed = {policy: self._by_seed(policy, values) for policy, values in scores.items()}
        return differences(by_seed, self._against, self.looks)

    def _by_seed(self, policy: str, values: Sequence[float]) -> dict[int, float]:
        return dict(zip(self.seeds.get(policy) or range(len(values)), values, strict=True))

    def verdict(self) -> Verdict:
        """Return who won, by how much, whether it is more than noise, and its cost.

        A contestant that diverged is left out, because its other seeds are a biased selection.
        """
        cost = {
            policy: mean(run.forward + run.backward for run in runs)
            for policy, runs in self.runs.items()
        }
        tested = {name: d for name, d in self.differences().items() if name not in self.diverged}
        result = verdict(tested, self._against, self.unit, cost)
        sentences = [
            result.sentence,
            *self._diverged_sentences(),
            *self._baseline_sentences(),
            *few_dev_rows(self._dev_rows()),
        ]
        return replace(result, sentence=" ".join(sentences))

    def _dev_rows(self) -> dict[str, int]:
        """Return the dev rows of the tasks that the contestants are judged by."""
        scores = next(iter(self.runs.values()))[0].tasks
        judged = self.tasks if self.objective is None else self.objective.tasks
        return {task: scores[task].examples for task in judged}

    def _constant(self, task: str) -> float | None:
        """Return the score of the best constant prediction on a task."""
        return next(iter(self.runs.values()))[0].tasks[task].baseline

    def _baseline_sentences(self) -> list[str]:
        """Return a sentence on the tasks that no contestant has learned."""
        best = {
            task: (max(mean(self.score(name, task)) for name in self.runs), self._constant(task))
            for task in self.tasks
        }
        return below_baseline(best)

    def _diverged_sentences(self) -> list[str]:
        return [
            f"{name} diverged with {'seed' if len(seeds) == 1 else 'seeds'} "
            f"{', '.join(map(str, seeds))}."
            for name, seeds in self.diverged.items()
        ]

    def all_differences(self) -> list[tuple[str, dict[str, Difference]]]:
        """Return the differences in the measure that contestants are judged by, then by task."""
        measure = "mean" if self.objective is None else self.objective.words
        by_task = ((task, self.differences(task)) for task in self.tasks)
        return [(measure, self.differences()), *by_task]

    @property
    def _against(self) -> str:
        return self.baseline or next(iter(self.runs))

    def tables(self) -> list[Table]:
        """Return the scores; with several contestants, their differences and their wins."""
        return [self.scores_table(), *self.differences_tables(), *self.wins_tables()]

    def scores_table(self) -> Table:
        """Return a row for each task: contestants are few, tasks may be many."""
        unit = self.unit
        values = [(task, [self.value(name, task) for name in self.runs]) for task in self.tasks]
        if unit is SCORES:
            values.append(("mean", [self.score(name) for name in self.runs]))
        if self.objective is not None:
            values.append((self.objective.words, [self.outcome(name) for name in self.runs]))
        rows: list[list[Value]] = [
            [name, *(unit.spread(seeds) for seeds in row)] for name, row in values
        ]
        columns = [Column("task"), *(Column(name, ",.0f") for name in self.runs)]
        constants = [self._constant(task) for task in self.tasks]
        has_constant = unit is SCORES and any(score is not None for score in constants)
        best = {(i, j) for i, (_, row) in enumerate(values) for j in _best(row)}
        rows.append(["seeds", *(len(runs) for runs in self.runs.values())])
        for way in ("forward", "backward"):
            passed = (mean(getattr(run, way) for run in runs) for runs in self.runs.values())
            rows.append([f"examples {way}", *passed])
        if self.seconds:
            rows.append(["time", *(self._time(name) for name in self.runs)])
        if self.diverged:
            rows.append(["diverged", *(len(self.diverged.get(name, ())) for name in self.runs)])
        if has_constant:
            columns.append(Column("constant prediction", hundredths))
            blank = [""] * (len(rows) - len(constants))
            for row, score in zip(rows, [*constants, *blank], strict=True):
                row.append(score)
        return Table(
            columns,
            rows,
            "Loss by task" if unit is LOSSES else "Scores",
            frozenset(best),
            totals=len(rows) - len(self.tasks),
            notes=(*self._ranges(), *self._diverged_sentences()),
        )

    def _ranges(self) -> list[str]:
        if max(map(len, self.runs.values())) < 2:
            return []
        return ["Means over the seeds, in brackets the lowest and the highest seed."]

    def _time(self, name: str) -> TableCell | None:
        seconds = self.seconds.get(name)
        return TableCell(duration(mean(seconds)), mean(seconds)) if seconds else None

    def differences_tables(self) -> list[Table]:
        """Return the table of differences to the baseline; none if there is nobody to compare."""
        (name, judged), *by_task = self.all_differences()
        unit = self.unit
        if not judged:
            return []
        rows: list[list[Value]] = [
            [
                row,
                *(TableCell(interval_words(d, unit), d.mean) for d in by_contestant.values()),
            ]
            for row, by_contestant in [*by_task, (name, judged)]
        ]
        rows.append(["p", *(TableCell(p_words(d), d.p) for d in judged.values())])
        rows.append(["seeds", *(d.seeds for d in judged.values())])
        significant = {k for k, d in enumerate(judged.values(), 1) if d.significant}
        return [
            Table(
                [Column(f"{unit.better} {self._against}"), *map(Column, judged)],
                rows,
                f"Differences to {self._against}",
                frozenset(
                    (row, k) for row in (len(by_task), len(by_task) + 1) for k in significant
                ),
                totals=3,
                notes=(how_tested(judged),),
            )
        ]

    def wins_tables(self) -> list[Table]:
        """Return with how many seeds each contestant beats each other; none for fewer than 3."""
        if len(self.runs) < 3:
            return []
        outcomes = {name: self._by_seed(name, self.outcome(name)) for name in self.runs}
        rows: list[list[Value]] = [
            [
                name,
                *(
                    _wins(outcomes[name], of) if of is not outcomes[name] else None
                    for of in outcomes.values()
                ),
            ]
            for name in outcomes
        ]
        columns = [Column("contestant"), *(Column(f"beats {name}") for name in outcomes)]
        return [Table(columns, rows, "Wins by seed")]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON-able values."""
        return {
            "verdict": asdict(self.verdict()),
            "baseline": self._against,
            "contestants": {name: self._contestant_json(name) for name in self.runs},
            "differences": {
                name: {other: asdict(difference) for other, difference in by_name.items()}
                for name, by_name in self.all_differences()
            },
            "diverged": {name: list(seeds) for name, seeds in self.diverged.items()},
        }

    def _contestant_json(self, name: str) -> dict[str, Any]:
        return {
            "seeds": list(self.seeds.get(name, ())),
            "outcomes": self.outcome(name),
            "scores": {task: self.score(name, task) for task in self.tasks},
            "losses": {
                task: [run.tasks[task].loss for run in self.runs[name]] for task in self.tasks
            },
            "forward": [run.forward for run in self.runs[name]],
            "backward": [run.backward for run in self.runs[name]],
            "seconds": list(self.seconds.get(name, ())),
            "folders": list(map(str, self.folders.get(name, ()))),
        }

    def runs_table(self) -> Table:
        """Return a row for each contestant, seed and task."""
        names = ("contestant", "seed", "task", "score", "loss")
        rows: list[list[Value]] = [
            [name, seed, task, scores.score, scores.loss]
            for name, runs in self.runs.items()
            for seed, run in zip(self.seeds.get(name) or range(len(runs)), runs, strict=True)
            for task, scores in run.tasks.items()
        ]
        return Table([Column(name) for name in names], rows)


def few_dev_rows(rows: Mapping[str, int]) -> list[str]:
    """Return a sentence on the tasks with few dev rows; 0 is a number that is not known.

    >>> few_dev_rows({"emails": 12, "notes": 300, "stars": 0})
    ['Few dev rows: emails has 12; scores on so few rows are mostly noise.']
    """
    few = [f"{task} has {count}" for task, count in rows.items() if 0 < count < FEW_DEV_ROWS]
    return [f"Few dev rows: {_some(few)}; scores on so few rows are mostly noise."] if few else []


def below_baseline(scores: Mapping[str, tuple[float, float | None]]) -> list[str]:
    """Return a sentence on the tasks that no contestant has learned: a constant scores as high.

    >>> below_baseline({"emails": (0.5, 0.4), "notes": (0.3, 0.3), "stars": (0.1, None)})
    ['Not above the baseline of a constant prediction: notes.']
    """
    below = [task for task, (score, of) in scores.items() if of is not None and score <= of]
    return [f"Not above the baseline of a constant prediction: {_some(below)}."] if below else []


def _some(names: Sequence[str]) -> str:
    """Return the first names of a list, and the number of the others.

    >>> _some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    others = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {others} more" if others > 0 else "")


def _wins(values: Mapping[int, float], others: Mapping[int, float]) -> TableCell:
    shared = values.keys() & others.keys()
    wins = sum(values[seed] > others[seed] for seed in shared)
    return TableCell(f"{wins} of {len(shared)}", wins)


def _best(values: Sequence[Sequence[float]]) -> list[int]:
    """Return the columns with the highest mean, counted from 1; none where all are equal."""
    means = [mean(seeds) for seeds in values]
    best = [k for k, value in enumerate(means, 1) if value == max(means)]
    return best if len(best) < len(means) else []


def unit_of(objective: Objective | None) -> Unit:
    """Return how tables of runs with this objective give their values."""
    return LOSSES if objective is not None and objective.measure == "loss" else SCORES
