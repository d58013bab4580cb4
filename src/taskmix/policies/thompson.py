"""Thompson sampling: which tasks help a primary task."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.policies.base import Draw, Outcome, Policy
from taskmix.policies.largest import probability_largest
from taskmix.policies.signals import DevScore, Signal

#: How many rounds' dev scores are remembered, for those that come late.
_REMEMBERED = 64


@dataclass(frozen=True)
class Utility:
    """How useful a task was to the primary, as far as its pulls tell.

    Args:
        task: its name.
        mean: the expected utility, a / (a + b).
        low: lower end of the central 95% credible interval.
        high: upper end of it.
        pulls: the rounds it was given.
        a: successes, those of the prior among them.
        b: failures likewise: the utility is Beta(a, b).
    """

    task: str
    mean: float
    low: float
    high: float
    pulls: int
    a: float
    b: float

    def chance_above(self, threshold: float) -> float:
        """Return how probable it is that the utility is above a threshold."""
        from scipy.special import betaincc

        return float(betaincc(self.a, self.b, threshold))


def helpful(
    utilities: Sequence[Utility],
    primary: str,
    top: int = 2,
    threshold: float = 0.5,
    credibility: float = 0.95,
) -> list[str]:
    """Return the primary, its `top` most useful tasks, and any other that is credibly useful.

    Guo, Pasunuru and Bansal (2019) take any further task whose expected utility is above 0.5, which
    is where a task that nobody knows anything about starts; a credibility of 0.5 is close to that.

    Args:
        utilities: of all tasks.
        primary: the task that the others are to help.
        top: how many to take in any case, of those that were pulled at all.
        threshold: the utility above which further ones are taken.
        credibility: how probable it has to be that theirs is above it.
    """
    pulled = [u for u in utilities if u.pulls > 0 and u.task != primary]
    ranked = sorted(pulled, key=lambda u: -u.mean)
    chosen = [
        u.task
        for place, u in enumerate(ranked)
        if place < top or u.chance_above(threshold) > credibility
    ]
    return [primary, *chosen]


class Thompson(Policy):
    """Gives rounds of mini-batches to the tasks that keep a primary task improving.

    The first stage of AutoSeM (Guo, Pasunuru and Bansal 2019, Algorithm 1). The utility of task k
    is θ_k ~ Beta(a_k, b_k). A round draws all θ; the task with the largest gets its mini-batches.
    Then r = 1 if the primary's dev score did not fall since the last round, else 0, and

        (a, b) ← (1 - γ) (a, b) + γ (a₀, b₀)  for all tasks;  (a, b) ← (a + r, b + 1 - r)  for k.

    The logged distribution of every draw in a round is that of the round's one decision. So each
    draw's propensity is right on its own, and importance weights over single draws are unbiased;
    but the draws of a round are one piece of evidence, not several.

    A dev score belongs to the round of its draw, however late it comes. It is compared with that of
    the nearest round before whose score is known by then, and counts once.

    Args:
        tasks: the names of the tasks, the primary among them.
        primary: the task that the others are to help.
        decay: γ; an arm remembers about 1/γ rounds. The authors' code has 0.3, which forgets after
            three.
        prior: (a₀, b₀).
        primary_prior: where the primary starts. The paper makes it "slightly stronger" without a
            number; one success ahead makes it the likeliest first arm and is soon outvoted.
        batches: mini-batches in a round.
        propensity: from `a` and `b`, the probability of each arm to have the largest draw.

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

    def __init__(
        self,
        tasks: Sequence[str],
        primary: str,
        decay: float = 0.05,
        prior: tuple[float, float] = (1.0, 1.0),
        primary_prior: tuple[float, float] = (2.0, 1.0),
        batches: int = 10,
        propensity: Callable[
            [NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]
        ] = probability_largest,
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
        # The last draws of rounds and the scores after them, in order.
        self._scores: list[tuple[int, float]] = []
        self._arm = 0
        self._probabilities = np.empty(0)
        self._outdated = True

    def probabilities(self) -> NDArray[np.float64]:
        """The probability of each task to be the choice of the round that the next draw is in."""
        if self._outdated and self._draws % self._batches == 0:
            self._probabilities = self._propensity(*self._beliefs)
            self._probabilities.setflags(write=False)
            self._outdated = False
        return self._probabilities

    def _choose(self, probabilities: NDArray[np.float64], rng: np.random.Generator) -> int:
        if self._draws % self._batches > 0:
            return self._arm
        a, b = self._beliefs
        theta = rng.beta(a, b)
        best = np.flatnonzero(theta == theta.max())
        self._arm = int(best[0] if len(best) == 1 else rng.choice(best))
        return self._arm

    def replay(self, index: int) -> Draw:
        """Take a draw, which holds for the rest of its round."""
        self._arm = index
        return super().replay(index)

    def due(self, draw: Draw) -> frozenset[Signal]:
        """Return the primary's dev score, at the last draw of a round."""
        return self.needs if self._ends_round(draw) else frozenset()

    def _ends_round(self, draw: Draw) -> bool:
        return draw.number % self._batches == 0

    def tell(self, outcome: Outcome) -> None:
        """Learn from the dev score at the end of a round, if it was measured."""
        score = outcome.score
        if score is None or not math.isfinite(score) or not self._ends_round(outcome.draw):
            return
        before = self._score_before(outcome.draw.number, score)
        if before is not None:
            self._update(outcome.draw.index, success=score >= before)

    def _score_before(self, number: int, score: float) -> float | None:
        """Remember a round's score and return that of the round before; None if it cannot count."""
        place = bisect_left(self._scores, (number,))
        too_late = place == 0 and len(self._scores) == _REMEMBERED
        if too_late or (place < len(self._scores) and self._scores[place][0] == number):
            return None
        self._scores.insert(place, (number, score))
        before = self._scores[place - 1][1] if place > 0 else 0.0
        del self._scores[:-_REMEMBERED]
        return before

    def _update(self, arm: int, success: bool) -> None:
        self._beliefs *= 1 - self._decay
        self._beliefs += self._drift
        self._beliefs[0 if success else 1, arm] += 1
        self._evidence[:, arm] = self._beliefs[:, arm]
        self._pulls[arm] += 1
        self._outdated = True

    def utilities(self) -> list[Utility]:
        """Return what each task's own pulls tell: its posterior as it was after its latest round.

        An arm that is not pulled drifts back to its prior; that is how the bandit comes to try it
        again, but nothing was learned from it, so it is not counted here.
        """
        from scipy.special import betaincinv

        a, b = self._evidence
        low, high = betaincinv(a, b, 0.025), betaincinv(a, b, 0.975)
        return [
            Utility(
                task,
                float(a[k] / (a[k] + b[k])),
                float(low[k]),
                float(high[k]),
                int(pulls),
                float(a[k]),
                float(b[k]),
            )
            for k, (task, pulls) in enumerate(zip(self.tasks, self._pulls, strict=True))
        ]

    def select(self, top: int = 2, threshold: float = 0.5, credibility: float = 0.95) -> list[str]:
        """Return the primary and the tasks that help it, see `helpful`.

        Args:
            top: how many to take in any case, of those that were pulled at all.
            threshold: the utility above which further ones are taken.
            credibility: how probable it has to be that theirs is above it.
        """
        return helpful(self.utilities(), self.primary, top, threshold, credibility)

    def diagnostics(self) -> dict[str, Any]:
        """Return the posteriors and pull counts by task."""
        a, b = self._beliefs.tolist()
        return {
            "a": dict(zip(self.tasks, a, strict=True)),
            "b": dict(zip(self.tasks, b, strict=True)),
            "pulls": dict(zip(self.tasks, self._pulls.tolist(), strict=True)),
        }

    def _state(self) -> dict[str, Any]:
        return {
            "beliefs": self._beliefs.tolist(),
            "evidence": self._evidence.tolist(),
            "pulls": self._pulls.tolist(),
            "scores": [[number, score] for number, score in self._scores],
            "arm": self._arm,
            "outdated": self._outdated,
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._beliefs = np.array(state["beliefs"], dtype=np.float64)
        self._evidence = np.array(state["evidence"], dtype=np.float64)
        self._pulls = np.array(state["pulls"], dtype=np.int64)
        self._scores = [(number, score) for number, score in state["scores"]]
        self._arm = state["arm"]
        # Within a round its distribution stays, whatever has been learned since it began.
        self._probabilities = np.array(state["next"]["probabilities"], dtype=np.float64)
        self._probabilities.setflags(write=False)
        self._outdated = state["outdated"]
