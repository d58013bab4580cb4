"""Workers share the folder of a comparison: every run is trained once, whoever is killed."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from taskmix.errors import UserError
from taskmix.studies.compare import LOCKS, SETTINGS, compare
from taskmix.studies.locks import FileLocks

RUN = {
    "name": "pair",
    "tasks": ["digits/larger", "digits/left"],
    "budget": {"steps": 4, "batch": 4},
    "evaluate": {"every": 2, "examples": 20},
}


def test_a_comparison_on_two_workers_is_the_sequential_one(tmp_path: Path) -> None:
    alone = compare(RUN, ["random", "task_size"], [1], tmp_path / "alone")
    together = compare(RUN, ["random", "task_size"], [1], tmp_path / "together", workers=2)
    assert together.runs == alone.runs
    assert [[path.parent.name for path in each] for each in together.folders.values()] == [
        ["random"],
        ["task_size"],
    ]


def test_a_run_whose_worker_was_killed_is_resumed_by_another_worker(
    started: Any, worker: Any, tmp_path: Path
) -> None:
    victim = started("compare", tmp_path / "shared", "", "victim")
    survivor = started("compare", tmp_path / "shared", "", "survivor")
    alone = worker.comparison(tmp_path / "alone")
    lost = next(line for line in victim.stdout if "on its way" in line).partition(",")[0]
    survivor.stdin.write("go\n")
    survivor.stdin.flush()
    says = [next(line for line in survivor.stdout if "on its way" in line)]
    victim.kill()  # SIGKILL, while the survivor is in a run of its own
    assert victim.wait() == -9
    says += survivor.stdout.readlines()
    assert survivor.wait() == 0
    assert says[-1] == "False\n"  # a comparison needs no Optuna

    starts = [line for line in says if "starts" in line]
    assert [line for line in starts if line.startswith(f"{lost},")] == [
        f"{lost}, seed 1 starts at step 5\n"  # behind the checkpoint of step 4
    ]
    assert worker.comparison(tmp_path / "shared").runs == alone.runs


def test_a_folder_without_settings_and_locks_goes_on_as_it_is(tmp_path: Path) -> None:
    """Such is the folder of a comparison that version 0.1 began."""
    before = compare(RUN, ["random"], [1], tmp_path)
    (tmp_path / SETTINGS).unlink()
    shutil.rmtree(tmp_path / LOCKS)
    (tmp_path / "study.db").touch()
    written = (tmp_path / "random" / "seed-1" / "scores.json").stat().st_mtime_ns
    grown = compare(RUN, ["random", "task_size"], [1, 2], tmp_path)
    assert grown.runs["random"][0] == before.runs["random"][0]
    assert (tmp_path / "random" / "seed-1" / "scores.json").stat().st_mtime_ns == written


def test_runs_of_another_decider_of_the_same_name_are_not_taken_for_this_ones(
    tmp_path: Path,
) -> None:
    def warm(temperature: float) -> dict[str, Any]:
        return {"name": "temperature", "temperature": temperature, "as": "warm"}

    compare(RUN, [warm(2)], [1], tmp_path)
    with pytest.raises(UserError, match="warm/seed-1: there is a run of another configuration"):
        compare(RUN, [warm(3)], [1], tmp_path)


def test_the_first_free_lock_is_taken(tmp_path: Path) -> None:
    locks, others = FileLocks(tmp_path), FileLocks(tmp_path)
    with others.wait("a"), locks.first_free(["a", "b", "c"]) as name:
        assert name == "b"
        assert others.take("b") is None
    with locks.first_free(["a", "b"]) as name:
        assert name == "a"
