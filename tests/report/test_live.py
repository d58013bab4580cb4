"""The live page: what it shows of runs that grow, and all that it refuses."""

import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taskmix
from browser import CHROMIUM, MISSING, Browser, browser
from taskmix.families import FAMILIES
from taskmix.journal import Diagnostics, Evaluation, Journal, Opening
from taskmix.policies import Outcome
from taskmix.report.live.growing import (
    DRAWS_IN_SHARE,
    MAX_BINS,
    MAX_NAME,
    MIN_SHARES,
    GrowingRun,
    bins_of,
    glimpse,
)

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


def begin(
    folder: Path,
    total: int = 100,
    tasks: Sequence[str] = TASKS,
    decider: Mapping[str, Any] = MappingProxyType({"name": "random"}),
    family: str = "policy",
    **more: Any,
) -> Journal:
    folder.mkdir(parents=True)
    opening = Opening(
        "run", list(tasks), {}, 1, dict(decider), {"steps": total, "rounds": 10}, family, **more
    )
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
    if length <= MIN_SHARES:
        assert data["drawn"][0] == [float(task == "cola") for task in drawn]
    assert data["share_steps"][-1] == length
    assert length // len(data["share_steps"]) >= min(length // MIN_SHARES, DRAWS_IN_SHARE)


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
        "value": None,
        "objective": None,
        "measure": "score",
        "counts": "steps",
        "finished": False,
        "diverged": False,
    }


def test_a_decider_has_its_options_in_the_list_and_a_long_one_is_cut(tmp_path: Path) -> None:
    begin(tmp_path / "short", decider={"name": "temperature", "temperature": 2}).close()
    begin(
        tmp_path / "long", decider={"name": "cycle", "ratio": dict.fromkeys(map(str, range(99)), 1)}
    ).close()
    assert glimpse(tmp_path / "short")["decider"] == "temperature 2"
    cut = glimpse(tmp_path / "long")["decider"]
    assert len(cut) == MAX_NAME
    assert cut.startswith("cycle ratio ")


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


@pytest.fixture
def no_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are made for every request."""
    monkeypatch.setattr("taskmix.report.live.server.MAX_AGE", 0.0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_answer_is_made_once_for_all_pages_and_pages_that_have_it_get_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("taskmix.report.live.server.time.monotonic", lambda: now)
    with begin(tmp_path / "run") as journal:
        add(journal, range(1, 6))
        asked = client(tmp_path)
        first = asked.get("/api/run/run").json()
        add(journal, range(6, 9))
        assert asked.get("/api/run/run").json() == first
        assert asked.get("/api/runs").json()["runs"][0]["step"] == 8
        add(journal, [9])
        assert asked.get("/api/runs").json()["runs"][0]["step"] == 8
        assert asked.get(f"/api/run/run?have={first['version']}").status_code == 204
        now += 1.1
        second = asked.get(f"/api/run/run?have={first['version']}").json()
    assert (first["step"], second["step"]) == (5, 9)
    (tmp_path / "run" / "scores.json").write_text("{}")
    now += 1.1
    last = asked.get(f"/api/run/run?have={second['version']}").json()
    assert (second["finished"], last["finished"]) == (False, True)
    packed, plain = (
        asked.get("/api/run/run", headers={"accept-encoding": coding})
        for coding in ("gzip", "identity")
    )
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert packed.json() == plain.json()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_browser_keeps_the_script_of_plotly_and_nothing_of_a_run(tmp_path: Path) -> None:
    asked = client(tmp_path)
    script = asked.get("/plotly.js")
    assert script.headers["cache-control"] == "no-cache"
    again = asked.get("/plotly.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    for path in ("/", "/live.js", "/api/runs"):
        assert asked.get(path).headers["cache-control"] == "no-store"


@pytest.mark.usefixtures("no_age")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_half_written_line_is_left_for_the_next_request(tmp_path: Path) -> None:
    with begin(tmp_path / "run") as journal:
        add(journal, range(1, 4))
    path = tmp_path / "run" / "journal.jsonl"
    lines = path.read_bytes()
    path.write_bytes(lines[:-20])
    asked = client(tmp_path)
    assert asked.get("/api/run/run").json()["steps"] == [1, 2]
    assert asked.get("/api/runs").json()["runs"][0]["step"] == 2
    path.write_bytes(lines)
    assert asked.get("/api/run/run").json()["steps"] == [1, 2, 3]


@pytest.mark.usefixtures("no_age")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_folder_that_is_deleted_is_no_longer_listed(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("a", "b"):
        with begin(root / name) as journal:
            add(journal, range(1, 6))
    asked = client(root)
    assert asked.get("/api/run/a").json()["step"] == 5
    shutil.rmtree(root / "a")
    assert asked.get("/api/run/a").status_code == 404
    assert [line["id"] for line in asked.get("/api/runs").json()["runs"]] == ["b"]
    shutil.rmtree(root)
    assert asked.get("/api/run/b").status_code == 404
    assert asked.get("/api/runs").json()["runs"] == []


@pytest.mark.usefixtures("no_age")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_runs_without_steps_have_empty_curves(tmp_path: Path) -> None:
    begin(tmp_path / "opened").close()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "journal.jsonl").touch()
    asked = client(tmp_path)
    for name, tasks in (("opened", ["cola", "rte"]), ("empty", [])):
        answer = asked.get(f"/api/run/{name}").json()
        assert (answer["tasks"], answer["steps"], answer["score"]) == (tasks, [], None)
    assert [line["step"] for line in asked.get("/api/runs").json()["runs"]] == [0, 0]


@pytest.mark.usefixtures("no_age")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            '{"kind":"evaluation","step":1,"split":"dev","score":NaN,"scores":{},"losses":{}}',
            "NaN",
        ),
        ('{"kind":"step","step":1,"task":"cola","p":0.5,"loss":1e999}', "1e999"),
        ('{"kind":"step","step":1,"task":"elsewhere","p":0.5}', "elsewhere"),
        ('{"kind":"step","step":-1,"task":"cola","p":0.5}', "the step -1"),
        ('{"kind":"shares","step":1,"shares":[2,-1]}', "the shares"),
        ("no JSON", "no JSON"),
        ("[" * 20_000, "nested too deeply"),
    ],
)
def test_a_run_with_a_wrong_line_is_refused_in_a_sentence_and_the_others_are_shown(
    tmp_path: Path, line: str, words: str
) -> None:
    for name in ("good", "wrong"):
        with begin(tmp_path / name) as journal:
            add(journal, range(1, 6))
    with (tmp_path / "wrong" / "journal.jsonl").open("a") as file:
        file.write(f"{line}\n")
    asked = client(tmp_path)
    answer = asked.get("/api/run/wrong")
    assert answer.status_code == 422
    assert words in answer.json()["error"]
    good, wrong = asked.get("/api/runs").json()["runs"]
    assert good["step"] == 5
    assert words in wrong["error"]
    assert asked.get("/api/run/good").json()["step"] == 5


HOSTILE_VALUES = (None, "<b>", 1e300, -1, [], [{}], {"cola": None}, {"cola": {"x": []}}, {"": "x"})


@pytest.mark.parametrize(
    ("family", "name"),
    [(key, member.name) for key, family in FAMILIES.items() for member in family.members],
)
def test_no_belief_in_a_journal_ends_the_server(tmp_path: Path, family: str, name: str) -> None:
    keys = ("weights", "slopes", "uncertainties", "rates", "rewards", "means")
    with begin(tmp_path / "run", decider={"name": name}, family=family) as journal:
        for step, value in enumerate(HOSTILE_VALUES * 2, 1):
            journal.append(Diagnostics(step, dict.fromkeys(keys, value)))
            for key in keys:
                journal.append(Diagnostics(step, {key: value}))
    run = GrowingRun(tmp_path / "run")
    assert run.read(60)
    assert all(isinstance(event, str) for event in run.data()["events"])


def test_curves_of_many_tasks_have_fewer_points(tmp_path: Path) -> None:
    tasks = [f"task {k}" for k in range(2000)]
    with begin(tmp_path / "run", tasks=tasks) as journal:
        add(journal, range(1, 101), tasks)
    run = GrowingRun(tmp_path / "run")
    assert run.read(60)
    assert len(run.data()["steps"]) <= bins_of(2000) == 20


class Announced(uvicorn.Server):
    """A server that says when it takes requests."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = threading.Event()

    async def startup(self, *args: Any, **options: Any) -> None:
        await super().startup(*args, **options)
        self.ready.set()


@contextmanager
def served(root: Path) -> Iterator[str]:
    from taskmix.report.live.server import application, free_port

    port = free_port("127.0.0.1", 18100)
    server = Announced(uvicorn.Config(application(root), port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert server.ready.wait(60)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.should_exit = True
        thread.join()


HOSTILE = '<img src=x onerror="document.title=1">'


def values_under_the_mouse(page: Browser, place: str) -> str:
    """Hover over the middle of a figure of the live page; return the text of its box."""
    page.run(f"document.querySelector({place!r}).scrollIntoView({{block: 'center'}})")
    page.wait(f"document.querySelector({place!r}).dataset.drawn === 'yes'")
    drag = f"document.querySelector({place!r} + ' .nsewdrag').getBoundingClientRect()"
    x, y, width, height = page.run(f"(({{x, y, width, height}}) => [x, y, width, height])({drag})")
    page.hover(x + width / 2, y + height / 2)
    text = f"document.querySelector({place!r} + ' .hoverlayer').textContent"
    page.wait(f"{text} !== ''")
    return str(page.run(text))


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_a_growing_run_is_followed_and_hostile_names_are_text(
    tmp_path: Path, width: int, dark: bool
) -> None:
    root = tmp_path / "root"
    tasks = ("cola", HOSTILE)
    decider = {"name": "exp3s", "as": HOSTILE}
    with (
        begin(root / HOSTILE.replace("/", ""), tasks=tasks, decider=decider) as journal,
        begin(root / "second") as second,
        served(root) as address,
        browser(tmp_path / "profile") as page,
    ):
        add(journal, range(1, 21), tasks)
        for step, weight in enumerate((0.1, 0.9), 21):
            weights = {"cola": 1 - weight, HOSTILE: weight}
            journal.append(Diagnostics(step, {"weights": weights}))
        add(second, range(1, 11))
        page.open(address, width, dark)
        page.wait("document.querySelectorAll('#runs li').length === 2")
        assert page.run("document.querySelectorAll('#lines td').length") == 0
        page.run("document.querySelector('#runs input').click()")
        page.wait("document.querySelector('#lines').textContent.includes('20 …')")
        page.wait(
            "document.querySelector('#events').textContent.includes('has the largest log-weight')"
        )
        page.run("document.querySelector('#runs input').focus()")
        for k in range(4):
            place = f"figure:nth-of-type({k + 1}) .plot"
            assert "cola" in values_under_the_mouse(page, place), k
        add(journal, range(21, 31), tasks)
        page.wait("document.querySelector('#lines').textContent.includes('30 …')")
        page.wait("document.querySelector('#runs').textContent.includes('30 of 100')")
        assert page.run("document.activeElement.dataset.box") == HOSTILE.replace("/", "")
        page.run("document.querySelectorAll('#runs input')[1].click()")
        page.wait("document.querySelectorAll('#lines tr').length === 3")
        page.screenshot(f"live-{width}")
        page.run("document.getElementById('search').value = 'second'")
        page.run("document.getElementById('search').dispatchEvent(new Event('input'))")
        page.wait("document.querySelectorAll('#runs li').length === 1")
        page.call("Page.reload")
        page.wait("document.querySelectorAll('#lines tr').length === 3")
        assert page.run("document.querySelectorAll('#runs input:checked').length") == 2
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run("getComputedStyle(document.body).colorScheme") == "light dark"
        assert page.run("document.title") == "taskmix"
        assert page.errors == []
        assert all(request.startswith((address, "data:")) for request in page.requests)


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_a_deleted_or_broken_run_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    root = tmp_path / "root"
    with begin(root / "a") as first, begin(root / "b") as second, begin(root / "c") as third:
        for journal in (first, second, third):
            add(journal, range(1, 11))
        with served(root) as address, browser(tmp_path / "profile") as page:
            page.open(f"{address}#a&b&c")
            page.wait("document.querySelectorAll('#lines tr').length === 4")
            shutil.rmtree(root / "a")
            with (root / "b" / "journal.jsonl").open("a") as file:
                file.write('{"kind":"step","loss":NaN}\n')
            add(third, range(11, 16))
            page.wait("document.querySelector('#lines').textContent.includes('a: no such run')")
            page.wait("document.querySelector('#lines').textContent.includes('the number NaN')")
            page.wait("document.querySelector('#lines').textContent.includes('15 …')")
            page.wait("document.querySelectorAll('#runs li').length === 2")


def begin_study(root: Path, deciders: Sequence[str] = ("aimed", "random")) -> list[Journal]:
    root.mkdir(parents=True)
    (root / "compare.yaml").touch()
    return [
        begin(root / name / f"seed-{seed}", decider={"name": name})
        for name in deciders
        for seed in (1, 2)
    ]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_list_names_the_study_of_each_run(tmp_path: Path) -> None:
    journals = [begin(tmp_path / "alone"), *begin_study(tmp_path / "studies" / "one")]
    journals += begin_study(tmp_path / "studies" / "one" / "inner", ["exp3s"])
    for journal in journals:
        journal.close()
    runs = client(tmp_path).get("/api/runs").json()["runs"]
    assert {line["id"]: line["study"] for line in runs} == {
        "alone": "",
        "studies/one/aimed/seed-1": "studies/one",
        "studies/one/aimed/seed-2": "studies/one",
        "studies/one/inner/exp3s/seed-1": "studies/one/inner",
        "studies/one/inner/exp3s/seed-2": "studies/one/inner",
        "studies/one/random/seed-1": "studies/one",
        "studies/one/random/seed-2": "studies/one",
    }


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
@pytest.mark.parametrize("inside", ["study", "."])
def test_a_study_is_chosen_as_a_whole_and_begins_with_a_sentence(
    tmp_path: Path, inside: str
) -> None:
    root = tmp_path / "root"
    journals = begin_study(root / inside)
    with served(root) as address, browser(tmp_path / "profile") as page:
        for number, journal in enumerate(journals):
            add(journal, range(1, 10 + 5 * (number < 2)))
            journal.close()
        page.open(address)
        page.wait("document.querySelector('#runs li.study') !== null")
        names = page.run("[...document.querySelectorAll('#runs .name')].map((e) => e.textContent)")
        members = ["aimed/seed-1", "aimed/seed-2", "random/seed-1", "random/seed-2"]
        assert names == ["root" if inside == "." else "study", *members]
        page.run("document.querySelector('#runs li.study input').click()")
        summary = "document.getElementById('summary').textContent"
        page.wait(f"{summary}.includes('2 runs); random')")
        assert page.run(summary) == (
            "aimed has the best mean dev score so far: 1.0 (2 runs); random 0.5 (2 runs). "
            f"The report of {names[0]} (taskmix report) tests whether that is more than noise."
        )
        page.wait("document.querySelector('figure .plot').data?.length === 4")
        lines = page.run("document.querySelector('figure .plot').data.map((d) => d.line.color)")
        assert lines[0] == lines[1] != lines[2] == lines[3]
        page.screenshot("live-study")
        page.run("document.querySelectorAll('#runs li.member input')[0].click()")
        page.wait("document.querySelectorAll('#lines tr').length === 4")
        assert page.run("document.querySelector('#runs li.study input').indeterminate")


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_a_bookmark_of_a_study_compares_contestants_on_the_same_tasks(tmp_path: Path) -> None:
    root = tmp_path / "root"
    deciders = [
        {"name": "temperature", "temperature": 2},
        {"name": "temperature", "temperature": 5},
    ]
    study = ["study/t2/seed-1", "study/t5/seed-1", "study/alone/seed-1/1-rte"]
    (root / "study").mkdir(parents=True)
    (root / "study" / "compare.yaml").touch()
    for name, decider in zip(study[:2], deciders, strict=True):
        with begin(root / name, decider=decider) as journal:
            add(journal, range(1, 11))
    with begin(root / study[2], tasks=["rte"]) as journal:
        add(journal, range(1, 11), ["rte"])
        journal.append(Evaluation(11, "dev", 0.9, {"rte": 0.9}, {"rte": 0.1}))
    (root / study[2] / "diverged.txt").touch()
    with served(root) as address, browser(tmp_path / "profile") as page:
        page.open(f"{address}#{'&'.join(quote(name, safe='') for name in study)}")
        summary = "document.getElementById('summary').textContent"
        page.wait(f"{summary}.startsWith('temperature 2 has the best mean dev score so far: 1.0;')")
        assert "rte" not in page.run(summary)
        page.wait("document.querySelector('figure .plot').data?.length === 2")
        rows = page.run(
            "[...document.querySelectorAll('#lines td:first-child')].map((td) => td.textContent)"
        )
        assert rows == ["t2/seed-1", "t5/seed-1", "alone/seed-1/1-rte"]
        assert "diverged" in page.run("document.getElementById('runs').textContent")


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_the_page_follows_its_address(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("a", "b"):
        with begin(root / name) as journal:
            add(journal, range(1, 11))
    with served(root) as address, browser(tmp_path / "profile") as page:
        page.open(f"{address}#a")
        summary = "document.getElementById('summary').textContent"
        page.wait(f"{summary} === 'random reached a mean dev score of 1.0 at step 10 of 100.'")
        page.run("location.hash = 'b'")
        page.wait("document.querySelector('#lines').textContent.includes('b')")
        boxes = "[...document.querySelectorAll('#runs input')].map((box) => box.checked)"
        page.wait(f"JSON.stringify({boxes}) === '[false,true]'")


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_the_only_run_is_shown_without_a_choice(tmp_path: Path) -> None:
    with begin(tmp_path / "run") as journal:
        add(journal, range(1, 11))
    with served(tmp_path / "run") as address, browser(tmp_path / "profile") as page:
        page.open(address)
        page.wait("document.querySelector('.plot[data-drawn=yes]') !== null")
        page.run("document.querySelector('#runs input').click()")
        page.wait("document.querySelector('#lines tr') === null")
        page.run("poll()")
        assert page.run("document.querySelectorAll('#lines tr').length") == 0


@pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
def test_the_run_that_trains_is_at_the_top_and_shown(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in ("a", "b"):
        with begin(root / name) as journal:
            add(journal, range(1, 6))
        (root / name / "scores.json").write_text("{}")
    with (
        begin(root / "z", objective=["rte"], measure="loss") as running,
        served(root) as address,
        browser(tmp_path / "profile") as page,
    ):
        add(running, range(1, 4))
        scores, losses = dict.fromkeys(TASKS, 0.1), dict.fromkeys(TASKS, 2.5)
        running.append(Evaluation(3, "dev", 0.1, scores, losses, objective=-2.5))
        page.open(address)
        page.wait("document.querySelectorAll('#runs li').length === 3")
        assert page.run("document.querySelector('#runs .name').textContent") == "z"
        assert page.run("document.querySelector('#runs .score').textContent") == "2.500"
        page.wait("document.querySelector('#lines').textContent.includes('objective')")
        assert page.run("decodeURIComponent(location.hash)") == "#z"
