"""What a person sees while a run goes on."""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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

if TYPE_CHECKING:
    from bursar.training.folder import Scores

PATIENCE = 10.0
"""Seconds without a line after which a log says what is going on."""


class View(Protocol):
    """A way to show a run: bars on a terminal, lines elsewhere, or nothing."""

    def reading(self, task: str, split: str, rows: int) -> None:
        """A split is being read and encoded."""

    def working(self, text: str) -> None:
        """What is being done within a long step."""

    def stepped(self, step: int, task: str, loss: float, tokens: int) -> None:
        """A step was done."""

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

    def stepped(self, step: int, task: str, loss: float, tokens: int) -> None:
        """Nothing."""

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """Nothing."""


class Recent:
    """Shares, loss and speed over the latest steps."""

    def __init__(self, steps: int = 200) -> None:
        self._tasks: deque[str] = deque(maxlen=steps)
        self._losses: deque[float] = deque(maxlen=steps)
        self._tokens: deque[tuple[float, int]] = deque(maxlen=steps)

    def add(self, task: str, loss: float, tokens: int) -> None:
        """Count a step."""
        self._tasks.append(task)
        self._losses.append(loss)
        self._tokens.append((time.perf_counter(), tokens))

    def line(self) -> str:
        """Loss, speed and the tasks' shares as one line."""
        loss = sum(self._losses) / len(self._losses)
        return "  ".join(
            part for part in (f"loss {loss:.3f}", self._speed(), self._shares()) if part
        )

    def _speed(self) -> str:
        passed = self._tokens[-1][0] - self._tokens[0][0]
        tokens = sum(count for _, count in list(self._tokens)[1:])
        return f"{tokens / passed:,.0f} tokens/s" if passed > 0 and tokens else ""

    def _shares(self) -> str:
        counts = {task: self._tasks.count(task) for task in sorted(set(self._tasks))}
        most = sorted(counts, key=lambda task: -counts[task])[:8]
        shares = [
            f"{task} {counts[task] / len(self._tasks):.0%}" for task in counts if task in most
        ]
        return ", ".join(shares) + (", ..." if len(counts) > len(most) else "")


class Bars:
    """A live bar on a terminal.

    Args:
        progress: where the bar stands.
        title: what it says in front.
        steps: the budget.
    """

    def __init__(self, progress: Progress, title: str, steps: int) -> None:
        self._progress = progress
        self._bar = progress.add_task(title, total=steps, about="")
        self._recent = Recent()

    def reading(self, task: str, split: str, rows: int) -> None:
        """Show the split and the rows so far."""
        self._progress.update(self._bar, about=f"reading {task} {split}: {rows:,} rows")

    def working(self, text: str) -> None:
        """Show it behind the bar."""
        self._progress.update(self._bar, about=text)

    def stepped(self, step: int, task: str, loss: float, tokens: int) -> None:
        """Move the bar."""
        self._recent.add(task, loss, tokens)
        self._progress.update(self._bar, completed=step)
        if step % 10 == 0:
            self._progress.update(self._bar, about=self._recent.line())

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """Show the score behind the bar."""
        mark = " (best)" if best else ""
        self._progress.update(
            self._bar, about=f"dev {100 * score:.1f}{mark}  {self._recent.line()}"
        )


class Lines:
    """A line now and then, for logs and pipes.

    Args:
        console: where the lines go.
        title: what each starts with.
        steps: the budget.
    """

    def __init__(self, console: Console, title: str, steps: int) -> None:
        self._console = console
        self._title = title
        self._steps = steps
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

    def stepped(self, step: int, task: str, loss: float, tokens: int) -> None:
        """About ten lines a run."""
        self._recent.add(task, loss, tokens)
        if step % max(1, self._steps // 10) == 0:
            self._say(f"step {step}/{self._steps}  {self._recent.line()}")

    def evaluated(
        self, step: int, scores: Mapping[str, "Scores"], score: float, best: bool
    ) -> None:
        """One line for each evaluation."""
        mark = " (best)" if best else ""
        self._say(f"step {step}/{self._steps}  dev {100 * score:.1f}{mark}")

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
