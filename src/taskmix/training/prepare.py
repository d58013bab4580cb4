"""The tasks of a run: from the entries of a run file to encoded items."""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from taskmix.config import HubTask, NamedTask, RunConfig, TaskEntry, is_own, own_class
from taskmix.errors import UserError
from taskmix.run_info import RunInfo
from taskmix.tasks import catalogue
from taskmix.tasks.data import PythonSource, ReadyBatches
from taskmix.tasks.encoding import Encoded, encode
from taskmix.tasks.files import from_files
from taskmix.tasks.hub import from_hub
from taskmix.tasks.kinds import Kind
from taskmix.tasks.parts import Split, hold_out, rows_of, some_rows
from taskmix.tasks.rows import ChoiceRow, ImageRow, PromptRow, QuestionRow, Row, TextRow, WordsRow
from taskmix.tasks.sources import check_file
from taskmix.tasks.task import Task
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training.watching import Watchers

log = logging.getLogger(__name__)
MAX_SHARE_CUT = 0.05  # warn if a larger share of the rows is cut

PythonTasks = Mapping[str, Task]
Tasks = Sequence[Task] | PythonTasks


def by_name(tasks: Tasks) -> dict[str, Task]:
    return dict(tasks) if isinstance(tasks, Mapping) else {task.name: task for task in tasks}


@dataclass(frozen=True)
class Prepared:
    """A task whose kind is fitted to the training split, with its data."""

    task: Task
    train: Any
    dev: Split


def resolve(config: RunConfig, python_tasks: PythonTasks | None = None) -> list[Task]:
    """Return the tasks of a configuration; raise if a name is wrong or a file is missing."""
    tasks = [task_of(entry, config, python_tasks or {}) for entry in config.tasks]
    for task in tasks:
        try:
            for metric in task.metrics:
                metric.check()
        except UserError as error:
            raise UserError(f"task {task.name}: {error}") from None
        for split in ("train", "dev"):
            if split in task.splits:
                check_file(task.splits[split])
    names = config.task_names
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"tasks: expected different names, found {name!r} twice")
    return tasks


def task_of(
    entry: TaskEntry, config: RunConfig, python_tasks: PythonTasks, kind: Kind | None = None
) -> Task:
    """Return the task of an entry; given its fitted kind, no data are read."""
    if isinstance(entry, NamedTask):
        task = python_tasks.get(entry.name) or catalogue.find(
            entry.name, Path(config.data) if config.data else None
        )
    else:
        arguments = entry.arguments() | {"kind": kind or _kind(entry.name, entry.kind, config)}
        if isinstance(entry, HubTask):
            arguments["revision"] = config.dataset_revision(entry)
        task = from_hub(**arguments) if isinstance(entry, HubTask) else from_files(**arguments)
    task = _part(task, entry.rows, entry.held_out)
    return task if kind is None else replace(task, kind=kind)


def _kind(name: str, kind: str, config: RunConfig) -> str | type[Kind]:
    if not is_own(kind):
        return kind
    cls: type[Kind] = own_class(kind, Kind, f"tasks: {name}: kind", config.code)
    return cls


def _part(task: Task, rows: int | None, held_out: float | None) -> Task:
    """Return a task with fewer training rows, or with a dev split held out from them."""
    splits = dict(task.splits)
    if held_out is not None:
        if "dev" in splits:
            splits["test"] = splits.pop("dev")
        splits["train"], splits["dev"] = hold_out(task.split("train"), held_out)
    if rows is not None:
        splits["train"] = some_rows(splits["train"], rows)
    return replace(task, splits=splits)


def read_texts(tasks: Sequence[Task]) -> bool:
    """Return whether the tasks are texts, which need a tokenizer; raise if some are not."""
    texts = {task.name: _reads_text(task) for task in tasks}
    if len(set(texts.values())) == 1:
        return texts[tasks[0].name]
    mixed = ", ".join(name for name, text in texts.items() if not text)
    raise UserError(f"tasks: expected all texts or all images, found no texts in {mixed} alone")


def _reads_text(task: Task) -> bool:
    source = task.split("train")
    if isinstance(source, PythonSource):
        return False
    row = next(source.rows(), None)
    if row is None:
        raise UserError(f"{source.where}: expected at least one row, found none")
    return not isinstance(row, ImageRow)


def texts_of(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        match row:
            case TextRow(text=text, pair=pair):
                yield text
                if pair is not None:
                    yield pair
            case WordsRow(words=words):
                yield " ".join(words)
            case QuestionRow(question=question, context=context):
                yield from (question, context)
            case ChoiceRow(text=text, choices=choices):
                yield from (text, *choices)
            case PromptRow(prompt=prompt, answer=answer):
                yield from (text for text in (prompt, answer) if text)


def prepare(
    tasks: Sequence[Task],
    tokenizer: Tokenizer | None,
    config: RunConfig,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> list[Prepared]:
    """Read and encode the train and dev splits of each task, or load them from the cache."""
    prepared = []
    for task in tasks:
        train = read_split(task, "train", tokenizer, cache, watchers)
        dev = read_split(task, "dev", tokenizer, cache, watchers)
        for name, split in (("train", train), ("dev", dev)):
            _check_labelled(task, split)
            _warn_of_cut_rows(task, name, split, config)
            _warn_of_empty_rows(task, name, split, tokenizer)
        try:
            fitted = replace(task, kind=task.kind.fit(train.items))
        except UserError as error:
            raise UserError(f"{train.source.where}: {error}") from None
        _check_batch_size(task, train, config)
        _warn_of_small_batches(task, train, config)
        prepared.append(Prepared(fitted, train.items, dev.at_most(config.evaluate.examples)))
    return prepared


def _check_batch_size(task: Task, train: Split, config: RunConfig) -> None:
    """Raise if a loader's batches, which are ready, are to be cut or to have another size."""
    sizes = {"tokens": config.budget.tokens is not None, "accumulate": config.budget.accumulate > 1}
    for key, is_set in sizes.items():
        if is_set and isinstance(train.items, ReadyBatches):
            raise UserError(
                f"budget.{key}: expected a data set to make batches of, found a loader of ready "
                f"batches for {task.name}"
            )


def _warn_of_small_batches(task: Task, train: Split, config: RunConfig) -> None:
    if isinstance(train.items, ReadyBatches) or config.budget.tokens is not None:
        return
    # A selector's batch mixes the tasks.
    if config.family.key != "selection" and len(train) < config.budget.batch:
        counts = f"{len(train):,} training examples, fewer than budget.batch={config.budget.batch}"
        log.warning("%s: a batch has all of its %s", task.name, counts)


def _warn_of_cut_rows(task: Task, name: str, split: Split, config: RunConfig) -> None:
    cut, lost = getattr(split.items, "cut", 0), getattr(split.items, "lost", 0)
    if cut > MAX_SHARE_CUT * split.rows or lost:
        counts = f"{cut:,} of {split.rows:,} rows are cut at model.max_length"
        answers = f", and {lost:,} answers are lost" if lost else ""
        log.warning("%s, %s: %s=%d%s", task.name, name, counts, config.model.max_length, answers)


def _warn_of_empty_rows(task: Task, name: str, split: Split, tokenizer: Tokenizer | None) -> None:
    if tokenizer is None or not isinstance(split.items, Encoded):
        return
    [nothing] = tokenizer.encode([""], [None])
    empty = int((split.items.lengths() <= len(nothing.ids)).sum())
    if empty:
        log.warning(
            "%s, %s: %s of %s texts are empty", task.name, name, f"{empty:,}", f"{len(split):,}"
        )


def read_split(
    task: Task,
    name: str,
    tokenizer: Tokenizer | None,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> Split:
    source = task.split(name)
    if isinstance(source, PythonSource):
        return Split(source.items, source)
    watchers = watchers or Watchers()

    def on_rows(rows: int) -> None:
        watchers.reading(task.name, name, rows)

    try:
        return Split(encode(task.kind, source, tokenizer, cache, on_rows), source)
    except UserError as error:
        raise UserError(f"task {task.name}: {error}") from None


def _check_labelled(task: Task, split: Split) -> None:
    missing = task.kind.unlabelled(split.items)
    if missing.any():
        raise UserError(
            f"{split.source.where}: expected a label in every row, found none in "
            f"{int(missing.sum())} of {len(missing)}"
        )


def run_info_of(config: RunConfig, prepared: Sequence[Prepared]) -> RunInfo:
    info = _run_info(config, {entry.task.name: len(entry.train) for entry in prepared})
    if (tokens := config.budget.tokens) is None:
        return info
    return replace(info, batches={p.task.name: token_batches(p, tokens) for p in prepared})


def token_batches(entry: Prepared, tokens: int) -> float:
    """Return how many batches of this many tokens an epoch of a task has."""
    return float(entry.train.lengths().sum()) / tokens


def run_info_before(
    config: RunConfig, python_tasks: PythonTasks | None = None, cache: Path | None = None
) -> RunInfo:
    """Return the run info before anything is encoded, from counts of rows."""
    sizes = {}
    for task in resolve(config, python_tasks):
        source = task.split("train")
        if isinstance(source, PythonSource):
            sizes[task.name] = len(source.items)
        else:
            sizes[task.name] = rows_of(source, cache)
    return _run_info(config, sizes)


def with_steps(config: RunConfig, python_tasks: PythonTasks | None = None) -> RunConfig:
    """Return the configuration with the steps of `budget.epochs`, if it has them."""
    budget = config.budget
    if budget.epochs is None:
        return config
    rows = sum(run_info_before(config, python_tasks).sizes.values())
    steps = max(1, math.ceil(budget.epochs * rows / budget.batch))
    with_them: RunConfig = config.model_copy(
        update={"budget": budget.model_copy(update={"steps": steps})}
    )
    return with_them


def without_epochs(config: RunConfig) -> RunConfig:
    """Return the configuration with a fixed number of steps, whatever its tasks."""
    budget = config.budget.model_copy(update={"epochs": None})
    fixed: RunConfig = config.model_copy(update={"budget": budget})
    return fixed


def _run_info(config: RunConfig, sizes: Mapping[str, int]) -> RunInfo:
    targets = () if config.objective is None else config.objective.tasks
    return RunInfo(sizes, config.budget.steps, config.budget.batch, targets)
