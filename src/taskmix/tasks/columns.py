"""A task from tables of a user's own: what follows from which column is which."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from taskmix.errors import UserError, unknown
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.kinds import Kind, kind_class
from taskmix.tasks.metrics import Metric
from taskmix.tasks.rows import Source
from taskmix.tasks.shapes import NO_LABEL, Shape, Texts, Words, optional_labels
from taskmix.tasks.task import Task


class Table(Protocol):
    """Something with columns: a file, or a data set of the hub."""

    def columns(self) -> tuple[str, ...]:
        """Return the names of its columns."""

    def label_names(self, column: str) -> tuple[str, ...] | None:
        """Return what the values of a column are called, where the table knows."""

    def source(self, shape: Shape) -> Source:
        """Its rows in a shape."""


def assemble(
    name: str,
    kind: str | type[Kind] | Kind,
    columns: ColumnMap,
    tables: Mapping[str, Table],
    labels: Iterable[str | int] | None,
    metrics: Iterable[str] | None,
) -> Task:
    """Make the task that these tables and columns mean.

    Args:
        name: how run files, journals and tables call it.
        kind: the kind of task: a name, a class of one's own, or the trained kind itself, with which
            no table is read.
        columns: which column is which.
        tables: by split.
        labels: the classes in order; None takes the table's, or those of the training split.
        metrics: names of metrics of the kind; None takes the kind's own.
    """
    for word, given in (("labels", labels), ("metrics", metrics)):
        if isinstance(given, str):
            raise UserError(f"task {name}: {word}: expected a list, found {given!r}.")
    cls = type(kind) if isinstance(kind, Kind) else kind_class(kind, f"task {name}")
    _metrics(name, cls, metrics or ())  # a wrong name is found before anything is read
    for word in cls.asks:
        if not getattr(columns, word):
            raise UserError(f"task {name}: expected a value for {word}, found none.")
    names = tables["train"].label_names(columns.label)
    shape = _named(cls.shape(columns), names)
    sources = {split: _source(split, table, shape, columns) for split, table in tables.items()}
    found = tuple(str(label) for label in labels) if labels else names
    try:
        made = kind if isinstance(kind, Kind) else cls.for_task(found, sources["train"])
    except UserError as error:
        raise UserError(f"task {name}: {error}") from None
    return Task(name, made, sources, metrics_of(name, made, metrics))


def metrics_of(name: str, kind: Kind, metrics: Iterable[str] | None) -> tuple[Metric, ...]:
    """Return the metrics of a task by their names; None takes the kind's own."""
    return _metrics(name, type(kind), kind.usual_metrics() if metrics is None else metrics)


def _named(shape: Shape, names: tuple[str, ...] | None) -> Shape:
    return replace(shape, names=names) if names and isinstance(shape, (Texts, Words)) else shape


def _source(split: str, table: Table, shape: Shape, columns: ColumnMap) -> Source:
    """A split's rows; only a test split may have no labels, others skip and count such rows."""
    if split == "test" and optional_labels(shape) != shape:
        return table.source(optional_labels(shape))
    if split == "test":
        there = (columns.answer or columns.label) in table.columns()
        return table.source(shape if there else shape.without_labels())
    if isinstance(shape, Texts) and shape.names:
        return table.source(replace(shape, unlabelled=NO_LABEL))
    return table.source(shape)


def _metrics(name: str, kind: type[Kind], chosen: Iterable[str]) -> tuple[Metric, ...]:
    known = {metric.name: metric for metric in kind.metrics}
    names = tuple(chosen)
    for each in names:
        if each not in known:
            raise unknown("metric", each, known, f"task {name}")
    return tuple(known[each] for each in names)
