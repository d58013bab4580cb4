"""What stage 1 of AutoSeM believes of each task."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import beta

from taskmix.policies import Utility
from taskmix.report.style import Look, looks, panels, plotly, safe

POINTS = 401


def utilities(found: Sequence[Utility]) -> Any:
    """The posterior density of each task's utility, with a bar for its 95% credible interval.

    Figure 3 of Guo, Pasunuru and Bansal (2019).

    Args:
        found: the utilities, the primary's first.
    """
    go, _ = plotly()
    figure = panels(heights=(0.7, 0.3))
    for (name, look), each in zip(looks(u.task for u in found).items(), found, strict=True):
        figure.add_trace(_density(go, name, look, each), row=1, col=1)
        figure.add_trace(_interval(go, name, look, each), row=2, col=1)
    figure.update_xaxes(range=[0, 1])
    figure.update_xaxes(title_text="utility: the chance that a round does not harm", row=2, col=1)
    figure.update_yaxes(title_text="density", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(showticklabels=False, showgrid=False, row=2, col=1)
    figure.update_layout(height=460 + 18 * len(found), hovermode="closest")
    return figure


def _density(go: Any, name: str, look: Look, each: Utility) -> Any:
    at = np.linspace(0, 1, POINTS)[1:-1]  # a density may be infinite at the ends
    return go.Scatter(
        x=at,
        y=beta.pdf(at, each.a, each.b),
        name=safe(name),
        legendgroup=name,
        mode="lines",
        line={"color": look.colour, "dash": look.dash, "width": 2.5},
    )


def _interval(go: Any, name: str, look: Look, each: Utility) -> Any:
    return go.Scatter(
        x=[each.mean],
        y=[f"{safe(name)}"],
        name=safe(name),
        legendgroup=name,
        showlegend=False,
        mode="markers",
        marker={"color": look.colour, "size": 9},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.mean],
            "arrayminus": [each.mean - each.low],
            "color": look.colour,
            "thickness": 2,
        },
        hovertemplate=(
            f"{safe(name)}: {each.mean:.2f}, 95% from {each.low:.2f} to {each.high:.2f},"
            f" {each.pulls} rounds<extra></extra>"
        ),
    )
