"""The analysis of a task-conditioned model and its tasks by Pilault et al. (2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tables import Column, Table, Tabled, hundredths
from taskmix.tasks.difficulty import Difficulty, task_difficulty
from taskmix.training.folder import finished

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.models.conditional import ParameterCount
    from taskmix.models.conditioned import ConditionedTextEncoder
    from taskmix.training.inference import TrainedRun

MAX_EXAMPLES = 500
"""Dev examples of each task that its covariance is computed from, at most."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class Analysis(Tabled):
    """The scores, difficulties and similarities of the tasks of a finished run.

    Args:
        scores: by task, its dev score.
        metrics: by task, its dev metrics, whose mean is the score.
        single: by task, its score in a single-task run; empty where there are none.
        difficulty: by task, the difficulty of its data; None for a task that is no classification.
        before: covariance similarities of the tasks' inputs to the conditional alignment, shape
            `(tasks, tasks)`; None for a plain model.
        after: the same of its outputs.
        parameters: the number in the encoder and in its conditional modules; None for a plain
            model.
        heads: by task, the number of parameters of its head; 0 for a task that generates.
    """

    scores: Mapping[str, float]
    metrics: Mapping[str, Mapping[str, float]]
    single: Mapping[str, float]
    difficulty: Mapping[str, Difficulty | None]
    before: Floats | None
    after: Floats | None
    parameters: "ParameterCount | None"
    heads: Mapping[str, int]

    @property
    def tasks(self) -> list[str]:
        """The tasks, in order."""
        return list(self.scores)

    @property
    def sigma(self) -> float:
        """The standard deviation of the metrics of all tasks: Task σ of Table 1."""
        return task_sigma(self.metrics)

    @property
    def reached(self) -> list[str]:
        """The tasks at or above their single-task score: a column of Table 4."""
        return at_or_above(self.scores, self.single)

    def verdict(self) -> str:
        """Return in a sentence how the tasks fare together."""
        mean = sum(self.scores.values()) / len(self.scores)
        sentence = f"The {len(self.scores)} tasks reach {hundredths(mean)} on average"
        if not self.single:
            return f"{sentence}; name single-task runs with --single to see negative transfer."
        lost = [
            f"{task} ({100 * (self.scores[task] - score):+.1f})"
            for task, score in self.single.items()
            if task not in self.reached
        ]
        if not lost:
            return f"{sentence}; none of {len(self.single)} scores below its training alone."
        return f"{sentence}; below their training alone: {', '.join(lost)}."

    def tables(self) -> list[Table]:
        """Return a row for each task, and the parameters of a conditioned model."""
        columns = [
            Column("task"),
            Column("score", hundredths),
            Column("alone", hundredths),
            Column("difficulty", ".2f"),
            Column("similarity before", ".3f"),
            Column("after", ".3f"),
            Column("head parameters", ","),
        ]
        before, after = self._mean_similarities(self.before), self._mean_similarities(self.after)
        rows = [
            [
                task,
                self.scores[task],
                self.single.get(task),
                None if (difficulty := self.difficulty[task]) is None else difficulty.total,
                before[k],
                after[k],
                self.heads[task],
            ]
            for k, task in enumerate(self.tasks)
        ]
        parameters = [] if self.parameters is None else [self.parameters.table()]
        return [Table(columns, rows), *parameters]

    def facts(self) -> dict[str, str]:
        """Return the numbers that describe the whole model, by name."""
        facts = {"task σ": hundredths(self.sigma)}
        if self.single:
            facts["at or above single-task"] = f"{len(self.reached)} of {len(self.single)} tasks"
        if self.parameters is not None:
            facts["parameters"] = f"{self.parameters.ratio:.3f} x the encoder's"
            facts["trained a task"] = f"{self.parameters.trained_per_task:.3f} x the encoder's"
        return facts

    def _mean_similarities(self, values: Floats | None) -> Sequence[float | None]:
        if values is None or len(self.tasks) < 2:
            return [None] * len(self.tasks)
        import torch

        from taskmix.models.conditional import mean_similarities

        return mean_similarities(torch.from_numpy(values)).tolist()


def task_sigma(metrics: Mapping[str, Mapping[str, float]]) -> float:
    """Return the population standard deviation of all metrics of all tasks.

    As in Table 1 of the paper, a task with two metrics counts twice.

    >>> task_sigma({"cola": {"matthews": 0.5}, "mrpc": {"accuracy": 0.7, "f1": 0.8}})
    0.1247...
    """
    return float(np.std([value for of_task in metrics.values() for value in of_task.values()]))


def at_or_above(scores: Mapping[str, float], single: Mapping[str, float]) -> list[str]:
    """Return the tasks whose score is at or above their single-task score.

    >>> at_or_above({"cola": 0.5, "rte": 0.7, "qqp": 0.9}, {"cola": 0.6, "rte": 0.7})
    ['rte']
    """
    return [task for task, score in scores.items() if task in single and score >= single[task]]


def analyse(
    folder: Path | str,
    single: Sequence[Path | str] = (),
    *,
    data: str | None = None,
    examples: int = MAX_EXAMPLES,
    cache: Path | None = None,
) -> Analysis:
    """Analyse a finished run.

    Args:
        folder: the run folder.
        single: folders of finished single-task runs, to compare with.
        data: the folder of the tasks' files, if they have moved.
        examples: dev examples of each task that its covariance is computed from, at most.
        cache: the cache folder.
    """
    from taskmix.models.conditional import count_parameters
    from taskmix.models.conditioned import ConditionedTextEncoder
    from taskmix.models.multitask import MultiTaskModel, key
    from taskmix.training.inference import load_run

    trained = load_run(folder, data=data)
    model = trained.model
    if not isinstance(model, MultiTaskModel):
        raise UserError(f"{folder}: expected a model of taskmix's own, found one made in Python")
    numbers = {
        name: sum(p.numel() for p in head.parameters()) for name, head in model.heads.items()
    }
    heads = {task: numbers.get(key(task), 0) for task in trained.tasks}
    before = after = parameters = None
    if isinstance(model.encoder, ConditionedTextEncoder):
        before, after = alignment_similarities(trained, model.encoder, examples, cache)
        parameters = count_parameters(model.encoder.model)
    return Analysis(
        {name: scores.score for name, scores in trained.result.tasks.items()},
        {name: scores.metrics for name, scores in trained.result.tasks.items()},
        single_scores(single, list(trained.tasks)),
        {name: task_difficulty(task) for name, task in trained.tasks.items()},
        before,
        after,
        parameters,
        heads,
    )


def single_scores(folders: Sequence[Path | str], tasks: Sequence[str]) -> dict[str, float]:
    """Return the scores of single-task runs by task, for the tasks in question."""
    single = {}
    for folder in folders:
        scores = finished(Path(folder)).tasks
        if len(scores) != 1:
            raise UserError(
                f"{folder}: expected a run of one task alone, found {', '.join(scores)}"
            )
        [(task, score)] = scores.items()
        if task in tasks:
            single[task] = score.score
    return single


def alignment_similarities(
    trained: "TrainedRun",
    encoder: "ConditionedTextEncoder",
    examples: int = MAX_EXAMPLES,
    cache: Path | None = None,
) -> tuple[Floats, Floats]:
    """Return the covariance similarities of tasks before and after the conditional alignment.

    Equation 7; Figure 6 of the paper. A task's inputs are the mean vectors of its dev sequences.
    """
    from taskmix.models.conditional import covariance_similarities

    pairs = [_mean_vectors(trained, encoder, task, examples, cache) for task in trained.tasks]
    before, after = (
        covariance_similarities([pair[side] for pair in pairs]).numpy() for side in (0, 1)
    )
    return before, after


def _mean_vectors(
    trained: "TrainedRun",
    encoder: "ConditionedTextEncoder",
    task: str,
    examples: int,
    cache: Path | None,
) -> tuple["Tensor", "Tensor"]:
    """Return the mean vectors of a task's dev sequences before and after the alignment."""
    import torch

    from taskmix.models.exported import pool
    from taskmix.tasks.encoding import SEGMENTS
    from taskmix.training.loading import dev_batches
    from taskmix.training.prepare import read_split

    split = read_split(trained.task(task), "dev", trained.tokenizer, cache).at_most(examples)
    task_id = encoder.model.task_embeddings.index(task)
    device = next(encoder.parameters()).device
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    for batch in dev_batches(task, split.items, 64, device):
        ids, mask = batch.inputs["input_ids"], batch.inputs["attention_mask"]
        task_ids = torch.full((len(ids),), task_id, device=device)
        vectors = encoder.model.entering(ids, task_ids, batch.inputs.get(SEGMENTS))
        for side, tokens in zip(sides, vectors, strict=True):
            side.append(pool(tokens, mask, None, "mean").cpu())
    return torch.cat(sides[0]), torch.cat(sides[1])
