"""From a run file's tasks to items that batches are made of."""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bursar.config import RunConfig, is_own, own_class
from bursar.errors import UserError, unknown
from bursar.run_info import RunInfo
from bursar.tasks import catalogue
from bursar.tasks.data import PythonSource
from bursar.tasks.encoding import encode
from bursar.tasks.files import from_files
from bursar.tasks.hub import from_hub
from bursar.tasks.kinds import Kind
from bursar.tasks.parts import Split, hold_out, some_rows
from bursar.tasks.rows import ChoiceRow, ImageRow, QuestionRow, Row, TextRow, WordsRow
from bursar.tasks.task import Task
from bursar.tasks.tokenizer import Tokenizer
from bursar.training.watching import Watchers

log = logging.getLogger(__name__)
CUT = 0.05
"""A larger share of rows that are cut is worth a warning."""
PARTS = {"rows", "held_out"}
"""Keys of a run file's task that take a part of a task which has a name."""

Given = Mapping[str, Task]
"""Tasks made in Python, by name."""


@dataclass(frozen=True)
class Prepared:
    """A task with its splits: what is trained on.

    Args:
        task: the task; its kind has seen the training split.
        train: the training items.
        dev: what it is scored on.
    """

    task: Task
    train: Any
    dev: Split


def resolve(config: RunConfig, given: Given | None = None) -> list[Task]:
    """Return the tasks that a configuration names: given ones first, then the catalogue."""
    tasks = [_task(entry, config, given or {}) for entry in config.tasks]
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"tasks: expected different names, found {name!r} twice")
    return tasks


def _task(entry: str | dict[str, Any], config: RunConfig, given: Given) -> Task:
    if isinstance(entry, str):
        data = Path(config.data) if config.data else None
        return given[entry] if entry in given else catalogue.find(entry, data)
    if "hub" in entry:
        make: Callable[..., Task] = from_hub
    else:
        part = partial(_part, config=config, given=given)
        make = part if PARTS & entry.keys() else from_files
    _check_keys(entry, make)
    if is_own(entry.get("kind")):
        where = f"tasks: {entry['name']}: kind"
        entry = entry | {"kind": own_class(entry["kind"], Kind, where, config.code)}
    try:
        return make(**entry)
    except TypeError as error:  # a value of another type than the key has
        raise UserError(f"tasks: {entry['name']}: {error}") from None


def _part(
    name: str,
    *,
    rows: int | None = None,
    held_out: float | None = None,
    config: RunConfig,
    given: Given,
) -> Task:
    """Return a named task with fewer training rows, or a dev split made of some of them."""
    where = f"tasks: {name}"
    if rows is not None and (not isinstance(rows, int) or rows < 2):
        raise UserError(f"{where}: rows: expected a whole number above 1, found {rows!r}")
    if held_out is not None and not (isinstance(held_out, float) and 0 < held_out < 1):
        raise UserError(f"{where}: held_out: expected a number between 0 and 1, found {held_out!r}")
    task = _task(name, config, given)
    splits = dict(task.splits)
    if held_out is not None:
        splits["test"] = task.split("dev")
        splits["train"], splits["dev"] = hold_out(task.split("train"), held_out)
    if rows is not None:
        splits["train"] = some_rows(splits["train"], rows)
    return replace(task, splits=splits)


def _check_keys(entry: Mapping[str, Any], make: Callable[..., Task]) -> None:
    """Raise unless a task's keys are the arguments of the function that makes it."""
    bound = make.keywords if isinstance(make, partial) else {}
    arguments = inspect.signature(make).parameters
    known = {key: argument for key, argument in arguments.items() if key not in bound}
    where = f"tasks: {entry.get('name', 'one without a name')}"
    for key in entry:
        if key not in known:
            raise unknown("key", str(key), known, where)
    for key, argument in known.items():
        if argument.default is argument.empty and key not in entry:
            raise UserError(f"{where}: expected a value for {key}, found none")


def read_texts(tasks: Sequence[Task]) -> bool:
    """Return whether the tasks are texts, so that a tokenizer is needed; not if they are images."""
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
    """Yield all texts of some rows."""
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


def prepare(
    tasks: Sequence[Task],
    tokenizer: Tokenizer | None,
    config: RunConfig,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> list[Prepared]:
    """Read and encode the train and dev splits of each task, or find them in the cache."""
    watchers = watchers or Watchers()
    return [_prepare(task, tokenizer, config, cache, watchers) for task in tasks]


def _prepare(
    task: Task,
    tokenizer: Tokenizer | None,
    config: RunConfig,
    cache: Path | None,
    watchers: Watchers,
) -> Prepared:
    train = read_split(task, "train", tokenizer, cache, watchers)
    dev = read_split(task, "dev", tokenizer, cache, watchers)
    for name, split in (("train", train), ("dev", dev)):
        _all_labelled(task, split)
        _say_cut(task, name, split, config)
    try:
        kind = task.kind.fit(train.items)
    except UserError as error:
        raise UserError(f"{train.source.where}: {error}") from None
    return Prepared(replace(task, kind=kind), train.items, dev.at_most(config.evaluate.examples))


def _say_cut(task: Task, name: str, split: Split, config: RunConfig) -> None:
    """Warn of rows that are cut, where that is more than a few."""
    cut, lost = getattr(split.items, "cut", 0), getattr(split.items, "lost", 0)
    if cut > CUT * split.rows or lost:
        answers = f", and {lost:,} answers are lost" if lost else ""
        log.warning(
            "%s, %s: %s of %s rows are cut at model.max_length=%d%s",
            task.name,
            name,
            f"{cut:,}",
            f"{split.rows:,}",
            config.model.max_length,
            answers,
        )


def read_split(
    task: Task,
    name: str,
    tokenizer: Tokenizer | None,
    cache: Path | None = None,
    watchers: Watchers | None = None,
) -> Split:
    """Return one split of a task, encoded."""
    source = task.split(name)
    if isinstance(source, PythonSource):
        return Split(source.items, source)
    told = watchers or Watchers()
    encoded = encode(
        task.kind, source, tokenizer, cache, lambda rows: told.reading(task.name, name, rows)
    )
    return Split(encoded, source)


def _all_labelled(task: Task, split: Split) -> None:
    missing = task.kind.unlabelled(split.items)
    if missing.any():
        raise UserError(
            f"{split.source.where}: expected a label in every row, found none in "
            f"{int(missing.sum())} of {len(missing)}"
        )


def run_info_of(config: RunConfig, prepared: Sequence[Prepared]) -> RunInfo:
    """Return what the decider may know of the run."""
    sizes = {entry.task.name: len(entry.train) for entry in prepared}
    return RunInfo(sizes, config.budget.steps, config.budget.batch)
