"""The pieces of a page that opens offline; every text that comes in is escaped."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.files import write_whole
from taskmix.report.captions import Caption

#: The browser itself sees to it that nothing is loaded from anywhere.
_ALLOWED = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
#: By this a page is known as one of ours.
_MARK = '<meta name="generator" content="taskmix">'
#: Named one by one, because plotly's own choice has a button that sends the data away.
_BUTTONS = [["toImage", "zoom2d", "pan2d", "resetScale2d"]]


@dataclass(frozen=True)
class Plot:
    """A plotly figure with its heading and caption."""

    caption: Caption
    figure: Any


def document(title: str, lead: str, body: Sequence[str]) -> str:
    """Return the whole page."""
    from plotly.offline import get_plotlyjs

    style = files("taskmix.report").joinpath("page.css").read_text(encoding="utf-8")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_ALLOWED}">',
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
    """Write a page, and return its path; a file that taskmix did not write is left alone."""
    check_page(path)
    write_whole(path, page)
    return path


def check_page(path: Path) -> None:
    """Raise if a file that taskmix did not write stands where a page is to be written."""
    if not path.exists():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        if _MARK not in file.read(2000):
            raise UserError(f"{path}: taskmix has not written this file; move it away first")


def notice(text: str) -> str:
    """Return a sentence that is not to be overlooked."""
    return f'<p class="notice">{escape(text)}</p>'


def tiles(facts: Mapping[str, str]) -> str:
    """Names and values side by side."""
    inside = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in facts.items()
    )
    return f'<dl class="tiles">{inside}</dl>'


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    best: Collection[tuple[int, int]] = frozenset(),
) -> str:
    """Return a table; the cells (row, column) among `best` stand out."""
    above = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    below = "".join(
        "<tr>" + "".join(_cell(cell, (i, j) in best) for j, cell in enumerate(row)) + "</tr>\n"
        for i, row in enumerate(rows)
    )
    return f'<div class="wide"><table>\n<tr>{above}</tr>\n{below}</table></div>'


def _cell(text: str, best: bool) -> str:
    mark = ' class="best"' if best else ""
    return f"<td{mark}>{escape(text)}</td>"


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
    """Something that opens on a click; `inside` is HTML."""
    return f"<details><summary>{escape(summary)}</summary>\n{inside}\n</details>"


def verbatim(text: str) -> str:
    """Return a text as it is."""
    return f"<pre>{escape(text)}</pre>"
