"""Using the model of a finished run: scores on a split, predictions for new rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bursar.errors import UserError, unknown
from bursar.models import store
from bursar.models.multitask import MultiTaskModel
from bursar.tasks.files import inputs
from bursar.tasks.rows import Source
from bursar.tasks.sources import FileSource
from bursar.tasks.task import Task
from bursar.tasks.tokenizer import Tokenizer
from bursar.training.evaluation import evaluate, predict
from bursar.training.folder import MODEL, Scores, config_of, finished
from bursar.training.prepare import read_split, resolve
from bursar.training.trainer import pick_device

BATCH = 64


@dataclass(frozen=True)
class TrainedRun:
    """A finished run's model with its tasks.

    Args:
        model: the model that was kept.
        tokenizer: its tokenizer; None for images.
        tasks: by name, its tasks, whose kinds are the trained ones.
    """

    model: MultiTaskModel
    tokenizer: Tokenizer | None
    tasks: Mapping[str, Task]

    @classmethod
    def open(
        cls, folder: Path, data: str | None = None, given: Mapping[str, Task] | None = None
    ) -> "TrainedRun":
        """The model in a run folder; `data` is where its tasks' files are now."""
        finished(folder)
        config = config_of(folder)
        model, tokenizer = store.load(folder / MODEL)
        if data is not None:
            config = config.model_copy(update={"data": data})
        tasks = {
            task.name: replace(task, kind=model.kinds[task.name]) for task in resolve(config, given)
        }
        return cls(model.to(pick_device(config.device)), tokenizer, tasks)

    def task(self, name: str) -> Task:
        """One of its tasks."""
        if name not in self.tasks:
            raise unknown("task", name, self.tasks)
        return self.tasks[name]

    def evaluate(self, split: str = "dev", cache: Path | None = None) -> dict[str, Scores]:
        """The scores of each task that has this split."""
        there = [task for task in self.tasks.values() if split in task.splits]
        if not there:
            splits = sorted({name for task in self.tasks.values() for name in task.splits})
            raise unknown("split", split, splits)
        return {task.name: self._scores(task, split, cache) for task in there}

    def _scores(self, task: Task, split: str, cache: Path | None) -> Scores:
        read = read_split(task, split, self.tokenizer, cache)
        if task.kind.unlabelled(read.encoded).any():
            raise UserError(
                f"{read.source.where}: this split has rows without a label to score against; "
                "use `bursar predict` for it"
            )
        return evaluate(self.model, task, read, BATCH, self._device)

    def predict(self, task: str, source: str | Path, cache: Path | None = None) -> list[Any]:
        """A prediction for each row of a file like the task's own, or of one of its splits."""
        known = self.task(task)
        rows = self._source(known, source)
        known = replace(known, splits={"input": rows})
        read = read_split(known, "input", self.tokenizer, cache)
        raw, _ = predict(self.model, known, read.encoded, BATCH, self._device)
        return known.kind.answers(raw, read.encoded, read.source.rows())

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

    @property
    def _device(self) -> Any:
        return next(self.model.parameters()).device


def _format(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix
