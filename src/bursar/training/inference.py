"""Using the model of a finished run: scores, predictions, export."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from bursar.config import own_class
from bursar.errors import UserError, unknown
from bursar.models import saving
from bursar.tasks.files import inputs
from bursar.tasks.rows import Source
from bursar.tasks.sources import FileSource
from bursar.tasks.task import Task
from bursar.tasks.tokenizer import Tokenizer
from bursar.training.engine import pick_device
from bursar.training.evaluation import evaluate, predict
from bursar.training.folder import MODEL, Finished, Scores, config_of, finished
from bursar.training.prepare import read_split, resolve

BATCH = 64


@dataclass(frozen=True)
class TrainedRun:
    """A finished run: its model with its tasks. Make one with `bursar.load`.

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

    def evaluate(self, split: str = "dev", cache: Path | None = None) -> dict[str, Scores]:
        """Return the scores of each task that has this split."""
        there = [task for task in self.tasks.values() if split in task.splits]
        if not there:
            splits = sorted({name for task in self.tasks.values() for name in task.splits})
            raise unknown("split", split, splits)
        return {task.name: self._scores(task, split, cache) for task in there}

    def _scores(self, task: Task, split: str, cache: Path | None) -> Scores:
        read = read_split(task, split, self.tokenizer, cache)
        if task.kind.unlabelled(read.items).any():
            raise UserError(
                f"{read.source.where}: this split has rows without a label to score against; "
                "use `bursar predict` for it"
            )
        return evaluate(self.model, task, read, BATCH, self._device)

    def predict(self, task: str, source: str | Path, cache: Path | None = None) -> list[Any]:
        """Return a prediction for each row of a file like the task's own, or of a split."""
        known = self.task(task)
        rows = self._source(known, source)
        known = replace(known, splits={"input": rows})
        read = read_split(known, "input", self.tokenizer, cache)
        raw, _ = predict(self.model, known, read, BATCH, self._device)
        return known.kind.answers(raw, read.items, read.source.rows())

    def _source(self, task: Task, source: str | Path) -> Source:
        if str(source) in task.splits:
            return task.splits[str(source)]
        path = Path(source)
        if not path.exists():
            splits = ", ".join(task.splits)
            raise UserError(f"{path}: expected a file or one of the splits {splits}, found neither")
        like = task.splits["train"]
        if isinstance(like, FileSource) and _format(like.path) == _format(path):
            return replace(like, path=path, shape=like.shape.without_labels())
        return inputs(task, path)

    def export(self, task: str, out: Path | str) -> None:
        """Write one task's model as a folder that transformers loads."""
        from bursar.models.export import export

        self.task(task)
        export(self.folder / MODEL, task, Path(out))

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device


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
    resolved = {
        task.name: replace(task, kind=found.kinds[task.name]) for task in resolve(config, given)
    }
    return TrainedRun(folder, found.to(device), tokenizer, resolved)


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
            "as in bursar.load(folder, model=..., tasks=...)"
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


def _format(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix
