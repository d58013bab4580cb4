"""The pieces of a page that opens offline; every text is escaped here."""

import gzip
import itertools
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.report.style import PATTERNS, Look
from taskmix.tables import Table, TableCell, Value

# The browser itself forbids the page to load anything.
_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' blob:; style-src 'unsafe-inline'; "
    "img-src data: blob:"
)
_CHIPS = dict(zip(PATTERNS, ("", "lines", "cross", "dots"), strict=True))
# Marks a page that taskmix wrote.
_MARK = '<meta name="generator" content="taskmix">'


@dataclass(frozen=True)
class Caption:
    """The heading of a figure, and one or two sentences on how to read it."""

    heading: str
    caption: str


@dataclass(frozen=True)
class Plot:
    """A plotly figure, or several small ones by their titles, with heading and caption."""

    caption: Caption
    figure: Any = None
    panels: Mapping[str, Any] = field(default_factory=dict)

    @property
    def figures(self) -> list[Any]:
        return list(self.panels.values()) if self.figure is None else [self.figure]


def document(title: str, lead: str, verdict: str, body: Sequence[str | Plot]) -> str:
    """Return a page: its title, what it is about, its result in a sentence, and the details."""
    figures = [figure for part in body if isinstance(part, Plot) for figure in part.figures]
    numbers = itertools.count()
    parts = [part if isinstance(part, str) else _figure(part, numbers) for part in body]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_SECURITY_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            _MARK,
            f"<title>{escape(title)}</title>\n<style>\n{_asset('page.css')}</style>\n</head>\n<body>",
            f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>',
            f'<p class="verdict">{escape(verdict)}</p>',
            *parts,
            *([_packed("figures", _json(figures)), _plotly()] if figures else []),
            f"<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n",
        ]
    )


def _asset(name: str) -> str:
    return files("taskmix.report").joinpath(name).read_text(encoding="utf-8")


def _json(figures: Sequence[Any]) -> str:
    return f"[{','.join(figure.to_json(validate=False) for figure in figures)}]"


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return _packed("plotly", get_plotlyjs())


def _packed(name: str, text: str) -> str:
    """Return a block of gzipped text, which the page's script reads by its id."""
    packed = b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="text/plain" id="{name}">{packed}</script>'


def _figure(plot: Plot, numbers: Iterator[int]) -> str:
    heading, caption = escape(plot.caption.heading), escape(plot.caption.caption)
    if plot.figure is None:
        panels = (
            f"<div><h3>{name}</h3>{_place(figure, f'{heading}: {name}', numbers)}</div>"
            for name, figure in ((escape(name), figure) for name, figure in plot.panels.items())
        )
        inside = f'<div class="panels">{"".join(panels)}</div>'
    else:
        inside = _place(plot.figure, heading, numbers)
    return f"<figure>\n<h2>{heading}</h2>\n<figcaption>{caption}</figcaption>\n{inside}\n</figure>"


def _place(figure: Any, label: str, numbers: Iterator[int]) -> str:
    return (
        f'<div data-figure="{next(numbers)}" role="img" aria-label="{label}" '
        f'style="height:{figure.layout.height}px"></div>'
    )


def with_legend(styles: Mapping[str, Look], *parts: str | Plot) -> list[str | Plot]:
    """Return parts below a legend that stays on the screen; its buttons hide and show a name."""
    buttons = "".join(
        f'<button type="button" data-group="{look.group}" aria-pressed="true">'
        f'<i class="{_CHIPS[look.pattern]}" style="--colour:{look.colour}"></i>'
        f"{escape(name)}</button>"
        for name, look in styles.items()
    )
    legend = f'<div class="legend" role="group" aria-label="Legend">{buttons}</div>'
    return [f"<section>\n{legend}", *parts, "</section>"]


def write_page(path: Path, page: str) -> Path:
    """Write a page and return its path, unless a file is there that taskmix did not write."""
    check_page(path)
    write_whole(path, page)
    return path


def check_page(path: Path) -> None:
    """Raise if there is a file that taskmix did not write."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        if _MARK not in file.read(2000):
            raise UserError(f"{path}: taskmix has not written this file; move it away first")


def notice(text: str) -> str:
    return f'<p class="notice">{escape(text)}</p>'


def tiles(facts: Mapping[str, str]) -> str:
    """Return names and values side by side."""
    inside = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="tiles">{inside}</dl>'


def table(data: Table) -> str:
    """Return a table as HTML, with its notes below it."""
    title = f"<caption>{escape(data.title)}</caption>\n" if data.title else ""
    left = {j for j, column in enumerate(data.columns) if column.left}
    head = "".join(
        _cell("th", escape(column.heading), left=j in left) for j, column in enumerate(data.columns)
    )
    rows = []
    for i, (row, texts) in enumerate(zip(data.rows, data.texts(), strict=True)):
        cells = (
            _cell("td", _linked(text, value), left=j in left, best=(i, j) in data.best)
            for j, (value, text) in enumerate(zip(row, texts, strict=True))
        )
        first_total = data.totals and i == len(data.rows) - data.totals
        rows.append(f"<tr{' class=total' if first_total else ''}>{''.join(cells)}</tr>\n")
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in data.notes)
    body = f"{title}<tr>{head}</tr>\n{''.join(rows)}"
    label = escape(data.title or data.columns[0].heading)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table>\n{body}</table>'
        f"</div>\n{notes}"
    )


def _linked(text: str, value: Value) -> str:
    if not isinstance(value, TableCell) or value.link is None:
        return escape(text)
    # The dot makes it a relative path, whatever its name is.
    return f'<a href="./{quote(value.link)}">{escape(text)}</a>'


def _cell(tag: str, inside: str, *, left: bool, best: bool = False) -> str:
    classes = " ".join(name for name, on in (("left", left), ("best", best)) if on)
    attribute = f' class="{classes}"' if classes else ""
    return f"<{tag}{attribute}>{inside}</{tag}>"


def events(sentences: Sequence[str]) -> str:
    """Return a list of sentences."""
    return f'<ul class="events">{"".join(f"<li>{escape(each)}</li>" for each in sentences)}</ul>'


def folded(summary: str, inside: str, *, is_open: bool = False) -> str:
    """Return HTML that opens and closes on a click."""
    state = " open" if is_open else ""
    return f"<details{state}><summary>{escape(summary)}</summary>\n{inside}\n</details>"


def verbatim(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"
