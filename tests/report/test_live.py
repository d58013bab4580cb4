"""The live page: what it shows of runs that grow, and all that it refuses."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskmix
from browser import CHROMIUM, MISSING, browser
from taskmix.journal import Evaluation, Journal, Opening
from taskmix.policies import Outcome
from taskmix.report.live.growing import MAX_BINS, GrowingRun, glimpse

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")
TASKS = ("cola", "rte")


def add(journal: Journal, steps: Sequence[int], tasks: Sequence[str] = TASKS) -> list[str]:
    """Write steps to a journal, and an evaluation after every fifth; return the drawn tasks."""
    policy, rng = taskmix.Random(list(tasks)), np.random.default_rng(steps[0])
    drawn = []
    for step in steps:
        draw = policy.ask(rng)
        drawn.append(draw.task)
        journal.draw(step, Outcome(draw, loss=1 / step))
        if step % 5 == 0:
            scores = dict.fromkeys(tasks, step / 1000)
            journal.append(Evaluation(step, "dev", step / 1000, scores, scores))
    return drawn


def begin(folder: Path, total: int = 100, tasks: Sequence[str] = TASKS) -> Journal:
    folder.mkdir(parents=True)
    opening = Opening("run", list(tasks), {}, 1, {"name": "random"}, {"steps": total})
    return Journal.create(folder / "journal.jsonl", opening)


@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 3 * MAX_BINS))
def test_thinned_curves_have_the_shares_and_losses_of_all_steps(
    length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs") / "run"
    with begin(folder) as journal:
        drawn = add(journal, range(1, length + 1))
    run = GrowingRun(folder)
    assert run.read(60)
    data = run.data()
    assert len(data["steps"]) <= MAX_BINS
    assert data["steps"][-1] == length
    assert len(data["share_steps"]) == len(data["drawn"][0]) <= 60
    width = data["steps"][0]
    first = drawn[:width]
    losses = [1 / (k + 1) for k, task in enumerate(first) if task == "cola"]
    expected = float(f"{np.mean(losses):.4g}") if losses else None
    assert data["losses"][0][0] == expected
    if length <= 60:
        assert data["drawn"][0] == [float(task == "cola") for task in drawn]


def test_a_run_is_read_on_where_it_was_left(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    with begin(tmp_path / "run") as journal:
        add(journal, range(1, 8))
        assert run.read(60)
        position = run.position
        assert run.data()["steps"] == list(range(1, 8))
        add(journal, range(8, 12))
        assert run.read(60)
    assert run.position > position
    assert run.data()["steps"] == list(range(1, 12))
    assert glimpse(tmp_path / "run") == {
        "decider": "random",
        "step": 11,
        "total": 100,
        "score": 0.01,
        "finished": False,
    }


def test_a_resumed_run_whose_journal_was_cut_is_read_again(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    with begin(tmp_path / "run") as journal:
        add(journal, range(1, 4))
        position = journal.position
        add(journal, range(4, 30))
    run.read(60)
    with Journal.resume(tmp_path / "run" / "journal.jsonl", position) as journal:
        add(journal, [4])
    run.read(60)
    assert run.data()["steps"] == [1, 2, 3, 4]


def test_a_run_that_was_started_anew_is_read_again(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    with begin(tmp_path / "run") as journal:
        add(journal, range(1, 1000))
    run.read(60)
    (tmp_path / "run").rename(tmp_path / "run.old-1")
    with begin(tmp_path / "run") as journal:
        run.read(60)
        assert run.data()["steps"] == []
        add(journal, range(1, 3))
        run.read(60)
        assert run.data()["steps"] == [1, 2]


def test_a_resumed_run_that_has_grown_beyond_what_was_read_is_read_again(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "run")
    with begin(tmp_path / "run") as journal:
        add(journal, range(1, 4))
        position = journal.position
        add(journal, range(4, 20))
    run.read(60)
    with Journal.resume(tmp_path / "run" / "journal.jsonl", position) as journal:
        add(journal, range(4, 60))
    run.read(60)
    assert run.data()["steps"] == list(range(1, 60))


def client(root: Path) -> Any:
    testclient = pytest.importorskip("starlette.testclient")
    from taskmix.report.live.server import application

    return testclient.TestClient(application(root), base_url="http://127.0.0.1")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_outside_of_the_folder_is_served(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with begin(root / "inside") as journal, begin(tmp_path / "outside") as other:
        add(journal, range(1, 6))
        add(other, range(1, 6))
    (root / "linked").symlink_to(tmp_path / "outside")
    (root / "file").mkdir()
    (root / "file" / "journal.jsonl").symlink_to(tmp_path / "outside" / "journal.jsonl")
    (root / "broken").mkdir()
    (root / "broken" / "journal.jsonl").write_text("{")
    asked = client(root)
    listed = asked.get("/api/runs").json()["runs"]
    assert [line["id"] for line in listed] == ["broken", "inside"]
    first, second = (asked.get("/api/run/inside") for _ in range(2))
    assert first.json() == second.json()
    assert first.json()["step"] == 5
    outside = str(tmp_path / "outside").lstrip("/")
    for path in (
        "../outside",
        "%2e%2e/outside",
        "..%2foutside",
        "inside/../../outside",
        f"/{outside}",
        f"%2f{outside}",
        "linked",
        "file",
        "inside%00",
        "none",
    ):
        assert asked.get(f"/api/run/{path}").status_code == 404, path
    assert asked.get("/api/run/broken").status_code in (200, 422)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_hosts_and_other_methods_are_refused(tmp_path: Path) -> None:
    asked = client(tmp_path)
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:8100", ""):
        assert asked.get("/", headers={"host": host}).status_code == 400
    for host in ("127.0.0.1:8100", "localhost", "localhost:9999"):
        answer = asked.get("/", headers={"host": host})
        assert answer.status_code == 200
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert asked.post("/api/runs").status_code == 405


@contextmanager
def served(root: Path) -> Iterator[str]:
    from taskmix.report.live.server import application, free_port

    port = free_port("127.0.0.1", 18100)
    config = uvicorn.Config(application(root), port=port, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


HOSTILE = '<img src=x onerror="document.title=1">'


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_a_growing_run_is_followed_and_hostile_names_are_text(tmp_path: Path) -> None:
    root = tmp_path / "root"
    tasks = ("cola", HOSTILE)
    with (
        begin(root / HOSTILE.replace("/", ""), tasks=tasks) as journal,
        begin(root / "second") as second,
        served(root) as address,
        browser(tmp_path / "profile") as page,
    ):
        add(journal, range(1, 21), tasks)
        add(second, range(1, 11))
        page.open(address)
        page.wait("document.querySelectorAll('#runs li').length === 2")
        page.run("document.querySelector('#runs input').click()")
        page.wait("document.querySelectorAll('.plot[data-drawn=yes]').length >= 2")
        page.wait("document.querySelector('#lines').textContent.includes('20 …')")
        add(journal, range(21, 31), tasks)
        page.wait("document.querySelector('#lines').textContent.includes('30 …')")
        page.run("document.querySelectorAll('#runs input')[1].click()")
        page.wait("document.querySelectorAll('#lines tr').length === 3")
        page.run("document.getElementById('search').value = 'second'")
        page.run("document.getElementById('search').dispatchEvent(new Event('input'))")
        page.wait("document.querySelectorAll('#runs li').length === 1")
        page.open(address, width=390, dark=True)
        page.wait("document.querySelectorAll('#runs li').length === 2")
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.run("document.title") == "taskmix"
        assert page.errors == []
        assert all(request.startswith((address, "data:")) for request in page.requests)
