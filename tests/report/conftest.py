from collections.abc import Callable
from pathlib import Path

import pytest

from taskmix.journal import Evaluation, Journal, Opening, Shares, Step
from taskmix.records import Record

TASKS = ["easy", "hard"]
MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes a run folder with a journal of these records, and the files that are given."""

    def make(
        *records: Record,
        name: str = "demo",
        tasks: list[str] = TASKS,
        seed: int = 1,
        family: str = "policy",
        scores: str | None = None,
        config: str | None = None,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        sizes = {task: 100 * (k + 1) for k, task in enumerate(tasks)}
        budget = {"steps": 4, "rounds": 4, "batch": 10, "accumulate": 1}
        decider = {"name": "fixed", "draws": "iid"}
        opening = Opening(name, tasks, sizes, seed, decider, budget, family)
        with Journal.create(folder / "journal.jsonl", opening) as journal:
            for record in records:
                journal.append(record)
        if scores is not None:
            (folder / "scores.json").write_text(scores)
        if config is not None:
            (folder / "run.yaml").write_text(config)
        return folder

    return make


@pytest.fixture
def short() -> list[Record]:
    """Four steps: `easy` asked for with 0.5, then 0.8; three draws of it, one of `hard`."""
    return [
        Shares(1, [0.5, 0.5]),
        Step(1, "easy", 0.5, loss=1.0, examples=10, seconds=1.0),
        Step(2, "hard", 0.5, loss=4.0, examples=8, seconds=1.0),
        Evaluation(2, "dev", 0.5, {"easy": 0.6, "hard": 0.4}, {"easy": 0.5, "hard": 0.9}),
        Shares(3, [0.8, 0.2]),
        Step(3, "easy", 0.8, loss=3.0, examples=10, seconds=1.0),
        Step(4, "easy", 0.8, loss=2.0, examples=10, seconds=1.0),
        Evaluation(
            4,
            "dev",
            0.45,
            {"easy": 0.7, "hard": 0.2},
            {"easy": 0.6, "hard": 0.8},
            {"easy": {"accuracy": 0.7}, "hard": {"f1": 0.1, "accuracy": 0.3}},
            forward=100,
            backward=38,
        ),
    ]
