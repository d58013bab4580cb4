"""What all figures share: colours, layout and the import of plotly."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from taskmix.errors import UserError

# Okabe and Ito (2008): readers with any colour vision can distinguish them. Without their black,
# which a dark page hides, and their yellow, which a light one hides.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
# Other colours for contestants, so that none of them looks like a task: IBM's palette, which is
# safe for the colour-blind, too.
CONTESTANT_PALETTE = ("#648FFF", "#DC267F", "#FFB000", "#785EF0", "#FE6100")
DASHES = ("solid", "dash", "dot", "dashdot")
PATTERNS = ("", "/", "x", ".")
# Readable on a light and on a dark page.
NEUTRAL = "#808080"
GRID = "rgba(128,128,128,0.25)"
CLEAR = "rgba(0,0,0,0)"
MAX_HOVERED = 10
MAX_AXIS_NAME = 24  # characters
SCALE = "Cividis"  # sequential, for any colour vision


@dataclass(frozen=True)
class Look:
    """The colour, dash of lines and pattern of areas of one name in every figure of a page."""

    group: str  # of its traces, which the page's legend shows and hides together
    colour: str
    dash: str
    pattern: str

    def line(self, width: float = 2.0) -> dict[str, Any]:
        return {"color": self.colour, "dash": self.dash, "width": width}

    def faint(self, opacity: float) -> str:
        """Return the colour for the background of a curve."""
        red, green, blue = (int(self.colour[k : k + 2], 16) for k in (1, 3, 5))
        return f"rgba({red},{green},{blue},{opacity})"

    @property
    def hatch(self) -> dict[str, Any]:
        return {
            "shape": self.pattern,
            "fillmode": "replace",
            "fgcolor": "white",
            "bgcolor": self.colour,
            "solidity": 0.2,
        }


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for each task; after six colours they come again, dashed and hatched.

    >>> looks(["cola", "rte"])["rte"].colour
    '#E69F00'
    """
    return {name: _look("task", k, PALETTE) for k, name in enumerate(names)}


def contestant_looks(names: Iterable[str]) -> dict[str, Look]:
    """Return a look for each contestant, in colours that no task has."""
    return {name: _look("contestant", k, CONTESTANT_PALETTE) for k, name in enumerate(names)}


def _look(kind: str, k: int, palette: Sequence[str]) -> Look:
    again, colour = divmod(k, len(palette))
    again %= len(DASHES)
    return Look(f"{kind}-{k}", palette[colour], DASHES[again], PATTERNS[again])


def numbers(values: ArrayLike, digits: int = 4) -> list[Any]:
    """Return numbers with few significant digits, which keep a page small; NaN becomes None.

    >>> numbers([0.123456, 2000.0])
    [0.1235, 2000]
    """
    rows = np.asarray(values, dtype=np.float64)
    if rows.ndim > 1:
        return [numbers(row, digits) for row in rows]
    rounded = (float(f"{value:.{digits}g}") for value in rows)
    return [None if math.isnan(x) else int(x) if x.is_integer() else x for x in rounded]


def curve(name: str, look: Look, x: ArrayLike, y: ArrayLike, digits: int = 4, **more: Any) -> Any:
    """Return a line in the look of its name; the page has the legend."""
    go, _ = plotly()
    drawn = {"mode": "lines", "line": look.line(), "showlegend": False, **more}
    name, x, y = safe(name), numbers(x, 6), numbers(y, digits)
    return go.Scatter(x=x, y=y, name=name, legendgroup=look.group, **drawn)


def band(name: str, look: Look, x: ArrayLike, low: ArrayLike, high: ArrayLike) -> list[Any]:
    """Return the area between two lines."""
    edge: dict[str, Any] = {"line": {"width": 0}, "hoverinfo": "skip"}
    fill: dict[str, Any] = {"fill": "tonexty", "fillcolor": look.faint(0.2)}
    return [curve(name, look, x, low, **edge), curve(name, look, x, high, **edge, **fill)]


def shortened(name: str) -> str:
    """Return a name for an axis, without its middle if it is long.

    >>> shortened("a-very-long-name-of-a-task-indeed")
    'a-very-long-…task-indeed'
    """
    half = MAX_AXIS_NAME // 2
    short = f"{name[:half]}…{name[1 - MAX_AXIS_NAME + half :]}"
    return safe(name if len(name) <= MAX_AXIS_NAME else short)


def safe(name: str) -> str:
    """Return a name escaped for plotly, which interprets tags in texts.

    >>> safe("<b>a & b")
    '&lt;b&gt;a &amp; b'
    """
    return escape(name, quote=False)


def plotly() -> tuple[Any, Any]:
    """Return the modules `plotly.graph_objects` and `plotly.subplots`."""
    try:
        from plotly import graph_objects, subplots
    except ImportError:
        raise UserError(
            "report: expected plotly, which draws the figures, found it not installed; "
            "get it with `pip install 'taskmix[report]'`"
        ) from None
    return graph_objects, subplots


def panels(
    heights: Sequence[float] = (1.0,), widths: Sequence[float] = (1.0,), tasks: int = 1
) -> Any:
    """Return an empty figure with panels of these relative heights and widths.

    Its background is transparent, so that it takes the colour of the page. A box shows the values
    of all tasks at a step, unless there are too many.
    """
    _, subplots = plotly()
    figure = subplots.make_subplots(
        rows=len(heights),
        cols=len(widths),
        row_heights=list(heights),
        column_widths=list(widths),
        shared_xaxes=len(heights) > 1,
        shared_yaxes=len(widths) > 1,
        vertical_spacing=0.06,
        horizontal_spacing=0.03,
    )
    figure.update_layout(
        template="none",
        paper_bgcolor=CLEAR,
        plot_bgcolor=CLEAR,
        font={"color": NEUTRAL, "size": 13, "family": "system-ui, sans-serif"},
        margin={"l": 8, "r": 16, "t": 28, "b": 8},
        height=380,
        modebar={"bgcolor": CLEAR, "color": NEUTRAL, "activecolor": NEUTRAL},
        hoverlabel={"namelength": 40},
        hovermode="x unified" if tasks <= MAX_HOVERED else "closest",
        hoverdistance=-1 if tasks <= MAX_HOVERED else 20,  # evaluations may be far apart
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "title": {"text": ""}},
    )
    axis = {"automargin": True, "zeroline": False, "gridcolor": GRID}
    figure.update_xaxes(showgrid=False, ticks="outside", tickcolor=NEUTRAL, **axis)
    figure.update_xaxes(spikethickness=1, spikecolor=NEUTRAL)
    figure.update_yaxes(title_standoff=12, hoverformat=".3f", **axis)
    return figure
