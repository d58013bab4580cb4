"""α-Variable Importance Learning."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

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
from taskmix.weighting.tuners import ClosedForm, Descent, Lever, Tuner, tuner_of


class AlphaVIL(Weighting):
    """Trains each task alone, and mixes the changes δᵢ of the parameters to help the target.

    Algorithm 1 of Kourdis, Gordon-Hall and Gorinski (2020). A round trains each task from the same
    parameters θ, tunes α to minimise the target's dev loss L(θ + Σ cᵢ δᵢ), moves θ there, and sets
    the weights wᵢ ← max(floor, wᵢ + αᵢ - 1). The gradient in α is exact and costs one backward
    pass: ∂L/∂cᵢ = ⟨∇L, δᵢ⟩.

    Args:
        tasks: the names of the tasks.
        target: the task that the others help.
        tuner: the optimiser of α: `ClosedForm()`, the paper's `Descent()`, or `Sweeps()`; or as in
            a run file, `{"name": "descent", "steps": 5}`.
        weights_on: what the weights scale. `"loss"`, as in the paper: the loss of task i is scaled
            by wᵢ / Σw, and cᵢ = αᵢ. Optimisers such as Adam cancel that scale, and a task at the
            floor makes no delta and stays there. `"delta"`: every loss is scaled by 1 / tasks, as
            in joint training, and cᵢ = (wᵢ + αᵢ - 1) / Σw, which works with any optimiser, and a
            task can recover from the floor; the weights are then scaled to mean 1.
        start: the initial α.
        floor: the minimum weight of a task; the paper's is 1e-6.
        fraction: ρ, the fraction of each task's training data in a round; the paper's is 1 for
            MultiMNIST, 0.25 for its language tasks.
        fresh: whether each task starts every round with a new optimiser.
        joint: whether to train jointly with the new weights at the end of a round, which the paper
            leaves to future work.
        split_dev: whether to tune on one half of the target's dev set and select the model on the
            other; the paper uses all of it for both.

    >>> weighting = AlphaVIL(["left", "right"], target="left")
    >>> weighting.weights().tolist()
    [1.0, 1.0]
    """

    name = "alpha_vil"
    _saved = ("_weights",)

    def __init__(
        self,
        tasks: Sequence[str],
        target: str,
        *,
        tuner: Tuner | str | Mapping[str, Any] = ClosedForm(),  # noqa: B008 (frozen)
        weights_on: Literal["loss", "delta"] = "delta",
        start: float = 1.0,
        floor: float = 1e-6,
        fraction: float = 1.0,
        fresh: bool = True,
        joint: bool = False,
        split_dev: bool = True,
    ) -> None:
        super().__init__(tasks, target, split_dev=split_dev)
        if weights_on not in ("loss", "delta"):
            raise ValueError(f"weights_on: expected 'loss' or 'delta', found {weights_on!r}")
        check_floor(floor)
        check_fraction(fraction)
        if not math.isfinite(start):
            raise ValueError(f"start: expected a number, found {start}")
        self.tuner = tuner_of(tuner)
        self.weights_on, self.start, self.floor = weights_on, start, floor
        self.fraction, self.fresh, self.joint = fraction, fresh, joint
        self._weights = np.ones(len(self.tasks))

    @classmethod
    def paper(cls, tasks: Sequence[str], target: str, **options: Any) -> Self:
        """Create the weighting with the settings of the paper.

        >>> AlphaVIL.paper(["left", "right"], "left").weights_on
        'loss'
        """
        settings = {"tuner": Descent(), "weights_on": "loss", "split_dev": False}
        return cls(tasks, target, **{**settings, **options})

    def weights(self) -> Floats:
        return self._weights.copy()

    def round(self, worker: Worker) -> Report:
        # Algorithm 1, lines 3 to 11.
        lever, scales = self._lever()
        alone = worker.separate(scales, self.fraction, fresh=self.fresh)
        start = np.full(len(self.tasks), self.start)
        alphas = self.tuner.tune(worker, lever, start, alone.dev)
        mixture = lever.coefficients(alphas)
        dev_loss = worker.loss(mixture)
        worker.mix(mixture)
        weights = self._reweighed(alphas)
        if self.joint:
            trained = worker.together(shares_of(weights), self.fraction, fresh=self.fresh)
            dev_loss = trained.dev_loss
            worker.keep()
        self._weights = weights
        return Report(
            weights=self.named(weights),
            losses=self.named(alone.losses),
            dev_loss=dev_loss,
            norms=self.named(alone.norms),
            alphas=self.named(alphas),
            tries=int(self.joint),
        )

    def _lever(self) -> tuple[Lever, tuple[float, ...]]:
        """Return the map from α to the coefficients, and the factor of each task's loss."""
        ones = np.ones(len(self.tasks))
        shares = np.array(shares_of(self._weights))
        if self.weights_on == "loss":
            return Lever(ones, ones), tuple(shares.tolist())
        return Lever(shares, ones / self._weights.sum()), shares_of(ones)

    def _reweighed(self, alphas: Floats) -> Floats:
        weights: Floats = np.maximum(self.floor, self._weights + alphas - 1)
        if self.weights_on == "delta":
            # With a mean of 1, the effect of α does not depend on the round.
            weights = np.maximum(self.floor, weights / weights.mean())
        return weights
