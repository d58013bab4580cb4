"""Tables as data: results return them, the terminal and the HTML page render them."""

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape

UNKNOWN = "–"
"""The text of a missing value."""


@dataclass(frozen=True)
class TableCell:
    """A value with a text that a column's format cannot give, such as one with an interval."""

    text: str
    value: float | None = None
    link: str | None = None  # a path relative to the page, where that shows links


Value = str | float | TableCell | None
Row = Sequence[Value]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    heading: str
    format: str | Callable[[float], str] = ""  # of its numbers: a specification, or a function
    left: bool = False  # whether it is aligned to the left; the first column always is

    def text(self, value: Value) -> str:
        if value is None:
            return UNKNOWN
        if isinstance(value, TableCell):
            return value.text
        if isinstance(value, str):
            return value
        return format(value, self.format) if isinstance(self.format, str) else self.format(value)


@dataclass(frozen=True)
class Table:
    """A table of a result.

    >>> print(Table([Column("task"), Column("share", ".1%")], [["cola", 0.25], ["rte", None]]))
    task  share
    cola  25.0%
    rte       –
    """

    columns: Sequence[Column]  # the first one names the rows
    rows: Sequence[Row]
    title: str = ""
    best: frozenset[tuple[int, int]] = frozenset()  # highlighted cells: pairs of row and column
    totals: int = 0  # the number of last rows that summarise the ones above
    notes: tuple[str, ...] = ()  # sentences below the table

    def texts(self) -> list[list[str]]:
        return [
            [column.text(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]

    def first(self, count: int) -> "Table":
        """Return the table with its first rows only, and a note on how many there are."""
        if len(self.rows) <= count:
            return self
        note = f"The first {count} of {len(self.rows)} rows; the report has all of them."
        return replace(self, rows=self.rows[:count], totals=0, notes=(*self.notes, note))

    def with_columns(self, chosen: Sequence[int]) -> "Table":
        """Return the table with these columns only."""
        return replace(
            self,
            columns=[self.columns[j] for j in chosen],
            rows=[[row[j] for j in chosen] for row in self.rows],
            best=frozenset((i, chosen.index(j)) for i, j in self.best if j in chosen),
        )

    def markdown(self) -> str:
        r"""Return the table as Markdown, with its title and notes.

        >>> print(Table([Column("a|b"), Column("n", ".1f")], [["x", 1.0]], "Numbers").markdown())
        **Numbers**
        <BLANKLINE>
        | a\|b | n |
        |---|---:|
        | x | 1.0 |
        <BLANKLINE>
        """
        lines = [[column.heading for column in self.columns], *self.texts()]
        head, *rows = (f"| {' | '.join(_escaped(cell) for cell in line)} |" for line in lines)
        rule = ["---" if k == 0 or c.left else "---:" for k, c in enumerate(self.columns)]
        title = [f"**{self.title}**", ""] if self.title else []
        notes = [line for note in self.notes for line in ("", note)]
        return "\n".join([*title, head, f"|{'|'.join(rule)}|", *rows, *notes, ""])

    def csv(self) -> str:
        """Return the values as comma-separated rows below the headings.

        >>> print(Table([Column("task"), Column("n")], [["a,b", 0.25]]).csv(), end="")
        task,n
        "a,b",0.25
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.heading for column in self.columns])
        writer.writerows(
            [cell.value if isinstance(cell, TableCell) else cell for cell in row]
            for row in self.rows
        )
        return text.getvalue()

    def __str__(self) -> str:
        lines = [[column.heading for column in self.columns], *self.texts()]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        left = [k == 0 or column.left for k, column in enumerate(self.columns)]
        return "\n".join(
            "  ".join(
                text.ljust(width) if to_left else text.rjust(width)
                for text, width, to_left in zip(line, widths, left, strict=True)
            ).rstrip()
            for line in lines
        )


def _escaped(cell: str) -> str:
    return cell.replace("|", r"\|")


class Tabled(ABC):
    """A result that shows its tables: as text when it is printed, as HTML in a notebook."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """Return the result as tables."""

    def __repr__(self) -> str:
        return "\n\n".join(
            "\n".join(part for part in (table.title, str(table), *table.notes) if part)
            for table in self.tables()
        )

    def _repr_html_(self) -> str:
        return "\n".join(map(_html, self.tables()))


def _html(table: Table) -> str:
    title = f"<caption>{escape(table.title)}</caption>" if table.title else ""
    head = "".join(f"<th>{escape(column.heading)}</th>" for column in table.columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in texts)}</tr>"
        for texts in table.texts()
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return f"<table>{title}<tr>{head}</tr>{rows}</table>{notes}"


def hundredths(score: float) -> str:
    """Format a score in hundredths, with one decimal."""
    return f"{100 * score:.1f}"


def duration(seconds: float) -> str:
    """Format a time by its two largest units.

    >>> duration(3.21), duration(75), duration(7384)
    ('3.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, left = divmod(minutes, 60)
    return f"{hours} h {left} min" if hours else f"{minutes} min {rest} s"
