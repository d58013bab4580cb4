"""Thompson sampling: finds the tasks that help a primary task."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Policy
from taskmix.policies.signals import DevScore, Draw, Outcome, Signal
from taskmix.policies.state import Array, saved_probabilities

#: The dev scores of this many rounds are kept, to compare late scores with.
_MAX_SCORES = 64


def probability_largest(a: Array, b: Array) -> Array:
    """Return P(θ_k = max_j θ_j) for each k, with independent θ_j ~ Beta(a_j, b_j), by quadrature.

    >>> probability_largest(np.array([2.0, 1.0]), np.array([1.0, 1.0])).round(4).tolist()
    [0.6667, 0.3333]
    """
    # The maximum has the distribution function G = Π_j F_j. As d log G = Σ_j d log F_j, arm k has
    # the share d log F_k / d log G of its density: P(k) = ∫ (d log F_k / d log G) dG, a sum over
    # cells of G with the shares from their ends. The result sums to 1 for any number of cells, and
    # its error falls with the square of their number: 5e-5 with 112 cells.
    # Arms with the same parameters are computed once.
    arms, arm_of, counts = np.unique(
        np.column_stack([a, b]), axis=0, return_inverse=True, return_counts=True
    )
    edges = _edges(arms, counts)
    log_cdfs = _log_cdf(arms, edges)
    log_largest = counts @ log_cdfs
    mass = np.diff(np.exp(log_largest))
    rise = np.diff(log_largest)
    shares = np.diff(log_cdfs, axis=1) / np.where(rise > 0, rise, 1.0)
    chances = shares @ mass
    probabilities: Array = (chances / (counts @ chances))[arm_of.reshape(-1)]
    return probabilities


def _log_cdf(arms: Array, x: Array) -> Array:
    from scipy.special import betainc  # here, as it takes longer to import than taskmix does

    # The floor is too small to affect the distribution of the largest.
    return np.log(np.maximum(betainc(arms[:, :1], arms[:, 1:], x), 1e-300))


def _edges(arms: Array, counts: NDArray[np.int64]) -> Array:
    """Return points between which G rises little, and least where it starts to rise."""
    x = np.sin(np.linspace(0, np.pi / 2, 34)) ** 2
    # Each pass inverts G between the points of the previous one, to find even narrow peaks.
    for cells in (32, 48, 112):
        cdf = np.exp(counts @ _log_cdf(arms, x))
        levels = np.sin(np.linspace(0, np.pi / 2, cells + 1)) ** 4
        x = np.interp(levels, cdf, x)
        x[0], x[-1] = 0.0, 1.0
        x = np.unique(x)
    return x


@dataclass(frozen=True)
class Utility:
    """The posterior Beta(a, b) of a task's utility for the primary task.

    Args:
        task: the name of the task.
        mean: the expected utility, a / (a + b).
        low: the lower end of the central 95% credible interval.
        high: the upper end.
        pulls: the number of rounds of the task.
        a: the number of successes, including the prior's.
        b: the number of failures, including the prior's.
    """

    task: str
    mean: float
    low: float
    high: float
    pulls: int
    a: float
    b: float

    def chance_above(self, threshold: float) -> float:
        """Return the probability that the utility is above a threshold."""
        from scipy.special import betaincc

        return float(betaincc(self.a, self.b, threshold))


def helpful(
    utilities: Sequence[Utility],
    primary: str,
    top: int = 2,
    threshold: float = 0.5,
    credibility: float = 0.95,
) -> list[str]:
    """Return the primary, its `top` most useful tasks, and any other that is credibly useful."""
    # Guo, Pasunuru and Bansal (2019) select every further task whose expected utility is above 0.5,
    # the mean of the prior; a credibility of 0.5 is similar.
    pulled = [u for u in utilities if u.pulls > 0 and u.task != primary]
    ranked = sorted(pulled, key=lambda u: -u.mean)
    chosen = [
        u.task
        for place, u in enumerate(ranked)
        if place < top or u.chance_above(threshold) > credibility
    ]
    return [primary, *chosen]


class Thompson(Policy):
    """Prefers the tasks after which the dev score of a primary task does not fall.

    The first stage of AutoSeM (Guo, Pasunuru and Bansal 2019, Algorithm 1). The utility of task k
    is θ_k ~ Beta(a_k, b_k). In each round, all θ are sampled, and the task k with the largest gets
    all mini-batches of the round. Then r = 1 if the dev score of the primary task did not fall
    since the previous round, else 0, and

        (a, b) ← (1 - γ) (a, b) + γ (a₀, b₀)  for all tasks;  (a, b) ← (a + r, b + 1 - r)  for k.

    A round is one decision and one observation: its draws share one propensity. A dev score counts
    once, for the round of its draw, even if it arrives late; it is compared with the score of the
    nearest earlier round that is known by then.

    Args:
        tasks: the names of the tasks, including the primary task.
        primary: the primary task, which the other tasks should help.
        decay: γ; the posterior remembers about 1/γ rounds. The authors' code uses 0.3.
        prior: (a₀, b₀).
        primary_prior: the prior of the primary task. The paper calls it "slightly stronger" without
            a number; with one more success, the primary is the most likely first task.
        batches: the number of mini-batches in a round.
        propensity: computes, from a and b, the probability that each task has the largest sample.

    >>> from taskmix.rng import stream
    >>> policy = Thompson(["rte", "mnli", "noise"], primary="rte", batches=1)
    >>> rng = stream(1, "draws")
    >>> score = 0.5
    >>> for _ in range(200):
    ...     draw = policy.ask(rng)
    ...     score += -0.01 if draw.task == "noise" else 0.01
    ...     policy.tell(Outcome(draw, score=score))
    >>> policy.select(top=1)
    ['rte', 'mnli']
    """

    name = "thompson"
    beliefs: ClassVar = {"utilities": "the highest utility"}
    _saved = ("_beliefs", "_evidence", "_pulls", "_scores", "_arm", "_outdated")

    def __init__(
        self,
        tasks: Sequence[str],
        primary: str,
        decay: float = 0.05,
        prior: tuple[float, float] = (1.0, 1.0),
        primary_prior: tuple[float, float] = (2.0, 1.0),
        batches: int = 10,
        propensity: Callable[[Array, Array], Array] = probability_largest,
    ) -> None:
        super().__init__(tasks)
        if primary not in self.tasks:
            raise ValueError(f"primary: expected one of {list(self.tasks)}, found {primary!r}")
        if not 0 <= decay < 1 or batches < 1:
            raise ValueError(
                "decay, batches: expected 0 <= decay < 1 and batches of at least 1,"
                f" found {decay}, {batches}"
            )
        if not all(p > 0 for p in (*prior, *primary_prior)):
            raise ValueError(
                "prior, primary_prior: expected pairs of numbers above 0,"
                f" found {prior}, {primary_prior}"
            )
        self.primary = primary
        self.needs = frozenset({DevScore(primary)})
        self._decay = decay
        start = np.array(prior, dtype=np.float64)[:, None]
        self._drift = decay * start
        self._batches = batches
        self._propensity = propensity
        # Rows a and b, shape (2, tasks).
        self._beliefs = np.tile(start, len(self.tasks))
        self._beliefs[:, self.tasks.index(primary)] = primary_prior
        self._evidence = self._beliefs.copy()
        self._pulls = np.zeros(len(self.tasks), dtype=np.int64)
        # The last draw of each round and the score after it, in order.
        self._scores: list[tuple[int, float]] = []
        self._arm = 0
        self._probabilities = np.empty(0)
        self._outdated = True

    def probabilities(self) -> Array:
        if self._outdated and self._draws % self._batches == 0:
            self._probabilities = self._propensity(*self._beliefs)
            self._probabilities.setflags(write=False)
            self._outdated = False
        return self._probabilities

    def _choose(self, probabilities: Array, rng: np.random.Generator) -> int:
        if self._draws % self._batches > 0:
            return self._arm
        a, b = self._beliefs
        theta = rng.beta(a, b)
        best = np.flatnonzero(theta == theta.max())
        self._arm = int(best[0] if len(best) == 1 else rng.choice(best))
        return self._arm

    def replay(self, index: int) -> Draw:
        self._arm = index
        return super().replay(index)

    def due(self, draw: Draw) -> frozenset[Signal]:
        return self.needs if self._ends_round(draw) else frozenset()

    def _ends_round(self, draw: Draw) -> bool:
        return draw.number % self._batches == 0

    def tell(self, outcome: Outcome) -> None:
        score = outcome.score
        if score is None or not math.isfinite(score) or not self._ends_round(outcome.draw):
            return
        before = self._score_before(outcome.draw.number, score)
        if before is not None:
            self._update(outcome.draw.index, success=score >= before)

    def _score_before(self, number: int, score: float) -> float | None:
        """Store a round's score and return the one before; None for a repeated or very late one."""
        place = bisect_left(self._scores, (number,))
        too_late = place == 0 and len(self._scores) == _MAX_SCORES
        if too_late or (place < len(self._scores) and self._scores[place][0] == number):
            return None
        self._scores.insert(place, (number, score))
        before = self._scores[place - 1][1] if place > 0 else 0.0
        del self._scores[:-_MAX_SCORES]
        return before

    def _update(self, arm: int, success: bool) -> None:
        self._beliefs *= 1 - self._decay
        self._beliefs += self._drift
        self._beliefs[0 if success else 1, arm] += 1
        self._evidence[:, arm] = self._beliefs[:, arm]
        self._pulls[arm] += 1
        self._outdated = True

    def utilities(self) -> list[Utility]:
        """Return the posterior of each task after its latest round, without the later decay."""
        from scipy.special import betaincinv

        a, b = self._evidence
        low, high = betaincinv(a, b, 0.025), betaincinv(a, b, 0.975)
        columns = (a / (a + b), low, high, self._pulls, a, b)
        rows = zip(self.tasks, *(column.tolist() for column in columns), strict=True)
        return [Utility(*row) for row in rows]

    def select(self, top: int = 2, threshold: float = 0.5, credibility: float = 0.95) -> list[str]:
        """Return the primary task and the tasks that help it.

        Args:
            top: the number of tasks to select in any case, of those that were drawn.
            threshold: a further task is selected if its utility is above this value with a
                posterior probability of at least `credibility`.
            credibility: see `threshold`.
        """
        return helpful(self.utilities(), self.primary, top, threshold, credibility)

    def diagnostics(self) -> dict[str, Any]:
        a, b = self._beliefs
        return {
            "a": self._named(a),
            "b": self._named(b),
            "pulls": self._named(self._pulls),
            "utilities": self._named(a / (a + b)),
        }

    def _derive(self, state: Mapping[str, Any]) -> None:
        self._scores = [(number, score) for number, score in self._scores]
        # The distribution is constant within a round, whatever was learned since it began.
        self._probabilities = saved_probabilities(state)
