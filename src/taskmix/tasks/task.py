"""A task, and how the columns of a user's tables become one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, get_args

from taskmix.errors import UserError, unknown
from taskmix.tasks.kinds import Kind, kind_class
from taskmix.tasks.metrics import Metric
from taskmix.tasks.rows import Source
from taskmix.tasks.shapes import (
    NO_LABEL,
    ColumnMap,
    LabelledTexts,
    Missing,
    Shape,
    Texts,
    Words,
    optional_labels,
)


@dataclass(frozen=True, eq=False)
class Task:
    """A learning problem: its name, kind, splits and metrics.

    A file is read only when the rows of its split are.

    Args:
        name: the task's name in run files, journals and tables.
        kind: the kind of task, such as classification, with its labels.
        splits: the source of each split's rows; `train`, `dev` and any others.
        metrics: the task's score is their mean.
    """

    name: str
    kind: Kind
    splits: Mapping[str, Source]
    metrics: tuple[Metric, ...]

    def split(self, name: str) -> Source:
        """Return the source of a split."""
        try:
            return self.splits[name]
        except KeyError:
            names = ", ".join(self.splits) or "none"
            raise UserError(f"task {self.name}: no split {name!r}; there are: {names}") from None


class DataTable(Protocol):
    """A file, or a data set of the `datasets` library."""

    def columns(self) -> tuple[str, ...]: ...

    def label_names(self, column: str) -> tuple[str, ...] | None:
        """Return the class names of a column of integers, if the table has them."""

    def source(self, shape: Shape) -> Source: ...


def assemble(
    name: str,
    kind: str | type[Kind] | Kind,
    columns: ColumnMap,
    tables: Mapping[str, DataTable],
    labels: Iterable[str | int] | None,
    metrics: Iterable[str] | None,
) -> Task:
    """Make a task from tables; if `kind` is a trained kind, no table is read."""
    for option, value in (("labels", labels), ("metrics", metrics)):
        if isinstance(value, str):
            raise UserError(f"task {name}: {option}: expected a list, found {value!r}.")
    cls = type(kind) if isinstance(kind, Kind) else kind_class(kind, f"task {name}")
    metrics_of(name, cls, metrics or ())  # a wrong name is found before anything is read
    for option in cls.asks:
        if not getattr(columns, option):
            raise UserError(f"task {name}: expected a value for {option}, found none.")
    names = tables["train"].label_names(columns.label)
    shape = _with_missing(cls.shape(columns), columns.missing, f"task {name}")
    if names and isinstance(shape, (Texts, Words)):
        shape = replace(shape, names=names)
    sources = {split: _source(split, table, shape, columns) for split, table in tables.items()}
    classes = tuple(str(label) for label in labels) if labels else names
    try:
        if not isinstance(kind, Kind):
            kind = cls.for_task(classes, sources["train"])
    except UserError as error:
        raise UserError(f"task {name}: {error}") from None
    return Task(name, kind, sources, metrics_of(name, kind, metrics))


def _with_missing(shape: Shape, missing: Missing, where: str) -> Shape:
    """Return the shape with this rule for rows without a label."""
    if missing not in get_args(Missing):
        raise unknown("value", missing, get_args(Missing), f"{where}: missing")
    if missing == "error":
        return shape
    if not isinstance(shape, Texts) or shape.holds == "names":
        raise UserError(
            f"{where}: missing: expected a kind whose label is one class or number, for 'skip'"
        )
    return LabelledTexts(**vars(shape))


def metrics_of(
    task: str, kind: Kind | type[Kind], names: Iterable[str] | None
) -> tuple[Metric, ...]:
    """Return the metrics of these names; None means the defaults of the kind."""
    if names is None:
        assert isinstance(kind, Kind)
        names = kind.usual_metrics()
    known = {metric.name: metric for metric in kind.metrics}
    names = tuple(names)
    for name in names:
        if name not in known:
            raise unknown("metric", name, known, f"task {task}")
    return tuple(known[name] for name in names)


def _source(split: str, table: DataTable, shape: Shape, columns: ColumnMap) -> Source:
    # Rows of a test split may lack labels; in other splits such rows are skipped and counted.
    if split == "test" and optional_labels(shape) != shape:
        return table.source(optional_labels(shape))
    if split == "test":
        labelled = (columns.answer or columns.label) in table.columns()
        return table.source(shape if labelled else shape.without_labels())
    if isinstance(shape, Texts) and shape.names:
        return table.source(replace(shape, unlabelled=NO_LABEL))
    return table.source(shape)
