"""Results show themselves as tables, in Python and in notebooks."""

from pathlib import Path

import pytest

import taskmix
from taskmix.cli.base import seeds_of
from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.tables import Column, Table, Tabled

CONFIG = {"tasks": ["digits/left", "digits/right"], "budget": {"steps": 4, "batch": 8}}


class Result(Tabled):
    def tables(self) -> list[Table]:
        columns = [Column("task"), Column("share", ".1%")]
        return [Table(columns, [["<b>", 0.25]], title="Shares", notes=("Of all draws.",))]


def test_a_result_is_a_table_in_text_and_in_html() -> None:
    assert repr(Result()) == "Shares\ntask  share\n<b>   25.0%\nOf all draws."
    page = Result()._repr_html_()
    assert "<td>&lt;b&gt;</td><td>25.0%</td>" in page
    assert "<caption>Shares</caption>" in page
    assert "<p>Of all draws.</p>" in page


def test_a_plan_says_its_policy_and_whether_it_learns() -> None:
    planned = taskmix.plan({**CONFIG, "policy": "random"})
    assert [task.share for task in planned.tasks] == [0.5, 0.5]
    assert "Policy: random. Budget: 4 steps, batches of 8." in repr(planned)
    assert "learns" not in repr(planned)
    assert "the shares that it starts with" in repr(taskmix.plan({**CONFIG, "policy": "exp3s"}))
    stratified = {"name": "exp3s", "draws": "stratified"}
    assert "starts with" in repr(taskmix.plan({**CONFIG, "policy": stratified}))


def test_a_comparison_and_a_report_from_python(tmp_path: Path) -> None:
    settings = {**CONFIG, "evaluate": {"examples": 20}}
    config = RunConfig(**settings)  # type: ignore[arg-type]
    result = taskmix.compare(config, ["random", "task_size"], [1], tmp_path / "study")
    assert "task_size" in repr(result)
    assert taskmix.write_report(str(tmp_path / "study")).exists()


def test_ranges_of_seeds() -> None:
    assert seeds_of("1-3,7") == [1, 2, 3, 7]
    assert seeds_of("5") == [5]
    for wrong in ("3-1", "1-5000"):
        with pytest.raises(UserError, match="--seeds: expected a range of at most 1000 seeds"):
            seeds_of(wrong)
    with pytest.raises(UserError, match="--seeds"):
        seeds_of("-3")
