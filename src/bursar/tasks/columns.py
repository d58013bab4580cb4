"""A task from tables of a user's own: what each column is, and what follows from that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from bursar.errors import UserError, unknown
from bursar.tasks import metrics as m
from bursar.tasks.kinds import Choose, Classify, Kind, MultiLabel, Regress, Span, Tag
from bursar.tasks.metrics import Metric
from bursar.tasks.rows import QuestionRow, Source, TextRow, WordsRow
from bursar.tasks.shapes import NO_LABEL, Choices, Questions, Shape, Texts, Words
from bursar.tasks.task import Task

METRICS: Mapping[str, tuple[Metric, ...]] = {
    "classify": (m.ACCURACY, m.F1, m.MACRO_F1, m.MATTHEWS),
    "multilabel": (m.MULTILABEL_F1,),
    "regress": (m.PEARSON, m.SPEARMAN),
    "tag": (m.ENTITY_F1, m.TAG_ACCURACY),
    "span": (m.EXACT_MATCH, m.TOKEN_F1),
    "choose": (m.ACCURACY,),
}
"""By kind, the metrics that a task may have."""

USUAL = {
    "classify": ("accuracy",),
    "multilabel": ("micro_f1",),
    "regress": ("pearson", "spearman"),
    "tag": ("entity_f1",),
    "span": ("em", "f1"),
    "choose": ("accuracy",),
}
"""Those that it has where its owner does not say."""


@dataclass(frozen=True)
class ColumnMap:
    """Which column of a table is which.

    Args:
        kind: the kind of task.
        text: column of the text; of the list of words (tag); of the question (span).
        label: column of the class, number, classes (multilabel: a list, or names set apart by
            spaces or commas), tags (tag), answers (span) or position of the right choice (choose).
        pair: column of the second text; of the context (span).
        choices: columns of the choices, or the one that holds a list of them (choose).
    """

    kind: str
    text: str
    label: str
    pair: str | None = None
    choices: tuple[str, ...] = ()

    def shape(self) -> Shape:
        """How records become rows."""
        match self.kind:
            case "classify":
                return Texts(self.text, self.pair, self.label)
            case "multilabel":
                return Texts(self.text, self.pair, self.label, holds="names")
            case "regress":
                return Texts(self.text, self.pair, self.label, holds="number")
            case "tag":
                return Words(self.text, self.label)
            case "span" if self.pair:
                return Questions(self.text, self.pair, self.label)
            case "choose" if self.choices:
                return Choices(self.text, self.choices, self.label)
            case "span":
                raise UserError("a span task needs `pair`, the column of the context.")
            case "choose":
                raise UserError("a choose task needs `choices`, the columns of the choices.")
        raise unknown("kind", self.kind, METRICS)


class Table(Protocol):
    """Something with columns: a file, or a data set of the hub."""

    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""

    def label_names(self, column: str) -> tuple[str, ...] | None:
        """What the values of a column are called, where the table knows."""

    def source(self, shape: Shape) -> Source:
        """Its rows in a shape."""


def assemble(
    name: str,
    columns: ColumnMap,
    tables: Mapping[str, Table],
    labels: Iterable[str | int] | None,
    metrics: Iterable[str] | None,
) -> Task:
    """The task that these tables and columns make.

    Args:
        name: how run files, journals and tables call it.
        columns: which column is which.
        tables: by split.
        labels: the classes in order; None takes the table's, or those of the training split.
        metrics: names of metrics of the kind; None takes the kind's own.
    """
    for word, given in (("labels", labels), ("metrics", metrics)):
        if isinstance(given, str):
            raise UserError(f"task {name}: {word}: expected a list, found {given!r}.")
    chosen = _metrics(name, columns.kind, metrics)
    names = tables["train"].label_names(columns.label)
    shape = _named(columns.shape(), names)
    sources = {split: _source(split, table, shape, columns) for split, table in tables.items()}
    found = tuple(str(label) for label in labels) if labels else names
    return Task(name, _kind(name, columns.kind, found, sources["train"]), sources, chosen)


def _named(shape: Shape, names: tuple[str, ...] | None) -> Shape:
    return replace(shape, names=names) if names and isinstance(shape, (Texts, Words)) else shape


def _source(split: str, table: Table, shape: Shape, columns: ColumnMap) -> Source:
    """A split's rows; only a test split may have no labels, others skip and count such rows."""
    if split == "test":
        return table.source(shape if columns.label in table.columns() else shape.without_labels())
    if isinstance(shape, Texts) and shape.names:
        return table.source(replace(shape, unlabelled=NO_LABEL))
    return table.source(shape)


def _kind(name: str, kind: str, labels: tuple[str, ...] | None, train: Source) -> Kind:
    match kind:
        case "regress":
            return Regress()
        case "choose":
            return Choose()
        case "span":
            return Span(no_answer=_any_unanswered(train))
    labels = labels or _labels(train)
    if kind == "multilabel":
        return MultiLabel(labels)
    if len(labels) < 2:
        raise UserError(
            f"task {name}: {train.where} has the labels {list(labels)}, expected two or more."
        )
    return Tag(labels) if kind == "tag" else Classify(labels)


def _any_unanswered(train: Source) -> bool:
    """Whether the training split has questions without an answer, as SQuAD 2 does."""
    return any(isinstance(row, QuestionRow) and row.answers == () for row in train.rows())


def _labels(train: Source) -> tuple[str, ...]:
    """The labels of the training split, numbers by size and names by alphabet."""
    labels = {label for row in train.rows() for label in _labels_of(row)}
    numeric = all(label.removeprefix("-").isdecimal() for label in labels)
    return tuple(sorted(labels, key=int) if numeric else sorted(labels))


def _labels_of(row: object) -> tuple[str, ...]:
    match row:
        case TextRow(label=str(label)):
            return (label,)
        case TextRow(label=tuple(labels)) | WordsRow(tags=tuple(labels)):
            return labels
    return ()


def _metrics(name: str, kind: str, chosen: Iterable[str] | None) -> tuple[Metric, ...]:
    if kind not in METRICS:
        raise unknown("kind", kind, METRICS, f"task {name}")
    known = {metric.name: metric for metric in METRICS[kind]}
    names = tuple(USUAL[kind] if chosen is None else chosen)
    for each in names:
        if each not in known:
            raise unknown("metric", each, known, f"task {name}")
    return tuple(known[each] for each in names)
