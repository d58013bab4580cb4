"""What a selector chose."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from taskmix.journal import SelectionStep
from taskmix.report.captions import Caption
from taskmix.report.curves import Floats
from taskmix.report.history import History
from taskmix.report.style import looks, panels, plotly, safe

#: Batches are counted together in at most this many groups.
GROUPS = 100


CAPTION = Caption(
    "Examples chosen",
    "A solid line above its dotted one says that the selector took more of a task than it was "
    "offered.",
)


def draw(history: History) -> Any:
    """Each task's share of the examples chosen over the steps, and of the candidates offered.

    Figure 8 of Pilault, El hattami and Pal (2021), as shares.
    """
    selections = [unit for unit in history.units if isinstance(unit, SelectionStep)]
    if not selections:
        raise ValueError("history: expected selection records, found none")
    go, _ = plotly()
    figure = panels()
    groups = [
        [selections[k] for k in places]
        for places in np.array_split(np.arange(len(selections)), GROUPS)
        if len(places)
    ]
    steps = [group[-1].step for group in groups]
    chosen = _shares(groups, "chosen", history.tasks)
    offered = _shares(groups, "candidates", history.tasks)
    for k, (task, look) in enumerate(looks(history.tasks).items()):
        common = {"x": steps, "mode": "lines", "legendgroup": task}
        line = {"color": look.colour, "dash": look.dash, "width": 2.5}
        figure.add_trace(go.Scatter(y=chosen[:, k], name=safe(task), line=line, **common))
        line = {"color": look.colour, "dash": "dot", "width": 1}
        name = f"{safe(task)}, offered"
        figure.add_trace(
            go.Scatter(y=offered[:, k], name=name, line=line, showlegend=False, **common)
        )
    figure.update_xaxes(title_text="step", range=[0, 1.02 * history.end])
    figure.update_yaxes(
        title_text="share of the examples", tickformat=".0%", hoverformat=".1%", rangemode="tozero"
    )
    return figure


def _shares(groups: Sequence[Sequence[SelectionStep]], which: str, tasks: Sequence[str]) -> Floats:
    """Shares by task in each group, shape `(groups, tasks)`."""
    counts = np.array(
        [
            [sum(getattr(record, which).get(task, 0) for record in group) for task in tasks]
            for group in groups
        ],
        dtype=np.float64,
    )
    shares: Floats = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares
