"""The model of a finished run: scores, predictions, export."""

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from taskmix.config import NamedTask, RunConfig, is_own, own_class
from taskmix.errors import UserError, unknown
from taskmix.models import saving
from taskmix.models.causal import CausalEncoder, write_on
from taskmix.tasks.encoding import Encoded
from taskmix.tasks.files import inputs
from taskmix.tasks.kinds import Generate, Kind
from taskmix.tasks.rows import Source
from taskmix.tasks.task import Task
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training.assembly import tokenizer_of
from taskmix.training.evaluation import evaluate, predict
from taskmix.training.folder import MODEL, Finished, Scores, config_of, finished
from taskmix.training.loading import pick_device, wants_bfloat16
from taskmix.training.prepare import (
    PythonTasks,
    Tasks,
    by_name,
    read_split,
    read_texts,
    resolve,
    task_of,
)

BATCH = 64
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prediction:
    """The prediction for one row.

    Args:
        id: the row's id in its file, or else its number, from 1.
        answer: the label's name, the number, or the text, depending on the task's kind.
        probability: by class, by choice, or of the answer; None where the kind has none.
    """

    id: str
    answer: Any
    probability: Any = None


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its model with its tasks. Make one with `taskmix.load`.

    Args:
        folder: the run folder.
        model: the model that was kept.
        tokenizer: its tokenizer; None for tasks without texts.
        tasks: its tasks by name.
    """

    folder: Path
    model: nn.Module
    tokenizer: Tokenizer | None
    tasks: Mapping[str, Task]

    @property
    def result(self) -> Finished:
        """The scores of the run."""
        return finished(self.folder)

    def task(self, name: str) -> Task:
        if name not in self.tasks:
            raise unknown("task", name, self.tasks)
        return self.tasks[name]

    def evaluate(
        self, split: str = "dev", task: str | None = None, cache: Path | None = None
    ) -> dict[str, Scores]:
        """Score each task on a split, and warn of tasks without labels there.

        Args:
            split: the name of the split; its rows without a label are not scored.
            task: one of the run's tasks; all of them if None.
            cache: the cache folder; the default one if None.
        """
        tasks = list(self.tasks.values()) if task is None else [self.task(task)]
        splits = {name for entry in tasks for name in entry.splits}
        if split not in splits:
            raise unknown("split", split, sorted(splits))
        scores = {}
        for entry in tasks:
            if split in entry.splits and (scored := self._scores(entry, split, cache)) is not None:
                scores[entry.name] = scored
        unlabelled = ", ".join(entry.name for entry in tasks if entry.name not in scores)
        if not scores:
            raise UserError(
                f"split {split}: no row has a label to score against ({unlabelled}); "
                "use `taskmix predict` for it"
            )
        if unlabelled:
            log.warning("split %s: not scored, for there are no labels: %s", split, unlabelled)
        return scores

    def _scores(self, task: Task, split: str, cache: Path | None) -> Scores | None:
        """Score a task on the labelled rows of a split; None if there are none."""
        data = read_split(task, split, self.tokenizer, cache)
        missing = task.kind.unlabelled(data.items)
        if missing.all():
            return None
        if missing.any():
            rows = data.items.dense.get("row", np.arange(len(missing)))
            labelled = np.setdiff1d(np.arange(data.rows), rows[missing])
            counts = f"{len(labelled)} of {data.rows}"
            log.warning("%s: scored on the %s rows that have a label", data.source.where, counts)
            data = data.part(labelled)
        return evaluate(self.model, task, data, BATCH, self._device, bfloat16=self._bfloat16)

    def predict(
        self,
        task: str,
        source: str | Path | Sequence[Mapping[str, Any]],
        cache: Path | None = None,
        format: str | None = None,  # noqa: A002 (the key of a run file)
    ) -> list[Any]:
        """Return an answer for each row of a file with the task's columns, or of a split.

        Args:
            task: one of the run's tasks.
            source: the file, the name of a split, or the rows themselves: mappings with the task's
                columns, such as `[{"text": "so good"}]`.
            cache: the cache folder; the default one if None.
            format: the file's format, if its name does not tell it.
        """
        return [row.answer for row in self.predictions(task, source, cache, format)]

    def predictions(
        self,
        task: str,
        source: str | Path | Sequence[Mapping[str, Any]],
        cache: Path | None = None,
        format: str | None = None,  # noqa: A002
    ) -> list[Prediction]:
        """Return the answers of `predict` with the rows' ids and with probabilities."""
        known = self.task(task)
        known = replace(known, splits={"input": self._source(known, source, format)})
        data = read_split(known, "input", self.tokenizer, cache)
        raw, _ = predict(self.model, known, data, BATCH, self._device, bfloat16=self._bfloat16)
        if isinstance(known.kind, Generate):
            raw = self._written(known.kind, data.items, raw)
        answers = known.kind.answers(raw, data.items, data.source.rows())
        probabilities = known.kind.probabilities(raw, data.items, data.source.rows())
        ids = [getattr(row, "id", "") or str(row.at) for row in data.source.rows()]
        if not ids:  # examples made in Python are not rows of a file
            ids = [str(number) for number in range(1, len(answers) + 1)]
        columns = (ids, answers, probabilities or [None] * len(answers))
        return [Prediction(*row) for row in zip(*columns, strict=True)]

    def _written(self, kind: Generate, items: Encoded, raw: Sequence[Any]) -> list[Any]:
        """Return the predictions with the texts that the model generates."""
        encoder, tokenizer = getattr(self.model, "encoder", None), self.tokenizer
        if not isinstance(encoder, CausalEncoder) or tokenizer is None:
            raise UserError(
                f"{self.folder}: expected a causal language model to generate with, found a "
                f"{type(encoder or self.model).__name__}"
            )
        bounds = zip(items.offsets.tolist(), items.dense["until"].tolist(), strict=False)
        prompts = [items.ragged["input_ids"][at : at + until].tolist() for at, until in bounds]
        longest = [min(kind.longest, tokenizer.max_length - len(prompt)) for prompt in prompts]
        generated = write_on(encoder, prompts, longest, tokenizer.end, BATCH)
        texts = [tokenizer.text(ids).strip() for ids in generated]
        return [replace(answer, text=text) for answer, text in zip(raw, texts, strict=True)]

    def _source(
        self,
        task: Task,
        source: str | Path | Sequence[Mapping[str, Any]],
        format_name: str | None,
    ) -> Source:
        if not isinstance(source, (str, Path)):
            return inputs(task, source)
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
            adapters: write a language model's adapters for peft, not the merged model.
        """
        from taskmix.models.export import export

        self.task(task)
        export(self.folder / MODEL, task, Path(out), adapters=adapters)

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def _bfloat16(self) -> bool:
        return wants_bfloat16(config_of(self.folder).precision, self._device)


def load_run(
    folder: Path | str,
    *,
    data: str | None = None,
    model: nn.Module | None = None,
    tasks: Tasks = (),
    trust_code: bool = False,
) -> TrainedRun:
    """Open a finished run, to predict with it, score it and export it.

    Args:
        folder: the run folder.
        data: the folder of its tasks' files, if they have moved.
        model: a module like the one that was trained, if that was made in Python; its weights are
            loaded.
        tasks: the tasks made in Python that it was trained on.
        trust_code: whether classes that the run names as `module:Class` may be imported from the
            folder of its run file. Modules that are imported already need no trust.
    """
    folder = Path(folder)
    finished(folder)
    config = config_of(folder)
    python_tasks = by_name(tasks)
    if data is not None:
        config = config.model_copy(update={"data": data})
    device, find = pick_device(config.device), _finder(folder, config.code, trust_code)
    if config.python_model is None:
        return _with_saved_model(folder, config, python_tasks, device, find)
    if model is None:
        raise UserError(
            f"{folder}: this run's model was made in Python, {config.python_model}; pass one like "
            "it, as in taskmix.load(folder, model=..., tasks=...)"
        )
    return _with_python_model(folder, config, python_tasks, model, device, find)


def _with_saved_model(
    folder: Path,
    config: RunConfig,
    python_tasks: PythonTasks,
    device: torch.device,
    find: saving.Finder,
) -> TrainedRun:
    trained, tokenizer = saving.load(folder / MODEL, find)
    for name in config.task_names:
        if name not in trained.kinds:
            names = ", ".join(trained.kinds)
            raise UserError(f"{folder}: expected a model for the task {name}, found {names}")
    tasks = {
        entry.name: task_of(entry, config, python_tasks, trained.kinds[entry.name])
        for entry in config.tasks
    }
    return TrainedRun(folder, trained.to(device), tokenizer, tasks)


def _with_python_model(
    folder: Path,
    config: RunConfig,
    python_tasks: PythonTasks,
    model: nn.Module,
    device: torch.device,
    find: saving.Finder,
) -> TrainedRun:
    """Load a model made in Python; its folder has no kinds, so tasks are fitted again."""
    for entry in config.tasks:
        if not isinstance(entry, NamedTask) and is_own(entry.kind):
            find(entry.kind, Kind)  # raises unless its code may be imported
    tasks = resolve(config, python_tasks)
    tokenizer = tokenizer_of(tasks, config) if read_texts(tasks) else None
    fitted = {
        task.name: replace(task, kind=task.kind.fit(read_split(task, "train", tokenizer).items))
        for task in tasks
    }
    path = folder / MODEL / saving.WEIGHTS
    try:
        model.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        # torch's last line is about the first tensor that does not fit.
        why = str(error).splitlines()[-1].strip()
        raise UserError(f"{path}: expected the weights of this model, found: {why}") from None
    return TrainedRun(folder, model.to(device), tokenizer, fitted)


def _finder(folder: Path, code: str | None, trusted: bool) -> saving.Finder:
    """Return a finder of user classes: in this process or, if trusted, in the run's code folder."""

    def find(name: str, base: type[Any]) -> Any:
        if name.partition(":")[0] in sys.modules or trusted:
            return own_class(name, base, str(folder), code)
        return saving.refuse(folder)(name, base)

    return find
