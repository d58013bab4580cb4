"""The terminal: results on stdout; the progress of runs and warnings on stderr."""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from taskmix.errors import UserError
from taskmix.records import UnitRecord
from taskmix.training.launch import launched
from taskmix.training.watching import Watcher

if TYPE_CHECKING:
    from rich.progress import Progress

    from taskmix.config import Objective, RunConfig
    from taskmix.tables import Column, Table
    from taskmix.training.folder import Scores

MAX_WIDTH = 10_000
BORDER = 3  # of a column, with the spaces beside its cells
MIN_TEXT = 12  # of a column with texts, which are folded
MAX_SILENCE = 10.0
"""Seconds without a line after which a log describes the current work."""
# Names are printed as they are.
out = Console(highlight=False, markup=False, emoji=False)
err = Console(highlight=False, markup=False, emoji=False, stderr=True)


def print_tables(tables: Sequence["Table"]) -> None:
    """Print tables, each with its notes below it; a narrow terminal gets them tight or in parts."""
    unlimited = out.options.update(max_width=MAX_WIDTH)
    for table in tables:
        rendered = _rich_table(table)
        full = out.measure(rendered, options=unlimited).maximum
        if out.is_terminal and full > out.width:
            _print_narrow(table)
        else:  # a pipe has no edge to fit a table to
            rendered.width = full
            out.print(rendered, crop=False)
        for note in table.notes:
            print_sentence(note)


def _print_narrow(table: "Table") -> None:
    widths = _least_widths(table)
    tight = 1 + sum(width + BORDER for width in widths) > out.width
    for part in _parts(widths, out.width) if tight else [range(len(widths))]:
        out.print(_rich_table(table.with_columns(part), narrow=True, tight=tight), crop=False)


def print_sentence(text: str) -> None:
    """Print a text that a terminal breaks between words; elsewhere it is one line."""
    out.print(text, soft_wrap=not out.is_terminal)


def _parts(widths: Sequence[int], width: int) -> list[list[int]]:
    """Return parts with as many columns as fit, each with the first one, which names the rows."""
    parts = [[0]]
    for j in range(1, len(widths)):
        if len(parts[-1]) > 1 and 1 + sum(widths[k] + 1 for k in [*parts[-1], j]) > width:
            parts.append([0])
        parts[-1].append(j)
    return parts


def _least_widths(table: "Table") -> list[int]:
    cells = list(zip(*table.texts(), strict=True)) or [()] * len(table.columns)
    return [_least_width(*column) for column in zip(table.columns, cells, strict=True)]


def _least_width(column: "Column", cells: Sequence[str]) -> int:
    longest = max(map(len, cells), default=0)
    if column.left:
        longest = min(longest, MIN_TEXT)
    return max([longest, *map(len, column.heading.split())])


def _rich_table(table: "Table", *, narrow: bool = False, tight: bool = False) -> RichTable:
    """Return a table; a narrow one breaks headings between words, a tight one has no padding."""
    rendered = RichTable(title=table.title or None, title_justify="left", title_style="bold")
    if tight:
        rendered.padding = 0
    least = _least_widths(table)
    for j, column in enumerate(table.columns):
        left = j == 0 or column.left
        rendered.add_column(
            column.heading,
            justify="left" if left else "right",
            no_wrap=j == 0 and not column.left,  # names are whole, sentences are not
            overflow="fold",  # nothing is lost on a narrow terminal
            min_width=None if left else least[j],  # numbers and words are whole
            max_width=least[j] if narrow and not left else None,
        )
    for i, row in enumerate(table.texts()):
        if table.totals and i == len(table.rows) - table.totals:
            rendered.add_section()
        texts = (Text(text, "bold" if (i, j) in table.best else "") for j, text in enumerate(row))
        rendered.add_row(*texts)
    return rendered


def print_report(write: Callable[[], Path]) -> None:
    """Write a report and print its path, or why there is none."""
    try:
        out.print(f"Report: {write()}", soft_wrap=True)
    except UserError as error:  # the figures are an extra; the runs are finished without them
        out.print(f"No report: {error}", soft_wrap=True)


def busy(activity: str) -> AbstractContextManager[object]:
    """Show a spinner on a terminal."""
    return err.status(activity) if err.is_terminal else nullcontext()


class View(Protocol):
    """A function that makes the watcher of a run."""

    def __call__(self, config: "RunConfig", title: str = "") -> Watcher: ...


def _quiet_view(config: "RunConfig", title: str = "") -> Watcher:
    return Watcher()


def _lines_view(config: "RunConfig", title: str = "") -> Watcher:
    return Lines(err, title or config.name, config)


@contextmanager
def showing(quiet: bool, workers: int = 1, runs: int = 1) -> Iterator[View]:
    """Show runs: as bars on a terminal, as lines elsewhere; of several ranks, the first one.

    Args:
        quiet: show neither progress nor warnings.
        workers: processes that show their runs.
        runs: of the study, where their number is known.
    """
    shown, study = not quiet and not launched().rank, Study(runs)
    with _warnings(err if shown else None):
        if not shown:
            yield _quiet_view
        elif workers > 1:  # the bars of several processes would collide
            yield _lines_view
        elif not err.is_terminal:
            yield lambda config, title="": Lines(err, title or config.name, config, study)
        else:
            with live(err) as progress:
                yield lambda config, title="": Bars(progress, title or config.name, config, study)


@contextmanager
def _warnings(console: Console | None) -> Iterator[None]:
    """Print each warning of taskmix once, however many runs repeat it; none without a console."""
    handler, logger = _Once(console), logging.getLogger("taskmix")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Once(logging.Handler):
    def __init__(self, console: Console | None) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._printed: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._console is not None and text not in self._printed:
            self._printed.add(text)
            self._console.print(f"taskmix: {text}", soft_wrap=True)


class Study:
    """The runs of a study: which one of how many this is, and the time left for all."""

    def __init__(self, runs: int = 1) -> None:
        self._runs = runs
        self._begun = 0
        self._part = 0.0  # of the current run
        self._worked = 0.0  # runs' worth of steps that were timed
        self._seconds = 0.0  # that these took, without the starts of runs
        self._last: float | None = None  # the time of the current run's latest step

    def begin(self, title: str) -> str:
        """Begin a run; return its title with its number."""
        self._begun += 1
        self._part, self._last = 0.0, None
        return f"run {self._begun} of {self._runs}: {title}" if self._runs > 1 else title

    def spent(self, part: float) -> None:
        """Note the part of the current run's budget that is spent."""
        now = time.perf_counter()
        if self._last is not None:
            self._worked += max(0.0, part - self._part)
            self._seconds += now - self._last
        self._part, self._last = part, now

    def left(self) -> str:
        """Return the time left for all runs; nothing where that is one run, or not known yet."""
        if self._runs < 2 or not self._worked:
            return ""
        runs = max(0.0, self._runs - self._begun + 1 - self._part)
        seconds = round(self._seconds / self._worked * runs)
        return f"all {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


class Recent:
    """Shares, loss and speed over the latest units of the budget."""

    def __init__(self, units: int = 200) -> None:
        self._records: deque[UnitRecord] = deque(maxlen=units)
        self._times: deque[float] = deque(maxlen=units)

    def add(self, record: UnitRecord) -> None:
        self._records.append(record)
        self._times.append(time.perf_counter())

    def line(self) -> str:
        return "  ".join(part for part in (self._loss(), self._speed(), self._shares()) if part)

    def _loss(self) -> str:
        """Return the mean training loss, weighted by the shares of the tasks."""
        losses = [
            sum(record.shares().get(task, 0.0) * loss for task, loss in by_task.items())
            for record in self._records
            if (by_task := record.training_losses())
        ]
        return f"loss {sum(losses) / len(losses):.3f}" if losses else ""

    def _speed(self) -> str:
        passed = self._times[-1] - self._times[0] if self._times else 0.0
        tokens = sum(getattr(record, "tokens", None) or 0 for record in list(self._records)[1:])
        return f"{tokens / passed:,.0f} tokens/s" if passed > 0 and tokens else ""

    def _shares(self) -> str:
        total: Counter[str] = Counter()
        for record in self._records:
            for task, share in record.shares().items():
                total[task] += share / len(self._records)  # type: ignore[assignment]
        most = {task for task, _ in total.most_common(8)}
        shares = [f"{task} {share:.0%}" for task, share in sorted(total.items()) if task in most]
        return ", ".join(shares) + (", ..." if len(total) > len(most) else "")


def evaluation_words(
    objective: "Objective | None", scores: Mapping[str, "Scores"], score: float, best: bool
) -> str:
    """Return the run's objective at an evaluation; the mean score if it has none."""
    mark = " (best)" if best else ""
    if objective is None:
        return f"dev {100 * score:.1f}{mark}"
    target_scores = [scores[task] for task in objective.tasks]
    if objective.measure == "loss":
        return f"dev loss {fmean(s.loss for s in target_scores):.3f}{mark}"
    return f"dev {100 * fmean(s.score for s in target_scores):.1f}{mark}"


class Bars(Watcher):
    """A live progress bar on a terminal; evaluations are lines above it."""

    def __init__(
        self, progress: "Progress", title: str, config: "RunConfig", study: Study | None = None
    ) -> None:
        for finished in progress.task_ids:
            progress.remove_task(finished)
        self._study = study or Study()
        self._progress, self._title = progress, title
        self._bar = progress.add_task(
            self._study.begin(title), total=config.length, about="", left=""
        )
        self._length = config.length
        self._unit = config.family.unit.removesuffix("s")
        self._objective = config.objective
        self._recent = Recent()

    def reading(self, task: str, split: str, rows: int) -> None:
        self.working(f"reading {task} {split}: {rows:,} rows")

    def working(self, text: str) -> None:
        self._progress.update(self._bar, about=text)

    def advanced(self, record: UnitRecord) -> None:
        self._recent.add(record)
        if record.step % 10 == 0:
            self.working(self._recent.line())

    def spent(self, part: float) -> None:
        self._study.spent(part)
        completed = round(part * self._length)
        self._progress.update(self._bar, completed=completed, left=self._study.left())

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        words = evaluation_words(self._objective, scores, score, best)
        line = f"{self._title}: {self._unit} {step}  {words}"
        self._progress.console.print(line, highlight=False, markup=False)


class Lines(Watcher):
    """About ten lines a run, for logs and pipes."""

    def __init__(
        self, console: Console, title: str, config: "RunConfig", study: Study | None = None
    ) -> None:
        self._study = study or Study()
        self._console = console
        self._title = self._study.begin(title)
        self._unit = config.family.unit.removesuffix("s")
        self._of = f"/{config.length}" if config.budget.count == "steps" else ""
        self._objective = config.objective
        self._lines = min(10, config.length)
        self._step = 0
        self._part = 0.0
        self._recent = Recent()
        self._split: tuple[str, str] | None = None
        self._last = time.monotonic()

    def reading(self, task: str, split: str, rows: int) -> None:
        if self._split != (task, split):
            self._split = (task, split)
            self._print(f"reading {task} {split}")

    def working(self, text: str) -> None:
        if time.monotonic() - self._last > MAX_SILENCE:
            self._print(text)

    def advanced(self, record: UnitRecord) -> None:
        self._recent.add(record)
        self._step = record.step

    def spent(self, part: float) -> None:
        before, self._part = self._part, part
        self._study.spent(part)
        if int(self._lines * part) > int(self._lines * before):
            left = f"  {left} left" if (left := self._study.left()) else ""
            self._print(f"{self._place(self._step)}  {self._recent.line()}{left}")

    def _place(self, step: int) -> str:
        return f"{self._unit} {step}{self._of or f' ({self._part:.0%} of the budget)'}"

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        words = evaluation_words(self._objective, scores, score, best)
        self._print(f"{self._place(step)}  {words}")

    def _print(self, text: str) -> None:
        self._last = time.monotonic()
        self._console.print(f"{self._title}: {text}", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def live(console: Console) -> Iterator["Progress"]:
    """Show a progress bar; on a narrow terminal its bar, step and time left stay."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column

    # The texts are cut, and the columns of numbers are not.
    fixed = Column(no_wrap=True)
    bar = 12 if console.width >= 70 else 5
    title = Column(no_wrap=True, overflow="ellipsis", max_width=max(14, console.width - 40 - bar))
    about = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    with Progress(
        SpinnerColumn(table_column=fixed),
        TextColumn("{task.description}", markup=False, table_column=title),
        BarColumn(bar_width=bar, table_column=fixed),
        MofNCompleteColumn(table_column=fixed),
        TimeRemainingColumn(table_column=fixed),
        TextColumn("{task.fields[left]}", markup=False, table_column=fixed),
        TextColumn("{task.fields[about]}", markup=False, table_column=about),
        console=console,
        expand=True,
        transient=True,  # the results below say what was done
    ) as progress:
        yield progress
