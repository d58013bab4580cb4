"""ADO: shares by the slope of a scaling law that is fitted to each task's losses."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import LARGEST_LOSS, Outcome, Policy, bounded, distribution, in_order
from taskmix.policies.scaling_law import STRIDE, Law, fit, smoothed
from taskmix.policies.told import ToldDraws
from taskmix.run_info import RunInfo

Array = NDArray[np.float64]

#: The law counts sequences as long as the authors' were, in tokens.
_SEQUENCE = 1024
#: No batch has more tokens.
_MOST_TOKENS = 10**9
#: Outcomes that are kept for the fit; of more, every other one is dropped.
_KEPT = 20_000
#: A fit needs as many points as the law has parameters, and smoothing more than its order.
_POINTS = 3
_LEAST_EXPONENT = 0.05
#: A run file's defaults, as parts of its steps.
_EVERY, _IGNORED = 20, 50


class ADO(Policy):
    """Draws tasks by how fast a scaling law says that their losses still fall.

    Adaptive Data Optimization (Jiang et al. 2024). Every `every` outcomes a law
    L_k(n) = e^E_k + e^a_k n^-α_k is fitted to the smoothed losses of each task, n being all that
    was trained on so far, in sequences of 1,024 tokens. From then on every outcome gives

        ρ_k ∝ μ_k h_k^s · max(α_k, 0.05) e^a_k n^-α_k / n,    no less than a floor, normalised,
        p = (1 - γ) p̄ + γ ρ,

    where μ is a prior, h_k how much of task k there was lately, and p̄ the mean of all ρ. Until the
    first fit, μ is drawn from.

    As in the authors' code, a task that is not in a batch repeats its previous loss in its curve.
    Their batches mix tasks, and h averages the shares of the batches; ours are of one task, and h
    averages the distributions that these were drawn from. L-BFGS starts from the four best points
    of their grid, not from all 512.

    The penalty on E pushes what cannot be learned above e^0.5 = 1.65 nats, which suits language
    models and not classifiers; `irreducible: -10` turns it off.

    Args:
        tasks: the names of the tasks.
        every: outcomes between two fits; a run file's default is a twentieth of its steps.
        ignored: the first outcomes, which no law describes; a run file's default is a fiftieth.
        prior: by task, μ; uniform if None.
        step: γ, the weight of ρ beside the mean of the past.
        memory: the weight of a draw in h.
        credit: s.
        floor: the least that ρ_k may be.
        irreducible: what E is pushed above.

    >>> from taskmix.rng import stream
    >>> policy, rng = ADO(["falls", "done"], every=300, ignored=30), stream(1, "draws")
    >>> for step in range(1, 601):
    ...     draw = policy.ask(rng)
    ...     loss = 2 + 4 * step**-0.3 if draw.task == "falls" else 3.0
    ...     policy.tell(Outcome(draw, loss=loss, tokens=1024))
    >>> bool(policy.probabilities()[0] > 0.7)
    True
    """

    name = "ado"

    def __init__(
        self,
        tasks: Sequence[str],
        every: int = 1000,
        ignored: int = 500,
        prior: Mapping[str, float] | None = None,
        step: float = 0.1,
        memory: float = 0.1,
        credit: float = 0.5,
        floor: float = 0.01,
        irreducible: float = 0.5,
    ) -> None:
        super().__init__(tasks)
        if every < 1 or ignored < 0:
            raise ValueError(
                f"every, ignored: expected every >= 1 and ignored >= 0, found {every}, {ignored}"
            )
        if not (0 < step <= 1 and 0 < memory <= 1 and credit >= 0 and 0 <= floor < 1):
            raise ValueError(
                "step, memory, credit, floor: expected 0 < step <= 1, 0 < memory <= 1,"
                f" credit >= 0 and 0 <= floor < 1, found {step}, {memory}, {credit}, {floor}"
            )
        given = dict.fromkeys(self.tasks, 1.0) if prior is None else prior
        ordered = in_order(given, self.tasks, "prior")
        self._prior = distribution(np.array(list(ordered.values()), dtype=np.float64), "prior")
        self._every, self._ignored = every, ignored
        self._step, self._memory = step, memory
        self._credit, self._floor, self._irreducible = credit, floor, irreducible
        self._told = ToldDraws()
        self._outcomes = 0
        self._examples = 0.0
        self._log: list[tuple[int, float, float]] = []
        self._laws: list[Law] = []
        self._recent: Array = self._prior
        self._mean: Array = self._prior
        self._probabilities = self._prior

    @classmethod
    def for_run(
        cls,
        info: RunInfo,
        every: int | None = None,
        ignored: int | None = None,
        **options: Any,
    ) -> Self:
        """The policy that a run file means."""
        often = max(1, info.steps // _EVERY) if every is None else every
        first = info.steps // _IGNORED if ignored is None else ignored
        return cls(info.tasks, every=often, ignored=first, **options)

    def probabilities(self) -> Array:
        """Return the prior, and after the first fit what the laws say."""
        return self._probabilities

    def tell(self, outcome: Outcome) -> None:
        """Learn from the loss, if it is a number and not told before."""
        loss, draw = bounded(outcome.loss, LARGEST_LOSS), outcome.draw
        if loss is None or not self._told.first(draw.number):
            return
        tokens = outcome.tokens or 0
        self._examples += min(tokens, _MOST_TOKENS) / _SEQUENCE if tokens > 0 else 1.0
        self._log.append((draw.index, loss, self._examples))
        if len(self._log) > _KEPT:
            del self._log[::2]
        self._outcomes += 1
        self._recent = (1 - self._memory) * self._recent + self._memory * draw.probabilities
        if self._outcomes % self._every == 0:
            self._fit()
        if self._laws:
            self._share()

    def _fit(self) -> None:
        """Fit a law to each task's losses; the old ones stay where one has none."""
        examples, losses = self._curves()
        if len(losses) - self._ignored <= STRIDE * (_POINTS - 1) or len(losses) <= _POINTS + 1:
            return
        chosen = slice(self._ignored, None, STRIDE)
        calm = smoothed(losses)[chosen]
        # Tasks that were never drawn have the same curve, and the same law.
        curves, which = np.unique(calm.T, axis=0, return_inverse=True)
        laws = [fit(examples[chosen], curve, self._irreducible) for curve in curves]
        found = [law for law in (laws[each] for each in which) if law is not None]
        if len(found) == len(self.tasks):
            self._laws = found

    def _curves(self) -> tuple[Array, Array]:
        """Return n, shape `(outcomes,)`, and each task's latest loss, `(outcomes, tasks)`."""
        who, losses, examples = (np.array(each) for each in zip(*self._log, strict=True))
        places = np.arange(len(who))[:, None]
        own = np.where(who[:, None] == np.arange(len(self.tasks)), places, -1)
        latest = np.maximum.accumulate(own, axis=0)
        # Before a task's own first loss stands the first there is of any.
        return examples, losses[np.maximum(latest, 0)]

    def _share(self) -> None:
        a, alpha = (
            np.array([getattr(law, k) for law in self._laws]) for k in ("scale", "exponent")
        )
        slopes = np.log(np.maximum(alpha, _LEAST_EXPONENT)) + a - alpha * np.log(self._examples)
        weights = self._prior * self._recent**self._credit * np.exp(slopes - slopes.max())
        preferred = np.maximum(weights / weights.sum(), self._floor)
        preferred = preferred / preferred.sum()
        mixed = (1 - self._step) * self._mean + self._step * preferred
        self._mean = self._mean + (preferred - self._mean) / (self._outcomes + 1)
        self._probabilities = distribution(mixed, self.name)

    def diagnostics(self) -> dict[str, Any]:
        """Return the laws by task."""
        laws = zip(self.tasks, self._laws, strict=False)
        return {"laws": {task: [law.scale, law.irreducible, law.exponent] for task, law in laws}}

    def _state(self) -> dict[str, Any]:
        return {
            "outcomes": self._outcomes,
            "examples": self._examples,
            "log": [list(each) for each in self._log],
            "laws": [[law.scale, law.irreducible, law.exponent] for law in self._laws],
            "recent": self._recent.tolist(),
            "mean": self._mean.tolist(),
            "told": self._told.state_dict(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._outcomes, self._examples = state["outcomes"], state["examples"]
        self._log = [(int(k), float(loss), float(n)) for k, loss, n in state["log"]]
        self._laws = [Law(*law) for law in state["laws"]]
        self._recent = np.array(state["recent"], dtype=np.float64)
        self._mean = np.array(state["mean"], dtype=np.float64)
        self._told.load_state_dict(state["told"])
        self._probabilities = self._prior
        if self._laws:
            self._probabilities = np.array(state["next"]["probabilities"], dtype=np.float64)
            self._probabilities.setflags(write=False)
