"""Pages: a report over 20 runs of 2,000 steps, and the live page on a run that trains."""

import gzip
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
from harness import Result, seconds
from threadpoolctl import threadpool_limits

import taskmix
from taskmix.journal import Evaluation, Journal, Opening
from taskmix.policies import Outcome
from taskmix.report import write_comparison_report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "shared"))
from browser import CHROMIUM, browser

TASKS = ["cola", "rte", "sst2", "mrpc", "mnli"]
POLICIES = ["random", "exp3s", "task_size", "aimed"]
PAGES, STEPS, PAIRS, WINDOW = 20, 100_000, 8, 4.0
OPENING = {"first paint": 1, "first figure": 1, "longest task": 0.2}
"""What is measured of a page that opens, with its goal in seconds."""
OPENED = """
new MutationObserver(() => {
  if (document.querySelector('[data-drawn]')) window.firstFigure ??= performance.now();
}).observe(document, {subtree: true, attributes: true, attributeFilter: ['data-drawn']});
window.longest = 0;
new PerformanceObserver((list) => {
  for (const task of list.getEntries()) window.longest = Math.max(window.longest, task.duration);
}).observe({type: 'longtask', buffered: true});
"""
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


class Training:
    """A run whose steps are a product of a matrix with itself, and lines of a journal."""

    def __init__(self, folder: Path, seed: int, policy: str = "exp3s") -> None:
        folder.mkdir(parents=True)
        sizes, budget = dict.fromkeys(TASKS, 1000), {"steps": 2 * STEPS, "batch": 16}
        opening = Opening("run", TASKS, sizes, seed, {"name": policy}, budget)
        self.journal = Journal.create(folder / "journal.jsonl", opening)
        self.step, self._rng = 0, np.random.default_rng(seed)
        self._policy = taskmix.Exp3S(TASKS)  # its shares change with each step
        self.matrix = np.ones((0, 0))

    def advance(self) -> None:
        self.step += 1
        self.matrix @ self.matrix
        draw = self._policy.ask(self._rng)
        loss, gain = 1 + float(self._rng.random()), float(self._rng.random())
        outcome = Outcome(draw, loss=loss, gain=gain, examples=16)
        self._policy.tell(outcome)
        self.journal.draw(self.step, outcome)
        if self.step % 200 == 0:
            scores = dict(zip(TASKS, self._rng.random(5).tolist(), strict=True))
            self.journal.append(Evaluation(self.step, "dev", 0.5, scores, scores))


def report_of_twenty_runs() -> list[Result]:
    """Seconds to write the report, its size, and how it opens in a browser that was just started.

    A page reacts to its reader between two tasks of its script, so its longest task is the longest
    time that somebody waits for a scroll or a click.
    """
    with tempfile.TemporaryDirectory() as folder:
        runs = {name: [Path(folder) / name / str(seed) for seed in range(5)] for name in POLICIES}
        for name, folders in runs.items():
            for seed, path in enumerate(folders):
                training = Training(path, seed, name)
                for _ in range(2000):
                    training.advance()
                training.journal.close()
        page = Path(folder) / "out" / "report.html"
        took = statistics.median(
            seconds(lambda: write_comparison_report(runs, page.parent, "Pages")) for _ in range(3)
        )
        size = page.stat().st_size / 2**20
        return [
            Result("report of 20 runs: writing", took, "s", "<= 5", took <= 5),
            Result("report of 20 runs: size", size, "MiB", "<= 2", size <= 2),
            *(_opening(page) if CHROMIUM else []),
        ]


def _opening(page: Path) -> list[Result]:
    measured = zip(*(_opened(page) for _ in range(5)), strict=True)
    results = []
    for (name, goal), times in zip(OPENING.items(), measured, strict=True):
        middle = statistics.median(times)
        spread = f"{min(times):.2f} to {max(times):.2f}"
        target = f"<= {goal:g}"
        results.append(Result(f"report: {name} ({spread})", middle, "s", target, middle <= goal))
    return results


def _opened(page: Path) -> tuple[float, float, float]:
    """Return the seconds that OPENING names, in a browser just started."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        browser(Path(profile)) as opened,
    ):
        # Chromium parses plotly's script three times more while somebody listens to errors.
        for domain in ("Runtime", "Log", "Network"):
            opened.call(f"{domain}.disable")
        opened.call("Page.addScriptToEvaluateOnNewDocument", source=OPENED)
        opened.open(page)
        opened.wait("window.firstFigure !== undefined")
        milliseconds = map(opened.run, (PAINTED, "window.firstFigure", "window.longest"))
        paint, figure, longest = (value / 1000 for value in milliseconds)
        return paint, figure, longest


def live_page_of_a_long_run() -> list[Result]:
    """Speed of a training with 20 pages over that with none, in turn; what the server takes.

    The speed is in steps per second of CPU time, which other load on the machine changes little.
    A training on one core leaves the pages another one, as a training on a GPU does; one on all
    cores has to share them.
    """
    with tempfile.TemporaryDirectory() as folder:
        training = Training(Path(folder) / "run", 1)
        for _ in range(STEPS):
            training.advance()
        training.matrix = np.ones((600, 600))
        with _server(Path(folder)) as (address, server):
            paint = _first_paint(address) if CHROMIUM else None
            with threadpool_limits(1):
                ratios, usages = _pairs(training, address, server)
            shared, _ = _pairs(training, address, server)
    grown = usages[-1].memory - usages[0].memory
    watched = WINDOW * (PAIRS - 1)  # seconds in which pages asked, between the first and the last
    share = (usages[-1].cpu - usages[0].cpu) / watched
    memory = f"live page: memory, of {usages[-1].memory:.0f} MiB, grown by"
    results = [
        _slowed("training on one core with 20 pages", ratios),
        _slowed("training on all cores with 20 pages", shared),
        Result("live page: server with 20 pages", share, "cores", "<= 0.1", share <= 0.1),
        Result(memory, grown, "MiB", "< 5", grown < 5),
    ]
    if paint is not None:
        results.append(Result("live page: first paint", paint, "s", "<= 1", paint <= 1))
    return results


def _slowed(name: str, ratios: list[float]) -> Result:
    middle = statistics.median(ratios)
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    return Result(f"{name} ({spread})", middle, "x", ">= 0.99", middle >= 0.99)


@dataclass(frozen=True)
class Usage:
    """What a process has taken."""

    memory: float  # MiB
    cpu: float  # seconds

    @classmethod
    def of(cls, process: int) -> "Usage":
        folder = Path(f"/proc/{process}")
        kilobytes = re.findall(r"VmRSS:\s+(\d+)", (folder / "status").read_text())[0]
        ticks = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
        return cls(int(kilobytes) / 1024, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"))


@contextmanager
def _server(root: Path) -> Iterator[tuple[str, int]]:
    command = [sys.executable, "-m", "taskmix", "ui", str(root), "--port", "8300"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield re.findall(r"http://\S+", process.stdout.readline())[0], process.pid
    finally:
        process.terminate()
        process.wait()


def _first_paint(address: str) -> float:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        browser(Path(profile)) as opened,
    ):
        opened.open(f"{address}/#run")
        opened.wait(f"{PAINTED} !== undefined")
        return opened.run(PAINTED) / 1000


def _pairs(training: Training, address: str, server: int) -> tuple[list[float], list[Usage]]:
    """Return the ratios of the speeds, and what the server has taken after each pair."""
    pages = subprocess.Popen([sys.executable, __file__, address])
    ratios, usages = [], []
    try:
        time.sleep(5)  # until all pages have the whole run
        for pair in range(PAIRS):
            speeds = {}
            for watched in ((True, False), (False, True))[pair % 2]:
                os.kill(pages.pid, signal.SIGCONT if watched else signal.SIGSTOP)
                speeds[watched] = _speed(training)
            ratios.append(speeds[True] / speeds[False])
            usages.append(Usage.of(server))
    finally:
        os.kill(pages.pid, signal.SIGCONT)
        pages.terminate()
        pages.wait()
    return ratios, usages


def _speed(training: Training) -> float:
    first, end, cpu = training.step, time.perf_counter() + WINDOW, time.process_time()
    while time.perf_counter() < end:
        training.advance()
    return (training.step - first) / (time.process_time() - cpu)


def _poll(address: str) -> None:
    """Ask as 20 pages do that show the run: for the list and for news, every two seconds."""
    versions = [""] * PAGES
    while True:
        for page in range(PAGES):
            _asked(f"{address}/api/runs")
            versions[page] = (
                _asked(f"{address}/api/run/run?have={versions[page]}") or versions[page]
            )
            time.sleep(2 / PAGES)


def _asked(url: str) -> str:
    with urlopen(Request(url, headers={"accept-encoding": "gzip"})) as answer:
        return _version(answer.read(), answer.headers.get("content-encoding"))


def _version(body: bytes, encoding: str | None) -> str:
    text = gzip.decompress(body) if encoding == "gzip" else body
    found = re.match(rb'\{"version": "([^"]*)"', text)
    return found.group(1).decode() if found else ""


BENCHMARKS = [report_of_twenty_runs, live_page_of_a_long_run]

if __name__ == "__main__":
    _poll(sys.argv[1])
