"""What the Gaussian process makes of the ratios that were tried."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from taskmix.report.curves import Floats
from taskmix.report.figures.search_history import ratio_words
from taskmix.report.style import PALETTE, SCALE, panels, plotly, safe
from taskmix.search.process import Process, standardised
from taskmix.studies.autosem import Search

POINTS = 41
LEAST = 3
"""Trials without which there is nothing to draw a map of."""


@dataclass(frozen=True)
class Map:
    """The process over the shares of the mini-batches.

    Args:
        mean: from shares `(points, auxiliaries)` to the expected objective, of 100.
        spread: likewise to its standard deviation.
        shares: of the trials, shape `(trials, auxiliaries)`.
        best: of the best one, shape `(auxiliaries,)`.
    """

    mean: Any
    spread: Any
    shares: Floats
    best: Floats


def ratio_map(found: Search) -> Any:
    """The expected objective over the auxiliaries' shares of the mini-batches, and its spread.

    One auxiliary gives a curve with a band of two standard deviations; two give a map of the mean
    and one of the spread; of more, the two with the largest shares in the best ratio, the others as
    they are there.

    Args:
        found: the trials of a search, at least three.
    """
    fitted = _fitted(found)
    if fitted.shares.shape[1] == 1:
        return _curve(found, fitted)
    return _maps(found, fitted)


def _fitted(found: Search) -> Map:
    values = np.array([each.value for each in found.tried])
    finished = np.array([each.value for each in found.tried if not each.pruned])
    # As in the search: a curve that was cut off says that its ratio is bad, and no more.
    values = 100 * np.clip(values, finished.min(), finished.max())
    shares = np.array([found.space.shares(each.ratio) for each in found.tried])
    process = Process(shares, standardised(values), np.empty((0, shares.shape[1])))
    centre, scale = values.mean(), values.std()
    return Map(
        lambda at: centre + scale * process.mean(at),
        lambda at: scale * process.deviation(at),
        shares,
        np.array(found.space.shares(found.best.ratio)),
    )


def _curve(found: Search, fitted: Map) -> Any:
    go, _ = plotly()
    figure = panels()
    at = np.linspace(0, 1, 4 * POINTS)[:, None]
    mean, spread = fitted.mean(at), fitted.spread(at)
    edge = {"mode": "lines", "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    figure.add_trace(go.Scatter(x=at[:, 0], y=mean - 2 * spread, **edge))
    band = {"fill": "tonexty", "fillcolor": "rgba(0,114,178,0.2)"}
    figure.add_trace(go.Scatter(x=at[:, 0], y=mean + 2 * spread, **band, **edge))
    line = {"color": PALETTE[0], "width": 2.5}
    figure.add_trace(go.Scatter(x=at[:, 0], y=mean, name="expected", mode="lines", line=line))
    figure.add_trace(_points(go, found, fitted.shares[:, 0], None))
    share = f"share of {safe(found.space.auxiliaries[0])}"
    figure.update_xaxes(title_text=share, range=[0, 1])
    figure.update_yaxes(title_text="objective, of 100", hoverformat=".1f")
    figure.update_layout(height=420, hovermode="closest")
    return figure


def _maps(found: Search, fitted: Map) -> Any:
    go, _ = plotly()
    figure = panels(widths=(0.5, 0.5))
    first, second = sorted(np.argsort(-fitted.best, kind="stable")[:2].tolist())
    axis = np.linspace(0, 1, POINTS)
    at = np.tile(fitted.best, (POINTS, POINTS, 1))
    at[..., first], at[..., second] = axis[None, :], axis[:, None]
    there = at.sum(axis=-1) < 1  # something has to be left for the primary
    titles = {"expected": fitted.mean, "spread": fitted.spread}
    for column, (name, function) in enumerate(titles.items(), 1):
        z = np.where(there, function(at.reshape(-1, at.shape[-1])).reshape(POINTS, POINTS), np.nan)
        bar = {"title": {"text": name}, "x": 0.46 if column == 1 else 1.0, "thickness": 12}
        heat = go.Heatmap(x=axis, y=axis, z=z, colorscale=SCALE, colorbar=bar, name=name)
        figure.add_trace(heat, row=1, col=column)
        shares = fitted.shares[:, [first, second]]
        figure.add_trace(_points(go, found, shares[:, 0], shares[:, 1]), row=1, col=column)
    names = [safe(found.space.auxiliaries[k]) for k in (first, second)]
    figure.update_xaxes(title_text=f"share of {names[0]}", range=[0, 1])
    figure.update_yaxes(title_text=f"share of {names[1]}", range=[0, 1], col=1)
    figure.update_layout(height=460, hovermode="closest", showlegend=False)
    return figure


def _points(go: Any, found: Search, x: Floats, y: Floats | None) -> Any:
    values = [100 * each.value for each in found.tried]
    best = found.best
    return go.Scatter(
        x=x,
        y=values if y is None else y,
        name="tried",
        mode="markers",
        marker={
            "color": [PALETTE[3] if each is best else "white" for each in found.tried],
            "symbol": ["x" if each.pruned else "circle" for each in found.tried],
            "line": {"color": "black", "width": 1},
            "size": 9,
        },
        text=[f"{ratio_words(each)}: {100 * each.value:.1f}" for each in found.tried],
        hovertemplate="%{text}<extra></extra>",
    )
