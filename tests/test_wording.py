"""Deciders in their own words: rounds, targets and shares of a weighting; steps of a policy."""

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pages import unpacked
from taskmix.studies.paired import LOSSES, SCORES

Taskmix = Callable[..., Any]
WEIGHTING = """
name: w
tasks: [digits/left, digits/right]
weighting: {name: alpha_vil, target: digits/left, fraction: 0.05}
budget: {rounds: 2, steps: 2, batch: 16}
evaluate: {examples: 20}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "w.yaml"
    path.write_text(WEIGHTING)
    return path


def words_of(page: Path) -> str:
    """What a reader of a page reads, and the titles of the axes."""
    text = page.read_text()
    titles = re.findall(r'"title":\{"text":"([^"]+)"', unpacked(page, "figures"))
    plain = re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)
    return unescape(re.sub(r"<[^>]+>", "|", plain)) + "|".join(titles)


def test_a_weighting_has_rounds_a_target_and_shares(
    taskmix: Taskmix, file: Path, tmp_path: Path
) -> None:
    planned = taskmix("plan", file).out
    assert "Budget: 2 rounds, batches of 16. A round trains on 5% of each task's rows" in planned
    assert "the target is digits/left" in planned
    said = taskmix("run", file, "--out", tmp_path / "run").out
    assert re.search(
        r"The model of round \d is kept, for its score of the target digits/left", said
    )
    page = words_of(tmp_path / "run" / "report.html")
    report, _, config = page.partition("Configuration")
    assert "score of the target, digits/left" in report
    assert "step" not in report + config.rpartition("code: null")[2]
    assert "policy" not in report
    assert "examples seen" not in report


def test_deciders_of_several_families_are_compared_over_parts_of_their_budgets(
    taskmix: Taskmix, file: Path, tmp_path: Path
) -> None:
    policies = "random, {name: diw, target: digits/left, fraction: 0.05, tries: 1}"
    said = taskmix("compare", file, "--policies", policies, "--out", tmp_path / "study")
    assert said.code == 0, said.err
    page = words_of(tmp_path / "study" / "report.html")
    assert "part of the budget, %" in page
    assert "decider" in page
    assert "policy" not in page.partition("Configuration")[0]
    assert "round 1" in page or "round 2" in page
    assert "step 1" in page or "step 2" in page


def test_a_range_below_zero_can_be_read() -> None:
    assert SCORES.spread([-0.246, -0.104]).text == "-17.5 (-24.6 to -10.4)"
    assert LOSSES.spread([-5.246, -5.104]).text == "5.175 (5.104 to 5.246)"


def test_the_report_of_a_quiet_run_or_study_is_made_later(
    taskmix: Taskmix, file: Path, tmp_path: Path
) -> None:
    study = tmp_path / "study" / "seeds"
    for seed in (1, 2):
        out = study / f"seed-{seed}"
        taskmix("run", file, "--set", f"seed={seed}", "--out", out, "-q")
        assert not (out / "report.html").exists()
    for folder in (study / "seed-1", study, study.parent):
        said = taskmix("report", folder)
        assert (said.code, said.err) == (0, "")
        assert (folder / "report.html").exists()
    assert "reaches from the lowest seed to the highest" in (study / "report.html").read_text()
    said = taskmix("report", tmp_path / "empty")
    assert said.code == 2
    assert "expected the folder of a run or of a study, found no journal.jsonl" in said.err
