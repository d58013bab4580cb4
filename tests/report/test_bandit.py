"""The bandit's report: a table, Figure 1, and one sentence for a mistake."""

import numpy as np
import pytest

from taskmix.bandit import CONTENDERS, BanditComparison, compare
from taskmix.errors import UserError
from taskmix.report.bandit import POLICIES, BanditReport, bandit_curves, bandit_report, primary_note

SMALL = {"arms": 3, "steps": 30, "environments": 2, "seeds": 2}


def test_figure_1_has_a_line_and_a_band_for_each_policy():
    figure = bandit_curves(compare({"random": CONTENDERS["random"]}, **SMALL))
    named = [trace.name for trace in figure.data if trace.hoverinfo != "skip"]
    assert sorted(named) == ["oracle", "random"]
    low, high, median = (list(trace.y) for trace in figure.data[:3])
    assert all(a <= b <= c for a, b, c in zip(low, median, high, strict=True))
    assert list(figure.data[0].x) == list(range(1, 31))


def test_the_report_holds_the_table(tmp_path):
    report = bandit_report(tmp_path / "bandit", ["random"], **SMALL)
    page = (tmp_path / "bandit" / "report.html").read_text(encoding="utf-8")
    [table] = report.tables()
    assert all(f"<th>{column.heading}</th>" in page for column in table.columns)
    assert all(f"<td>{cell}</td>" in page for row in table.texts() for cell in row)
    assert report.notes == ()
    assert report.verdict() == "No policy is above random."
    assert '<p class="verdict">No policy is above random.</p>' in page


def test_a_gap_to_an_oracle_below_random_is_not_in_the_verdict():
    finals = {"random": 0.5, "oracle": 0.4, "exp3s": 0.6}
    curves = np.array([[[[final]]] for final in finals.values()])
    report = BanditReport(BanditComparison(tuple(finals), curves), ())
    assert report.verdict() == (
        "exp3s is best: it is above random in 1 of 1 environments. The gap from random to the "
        "oracle says nothing here: with so few steps the oracle is not above random."
    )
    curves[1] = 0.7
    assert report.verdict() == (
        "exp3s is best: it closes 50% of the gap from random to the oracle and is above random in "
        "1 of 1 environments."
    )


def test_the_papers_own_policy_and_thompson_can_be_named(tmp_path):
    report = bandit_report(tmp_path / "bandit", ["thompson", "counterfactual"], **SMALL)
    assert set(report.comparison.policies) == {"thompson", "counterfactual", "random", "oracle"}
    assert report.comparison.curves.shape == (4, 2, 2, 30)
    page = (tmp_path / "bandit" / "report.html").read_text(encoding="utf-8")
    assert "counterfactual is learned from two runs before its own" in page
    assert "thompson serves one primary arm" in page


def test_all_policies_are_compared_unless_some_are_named():
    assert {"thompson", "counterfactual", *CONTENDERS} == set(POLICIES)


def test_thompson_is_judged_by_its_primary():
    """With 400 steps on 3 arms it brings the first one further than a third of the draws does."""
    note = primary_note(arms=3, steps=400, environments=2, seeds=2, seed=1)
    assert note.endswith("above random in 2 of 2.")


def test_a_mistake_is_named(tmp_path):
    with pytest.raises(UserError, match="unknown policy 'progres'; did you mean 'progress'"):
        bandit_report(tmp_path, ["progres"])
    with pytest.raises(UserError, match="arms: expected at least 1, found 0"):
        bandit_report(tmp_path, arms=0)


def test_a_page_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(UserError, match="taskmix has not written this file"):
        bandit_report(tmp_path, ["random"], **SMALL)
    assert (tmp_path / "report.html").read_text() == "mine"
