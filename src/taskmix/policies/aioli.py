"""Aioli: prefers the tasks that lowered the dev losses in test stretches."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np

from taskmix.policies.base import LARGEST_LOSS, Policy, bounded, distribution, target_tasks
from taskmix.policies.signals import DevLosses, Draw, Outcome, Signal
from taskmix.policies.state import Array
from taskmix.rng import stream
from taskmix.run_info import RunInfo

#: The minimum of log(weight / largest weight).
_MIN_LOG_WEIGHT = -50.0
#: The dev losses of this many incomplete rounds are kept.
_MAX_OPEN_ROUNDS = 4
#: The authors use rounds of 200 draws for seven tasks.
_ROUND, _ROUND_TASKS = 200, 7


class Aioli(Policy):
    """Prefers the tasks that lowered the dev losses the most in the test stretches of a round.

    Chen et al. (2024). A round of `every` draws begins with test stretches: `repeats` times, in
    random order, each task j gets a stretch of `stretch` draws in which it has the probability f
    and each other task (1 - f)/(K - 1). Let G_ij be the decrease of the dev loss of task i over the
    stretches of task j. The effects A of single tasks follow from W A_i = G_i, where W holds the
    distributions of the stretches. The remaining draws of the round have weights

        w_j = exp(η Σ_i Ā_ij),    Ā ← (1 - γ) A + γ Ā,

    where A is shifted above 0 and normalised to a sum of 1. This is the rule of the authors' code;
    `ema=None` is the exponentiated gradient of their paper, w_j ← w_j exp(η Σ_i A_ij).

    The dev losses before the first stretch are measured after the first draw of the round, which
    uses the weights of the previous round. A round costs 1 + K · `repeats` passes over the dev
    examples. If a dev loss is missing, the round does not change the weights.

    Args:
        tasks: the names of the tasks.
        every: the number of draws in a round, raised to the number that the stretches need; the
            default in a run file is 200 for up to seven tasks, and in proportion for more.
        repeats: the number of stretches of each task in a round.
        stretch: the number of draws in a stretch.
        share: f, the probability of the tested task in a stretch.
        eta: η.
        ema: γ, the weight of the past rounds; None for the paper's rule.
        targets: the tasks whose dev losses are measured; all if None. The default in a run file is
            the run's objective.
        examples: the number of dev examples of each target, the same ones every time; all if None.
        seed: the seed of the order of the stretches.

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
    beliefs: ClassVar = {"weights": "the largest weight"}
    _saved = ("_settled", "_weights", "_effects", "_known")

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
        self._targets = target_tasks(targets, self.tasks)
        self._stretches = repeats * count if count > 1 else 0
        self._round = max(every, 1 + self._stretches * stretch)
        self._repeats, self._stretch, self._seed = repeats, stretch, seed
        self._share, self._eta, self._ema = share, eta, ema
        # The round, the stretch and the dev losses after it, for incomplete rounds.
        self._known: list[tuple[int, int, list[float]]] = []
        self._settled = -1  # the latest complete round
        self._effects: list[float] | None = None
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
        if every is None:
            every = max(_ROUND, round(_ROUND * len(info.tasks) / _ROUND_TASKS))
        targets = info.targets if targets is None else targets
        return cls(info.tasks, every=every, targets=targets, **options)

    def probabilities(self) -> Array:
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
        """Return the round of a draw and its place in the round, both from 0."""
        return divmod(draw - 1, self._round)

    def _task(self, number: int, stretch: int) -> int:
        """Return the task that a stretch of a round tests."""
        turn, place = divmod(stretch, len(self.tasks))
        if self._order[0] != (number, turn):
            rng = stream(self._seed, "stretches", number, turn)
            self._order = (number, turn), rng.permutation(len(self.tasks)).tolist()
        return self._order[1][place]

    def due(self, draw: Draw) -> frozenset[Signal]:
        # After the first draw of a round and after each stretch.
        _, place = self._place(draw.number)
        measured = place <= self._stretches * self._stretch and place % self._stretch == 0
        return self.needs if measured else frozenset()

    def tell(self, outcome: Outcome) -> None:
        number, place = self._place(outcome.draw.number)
        if not self.due(outcome.draw) or outcome.dev_losses is None or number <= self._settled:
            return
        bounds = (bounded(outcome.dev_losses.get(task), LARGEST_LOSS) for task in self._targets)
        losses = [loss for loss in bounds if loss is not None]
        if len(losses) < len(self._targets):
            return
        known = {(round_, stretch): values for round_, stretch, values in self._known}
        known[number, place // self._stretch] = losses
        stretches = range(self._stretches + 1)
        if all((number, stretch) in known for stretch in stretches):
            self._settled = number
            self._learn(number, np.array([known[number, stretch] for stretch in stretches]))
        rounds = {round_ for round_, _ in known if round_ > self._settled}
        kept = sorted(rounds)[-_MAX_OPEN_ROUNDS:]
        self._known = [
            (round_, stretch, values)
            for (round_, stretch), values in known.items()
            if round_ in kept
        ]

    def _learn(self, number: int, losses: Array) -> None:
        """Update the weights by the dev losses of a round, shape `(stretches + 1, targets)`."""
        falls = np.zeros((len(self._targets), len(self.tasks)))
        for stretch, fall in enumerate(losses[:-1] - losses[1:]):
            falls[:, self._task(number, stretch)] += fall / self._repeats
        effects = self._unmixed(falls)
        effects = effects - min(float(effects.min()), 0.0)
        if not effects.sum() > 0:
            return
        sums = (effects / effects.sum()).sum(axis=0)  # the weights depend only on Σ_i
        if self._ema is None:
            logs = np.log(self._weights) + self._eta * sums
        else:
            past = sums if self._effects is None else np.array(self._effects)
            mean = (1 - self._ema) * sums + self._ema * past
            self._effects = mean.tolist()
            logs = self._eta * mean
        # With the paper's rule a weight could underflow to 0 and never rise again.
        logs = np.maximum(logs - logs.max(), _MIN_LOG_WEIGHT)
        self._weights = distribution(np.exp(logs), self.name)

    def _unmixed(self, falls: Array) -> Array:
        """Solve W A_i = G_i, where W is f on the diagonal and constant elsewhere."""
        rest = (1 - self._share) / (len(self.tasks) - 1)
        # The rows of W sum to 1, so the rows of A and G have the same sums.
        unmixed: Array = (falls - rest * falls.sum(axis=1, keepdims=True)) / (self._share - rest)
        return unmixed

    def diagnostics(self) -> dict[str, Any]:
        return {"weights": self._named(self._weights)}
