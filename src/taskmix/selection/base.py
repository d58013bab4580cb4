"""What every selector has in common."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.run_info import RunInfo
from taskmix.selection.scores import Score


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The examples of one training step.

    Args:
        chosen: by task, their places among its candidates, the most wanted first; a task of which
            nothing is wanted has an empty array.
        candidates: by task, how many were scored for this step; 0 if an earlier step's were used.
    """

    chosen: Mapping[str, NDArray[np.int64]]
    candidates: Mapping[str, int]

    @property
    def counts(self) -> dict[str, int]:
        """By task, how many examples are trained on."""
        return {task: len(places) for task, places in self.chosen.items()}


class Selector(ABC):
    """Says how many candidates to score, and which of them to train on.

    Like a policy it decides and runs no loop: ask it for `candidates`, score them, let it `choose`,
    train on what it chose. It is deterministic, holds no tensors and serialises to JSON. `score`
    says how candidates are to be scored, and `passes` with how many dropout masks, where the score
    needs several; `every` is how many steps come of one choice.

    Args:
        tasks: the names of the tasks, in the order of every array.
        batch: examples in a training step.
    """

    name: ClassVar[str]
    score: Score = "entropy"
    passes: int = 8
    every: int = 1

    def __init__(self, tasks: Sequence[str], batch: int) -> None:
        if isinstance(tasks, str) or not tasks or len(set(tasks)) != len(tasks):
            raise ValueError(f"tasks: expected different names, found {tasks!r}")
        if batch < 1:
            raise ValueError(f"batch: expected at least 1, found {batch}")
        self._tasks = tuple(tasks)
        self._batch = batch
        self._scored = np.zeros(len(tasks), dtype=np.int64)
        self._chosen = np.zeros(len(tasks), dtype=np.int64)

    @classmethod
    def for_run(cls, info: RunInfo, **options: Any) -> Self:
        """Return the selector that a run file means."""
        return cls(info.tasks, info.batch, **options)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The task names, in the order of every array."""
        return self._tasks

    @property
    def batch(self) -> int:
        """Examples in a training step."""
        return self._batch

    @abstractmethod
    def candidates(self) -> dict[str, int]:
        """Return by task, how many candidates to score for the next choice."""

    @abstractmethod
    def choose(self, scores: Mapping[str, NDArray[np.float64]]) -> list[Selection]:
        """Return the training steps that come of these candidates, in order.

        Args:
            scores: by task, its candidates' uncertainties on one scale, shape `(candidates,)`.
        """

    def diagnostics(self) -> dict[str, Any]:
        """Return by task, its share of all candidates and of all examples chosen so far."""
        return {
            "candidate_share": self._shares(self._scored),
            "chosen_share": self._shares(self._chosen),
        }

    def _shares(self, counts: NDArray[np.int64]) -> dict[str, float]:
        shares = counts / max(1, int(counts.sum()))
        return dict(zip(self._tasks, shares.tolist(), strict=True))

    def _count(self, selection: Selection) -> None:
        self._scored += [selection.candidates[task] for task in self._tasks]
        self._chosen += [len(selection.chosen[task]) for task in self._tasks]

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes over time, as JSON-able values."""
        return {
            "tasks": list(self._tasks),
            "scored": self._scored.tolist(),
            "chosen": self._chosen.tolist(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up the state of a selector with the same tasks and arguments."""
        if list(state["tasks"]) != list(self._tasks):
            raise ValueError(
                f"state: expected the tasks {list(self._tasks)}, found {list(state['tasks'])}"
            )
        self._scored = np.array(state["scored"], dtype=np.int64)
        self._chosen = np.array(state["chosen"], dtype=np.int64)


def candidates_of(selector: Selector, step: int) -> dict[str, int]:
    """Return how many candidates a selector wants of each task; raise if it does not say."""
    found = selector.candidates()
    if not (
        isinstance(found, Mapping)
        and set(found) == set(selector.tasks)
        and all(isinstance(count, (int, np.integer)) and count >= 1 for count in found.values())
    ):
        raise UserError(
            f"selection {selector.name}, step {step}: expected candidates() to return a whole "
            f"number above 0 for each of {', '.join(selector.tasks)}, found {found!r}"
        )
    return dict(found)


def steps_of(
    selector: Selector, scores: Mapping[str, NDArray[np.float64]], step: int
) -> list[Selection]:
    """Return the steps that a selector makes of candidates; raise if it chose none of them."""
    found = selector.choose(scores)
    if not (isinstance(found, list) and found and all(_is_sound(each, scores) for each in found)):
        raise UserError(
            f"selection {selector.name}, step {step}: expected choose() to return a list of "
            f"Selections, each of some of the candidates' places by task, found {found!r:.200}"
        )
    return found


def _is_sound(found: Any, scores: Mapping[str, NDArray[np.float64]]) -> bool:
    """Return whether a step has examples, all of them among the candidates."""
    if not isinstance(found, Selection) or set(found.chosen) != set(scores):
        return False
    places = {task: np.asarray(found.chosen[task]) for task in scores}
    inside = all(
        each.dtype.kind in "iu" and ((each >= 0) & (each < len(scores[task]))).all()
        for task, each in places.items()
        if each.size
    )
    return inside and any(each.size for each in places.values())
