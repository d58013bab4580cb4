"""The score behind the published tables of active prioritization, as its authors' code has it."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.uncertainty.arrays import passes_of
from taskmix.uncertainty.bald import mutual_information
from taskmix.uncertainty.entropy import entropies


def legacy(
    samples: Any, steps: int = 10, draws: int = 500, rng: np.random.Generator | None = None
) -> float:
    """Return the score of a mini-batch that the code of Fang and Alqatari (2020) computed.

    It is no mutual information, and not BatchBALD. Examples are taken greedily, the first by its
    BALD, each further one c by H(taken, c) - E H(c | w): the joint entropy, less the conditional
    entropy of c alone, where BatchBALD would take off those of all. What the model can never know
    about the examples taken before stays in, so the score is well above 0 for passes that agree
    completely, and mostly a predictive entropy of the most uncertain examples. The mean of the
    scores at the first `steps` choices is returned. Use it to compare with the published numbers
    only; `batch_bald` is what it was meant to be.

    Args:
        samples: one distribution a pass and example, shape `(passes, examples, classes)`.
        steps: how many examples are taken.
        draws: configurations drawn from each pass once there are more than that to count.
        rng: where the draws come from; a stream of its own, the same at every call, if None.

    >>> sure_to_be_coins = np.full((8, 20, 2), 0.5)
    >>> round(legacy(sure_to_be_coins), 4), float(mutual_information(sure_to_be_coins).max())
    (3.1192, 0.0)
    """
    p = passes_of(samples)
    rng = rng or stream(0, "configurations")
    unknowable = entropies(p).mean(axis=0)
    information = mutual_information(p)
    taken = [int(information.argmax())]
    scores = [float(information[taken[0]])]
    known = _Configurations(p[:, taken[0]], np.ones(p.shape[2]))
    while len(taken) < min(steps, p.shape[1]):
        gains = known.entropy_with(p) - unknowable
        gains[taken] = -np.inf
        best = int(gains.argmax())
        taken.append(best)
        scores.append(float(gains[best]))
        known = _configurations(p[:, taken], known, draws, rng)
    return math.fsum(scores) / len(scores)


@dataclass(frozen=True, slots=True, eq=False)
class _Configurations:
    """Label configurations of the examples taken: each one's probability, and its weight in sums.

    Counted configurations weigh 1; drawn ones weigh one over how often they are expected.
    """

    probabilities: NDArray[np.float64]  # (passes, configurations)
    weights: NDArray[np.float64]  # (configurations,)

    def entropy_with(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Joint entropy of the configurations with each example, shape `(examples,)`."""
        passes, examples, classes = p.shape
        joint = self.probabilities.T @ p.reshape(passes, -1) / passes
        terms = -joint * np.log(joint, out=np.zeros_like(joint), where=joint > 0)
        total: NDArray[np.float64] = (self.weights @ terms).reshape(examples, classes).sum(axis=-1)
        return total


def _configurations(
    taken: NDArray[np.float64], before: _Configurations, draws: int, rng: np.random.Generator
) -> _Configurations:
    """The configurations of the examples taken: all of them, or drawn ones if they are many."""
    passes, _, classes = taken.shape
    if before.probabilities.shape[1] * classes <= draws * passes and np.all(before.weights == 1):
        joint = before.probabilities[:, :, None] * taken[:, -1, None, :]
        joint = joint.reshape(passes, -1)
        return _Configurations(joint, np.ones(joint.shape[1]))
    return _drawn(taken, draws, rng)


def _drawn(p: NDArray[np.float64], draws: int, rng: np.random.Generator) -> _Configurations:
    passes, examples, _ = p.shape
    bounds = np.cumsum(p, axis=-1)[:, None, :, :-1]
    labels = (rng.random((passes, draws, examples, 1)) > bounds).sum(axis=-1)
    labels = labels.reshape(passes * draws, examples)
    likelihood = np.ones((passes, passes * draws))
    for example in range(examples):
        likelihood *= p[:, example, labels[:, example]]
    return _Configurations(likelihood, 1.0 / (passes * draws * likelihood.mean(axis=0)))
