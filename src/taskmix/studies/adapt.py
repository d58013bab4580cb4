"""A new task for a trained conditioned model: zero-shot, few-shot, or on all of its data."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taskmix.config import RunConfig, changed
from taskmix.errors import UserError, unknown

if TYPE_CHECKING:
    from taskmix.models.multitask import MultiTaskModel
    from taskmix.tasks.parts import Split
    from taskmix.tasks.task import Task
    from taskmix.training.folder import Finished
    from taskmix.training.watching import Watcher

BEST = "best"
RANDOM = "random"
ROWS = 1000
"""Training rows that the zero-shot table is scored on, at most."""


@dataclass(frozen=True)
class ZeroShot:
    """How a model answers a new task before it was trained on it.

    Args:
        row: the task whose embedding stands for the new one; `random` for a random one.
        head: the task whose head answers.
        score: the mean of the new task's metrics.
        loss: the mean loss.
    """

    row: str
    head: str
    score: float
    loss: float


@dataclass(frozen=True)
class Adapted:
    """What `adapt` came to.

    Args:
        row: the task whose embedding the new task's started from; `random` for a random one.
        head: the task whose head the new task's started from; None for a new one.
        table: the zero-shot scores, the best first; empty where they were not needed.
        finished: what the training came to; None where there was none.
    """

    row: str
    head: str | None
    table: Sequence[ZeroShot]
    finished: "Finished | None"


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
    """Give the conditioned model of a finished run one task more, as a run of its own.

    The task gets a row of the table of task embeddings and a head. The head starts from that of the
    source where it fits, which is a head of the same kind that knows all labels. The run in
    `folder` stays as it is; the one in `out` has its settings, and a model of all tasks.

    Pilault et al. (2021) choose the embedding by a zero-shot table (their Table 8) and train on
    0.1%, 1%, 10% and 100% of the data (Table 3). They score the table with a head that knows
    nothing, on the dev set; here it is scored with trained heads that fit, on training rows.

    Args:
        folder: the finished run.
        task: the new task, as a run file says it.
        out: the folder of the new run.
        source: the task whose embedding the new one starts from, `random`, or `best`.
        train_all: train all that the first run trained, not the new row and head alone.
        fraction: the share of the training rows that are used; 0 scores zero-shot alone.
        sets: changes of the new run's configuration, such as `budget.steps=200`.
        data: where the catalogue's files are, if not where the first run found them.
        cache: the folder for what is computed once.
        watchers: are told of all that happens.
    """
    from taskmix.config.overrides import with_sets
    from taskmix.training.folder import MODEL, config_of, finished
    from taskmix.training.run import run

    folder, out = Path(folder), Path(out)
    finished(folder)
    before = config_of(folder)
    if before.model.conditional is None:
        raise UserError(
            f"{folder}: expected a task-conditioned model, trained with `model: {{conditional: "
            "true}`, found a plain one"
        )
    config = with_sets(_config(before, task, data), sets)
    config = changed(config, {"tasks": [_part(config, fraction)]}, "adapt")
    row, head, table = RANDOM, None, []
    if source != RANDOM or fraction == 0:
        question = open_question(folder, config, cache)
        table = question.zero_shot() if source == BEST or fraction == 0 else []
        row, head = question.start(source, table)
    if fraction == 0:
        return Adapted(row, head, table, None)
    start = {
        "model": str((folder / MODEL).resolve()),
        "row": None if row == RANDOM else row,
        "head": head,
        "train_all": train_all,
    }
    model = config.model.model_dump() | {"adapt": start}
    done = run(changed(config, {"model": model}, "adapt"), out, cache=cache, watchers=watchers)
    return Adapted(row, head, table, done)


def _config(before: RunConfig, task: str | Mapping[str, Any], data: str | None) -> RunConfig:
    """Return the configuration of the new run: the settings of the first, and one task."""
    entry = task if isinstance(task, str) else dict(task)
    name = entry if isinstance(entry, str) else str(entry.get("name"))
    values: dict[str, Any] = {
        "name": f"{before.name}-{name.replace('/', '-')}",
        "tasks": [entry],
        "policy": {"name": "random"},
        "selection": None,
        "weighting": None,
        "objective": None,
    }
    if data is not None:
        values["data"] = str(Path(data).resolve())
    return changed(before, values, "adapt")


def _part(config: RunConfig, fraction: float) -> Any:
    """Return the task's entry with the share of its training rows that is asked for."""
    from taskmix.tasks.sizes import rows_of
    from taskmix.training.prepare import resolve

    [entry] = config.tasks
    if not 0 <= fraction <= 1:
        raise UserError(f"fraction: expected a share from 0 to 1, found {fraction}")
    if fraction in (0, 1):
        return entry
    if isinstance(entry, dict) and {"train", "hub"} & entry.keys():
        raise UserError(
            "fraction: expected 1 for a task of one's own files, whose rows are chosen there, "
            f"found {fraction}"
        )
    [task] = resolve(config)
    rows = max(2, round(fraction * rows_of(task.split("train"))))
    return (entry if isinstance(entry, dict) else {"name": entry}) | {"rows": rows}


@dataclass(frozen=True)
class Question:
    """A conditioned model and a task that it does not know yet.

    Args:
        model: the model, which stays as it is.
        task: the new task; its kind has seen the training rows.
        split: the training rows that zero-shot answers are scored on.
        config: of the new run: the kind of head, the seed, the batch size.
        device: where the model is.
    """

    model: "MultiTaskModel"
    task: "Task"
    split: "Split"
    config: RunConfig
    device: Any

    def heads(self) -> list[str]:
        """Return the tasks whose heads can answer the new one."""
        from taskmix.models.adapting import fits

        probe = self._with(None, None)
        return [name for name in self.model.kinds if fits(probe, name, self.task.name)]

    def zero_shot(self) -> list[ZeroShot]:
        """Return how each embedding, and a random one, answers with each head, the best first."""
        heads = self.heads()
        if not heads:
            raise UserError(
                f"task {self.task.name}: expected a head of the model that fits it, found none of "
                "its kind with all of its labels; start from a task or from a random embedding"
            )
        rows = [*self.model.kinds, RANDOM]
        found = [self._scored(row, head) for row in rows for head in heads]
        return sorted(found, key=lambda each: -each.score)

    def start(self, source: str, table: Sequence[ZeroShot]) -> tuple[str, str | None]:
        """Return the tasks whose embedding and head the new task starts from."""
        if source == BEST:
            return table[0].row, table[0].head
        if source == RANDOM:
            return RANDOM, None
        if source not in self.model.kinds:
            raise unknown("task", source, [*self.model.kinds, RANDOM, BEST], "--from")
        return source, source if source in self.heads() else None

    def _scored(self, row: str, head: str) -> ZeroShot:
        from taskmix.training.evaluation import evaluate

        probe = self._with(None if row == RANDOM else row, head)
        scores = evaluate(probe, self.task, self.split, self.config.evaluate.batch, self.device)
        return ZeroShot(row, head, scores.score, scores.loss)

    def _with(self, row: str | None, head: str | None) -> "MultiTaskModel":
        """Return a copy of the model that knows the new task."""
        from taskmix.models.adapting import add_task

        probe, task, config = copy.deepcopy(self.model), self.task, self.config
        add_task(probe, config.model, task.name, task.kind, row=row, head=head, seed=config.seed)
        return probe


def open_question(folder: Path, config: RunConfig, cache: Path | None = None) -> Question:
    """Return a finished run's model beside a new task.

    Args:
        folder: the finished run.
        config: of the new run, with the new task alone.
        cache: the folder for what is computed once.
    """
    from taskmix.models import saving
    from taskmix.training.engine import pick_device
    from taskmix.training.folder import MODEL
    from taskmix.training.prepare import read_split, resolve

    device = pick_device(config.device)
    model, tokenizer = saving.load(folder / MODEL)
    [task] = resolve(config)
    train = read_split(task, "train", tokenizer, cache)
    task = replace(task, kind=task.kind.fit(train.items))
    return Question(model.to(device), task, train.at_most(ROWS), config, device)
