"""The course of a search."""

from typing import Any

import numpy as np

from taskmix.report.style import NEUTRAL, PALETTE, panels, plotly
from taskmix.studies.autosem import Search, Tried


def search_history(found: Search) -> Any:
    """Return the value of each trial, the best so far, and what the primary reaches alone.

    Args:
        found: the trials of a search.
    """
    go, _ = plotly()
    figure = panels()
    whole = [each for each in found.tried if not each.pruned]
    pruned = [each for each in found.tried if each.pruned]
    figure.add_trace(_points(go, found, whole, "finished", "circle", PALETTE[0]))
    if pruned:
        figure.add_trace(_points(go, found, pruned, "pruned, its last value", "x", NEUTRAL))
    so_far = np.maximum.accumulate([100 * each.value for each in whole])
    line = {"color": PALETTE[1], "width": 2.5, "shape": "hv"}
    numbers = [each.number for each in whole]
    figure.add_trace(go.Scatter(x=numbers, y=so_far, name="best so far", mode="lines", line=line))
    if found.alone is not None:
        figure.add_hline(
            100 * found.alone.value,
            line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
            annotation_text="primary alone",
        )
    figure.update_xaxes(title_text="trial")
    figure.update_yaxes(title_text="objective, of 100", hoverformat=".1f")
    figure.update_layout(height=420, hovermode="closest")
    return figure


def _points(
    go: Any, found: Search, trials: list[Tried], name: str, symbol: str, colour: str
) -> Any:
    return go.Scatter(
        x=[each.number for each in trials],
        y=[100 * each.value for each in trials],
        name=name,
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 9},
        text=[ratio_words(each) for each in trials],
        hovertemplate="trial %{x}, %{text}: %{y:.1f}<extra></extra>",
    )


def ratio_words(tried: Tried) -> str:
    """Return a ratio as the papers write it, such as 4:0:1."""
    return ":".join(str(count) for count in tried.ratio.values())
