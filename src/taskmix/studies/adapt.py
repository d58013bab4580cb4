"""Adapt a trained conditioned model to a new task: zero-shot, few-shot, or on all of its data."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.config import NamedTask, RunConfig, changed, task_entry, with_sets
from taskmix.errors import UserError, unknown
from taskmix.tables import Column, Row, Table, Tabled, hundredths

if TYPE_CHECKING:
    from taskmix.models.multitask import MultiTaskModel
    from taskmix.tasks.parts import Split
    from taskmix.tasks.task import Task
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher

BEST = "best"
RANDOM = "random"
MAX_ROWS = 1000
"""Training rows that the zero-shot table is scored on, at most."""


@dataclass(frozen=True)
class ZeroShot:
    """The zero-shot score of a new task with the embedding and the head of other tasks."""

    row: str
    head: str
    score: float
    loss: float


@dataclass(frozen=True, repr=False)
class Adapted(Tabled):
    """The result of `adapt`: the tasks whose embedding and head initialised the new ones.

    A random embedding is called `random`, a random head None. The zero-shot table is empty where it
    was not needed.
    """

    row: str
    head: str | None
    table: Sequence[ZeroShot]
    finished: "Finished | None"

    def tables(self) -> list[Table]:
        columns = [
            Column("embedding of"),
            Column("head of", left=True),
            Column("zero-shot score", hundredths),
        ]
        rows: list[Row] = [[result.row, result.head, result.score] for result in self.table]
        return [Table(columns, rows)] if rows else []


def adapt(
    folder: Path | str,
    task: str | Mapping[str, Any],
    out: Path | str,
    *,
    source: str = RANDOM,
    train_all: bool = False,
    fraction: float = 1.0,
    sets: Sequence[str] = (),
    data: str | None = None,
    cache: Path | None = None,
    watchers: "Sequence[Watcher]" = (),
) -> Adapted:
    """Add a task to the conditioned model of a finished run, and train it in a new run.

    The task gets a new row of the task embeddings and a new head. The head is initialised from the
    source's if that has the same kind and all labels of the new task. The run in `folder` is not
    changed; the run in `out` has its settings, and its model knows all tasks.

    Pilault et al. (2021) choose the embedding by a zero-shot table (their Table 8) and train on
    0.1%, 1%, 10% and 100% of the data (Table 3). They score the table with an untrained head on the
    dev set; here it is scored with the trained heads that fit, on training rows.

    Args:
        folder: the finished run.
        task: the new task, as in a run file.
        out: the folder of the new run.
        source: the task whose embedding initialises the new one, `random`, or `best`.
        train_all: train all parameters that the first run trained, not the new row and head alone.
        fraction: of the training rows that are used; 0 gives zero-shot scores only.
        sets: changes of the new run's configuration, such as `budget.steps=200`.
        data: the folder of the catalogue's files, if not that of the first run.
        cache: the cache folder.
        watchers: are notified of the run's progress.
    """
    from taskmix.training.run import run

    config, adapted = prepare_adaptation(
        Path(folder),
        task,
        source=source,
        train_all=train_all,
        fraction=fraction,
        sets=sets,
        data=data,
        cache=cache,
    )
    if fraction == 0:
        return adapted
    return replace(adapted, finished=run(config, Path(out), cache=cache, watchers=watchers))


def prepare_adaptation(
    folder: Path,
    task: str | Mapping[str, Any],
    *,
    source: str = RANDOM,
    train_all: bool = False,
    fraction: float = 1.0,
    sets: Sequence[str] = (),
    data: str | None = None,
    cache: Path | None = None,
) -> tuple[RunConfig, Adapted]:
    """Return the configuration of the new run of `adapt`, and what was chosen for it."""
    from taskmix.training.folder import MODEL, config_of, finished

    finished(folder)
    before = config_of(folder)
    if before.model.conditional is None:
        raise UserError(
            f"{folder}: expected a task-conditioned model, trained with `model: {{conditional: "
            "true}`, found a plain one"
        )
    config = adapted_config(before, task, fraction, sets, data)
    row, head, table = RANDOM, None, []
    if source != RANDOM or fraction == 0:
        probe = _load_probe(folder, config, cache)
        table = probe.zero_shot() if source == BEST or fraction == 0 else []
        row, head = probe.start(source, table)
    start = {
        "model": str((folder / MODEL).resolve()),
        "row": None if row == RANDOM else row,
        "head": head,
        "train_all": train_all,
    }
    model = config.model.model_dump() | {"adapt": start}
    return changed(config, {"model": model}, "adapt"), Adapted(row, head, table, None)


def adapted_config(
    before: RunConfig,
    task: str | Mapping[str, Any],
    fraction: float = 1.0,
    sets: Sequence[str] = (),
    data: str | None = None,
) -> RunConfig:
    """Return the configuration of the new run: the settings of the first, and one task."""
    if not isinstance(task, str | Mapping):
        raise UserError(
            f"task: expected its name, or a mapping that says where it is, found {task!r}"
        )
    entry = task_entry(task)
    values: dict[str, Any] = {
        "name": f"{before.name}-{entry.name.replace('/', '-')}",
        "tasks": [entry],
        "policy": {"name": "random"},
        "selection": None,
        "weighting": None,
        "objective": None,
    }
    if data is not None:
        values["data"] = str(Path(data).resolve())
    return with_fraction(with_sets(changed(before, values, "adapt"), sets), fraction)


def with_fraction(config: RunConfig, fraction: float) -> RunConfig:
    """Return the configuration with a fraction of the training rows of its only task."""
    from taskmix.tasks.parts import rows_of
    from taskmix.training.prepare import resolve

    [entry] = config.tasks
    if not 0 <= fraction <= 1:
        raise UserError(f"fraction: expected a share from 0 to 1, found {fraction}")
    if fraction in (0, 1):
        return config
    if not isinstance(entry, NamedTask):
        raise UserError(
            "fraction: expected 1 for a task of one's own files, whose rows are chosen there, "
            f"found {fraction}"
        )
    [task] = resolve(config)
    rows = max(2, round(fraction * rows_of(task.split("train"))))
    return changed(config, {"tasks": [entry.model_copy(update={"rows": rows})]}, "adapt")


@dataclass(frozen=True)
class _Probe:
    """A trained conditioned model beside a new task, for zero-shot scores on training rows."""

    model: "MultiTaskModel"
    task: "Task"
    split: "Split"
    config: RunConfig
    device: Any

    def heads(self) -> list[str]:
        """Return the tasks whose heads fit the new one."""
        from taskmix.models.adapting import fits

        model = self._extended(None, None)
        return [name for name in self.model.kinds if fits(model, name, self.task.name)]

    def zero_shot(self) -> list[ZeroShot]:
        """Score each embedding, and a random one, with each head that fits; the best first."""
        heads = self.heads()
        if not heads:
            raise UserError(
                f"task {self.task.name}: expected a head of the model that fits it, found none of "
                "its kind with all of its labels; start from a task or from a random embedding"
            )
        rows = [*self.model.kinds, RANDOM]
        scores = [self._score(row, head) for row in rows for head in heads]
        return sorted(scores, key=lambda result: -result.score)

    def start(self, source: str, table: Sequence[ZeroShot]) -> tuple[str, str | None]:
        """Return the tasks whose embedding and head initialise those of the new task."""
        if source == BEST:
            return table[0].row, table[0].head
        if source == RANDOM:
            return RANDOM, None
        if source not in self.model.kinds:
            raise unknown("task", source, [*self.model.kinds, RANDOM, BEST], "--from")
        return source, source if source in self.heads() else None

    def _score(self, row: str, head: str) -> ZeroShot:
        from taskmix.training.evaluation import evaluate

        model = self._extended(None if row == RANDOM else row, head)
        scores = evaluate(model, self.task, self.split, self.config.evaluate.batch, self.device)
        return ZeroShot(row, head, scores.score, scores.loss)

    def _extended(self, row: str | None, head: str | None) -> "MultiTaskModel":
        from taskmix.models.adapting import add_task

        model, task, config = copy.deepcopy(self.model), self.task, self.config
        add_task(model, config.model, task.name, task.kind, row=row, head=head, seed=config.seed)
        return model


def _load_probe(folder: Path, config: RunConfig, cache: Path | None) -> _Probe:
    from taskmix.models import saving
    from taskmix.training.folder import MODEL
    from taskmix.training.loading import pick_device
    from taskmix.training.prepare import read_split, resolve

    device = pick_device(config.device)
    model, tokenizer = saving.load(folder / MODEL)
    [task] = resolve(config)
    train = read_split(task, "train", tokenizer, cache)
    task = replace(task, kind=task.kind.fit(train.items))
    return _Probe(model.to(device), task, train.at_most(MAX_ROWS), config, device)
