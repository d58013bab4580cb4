"""Differences of several contestants to one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskmix.report.style import NEUTRAL, Look, looks, panels, plotly, safe
from taskmix.studies.paired import SCORES, Difference, Unit

ROW = 28
"""Pixels that a row has at least, and those that each contestant adds to it."""
BESIDE = 14
SPREAD = 0.6
"""The part of a row over which the contestants' dots are spread."""


@dataclass(frozen=True)
class Row:
    """Differences in one measure.

    Args:
        name: of the measure: a task, or what contestants are judged by.
        found: by contestant.
    """

    name: str
    found: Mapping[str, Difference]


def differences(
    rows: Sequence[Row], contestants: Sequence[str], baseline: str, unit: Unit = SCORES
) -> Any:
    """Dots for the mean differences, lines for their intervals, around zero: a row a task.

    A dot is filled where the corrected test tells the contestant from the baseline.

    Args:
        rows: the first is what contestants are judged by; all have the same contestants.
        contestants: all of them, which have their colours by this order.
        baseline: the contestant that zero stands for.
        unit: of the differences.
    """
    go, _ = plotly()
    figure = panels()
    given, names = looks(contestants), list(rows[0].found)
    offsets = np.linspace(-SPREAD / 2, SPREAD / 2, len(names)) if len(names) > 1 else np.zeros(1)
    for name, offset in zip(names, offsets.tolist(), strict=True):
        found = [row.found[name] for row in rows]
        figure.add_trace(go.Scatter(**_dots(name, given[name], found, offset, unit)))
    figure.add_vline(x=0, line={"color": NEUTRAL, "width": 1})
    first, *others = (safe(row.name) for row in rows)
    figure.update_yaxes(
        tickvals=list(range(len(rows))),
        ticktext=[f"<b>{first}</b>", *others],
        range=[len(rows) - 0.5, -0.5],
        showgrid=False,
    )
    figure.update_xaxes(title_text=f"{unit.better} {safe(baseline)}, {unit.words}", showgrid=True)
    height = 120 + len(rows) * (ROW + BESIDE * (len(names) - 1))
    figure.update_layout(hovermode="closest", height=height)
    return figure


def _dots(
    name: str, look: Look, found: Sequence[Difference], offset: float, unit: Unit
) -> dict[str, Any]:
    """Return the trace of one contestant; `found` is by row."""
    scale = abs(unit.factor)
    # Single tasks, of which there are many, are not tested.
    symbols = ["circle" if found[0].significant else "circle-open"]
    symbols += ["circle-open"] * (len(found) - 1)
    return {
        "x": [scale * each.mean for each in found],
        "y": [row + offset for row in range(len(found))],
        "name": safe(name),
        "mode": "markers",
        "marker": {"color": look.colour, "size": 9, "symbol": symbols, "line": {"width": 2}},
        "error_x": {
            "symmetric": False,
            "array": [scale * _half(each, each.high) for each in found],
            "arrayminus": [scale * _half(each, each.low) for each in found],
            "color": look.colour,
            "thickness": 2,
            "width": 0,  # caps would stand inside a dot that has no interval
        },
        "hovertemplate": f"%{{x:+.{unit.digits}f}}",
    }


def _half(found: Difference, end: float | None) -> float:
    """Return how far an end of the interval is from the dot; 0 where there is no interval."""
    return 0.0 if end is None else abs(end - found.mean)
