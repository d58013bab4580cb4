"""Run folders, as far as they can be read without torch."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from taskmix.config import RunConfig, asked_for, changed_keys, parse, parse_stored, read_yaml
from taskmix.errors import UserError, explain
from taskmix.files import JOURNAL as JOURNAL
from taskmix.files import SCORES as SCORES
from taskmix.files import free_name
from taskmix.tables import Column, Row, Table, Tabled, hundredths

RUN = "run.yaml"
CHECKPOINTS = "checkpoints"
MODEL = "model"
REPORT = "report.html"
MAX_NAMED = 5  # runs in a message
_CONTINUE = "continue it with `taskmix resume {0}`, in Python with resume=True"
_AGAIN = "choose another folder with --out, or start anew with --force"


@dataclass(frozen=True)
class Scores:
    """The scores of a task on a split."""

    score: float  # the mean of the metrics
    metrics: dict[str, float]
    loss: float
    examples: int
    baseline: float | None = None  # the score of the majority class, or of the mean, if known


@dataclass(frozen=True, repr=False)
class Finished(Tabled):
    """The result of a run: `scores.json`.

    Args:
        step: the step whose model was kept.
        score: the mean over the tasks' scores.
        tasks: by task, its score, metrics and loss on the dev split.
        forward: examples that passed forward through the model.
        backward: examples that passed backward.
        objective: the value of the run's objective there; higher is better.
    """

    step: int
    score: float
    tasks: dict[str, Scores]
    forward: int
    backward: int
    objective: float | None = None

    def tables(self) -> list[Table]:
        """Return the scores of the tasks on their dev splits."""
        columns = [Column("task"), Column("loss", ".3f"), Column("score", hundredths)]
        columns.append(Column("baseline", hundredths))
        rows: list[Row] = [
            [name, task.loss, task.score, task.baseline] for name, task in self.tasks.items()
        ]
        rows.append(["mean", None, self.score, None])
        note = f"The model of step or round {self.step} was kept."
        return [Table(columns, rows, totals=1, notes=(note,))]


def config_of(folder: Path) -> RunConfig:
    """Return the configuration of a run that is only read."""
    return parse_stored(_values_of(folder), str(folder / RUN))


def config_to_resume(folder: Path) -> RunConfig:
    return parse(_values_of(folder), str(folder / RUN))


def _values_of(folder: Path) -> dict[str, Any]:
    if not (folder / RUN).exists():
        raise UserError(
            f"{folder}: expected a run folder, found no {RUN} in it{_runs_below(folder)}"
        )
    return read_yaml(folder / RUN)


def finished(folder: Path) -> Finished:
    path = folder / SCORES
    if not path.exists():
        if not (folder / RUN).exists():
            raise UserError(
                f"{folder}: expected the folder of a finished run, found no {RUN}"
                f"{_runs_below(folder)}"
            )
        raise UserError(
            f"{folder}: expected a finished run, found no {SCORES}; {_CONTINUE.format(folder)}"
        )
    try:
        return TypeAdapter(Finished).validate_json(path.read_bytes(), strict=True)
    except ValidationError as error:
        raise UserError(f"{path}: expected the scores of a run, found {explain(error)}") from None


def _runs_below(folder: Path) -> str:
    """Return words about the runs in a folder that is none itself."""
    names = sorted(str(path.parent) for path in folder.glob(f"*/{RUN}"))
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"; runs in it: {', '.join(names[:MAX_NAMED])}{more}" if names else ""


def put_aside(folder: Path) -> Path | None:
    """Rename a run folder so that another run can take its place; return its new path."""
    if not (folder / RUN).exists():
        return None
    with locked(folder):
        return folder.rename(free_name(folder))


def check_no_run(folder: Path, config: RunConfig) -> None:
    """Raise if the folder holds a run, or a file that a run would overwrite."""
    if (folder / RUN).exists():
        check_same(folder, config)
        if (folder / SCORES).exists():
            raise UserError(
                f"{folder}: this run is finished already, see `taskmix report {folder}`; train it "
                f"for more steps with `taskmix resume {folder} --steps N`, or {_AGAIN}"
            )
        raise UserError(
            f"{folder}: this run has begun already; {_CONTINUE.format(folder)}, or {_AGAIN}"
        )
    for name in (JOURNAL, SCORES, CHECKPOINTS, MODEL, REPORT):
        if (folder / name).exists():
            raise UserError(
                f"{folder / name}: a run would overwrite it, and no run has written it; "
                "choose another folder with --out"
            )


def check_same(folder: Path, config: RunConfig) -> None:
    """Raise if the folder's run has another configuration than this one."""
    before, now = (asked_for(c).model_dump(mode="json") for c in (config_of(folder), config))
    changes = list(changed_keys(before, now))
    if not changes:
        return
    longer, steps = "", config.length
    if len(changes) == 1 and before["budget"][config.unit] < now["budget"][config.unit]:
        longer = (
            f"continue it with `taskmix resume {folder} --steps {steps}`, in Python with "
            f"taskmix.resume(folder, steps={steps}), or "
        )
    raise UserError(
        f"{folder}: there is a run of another configuration here: {', '.join(changes)}; "
        f"{longer}{_AGAIN}"
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which the system releases however the process ends."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"{folder}: another process is running in this folder") from None
    try:
        yield
    finally:
        lock.release()
