"""From a run file's tasks to encoded splits."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bursar.config import RunConfig
from bursar.errors import UserError, unknown
from bursar.run_info import RunInfo
from bursar.tasks import catalogue
from bursar.tasks.encoding import Encoded, encode
from bursar.tasks.files import from_files
from bursar.tasks.hub import from_hub
from bursar.tasks.parts import Split, hold_out, some_rows
from bursar.tasks.rows import ChoiceRow, ImageRow, QuestionRow, Row, TextRow, WordsRow
from bursar.tasks.task import Task
from bursar.tasks.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bursar.models.spec import ModelSpec

Reading = Callable[[str, str, int], None]
"""Is told of task, split and rows while texts are being encoded."""

PARTS = {"rows", "held_out"}
"""Keys of a run file's task that take a part of a task which has a name."""


@dataclass(frozen=True)
class Prepared:
    """A task with its encoded splits: what the trainer trains on.

    Args:
        task: the task; its kind has seen the training split.
        train: the training items.
        dev: what it is scored on.
    """

    task: Task
    train: Encoded
    dev: Split


def resolve(config: RunConfig, given: Mapping[str, Task] | None = None) -> list[Task]:
    """The tasks that a configuration names: given ones first, then the catalogue, own and hub."""
    data = Path(config.data) if config.data else None
    tasks = [_task(entry, data, given or {}) for entry in config.tasks]
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"tasks: expected different names, found {name!r} twice")
    return tasks


def _task(entry: str | dict[str, Any], data: Path | None, given: Mapping[str, Task]) -> Task:
    if isinstance(entry, str):
        return given[entry] if entry in given else catalogue.find(entry, data)
    if "hub" in entry:
        make: Callable[..., Task] = from_hub
    else:
        make = partial(_slice, data=data, given=given) if PARTS & entry.keys() else from_files
    _check_keys(entry, make)
    try:
        return make(**entry)
    except TypeError as error:  # a value of another type than the key has
        raise UserError(f"tasks: {entry['name']}: {error}") from None


def _slice(
    name: str,
    *,
    rows: int | None = None,
    held_out: float | None = None,
    data: Path | None,
    given: Mapping[str, Task],
) -> Task:
    """A task that has a name, with fewer training rows, or a dev split made of some of them."""
    where = f"tasks: {name}"
    if rows is not None and (not isinstance(rows, int) or rows < 2):
        raise UserError(f"{where}: rows: expected a whole number above 1, found {rows!r}")
    if held_out is not None and not (isinstance(held_out, float) and 0 < held_out < 1):
        raise UserError(f"{where}: held_out: expected a number between 0 and 1, found {held_out!r}")
    task = _task(name, data, given)
    splits = dict(task.splits)
    if held_out is not None:
        splits["test"] = task.split("dev")
        splits["train"], splits["dev"] = hold_out(task.split("train"), held_out)
    if rows is not None:
        splits["train"] = some_rows(splits["train"], rows)
    return replace(task, splits=splits)


def _check_keys(entry: Mapping[str, Any], make: Callable[..., Task]) -> None:
    """A task's keys are the arguments of the function that makes it."""
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


def tokenizer_of(
    tasks: Sequence[Task], spec: "ModelSpec", cache: Path | None = None
) -> Tokenizer | None:
    """The tokenizer for these tasks; None if they are images."""
    images = {task.name: isinstance(_first(task), ImageRow) for task in tasks}
    if all(images.values()):
        return None
    if any(images.values()):
        mixed = ", ".join(name for name, image in images.items() if image)
        raise UserError(f"tasks: expected all texts or all images, found images in {mixed} alone")
    from bursar.models.store import Texts, tokenizer_for

    sources = [task.split("train") for task in tasks]
    fingerprint = "\x1f".join(source.fingerprint() for source in sources)
    return tokenizer_for(
        spec,
        Texts(fingerprint, lambda: (text for source in sources for text in _texts(source.rows()))),
        cache,
    )


def _first(task: Task) -> Row:
    source = task.split("train")
    row = next(source.rows(), None)
    if row is None:
        raise UserError(f"{source.where}: expected at least one row, found none")
    return row


def _texts(rows: Iterable[Row]) -> Iterator[str]:
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
    reading: Reading | None = None,
) -> list[Prepared]:
    """Read and encode the train and dev splits of each task, or find them in the cache."""
    return [_prepare(task, tokenizer, config, cache, reading) for task in tasks]


def _prepare(
    task: Task,
    tokenizer: Tokenizer | None,
    config: RunConfig,
    cache: Path | None,
    reading: Reading | None,
) -> Prepared:
    train = read_split(task, "train", tokenizer, cache, reading)
    dev = read_split(task, "dev", tokenizer, cache, reading)
    for split in (train, dev):
        _all_labelled(task, split)
    try:
        kind = task.kind.fit(train.encoded)
    except UserError as error:
        raise UserError(f"{train.source.where}: {error}") from None
    return Prepared(replace(task, kind=kind), train.encoded, dev.at_most(config.evaluate.examples))


def read_split(
    task: Task,
    name: str,
    tokenizer: Tokenizer | None,
    cache: Path | None = None,
    reading: Reading | None = None,
) -> Split:
    """One split of a task, encoded."""
    source = task.split(name)

    def on_rows(rows: int) -> None:
        if reading is not None:
            reading(task.name, name, rows)

    return Split(encode(task.kind, source, tokenizer, cache, on_rows), source)


def _all_labelled(task: Task, split: Split) -> None:
    hidden = task.kind.unlabelled(split.encoded)
    if hidden.any():
        raise UserError(
            f"{split.source.where}: expected a label in every row, found none in "
            f"{int(hidden.sum())} of {len(hidden)}"
        )


def run_info_of(config: RunConfig, prepared: Sequence[Prepared]) -> RunInfo:
    """What the one who decides may know of the run."""
    sizes = {entry.task.name: len(entry.train) for entry in prepared}
    return RunInfo(sizes, config.budget.steps, config.budget.batch)
