"""What the decider of a run did: one figure for each family."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from taskmix.journal import Round, SelectionStep
from taskmix.report.document import Caption
from taskmix.report.figures.run import MAX_MARKED, step_axis
from taskmix.report.history import History
from taskmix.report.style import NEUTRAL, curve, looks, numbers, panels, plotly, safe
from taskmix.report.timeline import Floats, Timeline, asked, influence, max_points, thinned

SHARES = Caption(
    "Shares of the draws",
    "The height of a colour is the probability with which its task was drawn; the two bars "
    "compare the mean probabilities with the draws.",
)
MAX_GROUPS = 100
"""Batches are counted together in at most this many groups."""
SELECTION = Caption(
    "Examples chosen",
    "Where a solid line is above its dotted one, the selector chose the task more often than the "
    "candidates contain it.",
)
WEIGHTS = Caption(
    "Weights",
    "Where α is above 1, the target gains from more of a task's update, below 1 from less; the "
    "weights are the sum of these corrections over the rounds.",
)


def shares(history: History) -> Any:
    """Return the probabilities over the steps as areas, beside their means and the draws."""
    timeline = asked(history)
    if timeline is None:
        raise ValueError("history: expected shares records, found none")
    figure = panels(widths=(0.84, 0.16), tasks=len(history.tasks))
    steps, values = timeline.corners(max_points(len(history.tasks)))
    figure.add_traces(share_areas(history.tasks, steps, values), rows=1, cols=1)
    figure.add_traces(_share_bars(history, timeline), rows=1, cols=2)
    figure.update_layout(barmode="stack", bargap=0.15)
    figure.update_xaxes(title_text="step", range=[timeline.steps[0], timeline.end], row=1, col=1)
    figure.update_yaxes(range=[0, 1], tickformat=".0%", hoverformat=".1%")
    figure.update_yaxes(title_text="share of the draws", row=1, col=1)
    return figure


def share_areas(tasks: Sequence[str], steps: Floats, values: Floats) -> list[Any]:
    """Return areas on each other; row k of `values` holds from `steps[k]` on."""
    return [
        curve(
            task,
            look,
            steps,
            column,
            digits=3,
            stackgroup="asked",
            line={"width": 0, "color": look.colour, "shape": "hv"},
            fillcolor=look.colour,
            fillpattern=look.hatch,
        )
        for (task, look), column in zip(looks(tasks).items(), values.T, strict=True)
    ]


def _share_bars(history: History, timeline: Timeline) -> list[Any]:
    go, _ = plotly()
    drawn = Counter(task for unit in history.units for task in unit.shares())
    total = max(1, drawn.total())
    return [
        go.Bar(
            x=["asked", "drawn"],
            y=numbers([mean, drawn[task] / total]),
            name=safe(task),
            legendgroup=look.group,
            showlegend=False,
            marker={"color": look.colour, "pattern": look.hatch},
        )
        for (task, look), mean in zip(looks(history.tasks).items(), timeline.mean(), strict=True)
    ]


def selection(history: History) -> Any:
    """Return each task's share of the chosen examples and of the candidates.

    Figure 8 of Pilault, El hattami and Pal (2021), as shares.
    """
    selections = [unit for unit in history.units if isinstance(unit, SelectionStep)]
    if not selections:
        raise ValueError("history: expected selection records, found none")
    figure = panels(tasks=len(history.tasks))
    groups = [
        [selections[k] for k in places]
        for places in np.array_split(np.arange(len(selections)), MAX_GROUPS)
        if len(places)
    ]
    steps = [group[-1].step for group in groups]
    chosen = _example_shares(groups, "chosen", history.tasks)
    offered = _example_shares(groups, "candidates", history.tasks)
    for k, (task, look) in enumerate(looks(history.tasks).items()):
        dotted = {"color": look.colour, "dash": "dot", "width": 1}
        figure.add_trace(curve(task, look, steps, chosen[:, k], line=look.line(2.5)))
        figure.add_trace(curve(f"{task}, offered", look, steps, offered[:, k], line=dotted))
    figure.update_xaxes(title_text="step", **step_axis(history))
    figure.update_yaxes(
        title_text="share of the examples", tickformat=".0%", hoverformat=".1%", rangemode="tozero"
    )
    return figure


def _example_shares(
    groups: Sequence[Sequence[SelectionStep]], which: str, tasks: Sequence[str]
) -> Floats:
    """Return the shares by task in each group, shape `(groups, tasks)`."""
    counts = np.array(
        [
            [sum(getattr(record, which).get(task, 0) for record in group) for task in tasks]
            for group in groups
        ],
        dtype=np.float64,
    )
    shares: Floats = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def weighting(history: History) -> Any:
    """Return α, where the weighting has it, and the normalised weights over the rounds.

    Figure 3 of Kourdis, Gordon-Hall and Gorinski (2020).
    """
    weights = influence(history)
    rounds = _rounds(history)
    if weights is None or not rounds:
        raise ValueError("history: expected round records, found none")
    by_task = dict(zip(history.tasks, weights.values.T, strict=True))
    alphas = _alphas(history)
    figure = panels(heights=(0.5, 0.5) if alphas else (1.0,), tasks=len(history.tasks))
    if alphas:
        figure.add_traces(_weight_curves(history, alphas), rows=1, cols=1)
        figure.add_hline(1.0, line={"color": NEUTRAL, "dash": "dot", "width": 1}, row=1, col=1)
        figure.update_yaxes(title_text="α", row=1, col=1)
    last = 2 if alphas else 1
    figure.add_traces(_weight_curves(history, by_task), rows=last, cols=1)
    figure.update_yaxes(title_text="normalised weight", range=[-0.02, 1.02], row=last, col=1)
    figure.update_xaxes(title_text="round", **step_axis(history), row=last, col=1)
    figure.update_layout(height=300 + 180 * (last - 1))
    return figure


def _alphas(history: History) -> dict[str, Sequence[float]]:
    return {
        task: [record.alphas[task] for record in _rounds(history)]
        for task in history.tasks
        if all(task in record.alphas for record in _rounds(history))
    }


def _rounds(history: History) -> list[Round]:
    return [unit for unit in history.units if isinstance(unit, Round)]


def _weight_curves(history: History, values: Mapping[str, Sequence[float]]) -> list[Any]:
    styles = looks(history.tasks)
    shown = thinned(len(_rounds(history)), max_points(len(history.tasks)))
    mode = "lines+markers" if len(shown) <= MAX_MARKED else "lines"
    return [
        curve(task, styles[task], shown + 1, np.asarray(column)[shown], mode=mode)
        for task, column in values.items()
    ]


DECIDERS: Mapping[str, tuple[Caption, Callable[[History], Any]]] = {
    "policy": (SHARES, shares),
    "selection": (SELECTION, selection),
    "weighting": (WEIGHTS, weighting),
}
"""By family."""
