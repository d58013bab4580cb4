"""What all figures share: colours, layout and the import of plotly."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from taskmix.errors import UserError

# Okabe and Ito (2008): readers with any colour vision can distinguish them. Without their black,
# which a dark page hides, and their yellow, which a light one hides.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot")
PATTERNS = ("", "/", "x", ".")
# Readable on a light and on a dark page.
NEUTRAL = "#808080"
CLEAR = "rgba(0,0,0,0)"
SCALE = "Cividis"  # sequential, for any colour vision


@dataclass(frozen=True)
class Look:
    """The colour, dash of lines and pattern of areas of one name in every figure of a page."""

    colour: str
    dash: str
    pattern: str

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
    """Return a look for each name; after six colours they come again, dashed and hatched.

    >>> looks(["cola", "rte"])["rte"].colour
    '#E69F00'
    """
    return {name: _look(k) for k, name in enumerate(names)}


def _look(k: int) -> Look:
    again, colour = divmod(k, len(PALETTE))
    again %= len(DASHES)
    return Look(PALETTE[colour], DASHES[again], PATTERNS[again])


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


def panels(heights: Sequence[float] = (1.0,), widths: Sequence[float] = (1.0,)) -> Any:
    """Return an empty figure with panels of these relative heights and widths.

    Its background is transparent, so that it takes the colour of the page.
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
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        height=380,
        modebar={"bgcolor": CLEAR, "color": NEUTRAL, "activecolor": NEUTRAL},
        hovermode="x unified",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "title": {"text": ""}},
    )
    axis = {"automargin": True, "zeroline": False, "gridcolor": "rgba(128,128,128,0.25)"}
    figure.update_xaxes(showgrid=False, ticks="outside", tickcolor=NEUTRAL, **axis)
    figure.update_xaxes(spikethickness=1, spikecolor=NEUTRAL)
    figure.update_yaxes(title_standoff=12, hoverformat=".3f", **axis)
    return figure
