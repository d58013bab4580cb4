"""The folder of a run, as far as it can be read without loading torch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from taskmix.config import RunConfig, parse, read_yaml
from taskmix.errors import UserError

RUN = "run.yaml"
JOURNAL = "journal.jsonl"
SCORES = "scores.json"
CHECKPOINTS = "checkpoints"
MODEL = "model"
REPORT = "report.html"


@dataclass(frozen=True)
class Scores:
    """What a task earned on a split.

    Args:
        score: the mean of its metrics.
        metrics: each of them.
        loss: mean negative log-likelihood.
        examples: how many rows were read.
        baseline: the score of predicting without looking; None where it is not known.
    """

    score: float
    metrics: dict[str, float]
    loss: float
    examples: int
    baseline: float | None = None


@dataclass(frozen=True)
class Finished:
    """What a run came to: `scores.json`.

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


def config_of(folder: Path) -> RunConfig:
    """Return the configuration of the run in a folder."""
    if not (folder / RUN).exists():
        raise UserError(f"{folder}: expected a run folder, found no {RUN} in it")
    return parse(read_yaml(folder / RUN), str(folder / RUN))


def finished(folder: Path) -> Finished:
    """Return the scores of the finished run in a folder."""
    path = folder / SCORES
    if not path.exists():
        raise UserError(
            f"{folder}: expected a finished run, found no {SCORES}; "
            f"go on with it by `taskmix resume {folder}`"
        )
    try:
        return TypeAdapter(Finished).validate_json(path.read_bytes(), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{path}: expected the scores of a run, found {first['input']!r:.60} in "
            f"{place or 'it'}: {first['msg']}"
        ) from None


def finished_from(values: Mapping[str, Any]) -> Finished:
    """Return the scores of a run from the JSON-able values that `asdict` makes of them."""
    tasks = {name: Scores(**scores) for name, scores in values["tasks"].items()}
    return Finished(**{**values, "tasks": tasks})


def check_free(folder: Path) -> None:
    """Raise if there is a run in the folder, or anything that a run would overwrite."""
    if (folder / RUN).exists():
        raise UserError(
            f"{folder}: there is a run here already; go on with it by `taskmix resume {folder}`, "
            "or choose another folder with --out"
        )
    for name in (JOURNAL, SCORES, CHECKPOINTS, MODEL, REPORT):
        if (folder / name).exists():
            raise UserError(
                f"{folder / name}: a run would overwrite it, and no run has written it; "
                "choose another folder with --out"
            )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: nobody else runs in it; it is released however the process ends."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UserError(f"{folder}: another process is running in this folder") from None
    try:
        yield
    finally:
        lock.release()
