"""The figures and the page of an AutoSeM study."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("botorch")
pytest.importorskip("plotly")

from taskmix.policies import Utility
from taskmix.report import figures
from taskmix.report.autosem import write_autosem_report
from taskmix.search import RatioSpace
from taskmix.studies.autosem import AutosemResult, FinalRun, Search, SelectedTasks, StageCost, Tried
from taskmix.studies.paired import LOSSES

UTILITIES = [
    Utility("p<b>", 0.8, 0.6, 0.95, 40, 8.0, 2.0),
    Utility("x", 0.5, 0.3, 0.7, 12, 5.0, 5.0),
    Utility("y", 0.25, 0.1, 0.5, 3, 1.0, 3.0),
]


def tried(space: RatioSpace, count: int) -> list[Tried]:
    """Trials whose value falls with the share of the first auxiliary; the last one was pruned."""
    ratios = space.grid(count)
    return [
        Tried(
            k, ratio, 0.8 - 0.3 * space.shares(ratio)[0], k == count - 1, StageCost(10, 80, 80), {}
        )
        for k, ratio in enumerate(ratios)
    ]


def found(auxiliaries: tuple[str, ...] = ("x", "y"), count: int = 8) -> Search:
    space = RatioSpace("p<b>", auxiliaries)
    return Search(space, tried(space, count))


def test_each_task_has_the_density_of_its_beta_and_a_bar_over_its_interval() -> None:
    figure = figures.utilities(UTILITIES)
    lines = [trace for trace in figure.data if trace.mode == "lines"]
    bars = [trace for trace in figure.data if trace.mode == "markers"]
    assert [line.name for line in lines] == ["p&lt;b&gt;", "x", "y"]
    for line, bar, each in zip(lines, bars, UTILITIES, strict=True):
        assert np.asarray(line.y) == pytest.approx(stats.beta(each.a, each.b).pdf(line.x), rel=2e-3)
        assert bar.x[0] + bar.error_x.array[0] == pytest.approx(each.high)
        assert bar.x[0] - bar.error_x.arrayminus[0] == pytest.approx(each.low)


def test_the_history_shows_every_trial_and_the_best_so_far() -> None:
    search = found()
    finished, pruned, best = figures.search_history(search).data
    assert len(finished.x) == 7
    assert list(pruned.x) == [7]
    assert list(best.y) == [max(finished.y[: k + 1]) for k in range(7)]


def test_the_map_of_one_auxiliary_is_a_curve_through_what_was_tried() -> None:
    search = found(("x",), 8)
    [figure] = figures.ratio_map(search).values()
    mean = next(trace for trace in figure.data if trace.name == "expected")
    at = np.interp(search.space.shares(search.tried[2].ratio)[0], mean.x, mean.y)
    assert at == pytest.approx(100 * search.tried[2].value, abs=1.5)


def test_where_the_objective_is_a_loss_the_figures_show_losses() -> None:
    """A trial of value -0.75 has the loss 0.75, and the best one is the lowest."""
    by_score = found(("x",), 8)
    search = replace(by_score, tried=[replace(t, value=t.value - 2) for t in by_score.tried])
    figure = figures.search_history(search, LOSSES)
    assert figure.layout.yaxis.title.text == "objective, loss"
    finished, _, best = figure.data
    assert list(finished.y) == pytest.approx([-trial.value for trial in search.tried[:-1]])
    assert list(best.y) == pytest.approx([min(finished.y[: k + 1]) for k in range(7)])
    [curve] = figures.ratio_map(search, LOSSES).values()
    mean = next(trace for trace in curve.data if trace.name == "expected")
    at = np.interp(search.space.shares(search.tried[2].ratio)[0], mean.x, mean.y)
    assert at == pytest.approx(-search.tried[2].value, abs=0.02)


@pytest.mark.parametrize("auxiliaries", [("x", "y"), ("x", "y", "z")])
def test_the_map_of_several_leaves_room_for_the_primary(auxiliaries: Any) -> None:
    maps = figures.ratio_map(found(auxiliaries, 10))
    heats = [
        next(trace for trace in figure.data if trace.type == "heatmap") for figure in maps.values()
    ]
    assert list(maps) == [heat.name for heat in heats] == ["expected", "spread"]
    for heat in heats:
        values = np.asarray(heat.z, dtype=float)
        assert np.isnan(values[-1, -1])  # shares of 1 and 1 leave nothing
        assert np.isfinite(values[1, 1])
    assert np.nanmin(np.asarray(heats[1].z, dtype=float)) >= 0


def result(folder: Path, utilities: list[Utility]) -> AutosemResult:
    search = found()
    selection = SelectedTasks(("x", "y"), utilities, StageCost(2000, 1, 1))
    final = FinalRun(7, search.best.ratio, folder, 0.8, StageCost())
    return AutosemResult("p<b>", selection, search, [final])


def test_the_page_says_what_helps_and_at_what_price(tmp_path: Path) -> None:
    made = result(tmp_path, UTILITIES)
    page = write_autosem_report(made, tmp_path).read_text()
    assert "2,080 steps were spent" in page
    assert page.count("<figure>") == 3
    assert "AutoSeM for p&lt;b&gt;" in page


def test_a_study_without_selection_has_no_utilities_to_show(tmp_path: Path) -> None:
    page = write_autosem_report(result(tmp_path, []), tmp_path).read_text()
    assert page.count("<figure>") == 2


def test_that_nothing_helps_is_said() -> None:
    space = RatioSpace("p", ("x",))
    ratios = [{"p": 1, "x": 0}, {"p": 1, "x": 1}]
    trials = [Tried(k, r, 0.7 - 0.1 * k, False, StageCost(5), {}) for k, r in enumerate(ratios)]
    made = AutosemResult("p", SelectedTasks(("x",)), Search(space, trials), [])
    assert made.verdict() == "No ratio with x was better than p alone. 10 steps were spent."
