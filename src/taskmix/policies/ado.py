"""ADO: prefers the tasks whose fitted scaling laws fall the fastest."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from taskmix.policies.base import (
    LARGEST_LOSS,
    StoredPolicy,
    bounded,
    distribution,
    shares_or_uniform,
)
from taskmix.policies.signals import Loss, Outcome
from taskmix.policies.state import Array, ToldDraws, saved_probabilities
from taskmix.run_info import RunInfo

#: The law counts sequences of this many tokens, as the authors do.
_SEQUENCE_TOKENS = 1024
_MAX_BATCH_TOKENS = 10**9
#: When more outcomes than this are kept for the fit, every other one is dropped.
_MAX_LOG = 20_000
#: The law has three parameters, and the smoothing polynomials have degree three.
_MIN_POINTS = 3
_MIN_EXPONENT = 0.05
_MIN_LOSS = 1e-6
#: The defaults of `every` and `ignored` in a run file are its steps divided by these.
_FITS_IN_RUN, _IGNORED_PARTS = 20, 50
#: The Savitzky-Golay filter, and the distance of the smoothed losses that are fitted.
_WINDOW, _ORDER, _STRIDE = 101, 3, 10
_HUBER_DELTA = 1e-3
#: The authors' initial values of (a, E, α), shape `(points, 3)`.
_GRID = np.array(list(product(np.arange(-2.0, 6.0), np.arange(-2.0, 2.0, 0.5), np.arange(8) / 10)))
#: L-BFGS starts from this many points of the grid, those with the smallest errors.
_MAX_STARTS = 4


class Law(NamedTuple):
    """The loss after n examples, L(n) = e^E + e^a n^-α."""

    scale: float  # a
    irreducible: float  # E
    exponent: float  # α


def smoothed(losses: Array) -> Array:
    from scipy.signal import savgol_filter

    window = min(_WINDOW, len(losses) - 1 + len(losses) % 2)
    return np.asarray(savgol_filter(losses, window, _ORDER, axis=0), dtype=np.float64)


def fit(examples: Array, losses: Array, least: float) -> Law | None:
    """Fit the law to smoothed losses after n examples; None if no fit is finite."""
    from scipy.optimize import minimize

    steps, logs = np.log(examples), np.log(np.maximum(losses, _MIN_LOSS))
    values = _fit_errors(_GRID, steps, logs, least)[0]
    best = None
    for start in _GRID[np.argsort(values, kind="stable")[:_MAX_STARTS]]:
        result = minimize(
            _fit_error,
            start,
            (steps, logs, least),
            method="L-BFGS-B",
            jac=True,
            # SciPy's default tolerance is for errors of about 1; these are about Huber's δ.
            options={"maxiter": 200, "gtol": 1e-5, "ftol": 1e-14},
        )
        if np.isfinite(result.x).all() and (best is None or result.fun < best.fun):
            best = result
    return None if best is None else Law(*best.x.tolist())


def _fit_error(point: Array, steps: Array, logs: Array, least: float) -> tuple[float, Array]:
    values, slopes = _fit_errors(point[None], steps, logs, least)
    return float(values[0]), slopes[0]


def _fit_errors(points: Array, steps: Array, logs: Array, least: float) -> tuple[Array, Array]:
    """Return the objective of the fit, and its gradient, at each point (a, E, α)."""
    # Huber losses of log L, and penalties for α outside [0.001, 0.8], a > 6.5 and E < least.
    a, floor, alpha = (points[:, place, None] for place in range(3))
    falling = a - alpha * steps
    total = np.logaddexp(floor, falling)
    errors = total - logs
    size = np.minimum(np.abs(errors), _HUBER_DELTA)
    value = (size * (np.abs(errors) - size / 2)).sum(1)
    pull = np.clip(errors, -_HUBER_DELTA, _HUBER_DELTA)  # the derivative of Huber's loss
    part = np.exp(falling - total)
    slopes = np.stack(
        [(pull * part).sum(1), (pull * (1 - part)).sum(1), -(pull * part * steps).sum(1)], axis=1
    )
    a, floor, alpha = points.T
    value += np.maximum(alpha - 0.8, 0) - np.minimum(alpha, 0.001)
    value += np.maximum(a - 6.5, 0) + np.maximum(least - floor, 0)
    slopes[:, 0] += a > 6.5
    slopes[:, 1] -= floor < least
    slopes[:, 2] += (alpha > 0.8).astype(float) - (alpha < 0.001)
    return value, slopes


class ADO(StoredPolicy):
    """Prefers the tasks whose losses still fall the fastest, according to fitted scaling laws.

    Adaptive Data Optimization (Jiang et al. 2024). Every `every` outcomes a scaling law
    L_k(n) = e^E_k + e^a_k n^-α_k is fitted to the smoothed losses of each task; n counts all
    training data so far, in sequences of 1,024 tokens. From then on every outcome gives

        ρ_k ∝ μ_k h_k^s · max(α_k, 0.05) e^a_k n^-α_k / n,    at least a floor, normalised,
        p = (1 - γ) p̄ + γ ρ,

    where μ is a prior, h_k the recent share of task k, and p̄ the mean of all ρ. Until the first
    fit, p = μ.

    As in the authors' code, a task that is not in a batch repeats its previous loss in its curve.
    Their batches mix tasks, and h averages the shares in the batches; here h averages the
    distributions of the draws. L-BFGS starts from the four best points of their grid, not all 512.

    By default, a penalty pushes the irreducible loss above e^0.5 = 1.65 nats, as suits language
    models; `irreducible=-10` disables it for classifiers.

    Args:
        tasks: the names of the tasks.
        every: the number of outcomes between two fits; the default in a run file is a twentieth
            of the steps.
        ignored: the number of initial outcomes that are not fitted; the default in a run file is a
            fiftieth of the steps.
        prior: μ of each task; uniform if None.
        step: γ, the weight of ρ; the mean of the past has the rest.
        memory: the weight of the latest draw in h.
        credit: s, the exponent of h.
        floor: the minimum of ρ_k.
        irreducible: the penalty applies to E below this value.

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
    needs = frozenset({Loss()})
    beliefs: ClassVar[Mapping[str, str]] = {"slopes": "the loss that falls the fastest"}
    _saved = ("_outcomes", "_examples", "_log", "_laws", "_recent", "_mean", "_told")

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
        self._prior = shares_or_uniform(prior, self.tasks, "prior")
        self._every, self._ignored = every, ignored
        self._step, self._memory = step, memory
        self._credit, self._floor, self._irreducible = credit, floor, irreducible
        self._told = ToldDraws()
        self._outcomes = 0
        self._examples = 0.0
        self._log: list[tuple[int, float, float]] = []
        self._laws: Sequence[Sequence[float]] = []  # as `Law`
        self._recent: Array = self._prior
        self._mean: Array = self._prior
        self._probabilities = self._prior

    @classmethod
    def for_run(
        cls, info: RunInfo, every: int | None = None, ignored: int | None = None, **options: Any
    ) -> Self:
        every = max(1, info.steps // _FITS_IN_RUN) if every is None else every
        ignored = info.steps // _IGNORED_PARTS if ignored is None else ignored
        return cls(info.tasks, every=every, ignored=ignored, **options)

    def tell(self, outcome: Outcome) -> None:
        loss, draw = bounded(outcome.loss, LARGEST_LOSS), outcome.draw
        if loss is None or not self._told.first(draw.number):
            return
        tokens = outcome.tokens or 0
        self._examples += min(tokens, _MAX_BATCH_TOKENS) / _SEQUENCE_TOKENS if tokens > 0 else 1.0
        self._log.append((draw.index, loss, self._examples))
        if len(self._log) > _MAX_LOG:
            del self._log[::2]
        self._outcomes += 1
        self._recent = (1 - self._memory) * self._recent + self._memory * draw.probabilities
        if self._outcomes % self._every == 0:
            self._fit()
        if self._laws:
            self._share()

    def _fit(self) -> None:
        examples, losses = self._curves()
        ignored = _kept_of(self._ignored, self._outcomes)
        usable = len(losses) - ignored
        if usable <= _STRIDE * (_MIN_POINTS - 1) or len(losses) <= _MIN_POINTS + 1:
            return
        chosen = slice(ignored, None, _STRIDE)
        # Tasks that were never drawn have the same curve, and the same law.
        curves, curve_of = np.unique(smoothed(losses)[chosen].T, axis=0, return_inverse=True)
        fits = [fit(examples[chosen], curve, self._irreducible) for curve in curves]
        laws = [law for law in (fits[place] for place in curve_of) if law is not None]
        if len(laws) == len(self.tasks):  # otherwise the previous laws stay
            self._laws = laws

    def _curves(self) -> tuple[Array, Array]:
        """Return n, shape `(outcomes,)`, and each task's latest loss, `(outcomes, tasks)`."""
        tasks, losses, examples = (np.array(column) for column in zip(*self._log, strict=True))
        places = np.arange(len(tasks))[:, None]
        drawn_at = np.where(tasks[:, None] == np.arange(len(self.tasks)), places, -1)
        latest = np.maximum.accumulate(drawn_at, axis=0)
        # Before its own first loss, a task has the first loss of any task.
        return examples, losses[np.maximum(latest, 0)]

    def _share(self) -> None:
        slopes = self._log_slopes()
        weights = self._prior * self._recent**self._credit * np.exp(slopes - slopes.max())
        preferred = np.maximum(weights / weights.sum(), self._floor)
        preferred = preferred / preferred.sum()
        mixed = (1 - self._step) * self._mean + self._step * preferred
        self._mean = self._mean + (preferred - self._mean) / (self._outcomes + 1)
        self._probabilities = distribution(mixed, self.name)

    def _log_slopes(self) -> Array:
        """Return the logarithms of -dL/d(log n), shape `(tasks,)`."""
        a, _, alpha = np.array(self._laws).T
        return np.asarray(
            np.log(np.maximum(alpha, _MIN_EXPONENT)) + a - alpha * np.log(self._examples)
        )

    def diagnostics(self) -> dict[str, Any]:
        laws = zip(self.tasks, self._laws, strict=False)
        slopes = np.exp(self._log_slopes()).tolist() if self._laws else []
        return {
            "laws": {task: list(law) for task, law in laws},
            "slopes": dict(zip(self.tasks, slopes, strict=False)),
        }

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._log = [(int(k), float(loss), float(n)) for k, loss, n in self._log]
        self._probabilities = saved_probabilities(state) if self._laws else self._prior


def _kept_of(first: int, outcomes: int) -> int:
    """Return how many of the first outcomes are in the log after so many outcomes.

    >>> _kept_of(500, 20_000), _kept_of(500, 20_001), _kept_of(500, 40_000)
    (500, 250, 125)
    """
    seen = length = kept = 0
    while seen < outcomes:
        more = min(outcomes - seen, _MAX_LOG + 1 - length)
        kept += max(0, min(first - seen, more))
        seen, length = seen + more, length + more
        if length > _MAX_LOG:
            length, kept = length // 2, kept // 2
    return kept
