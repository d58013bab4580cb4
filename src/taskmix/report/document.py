"""The pieces of a page that opens offline; every text is escaped here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.tables import Table

# The browser itself forbids the page to load anything.
_SECURITY_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
# Marks a page that taskmix wrote.
_MARK = '<meta name="generator" content="taskmix">'
# Listed, because plotly's default has a button that sends the data away.
_BUTTONS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]]


@dataclass(frozen=True)
class Caption:
    """The heading of a figure, and one or two sentences on how to read it."""

    heading: str
    caption: str


@dataclass(frozen=True)
class Plot:
    """A plotly figure with its heading and caption."""

    caption: Caption
    figure: Any


def document(title: str, lead: str, body: Sequence[str]) -> str:
    from plotly.offline import get_plotlyjs

    style = files("taskmix.report").joinpath("page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_SECURITY_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            _MARK,
            f"<title>{escape(title)}</title>\n<style>\n{style}</style>",
            f"<script>{get_plotlyjs()}</script>\n</head>\n<body>",
            f'<h1>{escape(title)}</h1>\n<p class="lead">{escape(lead)}</p>',
            *body,
            "</body>\n</html>\n",
        ]
    )


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
        _cell("th", column.heading, left=j in left) for j, column in enumerate(data.columns)
    )
    rows = []
    for i, row in enumerate(data.texts()):
        cells = (
            _cell("td", text, left=j in left, best=(i, j) in data.best)
            for j, text in enumerate(row)
        )
        first_total = data.totals and i == len(data.rows) - data.totals
        rows.append(f"<tr{' class=total' if first_total else ''}>{''.join(cells)}</tr>\n")
    notes = "".join(f'<p class="note">{escape(note)}</p>\n' for note in data.notes)
    body = f"{title}<tr>{head}</tr>\n{''.join(rows)}"
    return f'<div class="wide"><table>\n{body}</table></div>\n{notes}'


def _cell(tag: str, text: str, *, left: bool, best: bool = False) -> str:
    classes = " ".join(name for name, on in (("left", left), ("best", best)) if on)
    attribute = f' class="{classes}"' if classes else ""
    return f"<{tag}{attribute}>{escape(text)}</{tag}>"


def plots(figures: Sequence[Plot]) -> list[str]:
    """Return each figure under its heading and caption."""
    return [_plot(f"figure-{k}", plot) for k, plot in enumerate(figures, 1)]


def _plot(name: str, plot: Plot) -> str:
    drawing = plot.figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=name,
        default_height=f"{plot.figure.layout.height}px",
        config={"responsive": True, "displaylogo": False, "modeBarButtons": _BUTTONS},
    )
    return (
        f"<figure>\n<h2>{escape(plot.caption.heading)}</h2>\n"
        f"<figcaption>{escape(plot.caption.caption)}</figcaption>\n{drawing}\n</figure>"
    )


def folded(summary: str, inside: str) -> str:
    """Return HTML that opens on a click."""
    return f"<details><summary>{escape(summary)}</summary>\n{inside}\n</details>"


def verbatim(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"
