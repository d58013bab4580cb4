"""From a run file's tasks to items that batches are made of."""

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from taskmix.config import RunConfig, is_own, own_class
from taskmix.errors import UserError, unknown
from taskmix.run_info import RunInfo
from taskmix.tasks import catalogue
from taskmix.tasks.data import PythonSource, ReadyBatches
from taskmix.tasks.encoding import encode
from taskmix.tasks.files import from_files
from taskmix.tasks.hub import from_hub
from taskmix.tasks.kinds import Kind
from taskmix.tasks.parts import Split, hold_out, some_rows
from taskmix.tasks.rows import (
    ChoiceRow,
    ImageRow,
    PromptRow,
    QuestionRow,
    Row,
    Source,
    TextRow,
    WordsRow,
)
from taskmix.tasks.sizes import rows_of
from taskmix.tasks.sources import LateSource
from taskmix.tasks.task import Task
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training.watching import Watchers

log = logging.getLogger(__name__)
CUT = 0.05
"""A larger share of rows that are cut is worth a warning."""
PARTS = {"rows", "held_out"}
"""Keys of a run file's task that take a part of it."""

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
    for task in tasks:
        _check_metrics(task)
    names = [task.name for task in tasks]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"tasks: expected different names, found {name!r} twice")
    return tasks


def _check_metrics(task: Task) -> None:
    """Raise if a metric cannot be computed here, before anything is trained."""
    for metric in task.metrics:
        try:
            metric.check()
        except UserError as error:
            raise UserError(f"task {task.name}: {error}") from None


def late_tasks(
    config: RunConfig, kinds: Mapping[str, Kind], given: Given | None = None
) -> dict[str, Task]:
    """Return by name the tasks of a trained model; a file is looked for when it is read.

    Args:
        config: of the run.
        kinds: by task, the trained kind.
        given: tasks made in Python, by name.
    """
    named: dict[str, Task] = {}
    for entry in config.tasks:
        task = _task(entry, config, given or {}, kinds)
        named[task.name] = replace(task, kind=kinds[task.name])
    return named


def _task(
    entry: str | dict[str, Any],
    config: RunConfig,
    given: Given,
    kinds: Mapping[str, Kind] | None = None,
) -> Task:
    """Return the task that an entry means; with trained kinds, nothing of it is read."""
    if isinstance(entry, str):
        find = catalogue.find if kinds is None else catalogue.find_late
        data = Path(config.data) if config.data else None
        return given[entry] if entry in given else find(entry, data)
    part = {key: value for key, value in entry.items() if key in PARTS}
    rest = {key: value for key, value in entry.items() if key not in PARTS}
    if not isinstance(entry.get("name"), str) or not entry["name"]:
        raise UserError(f"tasks: expected a name of letters, found {entry.get('name')!r}")
    if part and not rest.keys() & {"hub", "train"}:
        _check_keys(entry, _Part)
        return _part(_task(entry["name"], config, given, kinds), _Part(**entry), kinds is not None)
    task = _own_task(rest, config, kinds)
    if "dev" not in task.splits and "held_out" not in part:
        raise UserError(f"tasks: {task.name}: expected a value for dev, or held_out, found none")
    if "held_out" in part and {"dev", "test"} <= task.splits.keys():
        raise UserError(
            f"tasks: {task.name}: held_out makes dev the test split; expected no test beside it"
        )
    return _part(task, _Part(task.name, **part), kinds is not None) if part else task


def _own_task(entry: dict[str, Any], config: RunConfig, kinds: Mapping[str, Kind] | None) -> Task:
    """Return a task of the user's own: files, or a data set of the hub."""
    make: Callable[..., Task] = from_hub if "hub" in entry else from_files
    _check_keys(entry, make)
    _check_names(entry)
    where = f"tasks: {entry['name']}"
    if kinds is not None:
        entry = entry | {"kind": kinds[entry["name"]]}
    elif is_own(entry.get("kind")):
        found = own_class(entry["kind"], Kind, f"{where}: kind", config.code)
        entry = entry | {"kind": found}
    try:
        return make(**entry)
    except TypeError as error:  # a value of another type than the key has
        raise UserError(f"{where}: {error}") from None


@dataclass(frozen=True)
class _Part:
    """A part of a task.

    Args:
        name: of the task.
        rows: at most this many training rows.
        held_out: the share of the training rows that are the dev split.
    """

    name: str
    rows: int | None = None
    held_out: float | None = None

    def __post_init__(self) -> None:
        where, rows, share = f"tasks: {self.name}", self.rows, self.held_out
        if rows is not None and (type(rows) is not int or rows < 2):
            raise UserError(f"{where}: rows: expected a whole number above 1, found {rows!r}")
        if share is not None and not (isinstance(share, float) and 0 < share < 1):
            raise UserError(
                f"{where}: held_out: expected a number between 0 and 1, found {share!r}"
            )


def _part(task: Task, part: _Part, late: bool) -> Task:
    """Return a task with fewer training rows, or a dev split made of some of them."""
    splits = dict(task.splits)
    if part.held_out is not None:
        if "dev" in splits:
            splits["test"] = splits.pop("dev")
        splits["dev"] = splits["train"]
    train = task.split("train")
    shape, reader = getattr(train, "shape", None), getattr(train, "reader", None)
    made = cache(lambda: _parted(train, part))
    for name in ("train", "dev") if part.held_out is not None else ("train",):
        find = partial(_found, made, name)
        splits[name] = LateSource(train.where, shape, find, reader) if late else find()
    return replace(task, splits=splits)


def _found(made: Callable[[], Mapping[str, Source]], split: str) -> Source:
    return made()[split]


def _parted(train: Source, part: _Part) -> dict[str, Source]:
    """Return the training rows that are left, and the dev split that is made of the others."""
    splits = {"train": train}
    if part.held_out is not None:
        splits["train"], splits["dev"] = hold_out(train, part.held_out)
    if part.rows is not None:
        splits["train"] = some_rows(splits["train"], part.rows)
    return splits


def _check_keys(entry: Mapping[str, Any], make: Callable[..., Any]) -> None:
    """Raise unless a task's keys are the arguments of what makes it."""
    known = inspect.signature(make).parameters
    where = f"tasks: {entry.get('name', 'one without a name')}"
    for key in entry:
        if key not in known:
            raise unknown("key", str(key), {*known, *PARTS}, where)
    for key, argument in known.items():
        if argument.default is argument.empty and key not in entry:
            raise UserError(f"{where}: expected a value for {key}, found none")


def _check_names(entry: Mapping[str, Any]) -> None:
    """Raise unless columns and metrics of a task of the user's own are called by texts."""
    where = f"tasks: {entry['name']}"
    for key in ("text", "label", "pair", "id"):
        value = entry.get(key)
        left_out = value is None and key in ("pair", "id")
        if key in entry and not isinstance(value, str) and not left_out:
            raise UserError(f"{where}: {key}: expected the name of a column, found {value!r}")
    for key in ("choices", "metrics"):
        value = entry.get(key)
        names = isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
        if value is not None and not names:
            raise UserError(f"{where}: {key}: expected a list of names, found {value!r}")


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
            case PromptRow(prompt=prompt, answer=answer):
                yield from (each for each in (prompt, answer) if each)


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
    _say_capped(task, train, config)
    return Prepared(replace(task, kind=kind), train.items, dev.at_most(config.evaluate.examples))


def _say_capped(task: Task, train: Split, config: RunConfig) -> None:
    """Warn of a batch that is larger than all there is; a selector's batch mixes the tasks."""
    ready = isinstance(train.items, ReadyBatches) or config.family.key == "selection"
    ready = ready or config.budget.tokens is not None
    if not ready and len(train) < config.budget.batch:
        log.warning(
            "%s: a batch has all of its %s training examples, fewer than budget.batch=%d",
            task.name,
            f"{len(train):,}",
            config.budget.batch,
        )


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
    found = _run_info(config, {entry.task.name: len(entry.train) for entry in prepared})
    if config.budget.tokens is None:
        return found
    batches = {entry.task.name: token_batches(entry, config.budget.tokens) for entry in prepared}
    return replace(found, batches=batches)


def token_batches(entry: Prepared, tokens: int) -> float:
    """Return how many batches of so many tokens an epoch of a task has."""
    return float(entry.train.lengths().sum()) / tokens


def run_info_before(
    config: RunConfig, given: Given | None = None, cache: Path | None = None
) -> RunInfo:
    """Return the same before anything is encoded: rows are counted, once."""
    trains = {task.name: task.split("train") for task in resolve(config, given)}
    return _run_info(config, {name: _rows_in(train, cache) for name, train in trains.items()})


def _rows_in(source: Source, cache: Path | None) -> int:
    return len(source.items) if isinstance(source, PythonSource) else rows_of(source, cache)


def _run_info(config: RunConfig, sizes: Mapping[str, int]) -> RunInfo:
    scored = () if config.objective is None else config.objective.tasks
    return RunInfo(sizes, config.budget.steps, config.budget.batch, scored)
