"""The interface of a selector, its steps in the journal, and the share of data it has used."""

import base64
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.records import UnitRecord, normalised
from taskmix.run_info import RunInfo

#: The measures of an example's uncertainty; see `example_scores`.
ExampleScore = Literal["entropy", "bald"]


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The examples of one training step.

    Args:
        chosen: for each task, the indices of the examples among its candidates, best first.
        candidates: the number of candidates of each task that were scored for this step.
    """

    chosen: Mapping[str, NDArray[np.int64]]
    candidates: Mapping[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """The number of examples of each task."""
        return {task: len(indices) for task, indices in self.chosen.items()}


class Selector(ABC):
    """Base class of selectors, which choose the examples to train on from scored candidates.

    The trainer asks for the number of `candidates`, scores them by `score` (with `passes` dropout
    masks if it needs several), and passes the scores to `choose`, which returns `every` training
    steps. A selector is deterministic, holds no tensors, and its state serialises to JSON.

    Args:
        tasks: the names of the tasks, in the order of every array.
        batch: the number of examples in a training step.
    """

    name: ClassVar[str]
    score: ExampleScore = "entropy"
    passes: int = 8
    every: int = 1

    def __init__(self, tasks: Sequence[str], batch: int) -> None:
        if isinstance(tasks, str) or not tasks or len(set(tasks)) != len(tasks):
            raise ValueError(f"tasks: expected different names, found {tasks!r}")
        if batch < 1:
            raise ValueError(f"batch: expected at least 1, found {batch}")
        self.tasks = tuple(tasks)
        self.batch = batch
        self._scored = np.zeros(len(tasks), dtype=np.int64)
        self._chosen = np.zeros(len(tasks), dtype=np.int64)

    @classmethod
    def for_run(cls, info: RunInfo, **options: Any) -> Self:
        """Create the selector of a run file."""
        return cls(info.tasks, info.batch, **options)

    @abstractmethod
    def candidates(self) -> dict[str, int]:
        """Return the number of candidates of each task to score for the next choice."""

    @abstractmethod
    def choose(self, scores: Mapping[str, NDArray[np.float64]]) -> list[Selection]:
        """Return the next training steps.

        Args:
            scores: the uncertainties of each task's candidates, shape `(candidates,)`.
        """

    def diagnostics(self) -> dict[str, Any]:
        """Return each task's share of all candidates and of all examples chosen so far."""
        return {
            "candidate_share": self._shares(self._scored),
            "chosen_share": self._shares(self._chosen),
        }

    def _shares(self, counts: NDArray[np.int64]) -> dict[str, float]:
        shares = counts / max(1, int(counts.sum()))
        return dict(zip(self.tasks, shares.tolist(), strict=True))

    def _count(self, selection: Selection) -> None:
        self._scored += [selection.candidates[task] for task in self.tasks]
        self._chosen += [len(selection.chosen[task]) for task in self.tasks]

    def state_dict(self) -> dict[str, Any]:
        """Return everything that changes over time, as JSON-able values."""
        return {
            "tasks": list(self.tasks),
            "scored": self._scored.tolist(),
            "chosen": self._chosen.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the state of a selector with the same tasks and arguments."""
        if list(state["tasks"]) != list(self.tasks):
            raise ValueError(
                f"state: expected the tasks {list(self.tasks)}, found {list(state['tasks'])}"
            )
        self._scored = np.array(state["scored"], dtype=np.int64)
        self._chosen = np.array(state["chosen"], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class SelectionStep(UnitRecord):
    """A selector's step in the journal; `used` is the share of training examples used so far.

    `uncertainties` has the mean score of each task's candidates, if any were scored for this step.
    """

    kind = "selection"
    candidates: dict[str, int]
    chosen: dict[str, int]
    used: float
    losses: dict[str, float] = field(default_factory=dict)
    tokens: int | None = None
    seconds: float | None = None
    uncertainties: dict[str, float] = field(default_factory=dict)

    def shares(self) -> Mapping[str, float]:
        return normalised(self.chosen)

    def training_losses(self) -> Mapping[str, float]:
        return self.losses

    def examples_of(self) -> Mapping[str, int]:
        return self.chosen


class Usage:
    """Counts the training examples that have been used at least once.

    The column "% data used" of table 1 in Pilault et al. (2021).

    Args:
        sizes: the number of training examples of each task.

    >>> usage = Usage({"cola": 8, "rte": 2})
    >>> usage.add("rte", np.array([0, 0, 1]))
    >>> usage.fraction, usage.of("rte")
    (0.2, 1.0)
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._seen = {task: np.zeros(size, dtype=np.bool_) for task, size in sizes.items()}

    def add(self, task: str, items: NDArray[np.int64]) -> None:
        """Mark these examples of a task as used."""
        self._seen[task][items] = True

    def of(self, task: str) -> float:
        """Return the share of a task's examples that have been used."""
        return float(self._seen[task].mean())

    @property
    def fraction(self) -> float:
        """The share of all examples that have been used."""
        used = sum(int(seen.sum()) for seen in self._seen.values())
        return used / sum(len(seen) for seen in self._seen.values())

    def state_dict(self) -> dict[str, str]:
        """Return one bit for each example, by task."""
        return {
            task: base64.b64encode(np.packbits(seen).tobytes()).decode()
            for task, seen in self._seen.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for task, seen in self._seen.items():
            bits = np.frombuffer(base64.b64decode(state[task]), dtype=np.uint8)
            if len(bits) != -(-len(seen) // 8):
                raise ValueError(f"state of {task}: expected {len(seen)} examples, found others")
            seen[:] = np.unpackbits(bits, count=len(seen)).astype(np.bool_)


def candidates_of(selector: Selector, step: int) -> dict[str, int]:
    """Return `selector.candidates()`, checked."""
    counts = selector.candidates()
    if not (
        isinstance(counts, Mapping)
        and set(counts) == set(selector.tasks)
        and all(isinstance(count, (int, np.integer)) and count >= 1 for count in counts.values())
    ):
        raise UserError(
            f"selection {selector.name}, step {step}: expected candidates() to return a whole "
            f"number above 0 for each of {', '.join(selector.tasks)}, found {counts!r}"
        )
    return dict(counts)


def steps_of(
    selector: Selector, scores: Mapping[str, NDArray[np.float64]], step: int
) -> list[Selection]:
    """Return `selector.choose(scores)`, checked."""
    steps = selector.choose(scores)
    if not (isinstance(steps, list) and steps and all(_is_sound(step, scores) for step in steps)):
        raise UserError(
            f"selection {selector.name}, step {step}: expected choose() to return a list of "
            f"Selections, each with the indices of some candidates by task, found {steps!r:.200}"
        )
    return steps


def _is_sound(selection: Any, scores: Mapping[str, NDArray[np.float64]]) -> bool:
    """Return whether a step has examples, and all of them are candidates."""
    if not isinstance(selection, Selection) or set(selection.chosen) != set(scores):
        return False
    chosen = {task: np.asarray(selection.chosen[task]) for task in scores}
    inside = all(
        indices.dtype.kind in "iu" and ((indices >= 0) & (indices < len(scores[task]))).all()
        for task, indices in chosen.items()
        if indices.size
    )
    return inside and any(indices.size for indices in chosen.values())
