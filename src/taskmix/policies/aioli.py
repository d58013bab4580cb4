"""Aioli: what a stretch of more batches of one task does to the dev losses of all."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import (
    LARGEST_LOSS,
    Draw,
    Outcome,
    Policy,
    bounded,
    distribution,
    known_tasks,
)
from taskmix.policies.signals import DevLosses, Signal
from taskmix.rng import stream
from taskmix.run_info import RunInfo

Array = NDArray[np.float64]

#: The logarithm of the least weight, where the largest is 1.
_LEAST = -50.0
#: Rounds of which some dev losses are known and others not; the oldest gives way.
_OPEN = 4
#: The authors' round for seven tasks.
_ROUND, _TASKS = 200, 7


class Aioli(Policy):
    """Draws tasks by how much stretches of them lowered the dev losses, measured every round.

    Chen et al. (2024). A round of `every` draws begins with stretches: `repeats` times, in random
    order, each task j gets `stretch` draws in which it has the share f and each other task
    (1 - f)/(K - 1). The fall of the dev loss of task i over the stretches of task j, G_ij, is what
    the mixtures W of the stretches made of the effects A of the tasks alone: W A_i = G_i. The rest
    of the round, and of the run until the next, is drawn in proportion to

        w_j = exp(η Σ_i Ā_ij),    Ā ← (1 - γ) A + γ Ā,

    A brought to numbers above 0 with a sum of 1. That is the authors' code; their paper's
    exponentiated gradient, w_j ← w_j exp(η Σ_i A_ij), is `ema: null`.

    As A sums to 1, one task's weight is at most e^η times another's. Bringing A above 0 takes the
    sign off a task that does harm. A round with a dev loss missing changes nothing.

    The dev losses before the first stretch are those behind the round's first draw, which is drawn
    as those before it. A round costs 1 + K · `repeats` passes over the dev examples.

    Args:
        tasks: the names of the tasks.
        every: draws in a round; a run file's default is 200 for seven tasks, more for more. It is
            as long as its stretches at least.
        repeats: stretches of each task in a round.
        stretch: draws in a stretch.
        share: f.
        eta: η.
        ema: γ, the weight of the rounds before; None for the paper's rule.
        targets: the tasks whose dev losses count; all if None. A run file's default is the run's
            objective.
        examples: dev examples of each, the same ones each time; all if None.
        seed: of the order of the stretches.

    >>> policy = Aioli(["good", "bad"], every=9, repeats=1, stretch=2, targets=("good",))
    >>> rng, losses = stream(1, "draws"), {"good": 3.0}
    >>> for _ in range(5):
    ...     draw = policy.ask(rng)
    ...     losses["good"] -= float(draw.probabilities[0])
    ...     policy.tell(Outcome(draw, dev_losses=dict(losses)))
    >>> policy.probabilities().round(2).tolist()
    [0.73, 0.27]
    """

    name = "aioli"

    def __init__(
        self,
        tasks: Sequence[str],
        every: int = _ROUND,
        repeats: int = 2,
        stretch: int = 10,
        share: float = 0.75,
        eta: float = 1.0,
        ema: float | None = 0.1,
        targets: Sequence[str] | None = None,
        examples: int | None = 64,
        seed: int = 0,
    ) -> None:
        super().__init__(tasks)
        count = len(self.tasks)
        if min(every, repeats, stretch) < 1 or (examples is not None and examples < 1):
            raise ValueError(
                "every, repeats, stretch, examples: expected at least 1,"
                f" found {every}, {repeats}, {stretch}, {examples}"
            )
        if not 0 < share <= 1 or (count > 1 and math.isclose(share, 1 / count)):
            raise ValueError(
                f"share: expected a number above 0 and up to 1, and not the uniform 1/{count},"
                f" which tells no task from another, found {share}"
            )
        if not eta > 0 or not (ema is None or 0 <= ema < 1):
            raise ValueError(f"eta, ema: expected eta > 0 and 0 <= ema < 1, found {eta}, {ema}")
        self._targets = known_tasks(targets, self.tasks, "targets")
        self._stretches = repeats * count if count > 1 else 0
        self._round = max(every, 1 + self._stretches * stretch)
        self._repeats, self._stretch, self._seed = repeats, stretch, seed
        self._share, self._eta, self._ema = share, eta, ema
        self._known: dict[int, dict[int, list[float]]] = {}
        self._settled = -1
        self._effects: Array | None = None
        self._weights = distribution(np.ones(count), "tasks")
        self._perturbed: tuple[int, Array] = (-1, self._weights)
        self._order: tuple[tuple[int, int], list[int]] = ((-1, -1), [])
        if count > 1:
            self.needs = frozenset({DevLosses(self._targets, examples)})

    @classmethod
    def for_run(
        cls,
        info: RunInfo,
        every: int | None = None,
        targets: Sequence[str] | None = None,
        **options: Any,
    ) -> Self:
        """The policy that a run file means."""
        usual = max(_ROUND, round(_ROUND * len(info.tasks) / _TASKS))
        often, aim = usual if every is None else every, info.targets if targets is None else targets
        return cls(info.tasks, every=often, targets=aim, **options)

    def probabilities(self) -> Array:
        """Return the mixture of the stretch that the next draw is in, or the weights."""
        number, place = self._place(self.draws + 1)
        if not 1 <= place <= self._stretches * self._stretch:
            return self._weights
        task = self._task(number, (place - 1) // self._stretch)
        if self._perturbed[0] != task:
            rest = (1 - self._share) / (len(self.tasks) - 1)
            weights = np.full(len(self.tasks), rest)
            weights[task] = self._share
            self._perturbed = task, distribution(weights, self.name)
        return self._perturbed[1]

    def _place(self, draw: int) -> tuple[int, int]:
        """Return the round of a draw, and its place in it from 0."""
        return divmod(draw - 1, self._round)

    def _task(self, number: int, stretch: int) -> int:
        """Return the task that a stretch of a round is about."""
        turn, place = divmod(stretch, len(self.tasks))
        if self._order[0] != (number, turn):
            rng = stream(self._seed, "stretches", number, turn)
            self._order = (number, turn), rng.permutation(len(self.tasks)).tolist()
        return self._order[1][place]

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return the dev losses behind the first draw of a round and behind each stretch."""
        _, place = self._place(draw.number)
        behind = place <= self._stretches * self._stretch and place % self._stretch == 0
        return self.needs if behind else frozenset()

    def tell(self, outcome: Outcome) -> None:
        """Learn from the dev losses, once all of a round are known."""
        number, place = self._place(outcome.draw.number)
        if not self.due(outcome.draw) or outcome.dev_losses is None or number <= self._settled:
            return
        found = [bounded(outcome.dev_losses.get(task), LARGEST_LOSS) for task in self._targets]
        losses = [loss for loss in found if loss is not None]
        if len(losses) < len(found):
            return
        known = self._known.setdefault(number, {})
        known[place // self._stretch] = losses
        if len(known) == self._stretches + 1:
            self._settled = number
            self._learn(number, np.array([known[at] for at in range(len(known))]))
        kept = sorted(each for each in self._known if each > self._settled)[-_OPEN:]
        self._known = {each: self._known[each] for each in kept}

    def _learn(self, number: int, losses: Array) -> None:
        """Update the weights; `losses` has shape `(stretches + 1, targets)`."""
        falls = np.zeros((len(self._targets), len(self.tasks)))
        for stretch, fall in enumerate(losses[:-1] - losses[1:]):
            falls[:, self._task(number, stretch)] += fall / self._repeats
        effects = self._unmixed(falls)
        effects = effects - min(float(effects.min()), 0.0)
        if not effects.sum() > 0:
            return
        found = (effects / effects.sum()).sum(axis=0)  # Σ_i, all that the weights depend on
        if self._ema is None:
            logs = np.log(self._weights) + self._eta * found
        else:
            before = found if self._effects is None else self._effects
            self._effects = (1 - self._ema) * found + self._ema * before
            logs = self._eta * self._effects
        # The paper's rule may let a weight fall for ever; it stays a number that can rise again.
        logs = np.maximum(logs - logs.max(), _LEAST)
        self._weights = distribution(np.exp(logs), self.name)

    def _unmixed(self, falls: Array) -> Array:
        """Solve W A_i = G_i, W with f on its diagonal and the same number everywhere else."""
        rest = (1 - self._share) / (len(self.tasks) - 1)
        # A row of W sums to 1, so that a row of A sums to what one of G does.
        unmixed: Array = (falls - rest * falls.sum(axis=1, keepdims=True)) / (self._share - rest)
        return unmixed

    def diagnostics(self) -> dict[str, Any]:
        """Return the weights outside of stretches by task."""
        return {"weights": dict(zip(self.tasks, self._weights.tolist(), strict=True))}

    def _state(self) -> dict[str, Any]:
        return {
            "settled": self._settled,
            "weights": self._weights.tolist(),
            "effects": None if self._effects is None else self._effects.tolist(),
            "known": [[n, at, x] for n, of in self._known.items() for at, x in of.items()],
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._settled = state["settled"]
        effects = state["effects"]
        self._effects = None if effects is None else np.array(effects, dtype=np.float64)
        self._weights = np.array(state["weights"], dtype=np.float64)
        self._weights.setflags(write=False)
        self._known = {}
        for number, place, losses in state["known"]:
            self._known.setdefault(number, {})[place] = list(losses)
