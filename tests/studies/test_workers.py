"""Workers share one Optuna study: every trial is finished exactly once, whoever is killed."""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

import optuna
from rich.console import Console

from taskmix.cli import terminal
from taskmix.errors import UserError
from taskmix.studies.shared_study import SharedStudy
from taskmix.studies.storage import Storage, open_storage
from taskmix.studies.workers import helpers


def shared(folder: Path, **options: Any) -> SharedStudy:
    return SharedStudy(opened(folder), "study", **options)


STORAGES: list[Storage] = []


def opened(folder: Path) -> Storage:
    STORAGES.append(open_storage(f"sqlite:///{folder / 'study.db'}"))
    return STORAGES[-1]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while STORAGES:
        STORAGES.pop().__exit__()


TRIALS = {f"{number}": {"x": number} for number in range(6)}


def suggested(trial: optuna.Trial) -> float:
    return trial.suggest_int("x", 0, 10)


def test_every_trial_is_run_once_and_added_once(tmp_path: Path) -> None:
    study, values = shared(tmp_path), []
    study.add_trials({key: TRIALS[key] for key in "012"})
    study.add_trials(TRIALS)
    study.run_trials(lambda trial: values.append(suggested(trial)) or trial.number)
    study.run_trials(lambda trial: values.append(suggested(trial)) or trial.number)
    assert values == [0, 1, 2, 3, 4, 5]
    assert list(study.finished_trials()) == ["0", "1", "2", "3", "4", "5"]


def test_two_workers_at_once_run_no_trial_twice(tmp_path: Path) -> None:
    shared(tmp_path).add_trials(TRIALS)
    values: list[int] = []
    both_inside = threading.Barrier(2, timeout=60)

    def objective(trial: optuna.Trial) -> float:
        value = suggested(trial)
        if value < 2:  # the first two trials are under way at the same time
            both_inside.wait()
        values.append(value)
        return value

    workers = [
        threading.Thread(target=lambda: shared(tmp_path).run_trials(objective)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(values) == [0, 1, 2, 3, 4, 5]
    assert [trial.value for trial in shared(tmp_path).finished_trials().values()] == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]


def test_an_error_leaves_the_trial_to_the_next_worker_with_the_same_parameters(
    tmp_path: Path,
) -> None:
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = shared(tmp_path, sampler=sampler)
    study.add_trials({"a": {}, "b": {}})
    seen = []

    def fail(trial: optuna.Trial) -> float:
        seen.append((trial.number, suggested(trial)))
        raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        study.run_trials(fail)
    later = shared(tmp_path, sampler=optuna.samplers.RandomSampler(seed=2))
    later.run_trials(lambda trial: seen.append((trial.number, suggested(trial))) or 1.0)
    assert seen[0] == seen[1]
    assert [trial.state.name for trial in later.finished_trials().values()] == ["COMPLETE"] * 2


def test_a_pruned_trial_is_finished_and_its_last_report_is_kept(tmp_path: Path) -> None:
    study = shared(tmp_path)
    study.add_trials({"a": {}})

    def objective(trial: optuna.Trial) -> float:
        trial.report(0.25, 3)
        raise optuna.TrialPruned

    study.run_trials(objective)
    [trial] = study.finished_trials().values()
    assert (trial.state.name, trial.value) == ("PRUNED", 0.25)


def test_only_the_wanted_trials_are_run(tmp_path: Path) -> None:
    study = shared(tmp_path)
    study.add_trials(TRIALS)
    study.run_trials(suggested, ["1", "4"])
    assert list(study.finished_trials()) == ["1", "4"]


def test_workers_have_to_agree_on_the_settings(tmp_path: Path) -> None:
    shared(tmp_path).check_settings({"primary": "rte", "trials": 20})
    shared(tmp_path).check_settings({"primary": "rte", "trials": 20})
    with pytest.raises(UserError, match="study study: begun with other settings: trials was 20"):
        shared(tmp_path).check_settings({"primary": "rte", "trials": 15})


def warn() -> None:
    logging.getLogger("taskmix.tasks").warning("%d rows were cut", 7)


def test_a_warning_of_several_workers_is_printed_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "err", Console(stderr=True, markup=False))
    with terminal.showing(quiet=False, workers=3), helpers(2, warn):
        warn()
    assert capfd.readouterr().err == "taskmix: 7 rows were cut\n"


def test_the_warnings_of_workers_are_quiet_where_that_is_asked(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with terminal.showing(quiet=True, workers=2), helpers(1, warn):
        warn()
    assert capfd.readouterr().err == ""


def test_what_cannot_be_sent_to_a_helper_is_said_in_one_sentence() -> None:
    with (
        pytest.raises(UserError, match="workers: expected tasks and a model that can be sent"),
        helpers(1, lambda: None),
    ):
        pass


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("mongodb://host/studies", "expected a URL that begins with sqlite:/// or postgresql://"),
        ("no url", "expected a URL that begins with sqlite:/// or postgresql://"),
        ("mysql://root:secret@host/studies", "found 'mysql'"),
        ("sqlite://", "expected the path of a file"),
    ],
)
def test_a_storage_of_another_kind_is_refused(url: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as refused:
        open_storage(url)
    assert "secret" not in str(refused.value)


def test_a_server_that_refuses_is_one_sentence_without_the_password() -> None:
    pytest.importorskip("psycopg")
    url = "postgresql://me:secret@127.0.0.1:1/studies"  # nothing listens on port 1
    with pytest.raises(UserError, match="storage postgresql") as refused:
        open_storage(url)
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "study.db").write_text("something else entirely\n" * 100)
    with pytest.raises(UserError, match=r"study\.db: expected a database with Optuna's tables"):
        open_storage(f"sqlite:///{tmp_path / 'study.db'}")


def test_tables_of_another_shape_are_one_sentence(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("CREATE TABLE version_info (year INTEGER)")
    database.close()
    with pytest.raises(UserError, match="expected a database with Optuna's tables"):
        open_storage(f"sqlite:///{tmp_path / 'study.db'}")


def test_tables_of_another_version_are_one_sentence(tmp_path: Path) -> None:
    with open_storage(f"sqlite:///{tmp_path / 'study.db'}"):
        pass
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'v99.0'")
    database.close()
    with pytest.raises(UserError, match="no longer compatible with the table schema"):
        open_storage(f"sqlite:///{tmp_path / 'study.db'}")


def test_a_worker_killed_in_a_trial_is_survived_by_the_study(
    postgres: str, started: Any, worker: Any, tmp_path: Path
) -> None:
    victim = started("autosem", tmp_path / "shared", postgres, "victim")
    survivor = started("autosem", tmp_path / "shared", postgres, "survivor")
    alone = worker.search(tmp_path / "alone", None)
    lost = next(line for line in victim.stdout if "on its way" in line).partition(",")[0]
    survivor.stdin.write("go\n")
    survivor.stdin.flush()
    says = [next(line for line in survivor.stdout if "on its way" in line)]
    victim.kill()  # SIGKILL, while the survivor is in a trial of its own
    assert victim.wait() == -9
    says += survivor.stdout.readlines()
    assert survivor.wait() == 0

    with open_storage(postgres) as storage:
        name = "autosem/shared/search"
        trials = optuna.load_study(study_name=name, storage=storage.trials).trials
    assert [trial.number for trial in trials] == list(range(7))
    assert {trial.state.name for trial in trials} == {"COMPLETE"}
    [again] = [line for line in says if line.startswith(f"{lost},") and "starts" in line]
    assert again.endswith("starts at step 5\n")  # behind the checkpoint of step 4

    ratios = {tuple(each.ratio.values()): each.value for each in alone.search.tried}
    keys = ("digits/larger", "digits/left", "digits/right")
    found = {
        tuple(alone.search.space.canonical(t.params)[k] for k in keys): t.value for t in trials
    }
    assert found == ratios
    assert max(found.values()) == alone.search.best.value
