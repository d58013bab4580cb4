"""Using the model of a finished run: scores, predictions, export."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from taskmix.config import own_class
from taskmix.errors import UserError, unknown
from taskmix.models import saving
from taskmix.models.causal import CausalEncoder, write_on
from taskmix.tasks.encoding import Encoded
from taskmix.tasks.files import inputs
from taskmix.tasks.kinds import Generate
from taskmix.tasks.rows import Source
from taskmix.tasks.task import Task
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training.engine import pick_device, wants_bfloat16
from taskmix.training.evaluation import evaluate, predict
from taskmix.training.folder import MODEL, Finished, Scores, config_of, finished
from taskmix.training.prepare import late_tasks, read_split

BATCH = 64
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prediction:
    """What a model says of one row.

    Args:
        id: what the row's file calls it; its place in the file, counted from 1, where it has no id.
        answer: the label's name, the number, the text: what the task's kind answers.
        probability: how probable it is: by class, by choice, or of the answer; None where the kind
            cannot say.
    """

    id: str
    answer: Any
    probability: Any = None


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its model with its tasks. Make one with `taskmix.load`.

    Args:
        folder: of the run.
        model: the model that was kept.
        tokenizer: its tokenizer; None where there are no texts.
        tasks: by name, its tasks, whose kinds are the trained ones.
    """

    folder: Path
    model: nn.Module
    tokenizer: Tokenizer | None
    tasks: Mapping[str, Task]

    @property
    def result(self) -> Finished:
        """What the run came to."""
        return finished(self.folder)

    def task(self, name: str) -> Task:
        """Return one of its tasks."""
        if name not in self.tasks:
            raise unknown("task", name, self.tasks)
        return self.tasks[name]

    def evaluate(
        self, split: str = "dev", task: str | None = None, cache: Path | None = None
    ) -> dict[str, Scores]:
        """Return the scores of each task that has this split, with labels; name the others.

        Args:
            split: which split; rows of it without a label are not scored.
            task: one of the run's tasks; all of them if None.
            cache: the folder for what is computed once; the default one if None.
        """
        asked = list(self.tasks.values()) if task is None else [self.task(task)]
        there = [each for each in asked if split in each.splits]
        if not there:
            raise unknown("split", split, sorted({name for each in asked for name in each.splits}))
        found = {each.name: self._scores(each, split, cache) for each in there}
        scores = {name: each for name, each in found.items() if each is not None}
        rest = ", ".join(each.name for each in asked if each.name not in scores)
        if not scores:
            raise UserError(
                f"split {split}: no row has a label to score against ({rest}); "
                "use `taskmix predict` for it"
            )
        if rest:
            log.warning("split %s: not scored, for there are no labels: %s", split, rest)
        return scores

    def _scores(self, task: Task, split: str, cache: Path | None) -> Scores | None:
        """Return the scores of a task on the rows of a split that have labels; None if none has."""
        read = read_split(task, split, self.tokenizer, cache)
        missing = task.kind.unlabelled(read.items)
        if missing.all():
            return None
        if missing.any():
            rows = read.items.dense.get("row", np.arange(len(missing)))
            left = np.setdiff1d(np.arange(read.rows), rows[missing])
            log.warning(
                "%s: scored on the %d of %d rows that have a label",
                read.source.where,
                len(left),
                read.rows,
            )
            read = read.part(left)
        return evaluate(self.model, task, read, BATCH, self._device, bfloat16=self._bfloat16)

    def predict(
        self,
        task: str,
        source: str | Path,
        cache: Path | None = None,
        format: str | None = None,  # noqa: A002 (the word that a run file uses)
    ) -> list[Any]:
        """Return an answer for each row of a file like the task's own, or of a split.

        Args:
            task: one of the run's tasks.
            source: the file, or the name of a split.
            cache: the folder for what is computed once; the default one if None.
            format: the file's format, where its name does not say it.
        """
        return [each.answer for each in self.predictions(task, source, cache, format)]

    def predictions(
        self,
        task: str,
        source: str | Path,
        cache: Path | None = None,
        format: str | None = None,  # noqa: A002
    ) -> list[Prediction]:
        """Return the same as `predict`, each answer with its row's id and how probable it is."""
        known = self.task(task)
        rows = self._source(known, source, format)
        known = replace(known, splits={"input": rows})
        read = read_split(known, "input", self.tokenizer, cache)
        raw, _ = predict(self.model, known, read, BATCH, self._device, bfloat16=self._bfloat16)
        if isinstance(known.kind, Generate):
            raw = self._written(known.kind, read.items, raw)
        answers = known.kind.answers(raw, read.items, read.source.rows())
        certain = known.kind.probabilities(raw, read.items, read.source.rows())
        names = [getattr(row, "id", "") or str(row.at) for row in read.source.rows()]
        if not names:  # examples made in Python are not rows of a file
            names = [str(number) for number in range(1, len(answers) + 1)]
        return [
            Prediction(name, answer, probability)
            for name, answer, probability in zip(
                names, answers, certain or [None] * len(answers), strict=True
            )
        ]

    def _written(self, kind: Generate, items: Encoded, raw: Sequence[Any]) -> list[Any]:
        """Return what was said of each item, with the text that the model goes on with."""
        encoder, words = getattr(self.model, "encoder", None), self.tokenizer
        if not isinstance(encoder, CausalEncoder) or words is None:
            raise UserError(
                f"{self.folder}: expected a causal language model to go on with a text, found a "
                f"{type(encoder or self.model).__name__}"
            )
        bounds = zip(items.offsets.tolist(), items.dense["until"].tolist(), strict=False)
        prompts = [items.ragged["input_ids"][at : at + until].tolist() for at, until in bounds]
        most = [min(kind.longest, words.max_length - len(prompt)) for prompt in prompts]
        said = write_on(encoder, prompts, most, words.end, BATCH)
        texts = [words.text(ids).strip() for ids in said]
        return [replace(each, text=text) for each, text in zip(raw, texts, strict=True)]

    def _source(self, task: Task, source: str | Path, format_name: str | None) -> Source:
        if str(source) in task.splits:
            return task.splits[str(source)]
        path = Path(source)
        if not path.exists():
            splits = ", ".join(task.splits)
            raise UserError(f"{path}: expected a file or one of the splits {splits}, found neither")
        return inputs(task, path, format_name)

    def export(self, task: str, out: Path | str, *, adapters: bool = False) -> None:
        """Write one task's model as a folder that transformers loads.

        Args:
            task: one of the run's tasks.
            out: the folder to write.
            adapters: write a language model's adapters for peft, not the model with them added.
        """
        from taskmix.models.export import export

        self.task(task)
        export(self.folder / MODEL, task, Path(out), adapters=adapters)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def _bfloat16(self) -> bool:
        """Whether the run's precision is mixed here: scores are those that the run saw."""
        return wants_bfloat16(config_of(self.folder).precision, self._device)


def load_run(
    folder: Path | str,
    *,
    data: str | None = None,
    model: nn.Module | None = None,
    tasks: Sequence[Task] | Mapping[str, Task] = (),
    trust_code: bool = False,
) -> TrainedRun:
    """Open a finished run, to predict with it, score it and export it.

    Args:
        folder: the run folder.
        data: where its tasks' files are now, if they have moved.
        model: the module of one's own that was trained, if it was one; its weights are loaded.
        tasks: the tasks made in Python that it was trained on.
        trust_code: whether classes of one's own that the run names may be imported from the folder
            of its run file. What this process has imported already needs no trust.
    """
    folder = Path(folder)
    finished(folder)
    config = config_of(folder)
    given = dict(tasks) if isinstance(tasks, Mapping) else {task.name: task for task in tasks}
    if data is not None:
        config = config.model_copy(update={"data": data})
    device = pick_device(config.device)
    if config.model.given is not None:
        return _given(folder, config.model.given, model, given, device)
    found, tokenizer = saving.load(folder / MODEL, _finder(folder, config.code, trust_code))
    tasks_of_run = late_tasks(config, found.kinds, given)
    return TrainedRun(folder, found.to(device), tokenizer, tasks_of_run)


def _given(
    folder: Path,
    name: str,
    model: nn.Module | None,
    given: Mapping[str, Task],
    device: torch.device,
) -> TrainedRun:
    """Return a run whose model was made in Python."""
    if model is None:
        raise UserError(
            f"{folder}: this run's model was made in Python, {name}; pass one like it, "
            "as in taskmix.load(folder, model=..., tasks=...)"
        )
    model.load_state_dict(load_file(folder / MODEL / saving.WEIGHTS))
    return TrainedRun(folder, model.to(device), None, given)


def _finder(folder: Path, code: str | None, trusted: bool) -> saving.Finder:
    """Return what finds classes of one's own: in this process or, if trusted, in their folder."""

    def find(name: str, base: type[Any]) -> Any:
        if name.partition(":")[0] in sys.modules or trusted:
            return own_class(name, base, str(folder), code)
        return saving.refuse(folder)(name, base)

    return find
