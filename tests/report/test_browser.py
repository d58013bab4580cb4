"""Pages in a real browser: every figure draws, hovering shows values, nothing is loaded."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import TypeAdapter

from browser import CHROMIUM, MISSING, Browser, browser
from taskmix.journal import Diagnostics, Evaluation, Journal, Opening, Shares, Step
from taskmix.report import write_comparison_report, write_run_report
from taskmix.report.bandit import bandit_report
from taskmix.training.folder import Finished, Scores

pytest.importorskip("plotly")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)
TASKS = ["cola", "rte", "sst2"]
HOSTILE = '</script><img src="http://elsewhere.example/x" onerror="window.broken=1">'


def write_run(
    folder: Path, tasks: list[str], seed: int, policy: str = "exp3s", steps: int = 60
) -> Path:
    """Write the folder of a finished run of random outcomes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    opening = Opening(
        folder.name,
        tasks,
        dict.fromkeys(tasks, 100),
        seed,
        {"name": policy},
        {"steps": steps, "batch": 8},
    )
    with Journal.create(folder / "journal.jsonl", opening) as journal:
        for step in range(1, steps + 1):
            shares = rng.dirichlet(np.ones(len(tasks)))
            task = tasks[int(rng.choice(len(tasks), p=shares))]
            journal.append(Shares(step, (shares / shares.sum()).tolist()))
            journal.append(Step(step, task, 0.5, loss=2 / step, examples=8, seconds=0.1))
            if step % 20 == 0:
                scores = dict(zip(tasks, rng.random(len(tasks)).tolist(), strict=True))
                journal.append(Diagnostics(step, {"weights": scores}))
                journal.append(Evaluation(step, "dev", 0.5, scores, scores))
    result = {
        task: Scores(score, {"accuracy": score}, 1.0, 100, 0.2) for task, score in scores.items()
    }
    mean = float(np.mean(list(scores.values())))
    finished = Finished(steps, mean, result, 1000, 500)
    (folder / "scores.json").write_bytes(TypeAdapter(Finished).dump_json(finished))
    return folder


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind; the one of many tasks has long and hostile names."""
    folder = tmp_path_factory.mktemp("pages")
    many = [f"a-task-with-a-rather-long-name/{k}" for k in range(29)] + [HOSTILE]
    study = {
        name: [
            write_run(folder / "study" / name / f"seed-{seed}", TASKS, seed, name)
            for seed in (1, 2, 3)
        ]
        for name in ("random", "exp3s", "aimed")
    }
    bandit_report(folder / "bandit", ["random", "exp3s"], arms=3, steps=40, environments=2, seeds=2)
    return {
        "run": write_run_report(write_run(folder / "run", TASKS, 1)),
        "many": write_run_report(write_run(folder / "many", many, 2)),
        "study": write_comparison_report(study, folder / "study", "Three policies"),
        "bandit": folder / "bandit" / "report.html",
    }


@pytest.mark.parametrize("kind", ["run", "many", "study", "bandit"])
@pytest.mark.parametrize(("width", "dark"), [(1400, False), (390, True)])
def test_every_figure_draws_and_nothing_else_is_loaded(
    kind: str, width: int, dark: bool, pages: dict[str, Path], chromium: Browser
) -> None:
    chromium.open(pages[kind], width, dark)
    chromium.draw_all()
    chromium.screenshot(f"{kind}-{width}{'-dark' if dark else ''}")
    count = chromium.run("document.querySelectorAll('[data-figure]').length")
    assert count >= 1
    assert chromium.run("document.querySelectorAll('[data-figure] .main-svg').length") >= count
    assert chromium.errors == []
    own = ("file:", "data:", "blob:")
    assert [address for address in chromium.requests if not address.startswith(own)] == []
    assert not chromium.run("window.broken")
    assert chromium.run("document.documentElement.scrollWidth") <= width
    dark_page = (
        chromium.run("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    )
    assert dark_page == dark


def test_hovering_shows_the_values_of_a_step(pages: dict[str, Path], chromium: Browser) -> None:
    chromium.open(pages["run"])
    chromium.draw_all()
    chromium.run("document.querySelector('[data-figure=\"1\"]').scrollIntoView({block: 'center'})")
    box = chromium.run(
        "(({x, y, width, height}) => [x, y, width, height])"
        "(document.querySelector('[data-figure=\"1\"] .nsewdrag').getBoundingClientRect())"
    )
    chromium.hover(box[0] + box[2] * 0.66, box[1] + box[3] / 2)
    hovered = "document.querySelector('[data-figure=\"1\"] .hoverlayer').textContent"
    chromium.wait(f"{hovered}.includes('rte')")
    assert all(task in chromium.run(hovered) for task in (*TASKS, "mean"))


def test_the_legend_hides_a_task_in_all_figures_by_keyboard(
    pages: dict[str, Path], chromium: Browser
) -> None:
    chromium.open(pages["run"])
    chromium.draw_all()
    chromium.run("document.querySelector('.legend button').focus()")
    enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"}
    chromium.call("Input.dispatchKeyEvent", type="keyDown", **enter)
    chromium.call("Input.dispatchKeyEvent", type="keyUp", **enter)
    shown = (
        "[...document.querySelectorAll('[data-figure]')].flatMap((figure) => figure.data)"
        ".filter((trace) => trace.legendgroup === 'task-0').map((trace) => trace.visible)"
    )
    chromium.wait(f"{shown}.length >= 4 && {shown}.every((visible) => visible === false)")
    assert chromium.run("document.querySelector('.legend button').ariaPressed") == "false"
    chromium.run("document.querySelector('.legend button').click()")
    chromium.wait(f"{shown}.every((visible) => visible === true)")


def test_the_first_column_of_a_wide_table_stays_and_a_hint_says_that_it_scrolls(
    pages: dict[str, Path], chromium: Browser
) -> None:
    chromium.open(pages["study"], 390)
    chromium.wait("document.querySelector('.wide.scrolls') !== null")
    assert chromium.run("document.querySelector('.wide').tabIndex") == 0
    first = "document.querySelector('.wide td').getBoundingClientRect().x"
    before = chromium.run(first)
    chromium.run("document.querySelector('.wide').scrollLeft = 200")
    assert chromium.run("document.querySelector('.wide').scrollLeft") == 200
    assert chromium.run(first) == before


def test_a_printed_page_has_every_figure(pages: dict[str, Path], chromium: Browser) -> None:
    chromium.open(pages["study"])
    chromium.wait("document.querySelector('[data-drawn]') !== null")
    chromium.run("dispatchEvent(new Event('beforeprint'))")
    chromium.wait("document.querySelectorAll('[data-figure]:not([data-drawn])').length === 0")
    assert chromium.call("Page.printToPDF")["data"]


def test_paper_has_no_hint_that_a_table_scrolls(pages: dict[str, Path], chromium: Browser) -> None:
    chromium.open(pages["study"], 390)
    chromium.wait("document.querySelector('.wide.scrolls') !== null")
    chromium.call("Emulation.setEmulatedMedia", media="print")
    after = "getComputedStyle(document.querySelector('.wide.scrolls'), '::before').content"
    assert chromium.run(after) == "none"
    chromium.call("Emulation.setEmulatedMedia", media="")


def test_the_verdict_is_painted_before_the_first_figure(
    pages: dict[str, Path], chromium: Browser
) -> None:
    source = (
        "new MutationObserver(() => { if (document.querySelector('[data-drawn]'))"
        " window.firstFigure ??= performance.now(); })"
        ".observe(document, {subtree: true, attributes: true})"
    )
    script = chromium.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    try:
        chromium.open(pages["study"])
        chromium.wait("window.firstFigure !== undefined")
        paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
        assert chromium.run(f"{paint} < window.firstFigure")
    finally:
        chromium.call("Page.removeScriptToEvaluateOnNewDocument", **script)


def test_a_long_legend_scrolls_and_leaves_room_for_the_figures(
    pages: dict[str, Path], chromium: Browser
) -> None:
    chromium.open(pages["many"])
    legend = "document.querySelector('.legend')"
    assert chromium.run(f"{legend}.scrollHeight > {legend}.clientHeight")
    assert chromium.run(f"{legend}.clientHeight") <= 160


def test_the_links_of_a_study_lead_to_its_runs(pages: dict[str, Path], chromium: Browser) -> None:
    chromium.open(pages["study"])
    links = chromium.run("[...document.querySelectorAll('a')].map((link) => link.href)")
    folders = sorted(path.parent for path in pages["study"].parent.rglob("journal.jsonl"))
    assert sorted(links) == [f"{folder.as_uri()}/" for folder in folders]


def test_without_decompression_the_tables_remain_and_a_sentence_says_why(
    pages: dict[str, Path], chromium: Browser
) -> None:
    source = "delete window.DecompressionStream"
    script = chromium.call("Page.addScriptToEvaluateOnNewDocument", source=source)
    try:
        chromium.open(pages["run"])
        text = "document.querySelector('[data-figure]').textContent"
        chromium.wait(f"{text}.includes('needs a browser of 2023 or later')")
        assert chromium.run("document.querySelectorAll('table').length") >= 1
    finally:
        chromium.call("Page.removeScriptToEvaluateOnNewDocument", **script)
