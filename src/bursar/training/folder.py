"""The folder of a run, as far as it can be read without loading torch."""

import json
from dataclasses import dataclass
from pathlib import Path

from bursar.config import RunConfig, parse, read_yaml
from bursar.errors import UserError

RUN = "run.yaml"
JOURNAL = "journal.jsonl"
SCORES = "scores.json"
CHECKPOINTS = "checkpoints"
MODEL = "model"


@dataclass(frozen=True)
class Scores:
    """What a task earned on a split.

    Args:
        score: the mean of its metrics.
        metrics: each of them.
        loss: mean negative log-likelihood.
        examples: how many items were read.
        baseline: the score of predicting without looking; None where it was not asked for.
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
    """

    step: int
    score: float
    tasks: dict[str, Scores]
    forward: int
    backward: int


def config_of(folder: Path) -> RunConfig:
    """The configuration of the run in a folder."""
    if not (folder / RUN).exists():
        raise UserError(f"{folder}: expected a run folder, found no {RUN} in it")
    return parse(read_yaml(folder / RUN), str(folder / RUN))


def finished(folder: Path) -> Finished:
    """The scores of the finished run in a folder."""
    path = folder / SCORES
    if not path.exists():
        raise UserError(
            f"{folder}: expected a finished run, found no {SCORES}; "
            f"go on with it by `bursar resume {folder}`"
        )
    values = json.loads(path.read_text())
    values["tasks"] = {name: Scores(**scores) for name, scores in values["tasks"].items()}
    return Finished(**values)
