"""MT-Uncertainty sampling."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import unknown
from taskmix.selection.base import Selection, Selector
from taskmix.selection.rules import RULES
from taskmix.selection.scores import Score


class MTUncertainty(Selector):
    """Trains on the most uncertain of candidates that come in equal numbers from all tasks.

    Pilault et al. (2021), algorithm 1: score b candidates of each of T tasks, train on the best b
    of the bT; the others are not returned. Utilities that are equal go to the earlier candidate and
    then to the earlier task, so that tasks with equal scores get equal shares.

    With `every` = k, a pool is scored at once and the best kb of it make the next k steps. They are
    dealt out like cards, the first of each k in rank to the first step: neighbours in rank tend to
    be of one task, and dealt, every step is as mixed as the whole.

    Args:
        tasks: the names of the tasks.
        batch: examples in a training step.
        rule: how candidates of different tasks are compared: `code` or `paper`.
        score: what is measured of them: `entropy`, or `bald` by Monte-Carlo dropout.
        every: steps that come of one scoring.
        pool: candidates of each task in one scoring; kb if None. Fewer cost less and choose less.
        passes: dropout masks, for what needs them: `bald`, and any regression.

    >>> selector = MTUncertainty(["cola", "rte"], batch=2, rule="paper")
    >>> selector.candidates()
    {'cola': 2, 'rte': 2}
    >>> [step] = selector.choose({"cola": np.array([0.2, 0.9]), "rte": np.array([0.5, 0.4])})
    >>> {task: places.tolist() for task, places in step.chosen.items()}
    {'cola': [1], 'rte': [0]}
    """

    name = "mt_uncertainty"

    def __init__(
        self,
        tasks: Sequence[str],
        batch: int,
        rule: Literal["code", "paper"] = "code",
        score: Score = "entropy",
        every: int = 1,
        pool: int | None = None,
        passes: int = 8,
    ) -> None:
        super().__init__(tasks, batch)
        if rule not in RULES:
            raise unknown("rule", rule, RULES, "mt_uncertainty")
        if score not in get_args(Score):
            raise unknown("score", score, get_args(Score), "mt_uncertainty")
        if every < 1:
            raise ValueError(f"every: expected at least 1, found {every}")
        pool = every * batch if pool is None else pool
        if pool * len(tasks) < every * batch:
            raise ValueError(f"pool: expected enough for {every} x {batch} examples, found {pool}")
        if passes < 2:
            raise ValueError(f"passes: expected at least 2, found {passes}")
        self.score = score
        self.passes = passes
        self._rule = RULES[rule]
        self.every = every
        self._pool = pool

    def candidates(self) -> dict[str, int]:
        """Return the pool: as many of each task."""
        return dict.fromkeys(self.tasks, self._pool)

    def choose(self, scores: Mapping[str, NDArray[np.float64]]) -> list[Selection]:
        """Return the next `every` steps."""
        ordered = [self._checked(task, scores) for task in self.tasks]
        utilities = self._rule(ordered)
        places = np.concatenate([np.arange(len(of_task)) for of_task in ordered])
        owners = np.repeat(np.arange(len(ordered)), [len(of_task) for of_task in ordered])
        ranks = np.lexsort((owners, places, -np.concatenate(utilities)))
        best = ranks[: self.every * self.batch]
        fresh = dict(zip(self.tasks, map(len, ordered), strict=True))
        stale = dict.fromkeys(self.tasks, 0)
        steps = []
        for first in range(min(self.every, len(best))):
            dealt = best[first :: self.every]
            chosen = self._by_task(owners[dealt], places[dealt])
            steps.append(Selection(chosen, stale if first else fresh))
            self._count(steps[-1])
        return steps

    def _checked(self, task: str, scores: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        if task not in scores:
            raise ValueError(f"scores: expected those of {task}, found {', '.join(scores)}")
        of_task = np.asarray(scores[task], dtype=np.float64)
        if of_task.ndim != 1 or not np.all(np.isfinite(of_task)) or np.any(of_task < 0):
            raise ValueError(
                f"scores of {task}: expected finite numbers from 0 on, one a candidate"
            )
        return of_task

    def _by_task(
        self, owners: NDArray[np.int64], places: NDArray[np.int64]
    ) -> dict[str, NDArray[np.int64]]:
        return {task: places[owners == number] for number, task in enumerate(self.tasks)}
