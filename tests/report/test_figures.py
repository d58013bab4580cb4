from dataclasses import replace

import numpy as np
import pytest

from taskmix.journal import Diagnostics, Evaluation, Opening, Round, SelectionStep, Shares, Step
from taskmix.report import History, figures, read_history
from taskmix.report.figures import selection, shares, weighting
from taskmix.report.style import PALETTE, contestant_looks, looks
from taskmix.report.timeline import FIGURE_POINTS, MAX_POINTS
from taskmix.studies.paired import Difference

COMPUTE = Opening("run", ["a"], {}, 1, {}, {"steps": 4, "batch": 10}, count="compute")


@pytest.fixture
def history(make_run, short):
    return read_history(make_run(*short) / "journal.jsonl")


def curves(figure, kind="scatter"):
    """The traces that show their values, as lists of points."""
    return {
        trace.name: list(zip(list(trace.x), list(trace.y), strict=True))
        for trace in figure.data
        if trace.type == kind and trace.hoverinfo != "skip"
    }


def test_training_loss_shows_raw_and_smoothed(history):
    figure = figures.training_loss(history)
    raw, smooth = (trace for trace in figure.data if trace.name == "easy")
    assert list(raw.y) == [1.0, 3.0, 2.0]
    assert list(smooth.x) == [1, 3, 4]
    assert raw.line.color != smooth.line.color


def test_smoothing_takes_a_twentieth_of_the_batches():
    opening = Opening("long", ["a"], {}, 1, {}, {})
    losses = np.random.default_rng(1).random(200)
    steps = [Step(k + 1, "a", 1.0, loss=float(loss)) for k, loss in enumerate(losses)]
    smooth = figures.training_loss(History(opening, units=steps)).data[1]
    assert smooth.y[100] == pytest.approx(losses[95:106].mean(), rel=1e-3)


def test_shares_are_those_asked_and_beside_them_those_drawn(history):
    figure = shares(history)
    assert curves(figure)["easy"] == [(1, 0.5), (3, 0.8), (5, 0.8)]
    bars = {trace.name: list(trace.y) for trace in figure.data if trace.type == "bar"}
    assert bars["easy"] == pytest.approx([0.65, 0.75])
    assert bars["hard"] == pytest.approx([0.35, 0.25])


def test_areas_change_at_once_and_stand_on_each_other(history):
    areas = [trace for trace in shares(history).data if trace.type == "scatter"]
    assert {(area.stackgroup, area.line.shape) for area in areas} == {("asked", "hv")}


def test_dev_scores_are_in_hundredths_with_their_mean(history):
    points = curves(figures.dev_scores(history))
    assert points["easy"] == [(2, 60.0), (4, 70.0)]
    assert points["hard"] == [(2, 40.0), (4, 20.0)]
    assert points["mean"] == [(2, 50.0), (4, 45.0)]


def test_the_kept_step_is_marked(history):
    assert figures.dev_scores(history).layout.shapes[0].x0 == 2
    assert figures.dev_scores(history, kept=4).layout.shapes[0].x0 == 4
    assert figures.dev_scores(history, kept=4).layout.annotations[0].text == "kept: step 4"


def test_convergence_marks_the_lowest_dev_loss_of_each_task(history):
    figure = figures.convergence(history)
    stars = {
        trace.name: (trace.x[0], trace.y[0])
        for trace in figure.data
        if trace.type == "scatter" and trace.mode == "markers"
    }
    assert stars == {"easy": (2, 0.5), "hard": (4, 0.8)}
    assert curves(figure)["easy"] == [(2, 0.5), (4, 0.6)]


def test_convergence_has_a_strip_of_shares(history):
    (strip,) = (trace for trace in figures.convergence(history).data if trace.type == "heatmap")
    assert list(figures.convergence(history).layout.yaxis2.ticktext) == ["easy", "hard"]
    assert (strip.x[0], strip.x[-1]) == (1, 5)
    shares = np.array(strip.z)
    assert len(strip.x) == shares.shape[1] + 1
    np.testing.assert_allclose(shares[:, 0], [0.5, 0.5])
    np.testing.assert_allclose(shares[:, -1], [0.8, 0.2])
    assert (strip.zmin, strip.zmax) == (0, pytest.approx(0.8))


def test_convergence_has_a_strip_of_uncertainties_when_there_are_any(make_run, short):
    inner = Diagnostics(2, {"uncertainties": {"easy": 0.1, "hard": 0.3}})
    history = read_history(make_run(*short, inner) / "journal.jsonl")
    strips = [trace for trace in figures.convergence(history).data if trace.type == "heatmap"]
    assert [strip.name for strip in strips] == ["share", "uncertainty"]
    np.testing.assert_allclose(np.array(strips[1].z)[:, 0], [0.1, 0.3])


def test_weighting_shows_alpha_and_normalised_weights_by_round(make_run):
    rounds = [
        Round(40, {}, {"easy": 1.5, "hard": 0.5}, {"easy": 1.5, "hard": 0.5}, dev_loss=1.0),
        Round(80, {}, {"easy": 1.5, "hard": 1.5}, {"easy": 2.0, "hard": 2.0}, dev_loss=1.0),
    ]
    figure = weighting(read_history(make_run(*rounds) / "journal.jsonl"))
    alphas = {trace.name: list(trace.y) for trace in figure.data if trace.yaxis == "y"}
    weights = {trace.name: list(trace.y) for trace in figure.data if trace.yaxis == "y2"}
    assert alphas == {"easy": [1.5, 1.5], "hard": [0.5, 1.5]}
    assert weights == {"easy": [0.75, 0.5], "hard": [0.25, 0.5]}
    assert all(list(trace.x) == [1, 2] for trace in figure.data)


def test_weighting_without_alpha_shows_the_weights_alone(make_run):
    rounds = [Round(40, {}, {}, {"easy": 3.0, "hard": 1.0}, dev_loss=1.0)]
    figure = weighting(read_history(make_run(*rounds) / "journal.jsonl"))
    assert curves(figure) == {"easy": [(1, 0.75)], "hard": [(1, 0.25)]}


def test_selection_shows_shares_chosen_and_offered(make_run):
    records = [
        SelectionStep(1, {"easy": 8, "hard": 8}, {"easy": 2, "hard": 6}, used=0.5),
        SelectionStep(2, {"easy": 4, "hard": 12}, {"easy": 8}, used=0.5),
    ]
    figure = selection(read_history(make_run(*records) / "journal.jsonl"))
    points = curves(figure)
    assert points["easy"] == [(1, 0.25), (2, 1.0)]
    assert points["hard"] == [(1, 0.75), (2, 0.0)]
    assert points["easy, offered"] == [(1, 0.5), (2, 0.25)]


def test_many_selections_are_counted_together():
    opening = Opening("long", ["a", "b"], {}, 1, {}, {})
    records = [SelectionStep(k, {}, {"a": k % 2, "b": 1}, used=1.0) for k in range(1, 1001)]
    figure = selection(History(opening, units=records))
    assert len(figure.data[0].x) == 100
    assert figure.data[0].y == pytest.approx([1 / 3] * 100, rel=1e-3)


@pytest.mark.parametrize("draw", [shares, weighting, selection])
def test_a_figure_without_its_records_is_refused(draw):
    with pytest.raises(ValueError, match="found none"):
        draw(History(Opening("empty", ["a"], {}, 1, {}, {})))


def evaluated(*scores):
    opening = Opening("run", ["a"], {}, 1, {}, {})
    records = [
        Evaluation(step, "dev", score, {}, {}, forward=sum(passed))
        for step, score, *passed in scores
    ]
    return History(opening, evaluations=records)


def test_bands_reach_from_the_lowest_seed_to_the_highest():
    runs = {"random": [evaluated((5, 0.2), (10, 0.4)), evaluated((5, 0.4), (10, 0.8))]}
    low, high, mean = figures.score_bands(runs).data
    assert list(mean.x) == [5, 10]
    assert mean.y == pytest.approx([30, 60])
    assert low.y == pytest.approx([20, 40])
    assert high.y == pytest.approx([40, 80])
    assert (mean.name, high.fill) == ("random", "tonexty")


def test_bands_stand_where_all_seeds_were_scored():
    runs = {"random": [evaluated((5, 0.2), (10, 0.4)), evaluated((5, 0.4))], "none": []}
    assert [list(trace.x) for trace in figures.score_bands(runs).data] == [[5], [5], [5]]


def test_bands_are_of_the_objective_where_the_run_names_one():
    """A page whose verdict is on a target must not show a mean of which another policy has more."""
    run = evaluated((5, 0.2), (10, 0.4))
    aimed = replace(run, evaluations=[replace(record, objective=0.9) for record in run.evaluations])
    assert list(figures.score_bands({"aimed": [aimed]}).data[2].y) == pytest.approx([90, 90])


def test_bands_of_runs_that_count_compute_stand_at_parts_of_their_budgets():
    """The same budget of 4 steps of 10, so 80 passes; one run takes more steps than the other."""
    runs = [evaluated((1, 0.2, 20), (3, 0.4, 60)), evaluated((2, 0.4, 24), (4, 0.6, 60))]
    runs = [replace(run, opening=COMPUTE) for run in runs]
    low, high, mean = figures.score_bands({"random": runs, "none": []}).data
    assert list(mean.x) == pytest.approx([100 * (20 + 24) / 2 / 80, 75])
    assert mean.y == pytest.approx([30, 50])
    assert low.y == pytest.approx([20, 40])
    assert high.y == pytest.approx([40, 60])


def compared():
    """Two rows: `b` is told from `a`, `c` is not; on the task alone nobody is tested."""
    sure = Difference(0.02, 3, 0.01, 0.03, 0.004)
    unsure = Difference(-0.01, 3, -0.05, 0.03, 0.3)
    return [("mean", {"b": sure, "c": unsure}), ("<task>", {"b": sure, "c": unsure})]


def test_differences_are_dots_with_intervals_around_zero():
    figure = figures.differences(compared(), ["a", "b", "c"], "a")
    b, c = figure.data
    assert (b.type, b.mode) == ("scatter", "markers")
    assert b.x == pytest.approx([2, 2])
    assert c.x == pytest.approx([-1, -1])
    assert (b.error_x.array, b.error_x.arrayminus) == (pytest.approx([1, 1]), pytest.approx([1, 1]))
    assert c.error_x.array == pytest.approx([4, 4])
    assert list(b.marker.symbol) == ["circle", "circle-open"]
    assert list(c.marker.symbol) == ["circle-open", "circle-open"]
    zero, between = figure.layout.shapes
    assert (zero.x0, zero.x1) == (0, 0)
    assert (between.y0, between.y1) == (0.5, 0.5)


def test_differences_have_a_row_a_task_below_what_counts_and_dots_beside_each_other():
    figure = figures.differences(compared(), ["a", "b", "c"], "a")
    assert list(figure.layout.yaxis.ticktext) == ["<b>mean</b>", "&lt;task&gt;"]
    low, high = figure.layout.yaxis.range
    assert low > 1 > 0 > high  # the first row is at the top
    b, c = figure.data
    assert b.y == pytest.approx([-0.3, 0.7])
    assert c.y == pytest.approx([0.3, 1.3])
    given = contestant_looks(["a", "b", "c"])
    assert [b.marker.color, c.marker.color] == [given["b"].colour, given["c"].colour]


def test_a_difference_without_an_interval_is_a_dot():
    rows = [("mean", {"b": Difference(0.02, 1)})]
    [b] = figures.differences(rows, ["a", "b"], "a").data
    assert (b.x, b.y) == (pytest.approx([2]), pytest.approx([0]))
    assert (list(b.error_x.array), list(b.error_x.arrayminus)) == ([0], [0])


def test_a_task_has_the_same_colour_in_all_figures(make_run, short):
    history = read_history(make_run(*short) / "journal.jsonl")
    colour = looks(history.tasks)["hard"].colour
    for draw in (figures.training_loss, figures.dev_scores, figures.convergence):
        named = [t for t in draw(history).data if t.name == "hard" and t.hoverinfo != "skip"]
        assert {trace.line.color for trace in named} == {colour}
        assert {trace.legendgroup for trace in named} == {"task-1"}
    assert {t.fillcolor for t in shares(history).data if t.type == "scatter"} == {
        look.colour for look in looks(history.tasks).values()
    }


def test_no_contestant_looks_like_a_task():
    names = [f"contestant {k}" for k in range(20)]
    assert not {look.colour for look in contestant_looks(names).values()} & set(PALETTE)


def test_a_contestant_has_the_mean_shares_of_its_seeds_over_the_part_of_its_run():
    opening = Opening("run", ["a", "b"], {}, 1, {}, {})
    runs = [
        History(
            opening, shares=[Shares(1, [p, 1 - p])], units=[Step(k, "a", p) for k in range(1, n)]
        )
        for p, n in ((0.2, 10), (0.4, 50))
    ]
    panels = figures.share_panels({"mine": runs, "none": [History(opening)]})
    assert list(panels) == ["mine"]
    a, b = panels["mine"].data
    assert (a.x[0], a.x[-1]) == (0, 100)
    assert set(a.y) == {0.3}
    assert set(b.y) == {0.7}


def test_many_tasks_share_the_points_of_a_figure():
    tasks = [f"task {k}" for k in range(30)]
    units = [Step(k, tasks[k % 30], 0.5, loss=float(k)) for k in range(1, 6001)]
    figure = figures.training_loss(History(Opening("many", tasks, {}, 1, {}, {}), units=units))
    assert sum(len(trace.x) for trace in figure.data) <= 2 * FIGURE_POINTS
    assert figure.layout.hovermode == "closest"


def test_long_curves_are_thinned():
    opening = Opening("long", ["a", "b"], {}, 1, {}, {})
    steps = range(1, 5001)
    history = History(
        opening,
        shares=[Shares(k, [k / 10000, 1 - k / 10000]) for k in steps],
        units=[Step(k, "ab"[k % 2], 0.5, loss=float(k)) for k in steps],
        evaluations=[
            Evaluation(k, "dev", 0.5, {"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 1.0}) for k in steps
        ],
    )
    for draw in (figures.training_loss, shares, figures.dev_scores, figures.convergence):
        for trace in draw(history).data:
            assert len(trace.x) <= MAX_POINTS
    # Means over bins leave the mean of all as it was.
    area = shares(history).data[0]
    assert np.mean(area.y[:-1]) == pytest.approx(0.25, abs=1e-3)


def test_names_are_no_markup(make_run):
    name = "<b>bold</b>"
    records = [Shares(1, [1.0]), Step(1, name, 1.0, loss=1.0)]
    records += [Evaluation(1, "dev", 0.5, {name: 0.5}, {name: 0.5})]
    history = read_history(make_run(*records, tasks=[name]) / "journal.jsonl")
    for draw in (figures.training_loss, shares, figures.dev_scores, figures.convergence):
        assert "<b>" not in str([trace.name for trace in draw(history).data])
