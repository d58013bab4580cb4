"""Figures of an AutoSeM study."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from taskmix.policies import Utility
from taskmix.report.document import Caption
from taskmix.report.style import (
    NEUTRAL,
    PALETTE,
    SCALE,
    Look,
    curve,
    looks,
    numbers,
    panels,
    plotly,
    safe,
    shortened,
)
from taskmix.report.timeline import Floats
from taskmix.search.process import Process, standardised
from taskmix.studies.autosem import Search, Tried
from taskmix.studies.paired import LOSSES, SCORES, Unit

UTILITIES = Caption(
    "Utilities",
    "The probability that a round of the task does not lower the dev score of the primary task, as "
    "estimated in stage 1: a density for each task, and below it the mean with the 95% interval.",
)
RATIO_MAP = Caption(
    "Map of ratios",
    "The mean and the standard deviation of the Gaussian process at each mixture. Points are the "
    "ratios that were tried; the coloured one is the best.",
)
DENSITY_POINTS = 201
MAP_POINTS = 41
MIN_TRIALS = 3
"""Trials that a map of the ratios needs."""


def search_caption(unit: Unit) -> Caption:
    """Return the caption of the search's history."""
    better = "below" if unit is LOSSES else "above"
    return Caption(
        "Search",
        f"Each point is a training with one mixing ratio and one seed. Those {better} the dashed "
        "line were better than the primary task alone.",
    )


def utilities(posteriors: Sequence[Utility]) -> Any:
    """The posterior density of each task's utility, with a bar for its 95% credible interval.

    Figure 3 of Guo, Pasunuru and Bansal (2019).
    """
    go, _ = plotly()
    figure = panels(heights=(0.7, 0.3))
    for (name, look), utility in zip(
        looks(u.task for u in posteriors).items(), posteriors, strict=True
    ):
        figure.add_trace(_density(name, look, utility), row=1, col=1)
        figure.add_trace(_interval(go, name, look, utility), row=2, col=1)
    figure.update_xaxes(range=[0, 1])
    figure.update_xaxes(title_text="utility", row=2, col=1)
    figure.update_yaxes(title_text="density", rangemode="tozero", row=1, col=1)
    figure.update_yaxes(showticklabels=False, showgrid=False, row=2, col=1)
    figure.update_layout(height=460 + 18 * len(posteriors), hovermode="closest")
    return figure


def _density(name: str, look: Look, utility: Utility) -> Any:
    from scipy.stats import beta  # here, as it takes longer to import than a report to write

    at = np.linspace(0, 1, DENSITY_POINTS)[1:-1]  # a density may be infinite at the ends
    return curve(name, look, at, beta.pdf(at, utility.a, utility.b), line=look.line(2.5))


def _interval(go: Any, name: str, look: Look, utility: Utility) -> Any:
    return go.Scatter(
        x=[utility.mean],
        y=[shortened(name)],
        name=safe(name),
        legendgroup=look.group,
        showlegend=False,
        mode="markers",
        marker={"color": look.colour, "size": 9},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": [utility.high - utility.mean],
            "arrayminus": [utility.mean - utility.low],
            "color": look.colour,
            "thickness": 2,
        },
        hovertemplate=(
            f"{safe(name)}: {utility.mean:.2f}, 95% from {utility.low:.2f} to {utility.high:.2f},"
            f" {utility.pulls} rounds<extra></extra>"
        ),
    )


def search_history(search: Search, unit: Unit = SCORES) -> Any:
    """Return the value of each trial, the best so far, and what the primary reaches alone."""
    go, _ = plotly()
    figure = panels()
    completed = [trial for trial in search.tried if not trial.pruned]
    pruned = [trial for trial in search.tried if trial.pruned]
    figure.add_trace(_trial_points(go, completed, "finished", "circle", PALETTE[0], unit))
    if pruned:
        figure.add_trace(_trial_points(go, pruned, "pruned, its last value", "x", NEUTRAL, unit))
    so_far = unit.factor * np.maximum.accumulate([trial.value for trial in completed])
    line = {"color": PALETTE[1], "width": 2.5, "shape": "hv"}
    trials = [trial.number for trial in completed]
    figure.add_trace(go.Scatter(x=trials, y=so_far, name="best so far", mode="lines", line=line))
    if search.alone is not None:
        figure.add_hline(
            unit.factor * search.alone.value,
            line={"color": NEUTRAL, "dash": "dash", "width": 1.5},
            annotation_text="primary alone",
        )
    figure.update_xaxes(title_text="trial", dtick=max(1, len(search.tried) // 10))
    figure.update_yaxes(title_text=_axis_title(unit), hoverformat=f".{unit.digits}f")
    figure.update_layout(height=420, hovermode="closest")
    return figure


def _axis_title(unit: Unit) -> str:
    return "objective, loss" if unit is LOSSES else "objective, of 100"


def _trial_points(
    go: Any, trials: list[Tried], name: str, symbol: str, colour: str, unit: Unit
) -> Any:
    return go.Scatter(
        x=[trial.number for trial in trials],
        y=[unit.factor * trial.value for trial in trials],
        name=name,
        mode="markers",
        marker={"color": colour, "symbol": symbol, "size": 9},
        text=[f"{trial.ratio_text}: {unit.level(trial.value)}" for trial in trials],
        hovertemplate="trial %{x}, %{text}<extra></extra>",
    )


@dataclass(frozen=True)
class Map:
    """The Gaussian process over the shares of the mini-batches; objectives as they are shown."""

    mean: Callable[[Floats], Floats]  # of shares of shape (points, auxiliaries)
    spread: Callable[[Floats], Floats]
    shares: Floats  # of the trials, shape (trials, auxiliaries)
    best: Floats  # the shares of the best trial


def ratio_map(search: Search, unit: Unit = SCORES) -> dict[str, Any]:
    """The expected objective over the auxiliaries' shares of the mini-batches, and its spread.

    One auxiliary gives a curve with a band of two standard deviations; two give a map of the mean
    and one of the spread; of more, the two with the largest shares in the best ratio, the others as
    they are there.
    """
    fitted = _fitted(search, unit)
    if fitted.shares.shape[1] == 1:
        return {"expected": _ratio_curve(search, fitted, unit)}
    return _ratio_maps(search, fitted, unit)


def _fitted(search: Search, unit: Unit) -> Map:
    values = np.array([trial.value for trial in search.tried])
    finished = np.array([trial.value for trial in search.tried if not trial.pruned])
    # As in the search: a curve that was cut off says that its ratio is bad, and no more.
    values = np.clip(values, finished.min(), finished.max())
    shares = np.array([search.space.shares(trial.ratio) for trial in search.tried])
    process = Process(shares, standardised(values), np.empty((0, shares.shape[1])))
    centre, scale = unit.factor * values.mean(), unit.factor * values.std()
    return Map(
        lambda at: centre + scale * process.mean(at),
        lambda at: abs(scale) * process.deviation(at),
        shares,
        np.array(search.space.shares(search.best.ratio)),
    )


def _ratio_curve(search: Search, fitted: Map, unit: Unit) -> Any:
    go, _ = plotly()
    figure = panels()
    at = np.linspace(0, 1, 4 * MAP_POINTS)[:, None]
    mean, spread = fitted.mean(at), fitted.spread(at)
    edge = {"mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    figure.add_trace(go.Scatter(x=at[:, 0], y=mean - 2 * spread, **edge))
    band = {"fill": "tonexty", "fillcolor": "rgba(0,114,178,0.2)"}
    figure.add_trace(go.Scatter(x=at[:, 0], y=mean + 2 * spread, **band, **edge))
    line = {"color": PALETTE[0], "width": 2.5}
    figure.add_trace(go.Scatter(x=at[:, 0], y=mean, name="expected", mode="lines", line=line))
    figure.add_trace(_share_points(go, search, unit, fitted.shares[:, 0]))
    share = f"share of {safe(search.space.auxiliaries[0])}"
    figure.update_xaxes(title_text=share, range=[0, 1])
    figure.update_yaxes(title_text=_axis_title(unit), hoverformat=f".{unit.digits}f")
    figure.update_layout(height=420, hovermode="closest")
    return figure


def _ratio_maps(search: Search, fitted: Map, unit: Unit) -> dict[str, Any]:
    go, _ = plotly()
    first, second = sorted(np.argsort(-fitted.best, kind="stable")[:2].tolist())
    axis = np.linspace(0, 1, MAP_POINTS)
    at = np.tile(fitted.best, (MAP_POINTS, MAP_POINTS, 1))
    at[..., first], at[..., second] = axis[None, :], axis[:, None]
    possible = at.sum(axis=-1) < 1  # the primary needs a share
    names = [shortened(search.space.auxiliaries[k]) for k in (first, second)]
    maps = {}
    for name, function in (("expected", fitted.mean), ("spread", fitted.spread)):
        figure = panels()
        values = function(at.reshape(-1, at.shape[-1])).reshape(MAP_POINTS, MAP_POINTS)
        heat = go.Heatmap(
            x=numbers(axis),
            y=numbers(axis),
            z=numbers(np.where(possible, values, np.nan)),
            colorscale=SCALE,
            colorbar={"thickness": 12, "outlinewidth": 0},
            name=name,
        )
        shares = fitted.shares[:, [first, second]]
        figure.add_traces([heat, _share_points(go, search, unit, shares[:, 0], shares[:, 1])])
        figure.update_xaxes(title_text=f"share of {names[0]}", range=[0, 1])
        figure.update_yaxes(title_text=f"share of {names[1]}", range=[0, 1])
        figure.update_layout(height=400, hovermode="closest", showlegend=False)
        maps[name] = figure
    return maps


def _share_points(go: Any, search: Search, unit: Unit, x: Floats, y: Floats | None = None) -> Any:
    values = [unit.factor * trial.value for trial in search.tried]
    best = search.best
    return go.Scatter(
        x=x,
        y=values if y is None else y,
        name="tried",
        mode="markers",
        marker={
            "color": [PALETTE[3] if trial is best else "white" for trial in search.tried],
            "symbol": ["x" if trial.pruned else "circle" for trial in search.tried],
            "line": {"color": "black", "width": 1},
            "size": 9,
        },
        text=[f"{trial.ratio_text}: {unit.level(trial.value)}" for trial in search.tried],
        hovertemplate="%{text}<extra></extra>",
    )
