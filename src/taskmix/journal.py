"""The journal of a run: an append-only file of JSON lines, each with the `kind` of its record."""

import json
import logging
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from taskmix.errors import RunInterruptedError, UserError, explain
from taskmix.families import FAMILIES
from taskmix.files import JOURNAL, parse_json
from taskmix.policies.base import Policy
from taskmix.policies.base import Step as Step
from taskmix.policies.signals import Outcome
from taskmix.records import Record, UnitRecord
from taskmix.selection.base import SelectionStep as SelectionStep
from taskmix.weighting.base import Round as Round

FORMAT = 2
MAX_FULL_TASKS = 64
"""Tasks up to which every change of the distribution is written."""
MAX_STEPS = 1 << 50
"""No run has more steps; arrays of them would not be exact either."""
MAX_SECONDS = 1e10
"""No record took longer: 300 years."""
R = TypeVar("R", bound=Record)
P = TypeVar("P", bound=Policy)
log = logging.getLogger(__name__)
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class Opening(Record):
    """The first line: a description of the run."""

    kind = "run"
    name: str
    tasks: list[str]  # in the order of every array
    sizes: dict[str, int]  # by task, its training examples
    seed: int
    decider: dict[str, Any]  # as in a run file
    budget: dict[str, int]
    family: str = "policy"  # of the decider
    format: int = FORMAT
    count: Literal["steps", "examples", "compute"] = "steps"  # the unit of the budget
    objective: list[str] | None = None  # the target tasks; all if None
    batches: dict[str, float] | None = None  # in an epoch, where examples do not tell
    measure: Literal["score", "loss"] = "score"  # of the objective
    warmup: float | None = None  # share of the steps; None for a constant learning rate
    dev: dict[str, int] | None = None  # by task, the dev examples of an evaluation


@dataclass(frozen=True, slots=True)
class Shares(Record):
    """The distribution of the draws from `step` on, in the order of the opening's tasks."""

    kind = "shares"
    step: int
    shares: list[float]


@dataclass(frozen=True, slots=True)
class Diagnostics(Record):
    """The internal values of the decider at `step`: weights, posteriors, uncertainties."""

    kind = "diagnostics"
    step: int
    values: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evaluation(Record):
    """Scores and mean losses of each task on a split after `step` units of the budget."""

    kind = "evaluation"
    step: int
    split: str
    score: float  # the mean over the tasks
    scores: dict[str, float]
    losses: dict[str, float]
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    objective: float | None = None  # the value by which models are compared; higher is better
    forward: int = 0  # examples passed through the model so far
    backward: int = 0
    seconds: float | None = None  # duration of the evaluation


@dataclass(frozen=True, slots=True)
class Extended(Record):
    """A larger budget, set after `step` units of the one before."""

    kind = "extended"
    step: int
    budget: dict[str, int]


_RECORDS: tuple[type[Record], ...] = (
    *(Opening, Shares, Diagnostics, Evaluation, Extended),
    *(family.record for family in FAMILIES.values()),
)
_KINDS = {cls.kind: cls for cls in _RECORDS}
_NAMES = {cls: tuple(f.name for f in fields(cls)) for cls in _RECORDS}


def line_of(record: Record) -> bytes:
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
            f"{record.kind}{at}: expected finite numbers, found one that is infinite or NaN; look "
            "at the data, at optimizer.lr and at the decider's options"
        ) from None


class Journal:
    """Appends records to a journal file; made with `create` or `resume`.

    Every line is written at once, so it survives a killed process. The distribution of the draws
    is written when it changes. `position` is the length of the file in bytes: a checkpoint saves
    it, and a resumed run continues there.

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
        self.position = path.stat().st_size
        # With more tasks a changing distribution is written so rarely that it costs about as much
        # as with eight tasks; each draw still carries its own propensity.
        self._every = 1 if tasks <= MAX_FULL_TASKS else math.ceil(tasks / 8)
        self._shares: Shares | None = None
        self._probabilities: NDArray[np.float64] | None = None

    @classmethod
    def create(cls, path: Path, opening: Opening) -> Self:
        """Start a new journal with its first line."""
        journal = cls(path, len(opening.tasks))
        journal.append(opening)
        return journal

    @classmethod
    def resume(cls, path: Path, position: int) -> Self:
        """Open a journal and cut off all that was written after `position`."""
        size = path.stat().st_size
        if size < position:
            raise UserError(
                f"{path}: expected at least {position} bytes, as the checkpoint says, found {size}"
            )
        with path.open("rb") as file:
            file.seek(max(0, position - 1))
            if file.read(1) != b"\n":
                raise UserError(
                    f"{path}: expected the end of a line at byte {position}, as the checkpoint "
                    "says, found the middle of one; is it the journal of another training?"
                )
        os.truncate(path, position)
        tasks, shares = 0, None
        for record in read(path):
            if isinstance(record, Opening):
                tasks, shares = len(record.tasks), None
            elif isinstance(record, Shares):
                shares = record
        journal = cls(path, tasks)
        journal._shares = shares
        return journal

    def append(self, record: Record) -> None:
        """Write one record."""
        self._write(line_of(record))

    def draw(self, step: int, outcome: Outcome, seconds: float | None = None) -> Step:
        """Write a draw with its outcome, and before it the distribution if that has changed."""
        record = Step.of(step, outcome, seconds)
        self._write(self._changed_shares(step, outcome.draw.probabilities) + line_of(record))
        return record

    def _changed_shares(self, step: int, probabilities: NDArray[np.float64]) -> bytes:
        if probabilities is self._probabilities:
            return b""
        wait = self._every - 1  # outcomes may arrive out of order, so steps need not ascend
        if wait and self._shares is not None and step - self._shares.step <= wait:
            return b""
        self._probabilities = probabilities
        shares = [float(f"{p:.9g}") for p in probabilities.tolist()]
        if self._shares is not None and shares == self._shares.shares:
            return b""
        self._shares = Shares(step, shares)
        return line_of(self._shares)

    def _write(self, lines: bytes) -> None:
        written = self._file.write(lines)
        if written != len(lines):
            raise OSError(f"{self.path}: wrote {written} of {len(lines)} bytes")
        self.position += written

    def sync(self) -> None:
        """Wait until all lines are on the disk, so that they survive a power loss."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Sync and close the file."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class UnwrittenJournal(Journal):
    """The journal of all ranks but the first: checks records, so that all stop at the same one."""

    def __init__(self, tasks: int) -> None:
        super().__init__(Path(os.devnull), tasks)

    def _write(self, lines: bytes) -> None:
        pass

    def sync(self) -> None:
        pass


def read(path: Path | str) -> Iterator[Record]:
    """Yield the records of a journal in order, without a torn last line.

    Fields and kinds of records that a later version added are ignored.
    """
    tail = Tail(path)
    yield from tail.records()
    if tail.torn:
        log.warning("%s: line %d was torn off; it is left out", path, tail.lines + 1)


class Tail:
    """Reads a journal that may still grow: each call yields the records since the last one.

    A line without its end is left for the next call. If what was read is no longer there, because
    the run was resumed from a checkpoint or started anew, reading starts again from the first line.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.position = 0  # in bytes
        self.lines = 0
        self.torn = False
        self._opening: Opening | None = None
        self._inode: int | None = None

    def records(self) -> Iterator[Record]:
        """Yield the records that were written since the last call."""
        with self._open() as file:
            if not self._is_continued(file):
                self.position, self.lines = 0, 0
            file.seek(self.position)
            self.torn = False
            for line in file:
                if not line.endswith(b"\n"):
                    self.torn = True
                    return
                record = self._record(line)
                self.position += len(line)
                self.lines += 1
                if record is not None:
                    yield record

    def _is_continued(self, file: BinaryIO) -> bool:
        """Return whether this is the same file, with the end of a line where reading stopped."""
        status = os.fstat(file.fileno())
        before, self._inode = self._inode, status.st_ino
        if self.position == 0:
            return True
        file.seek(self.position - 1)
        same = before in (None, status.st_ino) and self.position <= status.st_size
        return same and file.read(1) == b"\n"

    def skip_to(self, size: int) -> Opening | None:
        """Read the opening, and go on with the lines of about the last `size` bytes."""
        with self._open() as file:
            line = file.readline()
            if line.endswith(b"\n"):
                self._record(line)
                start = max(len(line), os.fstat(file.fileno()).st_size - size)
                file.seek(start - 1)
                self.position = start - 1 + len(file.readline())
        return self._opening

    def _open(self) -> BinaryIO:
        try:
            return self.path.open("rb")
        except FileNotFoundError:
            raise UserError(f"{self.path}: expected a journal, found no such file") from None
        except OSError as error:
            raise UserError(f"{self.path}: expected a journal, {error.strerror}") from None

    def _record(self, line: bytes) -> Record | None:
        try:
            record = _parse(line)
            if isinstance(record, Opening):
                _check_opening(record)
                self._opening = record
            elif record is not None:
                _check(record, self._opening)
        except (ValueError, TypeError) as error:
            found = explain(error) if isinstance(error, ValidationError) else error
            raise UserError(
                f"{self.path}, line {self.lines + 1}: expected a record, found {found}"
            ) from None
        return record


def read_latest(path: Path | str) -> list[Record]:
    """Return the records from the last opening on: those since the tasks were last changed."""
    latest: list[Record] = []
    for record in read(path):
        if isinstance(record, Opening):
            latest.clear()
        latest.append(record)
    return latest


def read_only(path: Path | str, cls: type[R]) -> list[R]:
    """Return the records of one class, from the last opening on."""
    return [record for record in read_latest(path) if isinstance(record, cls)]


def journal_of(path: Path | str) -> Path:
    """Return the path of a journal, which may be given as that of its run folder."""
    path = Path(path)
    return path / JOURNAL if path.is_dir() else path


def replayed(policy: P, path: Path | str) -> P:
    """Replay the draws and outcomes of a run on a policy, and return it."""
    for step in read_only(path, Step):
        policy.tell(step.outcome(policy.replay(policy.tasks.index(step.task))))
    return policy


def _parse(line: bytes) -> Record | None:
    values = parse_json(line)
    if not isinstance(values, dict) or "kind" not in values:
        raise ValueError("one without a kind")
    cls = _KINDS.get(values["kind"])
    if cls is None:
        return None
    if cls is Opening and values.get("format", 0) > FORMAT:
        raise ValueError(f"format {values['format']}, this version reads up to {FORMAT}")
    record: Record = _adapters()[cls].validate_json(line, strict=True)
    return record


@cache
def _adapters() -> dict[type[Record], TypeAdapter[Any]]:
    return {cls: TypeAdapter(cls) for cls in _RECORDS}


def _check_opening(opening: Opening) -> None:
    tasks = opening.tasks
    if not tasks or len(set(tasks)) < len(tasks):
        raise ValueError(f"the tasks {tasks} instead of different names, at least one")
    if not {*opening.sizes, *(opening.objective or ())} <= set(tasks):
        raise ValueError(f"sizes or an objective of other tasks than {tasks}")
    for numbers in (opening.sizes, opening.budget, opening.batches or {}):
        for name, number in numbers.items():
            if number < 0:
                raise ValueError(f"{number} for {name}, a number below 0")


def _check(record: Record, opening: Opening | None) -> None:
    if opening is None:
        raise ValueError("it before the line that opens a run")
    step = getattr(record, "step", 0)
    if not 0 <= step < MAX_STEPS:
        raise ValueError(f"the step {step}")
    seconds = getattr(record, "seconds", None)
    if seconds is not None and not 0 <= seconds < MAX_SECONDS:
        raise ValueError(f"a duration of {seconds} seconds")
    match record:
        case Step(task=task, p=p):
            if task not in opening.tasks:
                raise ValueError(f"the task {task!r}, which is none of its run")
            if not 0 < p <= 1:
                raise ValueError(f"the probability {p}")
            if min(record.examples or 0, record.tokens or 0) < 0:
                raise ValueError("a number of examples or tokens below 0")
        case Shares(shares=shares) if len(shares) != len(opening.tasks):
            raise ValueError(f"{len(shares)} shares for {len(opening.tasks)} tasks")
        case Shares(shares=shares) if not all(0 <= share <= 1 for share in shares):
            raise ValueError(f"the shares {shares}")
        case Shares(shares=shares) if abs(sum(shares) - 1) > 1e-6:
            raise ValueError(f"shares with the sum {sum(shares):.6g} instead of 1")
        case UnitRecord() if not record.shares().keys() <= set(opening.tasks):
            raise ValueError(f"the tasks {list(record.shares())}, not those of its run")


def repair(path: Path) -> int:
    """Cut off a torn last line, if there is one, and return how many bytes were cut."""
    size, end = path.stat().st_size, 0
    if size:
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            end = content.rfind(b"\n") + 1
    if end < size:
        os.truncate(path, end)
        log.warning("%s: cut off a torn last line of %d bytes", path, size - end)
    return size - end


def without_times(record: Record) -> dict[str, Any]:
    """Return a record as plain values without durations, to compare runs."""
    return {k: v for k, v in asdict(record).items() if k != "seconds"} | {"kind": record.kind}
