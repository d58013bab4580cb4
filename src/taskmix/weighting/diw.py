"""Discriminative Importance Weighting."""

import math
from collections.abc import Sequence

import numpy as np

from taskmix.weighting.base import (
    Floats,
    Report,
    Weighting,
    Worker,
    check_floor,
    check_fraction,
    shares_of,
)


class DIW(Weighting):
    """Raises the weight of a task if it alone helps the target more than joint training does.

    Sivasankaran et al. (2017), as described by Kourdis et al. (2020). In each round, mᵢ is the
    target's dev score after training task i alone, and m its score after joint training with the
    weights w from the same parameters. If m does not exceed the m of the previous round, then
    w ← max(floor, w + rate · (mᵢ - m)), and the joint training is repeated. The best try is kept.

    So the weights move only after a try that failed, and a round whose first try succeeds leaves
    them unchanged. The description can also be read such that every try moves them; `DIWEveryTry`
    does that.

    Args:
        tasks: the names of the tasks.
        target: the task that the others help.
        rate: the increase of the weight for each percentage point of dev score; the paper's is 0.1,
            without the scale of its scores.
        tries: the maximum number of joint trainings in a round.
        floor: the minimum weight of a task.
        fraction: the fraction of each task's training data in a round.
        split_dev: whether to tune on one half of the target's dev set and select the model on the
            other.

    >>> diw = DIW(["left", "right"], target="left")
    >>> diw.weights().tolist()
    [1.0, 1.0]
    """

    name = "diw"
    _saved = ("_weights", "_previous")

    def __init__(
        self,
        tasks: Sequence[str],
        target: str,
        *,
        rate: float = 0.1,
        tries: int = 10,
        floor: float = 1e-6,
        fraction: float = 1.0,
        split_dev: bool = False,
    ) -> None:
        super().__init__(tasks, target, split_dev=split_dev)
        if tries < 1:
            raise ValueError(f"tries: expected at least 1, found {tries}")
        check_floor(floor)
        if not math.isfinite(rate):
            raise ValueError(f"rate: expected a number, found {rate}")
        check_fraction(fraction)
        self.rate, self.tries, self.floor, self.fraction = rate, tries, floor, fraction
        self._weights = np.ones(len(self.tasks))
        self._previous: float | None = None  # the score that the last round kept

    def weights(self) -> Floats:
        return self._weights.copy()

    def round(self, worker: Worker) -> Report:
        alone = worker.separate([1.0] * len(self.tasks), self.fraction, scored=True)
        assert alone.scores is not None
        weights, best, tries = self._weights, None, 0
        while True:
            trained = worker.together(shares_of(weights), self.fraction)
            tries += 1
            if best is None or trained.score > best.score:
                best = trained
                worker.keep()
            step = self.rate * 100 * (alone.scores - trained.score)
            moved = np.maximum(self.floor, weights + step)
            improved = self._previous is None or trained.score > self._previous
            if improved or tries == self.tries:
                break
            weights = moved
        self._weights, self._previous = self._next_weights(weights, moved), best.score
        return Report(
            weights=self.named(self._weights),
            losses=self.named(best.losses),
            dev_loss=best.dev_loss,
            norms=self.named(alone.norms),
            tries=tries,
        )

    def _next_weights(self, last: Floats, moved: Floats) -> Floats:
        """Return the weights of the next round, from those of the last try and after it."""
        return last


class DIWEveryTry(DIW):
    """DIW whose weights move after every try, also after one that succeeded.

    The other reading of the description in Kourdis et al. (2020); see `DIW`, which has the same
    arguments. Its weights move from the first round on.

    >>> DIWEveryTry(["left", "right"], target="left")
    DIWEveryTry(target left: left 0.500, right 0.500)
    """

    name = "diw_every_try"

    def _next_weights(self, last: Floats, moved: Floats) -> Floats:
        return moved
