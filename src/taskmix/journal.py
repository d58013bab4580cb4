"""The append-only record of a run: every draw with its propensity, every outcome, every evaluation.

One JSON object a line, each with a `kind`. A line is handed to the operating system as soon as it
is appended, so it survives a killed process; a torn last line is cut off and reported, never fatal.
The distribution of the draws is written when it changes, not at every step.
"""

import json
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from taskmix.errors import RunInterruptedError, UserError
from taskmix.families import FAMILIES
from taskmix.policies.base import Outcome
from taskmix.policies.record import Step
from taskmix.records import Record, UnitRecord
from taskmix.selection.record import SelectionStep
from taskmix.weighting.record import Round

__all__ = [
    "Diagnostics",
    "Evaluation",
    "Extended",
    "Journal",
    "Opening",
    "Round",
    "SelectionStep",
    "Shares",
    "Step",
    "UnwrittenJournal",
    "line_of",
    "read",
    "read_latest",
    "repair",
    "without_times",
]

FORMAT = 2
MOST_FULL = 64
MOST_STEPS = 1 << 50
"""No run has more steps; arrays of them would not be exact either."""
log = logging.getLogger(__name__)
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Opening(Record):
    """The first line: what the rest is about.

    Args:
        name: of the run.
        tasks: their names, in the order of every array.
        sizes: by task, its training examples.
        seed: of the run.
        decider: as a run file says it.
        budget: of the run.
        family: the key of the decider's family.
        format: of the journal.
        count: what the budget counts.
        objective: the tasks that the run is scored on; all if None.
        batches: by task, how many batches an epoch has where these are not counted in examples.
    """

    kind = "run"
    name: str
    tasks: list[str]
    sizes: dict[str, int]
    seed: int
    decider: dict[str, Any]
    budget: dict[str, int]
    family: str = "policy"
    format: int = FORMAT
    count: Literal["steps", "examples", "compute"] = "steps"
    objective: list[str] | None = None
    batches: dict[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Shares(Record):
    """The distribution of the draws from `step` on, in the order of the opening's tasks."""

    kind = "shares"
    step: int
    shares: list[float]


@dataclass(frozen=True, slots=True)
class Diagnostics(Record):
    """What the decider believes at `step`: weights, posteriors, uncertainties."""

    kind = "diagnostics"
    step: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """Scores and mean losses of each task on a split after `step` units of the budget.

    Args:
        step: how many units were done.
        split: which split.
        score: the mean over the tasks.
        scores: by task.
        losses: by task.
        metrics: by task, each metric by name.
        objective: the value by which models are compared; higher is better.
        forward: examples that have passed forward through the model so far.
        backward: examples that have passed backward so far.
        seconds: how long the evaluation took.
    """

    kind = "evaluation"
    step: int
    split: str
    score: float
    scores: dict[str, float]
    losses: dict[str, float]
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    objective: float | None = None
    forward: int = 0
    backward: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Extended(Record):
    """The run was given a larger budget after `step` units of the one it had."""

    kind = "extended"
    step: int
    budget: dict[str, int]


_UNITS = tuple(family.record for family in FAMILIES.values())
_RECORDS: tuple[type[Record], ...] = (Opening, Shares, Diagnostics, Evaluation, Extended, *_UNITS)
_KINDS: dict[str, type[Record]] = {cls.kind: cls for cls in _RECORDS}
_NAMES: dict[type[Record], tuple[str, ...]] = {
    cls: tuple(f.name for f in fields(cls)) for cls in _KINDS.values()
}


def line_of(record: Record) -> bytes:
    """Return a record as a line of a journal."""
    values = {"kind": record.kind}
    for name in _NAMES[type(record)]:
        value = getattr(record, name)
        if value is not None:
            values[name] = value
    try:
        return _encode(values).encode() + b"\n"
    except ValueError:
        at = f" {values['step']}" if "step" in values else ""
        raise RunInterruptedError(
            f"{record.kind}{at}: one of its numbers is infinite or none, so that the run cannot go "
            "on from it; look at the data, at optimizer.lr and at the decider's options"
        ) from None


class Journal:
    """Appends records to a journal file.

    Make one with `create` or `resume`. `position` is where the next line will stand: a checkpoint
    keeps it, and a resumed run goes on from there.

    >>> import tempfile, taskmix
    >>> path = Path(tempfile.mkdtemp()) / "journal.jsonl"
    >>> with Journal.create(path, Opening("demo", ["a", "b"], {}, 1, {}, {})) as journal:
    ...     draw = taskmix.Random(["a", "b"]).ask(np.random.default_rng(1))
    ...     step = journal.draw(1, Outcome(draw, loss=0.7))
    >>> [record.kind for record in read(path)]
    ['run', 'shares', 'step']
    """

    def __init__(self, path: Path, tasks: int) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._position = path.stat().st_size
        # Beyond 64 tasks a changing distribution is written so rarely that it costs about as much
        # as at eight tasks; each draw still carries its own propensity.
        self._every = 1 if tasks <= MOST_FULL else math.ceil(tasks / 8)
        self._shares: Shares | None = None
        self._seen: NDArray[np.float64] | None = None

    @classmethod
    def create(cls, path: Path, opening: Opening) -> Self:
        """Return a new journal, with its first line."""
        journal = cls(path, len(opening.tasks))
        journal.append(opening)
        return journal

    @classmethod
    def resume(cls, path: Path, position: int) -> Self:
        """Return the journal as it was when its next line was to stand at `position`."""
        size = path.stat().st_size
        if size < position:
            raise UserError(
                f"{path}: expected at least {position} bytes, as the checkpoint says, found {size}"
            )
        os.truncate(path, position)
        tasks, shares = 0, None
        for record in read(path):
            if isinstance(record, Opening):
                tasks = len(record.tasks)
            elif isinstance(record, Shares):
                shares = record
        journal = cls(path, tasks)
        journal._shares = shares
        return journal

    @property
    def position(self) -> int:
        """Bytes written so far."""
        return self._position

    def append(self, record: Record) -> None:
        """Write one record; it survives a killed process from here on."""
        self._write(line_of(record))

    def draw(
        self,
        step: int,
        outcome: Outcome,
        *,
        examples: int | None = None,
        seconds: float | None = None,
    ) -> Step:
        """Write a draw with its outcome, and before it the distribution if that has changed."""
        draw = outcome.draw
        record = Step(
            step,
            draw.task,
            draw.probability,
            outcome.loss,
            outcome.gain,
            outcome.score,
            dict(outcome.uncertainty) if outcome.uncertainty is not None else None,
            examples,
            outcome.tokens,
            seconds,
            dict(outcome.dev_losses) if outcome.dev_losses is not None else None,
            outcome.alignment,
            outcome.gradient,
            outcome.skill,
        )
        changed = draw.probabilities is not self._seen
        lines = self._changed(step, draw.probabilities) if changed else b""
        self._write(lines + line_of(record))
        return record

    def _changed(self, step: int, probabilities: NDArray[np.float64]) -> bytes:
        if self._shares is not None and step - self._shares.step < self._every:
            return b""
        before, self._seen = self._seen, probabilities
        if before is not None and np.array_equal(probabilities, before):
            return b""
        shares = [float(f"{p:.9g}") for p in probabilities.tolist()]
        if self._shares is not None and shares == self._shares.shares:
            return b""
        self._shares = Shares(step, shares)
        return line_of(self._shares)

    def _write(self, lines: bytes) -> None:
        written = self._file.write(lines)
        if written != len(lines):
            raise OSError(f"{self.path}: wrote {written} of {len(lines)} bytes")
        self._position += written

    def sync(self) -> None:
        """Wait until all of it is on the disk, so that it survives a power loss too."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, all of it on the disk."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class UnwrittenJournal(Journal):
    """A journal that is not written: that of a rank which leaves this to the first one.

    Records are checked as they are everywhere, so that all ranks stop at the same one.

    Args:
        tasks: how many there are.
    """

    def __init__(self, tasks: int) -> None:
        self.path = Path(os.devnull)
        self._position = 0
        self._every = 1 if tasks <= MOST_FULL else math.ceil(tasks / 8)
        self._shares = None
        self._seen = None

    def _write(self, lines: bytes) -> None:
        """Write nothing."""

    def sync(self) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Close nothing."""


def read(path: Path | str) -> Iterator[Record]:
    """Yield the records of a journal, in order.

    A torn last line is passed over and reported through `logging`; anything else that is no record
    is an error that names the line. Fields and kinds that a later version added are passed over.
    """
    path = Path(path)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise UserError(f"{path}: expected a journal, found no such file") from None
    except OSError as error:
        raise UserError(f"{path}: expected a journal, {error.strerror}") from None
    opening: Opening | None = None
    with file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                log.warning("%s: line %d was torn off; it is left out", path, number)
                return
            try:
                record = _parse(line)
                if isinstance(record, Opening):
                    opening = record
                elif record is not None:
                    _check(record, opening)
            except (ValueError, TypeError, KeyError) as error:
                raise UserError(
                    f"{path}, line {number}: expected a record, {_words(error)}"
                ) from None
            if record is not None:
                yield record


def read_latest(path: Path | str) -> list[Record]:
    """Return the records since the run's tasks were last changed, from that opening on."""
    latest: list[Record] = []
    for record in read(path):
        if isinstance(record, Opening):
            latest.clear()
        latest.append(record)
    return latest


def _parse(line: bytes) -> Record | None:
    values = json.loads(line, parse_constant=_refuse)
    cls = _KINDS.get(values["kind"])
    if cls is None:
        return None
    if cls is Opening and values.get("format", 0) > FORMAT:
        raise ValueError(f"found format {values['format']}, this version reads up to {FORMAT}")
    record: Record = _adapters()[cls].validate_json(line, strict=True)
    return record


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"found {constant}, which is no number")


@cache
def _adapters() -> dict[type[Record], TypeAdapter[Any]]:
    """Return what checks the records of each class."""
    return {cls: TypeAdapter(cls) for cls in _RECORDS}


def _check(record: Record, opening: Opening | None) -> None:
    """Raise unless a record is about the tasks of its run."""
    if opening is None:
        raise ValueError("found it before the line that opens a run")
    step = getattr(record, "step", 0)
    if not 0 <= step < MOST_STEPS:
        raise ValueError(f"found the step {step}")
    match record:
        case Step(task=task, p=p):
            if task not in opening.tasks:
                raise ValueError(f"found the task {task!r}, which its run has not")
            if not 0 < p <= 1:
                raise ValueError(f"found the probability {p}")
        case Shares(shares=shares) if len(shares) != len(opening.tasks):
            raise ValueError(f"found {len(shares)} shares for {len(opening.tasks)} tasks")
        case Shares(shares=shares) if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"found the shares {shares}")
        case UnitRecord() if not record.shares().keys() <= set(opening.tasks):
            raise ValueError(f"found the tasks {list(record.shares())}, not those of its run")


def _words(error: Exception) -> str:
    """Return what is wrong with a line, on one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))
    return f"found {first['input']!r:.60} in {place or 'it'}: {first['msg']}"


def repair(path: Path) -> int:
    """Cut off a torn last line, if there is one; returns how many bytes were cut."""
    size = path.stat().st_size
    with path.open("rb+") as file:
        end = size
        while end > 0:
            start = max(0, end - 65536)
            file.seek(start)
            cut = file.read(end - start).rfind(b"\n")
            if cut >= 0:
                end = start + cut + 1
                break
            end = start
        if end < size:
            file.truncate(end)
            log.warning("%s: cut off a torn last line of %d bytes", path, size - end)
    return size - end


def without_times(record: Record) -> dict[str, Any]:
    """Return a record as plain values, without the wall-clock times: for comparing runs."""
    return {k: v for k, v in asdict(record).items() if k != "seconds"} | {"kind": record.kind}
