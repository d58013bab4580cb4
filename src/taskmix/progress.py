"""What a person sees while a run goes on."""

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)

from taskmix.records import UnitRecord

if TYPE_CHECKING:
    from taskmix.config import Objective, RunConfig
    from taskmix.training.folder import Scores

PATIENCE = 10.0
"""Seconds without a line after which a log says what is going on."""


class View(Protocol):
    """A way to show a run: bars on a terminal, lines elsewhere, or nothing."""

    def reading(self, task: str, split: str, rows: int) -> None:
        """A split is being read and encoded."""

    def working(self, text: str) -> None:
        """What is being done within a long step."""

    def advanced(self, record: UnitRecord) -> None:
        """A unit of the budget was spent."""

    def spent(self, part: float) -> None:
        """So large a part of the budget is spent."""

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """The run was scored."""


class Quiet:
    """Shows nothing."""

    def reading(self, task: str, split: str, rows: int) -> None:
        """Nothing."""

    def working(self, text: str) -> None:
        """Nothing."""

    def advanced(self, record: UnitRecord) -> None:
        """Nothing."""

    def spent(self, part: float) -> None:
        """Nothing."""

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """Nothing."""


class Recent:
    """Shares, loss and speed over the latest units of the budget."""

    def __init__(self, units: int = 200) -> None:
        self._records: deque[UnitRecord] = deque(maxlen=units)
        self._times: deque[float] = deque(maxlen=units)

    def add(self, record: UnitRecord) -> None:
        """Count a unit."""
        self._records.append(record)
        self._times.append(time.perf_counter())

    def line(self) -> str:
        """Return loss, speed and the tasks' shares as one line."""
        return "  ".join(part for part in (self._loss(), self._speed(), self._shares()) if part)

    def _loss(self) -> str:
        """Return the mean training loss, each task counting with its share."""
        losses = [
            sum(record.shares().get(task, 0.0) * loss for task, loss in found.items())
            for record in self._records
            if (found := record.training_losses())
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
    """Return what an evaluation came to, by what the run is for; the mean score if it says none."""
    mark = " (best)" if best else ""
    if objective is None:
        return f"dev {100 * score:.1f}{mark}"
    chosen = [scores[task] for task in objective.tasks]
    if objective.measure == "loss":
        return f"dev loss {fmean(each.loss for each in chosen):.3f}{mark}"
    return f"dev {100 * fmean(each.score for each in chosen):.1f}{mark}"


class Bars:
    """A live bar on a terminal.

    Args:
        progress: where the bar stands.
        title: what it says in front.
        config: of the run.
    """

    def __init__(self, progress: Progress, title: str, config: "RunConfig") -> None:
        self._progress = progress
        self._bar = progress.add_task(title, total=config.length, about="")
        self._length = config.length
        self._objective = config.objective
        self._recent = Recent()

    def reading(self, task: str, split: str, rows: int) -> None:
        """Show the split and the rows so far."""
        self._progress.update(self._bar, about=f"reading {task} {split}: {rows:,} rows")

    def working(self, text: str) -> None:
        """Show it behind the bar."""
        self._progress.update(self._bar, about=text)

    def advanced(self, record: UnitRecord) -> None:
        """Show the latest units behind the bar."""
        self._recent.add(record)
        if record.step % 10 == 0:
            self._progress.update(self._bar, about=self._recent.line())

    def spent(self, part: float) -> None:
        """Move the bar."""
        self._progress.update(self._bar, completed=round(part * self._length))

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """Show the score behind the bar."""
        found = evaluation_words(self._objective, scores, score, best)
        self._progress.update(self._bar, about=f"{found}  {self._recent.line()}")


class Lines:
    """A line now and then, for logs and pipes.

    Args:
        console: where the lines go.
        title: what each starts with.
        config: of the run.
    """

    def __init__(self, console: Console, title: str, config: "RunConfig") -> None:
        self._console = console
        self._title = title
        self._unit = config.family.unit.removesuffix("s")
        self._of = f"/{config.length}" if config.budget.count == "steps" else ""
        self._objective = config.objective
        self._lines = min(10, config.length)
        self._step = 0
        self._part = 0.0
        self._recent = Recent()
        self._said: tuple[str, str] | None = None
        self._last = time.monotonic()

    def reading(self, task: str, split: str, rows: int) -> None:
        """One line for each split that has to be read."""
        if self._said != (task, split):
            self._said = (task, split)
            self._say(f"reading {task} {split}")

    def working(self, text: str) -> None:
        """A line if there has been none for a while."""
        if time.monotonic() - self._last > PATIENCE:
            self._say(text)

    def advanced(self, record: UnitRecord) -> None:
        """Take note of it."""
        self._recent.add(record)
        self._step = record.step

    def spent(self, part: float) -> None:
        """Print about ten lines a run."""
        before, self._part = self._part, part
        if int(self._lines * part) > int(self._lines * before):
            self._say(f"{self._place(self._step)}  {self._recent.line()}")

    def _place(self, step: int) -> str:
        """Return how far the run is."""
        return f"{self._unit} {step}{self._of or f' ({self._part:.0%} of the budget)'}"

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """One line for each evaluation."""
        found = evaluation_words(self._objective, scores, score, best)
        self._say(f"{self._place(step)}  {found}")

    def _say(self, text: str) -> None:
        self._last = time.monotonic()
        self._console.print(f"{self._title}: {text}", highlight=False, markup=False, soft_wrap=True)


@contextmanager
def live(console: Console) -> Iterator[Progress]:
    """Bars that stand below each other while they move."""
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[about]}", markup=False),
        console=console,
    ) as progress:
        yield progress
