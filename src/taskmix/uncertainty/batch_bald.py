"""BatchBALD, the joint information of several examples, and the score of an earlier code."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.uncertainty.information import entropies, mutual_information, passes_of

MAX_CONFIGURATIONS = 2**14
DRAWS = 500
LOG_ZERO = -1e4  # below the log-probability of any configuration that is drawn


@dataclass(frozen=True, slots=True)
class JointInformation:
    """A mutual information in nats, with its standard error.

    Args:
        value: the information.
        standard_error: the standard error; 0 if the value is exact. It is too small if the value is
            close to log(passes), as it then depends on configurations too rare to be drawn.
        exact: whether all configurations of labels were enumerated.
    """

    value: float
    standard_error: float
    exact: bool


def batch_bald(
    samples: Any,
    limit: int = MAX_CONFIGURATIONS,
    draws: int = DRAWS,
    rng: np.random.Generator | None = None,
) -> float:
    """Return the value of `joint_mutual_information`, with the same arguments.

    >>> twice = np.array([[[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2])
    >>> round(batch_bald(twice), 4)  # a copy of an example adds no information
    0.6931
    """
    return joint_mutual_information(samples, limit, draws, rng).value


def joint_mutual_information(
    samples: Any,
    limit: int = MAX_CONFIGURATIONS,
    draws: int = DRAWS,
    rng: np.random.Generator | None = None,
) -> JointInformation:
    """Return the mutual information of the labels of all examples and the weights, in nats.

    Kirsch et al. (2019): I(y₁…yₙ; w) = H(y₁…yₙ) - Σᵢ E H(yᵢ | w). The examples of a pass must share
    the weights: use `consistent_dropout`. With K passes it is at most log K, and close to that if a
    few examples distinguish the passes.

    Args:
        samples: the distributions of each pass, shape `(passes, examples, classes)`.
        limit: up to this number of label configurations, all are enumerated.
        draws: above the limit, the number of configurations drawn from each pass.
        rng: the random generator of the draws; the same one at every call if None.

    >>> joint_mutual_information(np.array([[[1.0, 0.0]], [[0.0, 1.0]]])).exact
    True
    """
    p = passes_of(samples)
    # An example on which all passes agree adds no information.
    p = p[:, np.any(p != p[0], axis=(0, 2))]
    _, examples, classes = p.shape
    if examples == 0:
        return JointInformation(0.0, 0.0, exact=True)
    if examples * math.log(classes) <= math.log(limit):
        return JointInformation(float(mutual_information(_joint(p))), 0.0, exact=True)
    return _sampled(p, draws, rng or stream(0, "configurations"))


def _joint(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probability of every configuration of labels, shape `(passes, classes**n)`."""
    joint = p[:, 0]
    for example in range(1, p.shape[1]):
        joint = (joint[:, :, None] * p[:, example, None, :]).reshape(len(p), -1)
    return joint


def _sampled(p: NDArray[np.float64], draws: int, rng: np.random.Generator) -> JointInformation:
    """Estimate I = log K - E H(k | y) from configurations y drawn from each pass."""
    # Every term is between 0 and log K. The variance vanishes at both ends, where the passes agree
    # and where y identifies the pass; that of joint entropies would grow with the examples.
    if draws < 2:
        raise ValueError(f"draws: expected at least 2, found {draws}")
    likelihood = _Likelihood(p)
    terms = np.stack([likelihood.information(k, draws, rng) for k in range(len(p))])
    # The draws are stratified by pass, so only the variance within a pass counts.
    error = math.sqrt(terms.var(axis=1, ddof=1).mean() / terms.size)
    return JointInformation(float(terms.mean()), error, exact=False)


class _Likelihood:
    """Draws configurations, and computes their likelihoods in all passes by a matrix product."""

    # A label is encoded as the cumulative probabilities that its uniform random number exceeds. Its
    # log-probability is that of class 0 plus the differences between the classes up to it.

    def __init__(self, p: NDArray[np.float64]) -> None:
        logs = np.log(p, out=np.full_like(p, LOG_ZERO), where=p > 0)
        self._cumulative = np.cumsum(p, axis=-1)[..., :-1]
        self._base = logs[..., 0].sum(axis=1)
        self._steps = np.diff(logs, axis=-1).reshape(len(p), -1).T

    def information(self, k: int, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return log K - H(k | y) for configurations y drawn from pass k, shape `(draws,)`."""
        bounds = self._cumulative[k]
        code = (rng.random((draws, len(bounds), 1)) > bounds).reshape(draws, -1)
        likelihood = self._base + code.astype(np.float64) @ self._steps
        posterior = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        return math.log(len(self._base)) - entropies(posterior)


def legacy(
    samples: Any, steps: int = 10, draws: int = 500, rng: np.random.Generator | None = None
) -> float:
    """Return the score of a mini-batch in the code of Fang and Alqatari (2020).

    Use it only to compare with their numbers, otherwise `batch_bald`: it is not a mutual
    information. Examples are chosen greedily, the first by its BALD, each further example c by
    H(chosen, c) - E H(c | w). BatchBALD would subtract the conditional entropies of all chosen
    examples. Without that, the score is mostly the predictive entropy of the most uncertain
    examples, and above 0 even if all passes agree. The result is the mean of the scores.

    Args:
        samples: the distributions of each pass, shape `(passes, examples, classes)`.
        steps: the number of examples to choose.
        draws: the number of configurations drawn from each pass, if there are more.
        rng: the random generator of the draws; the same one at every call if None.

    >>> coins = np.full((8, 20, 2), 0.5)
    >>> round(legacy(coins), 4), float(mutual_information(coins).max())
    (3.1192, 0.0)
    """
    p = passes_of(samples)
    rng = rng or stream(0, "configurations")
    noise = entropies(p).mean(axis=0)
    information = mutual_information(p)
    taken = [int(information.argmax())]
    scores = [float(information[taken[0]])]
    known = _Configurations(p[:, taken[0]], np.ones(p.shape[2]))
    while len(taken) < min(steps, p.shape[1]):
        gains = known.entropy_with(p) - noise
        gains[taken] = -np.inf
        best = int(gains.argmax())
        taken.append(best)
        scores.append(float(gains[best]))
        known = _configurations(p[:, taken], known, draws, rng)
    return math.fsum(scores) / len(scores)


@dataclass(frozen=True, slots=True, eq=False)
class _Configurations:
    probabilities: NDArray[np.float64]  # (passes, configurations)
    weights: NDArray[np.float64]  # (configurations,): 1 if enumerated, 1 / expected count if drawn

    def entropy_with(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the joint entropy with each example, shape `(examples,)`."""
        passes, examples, classes = p.shape
        joint = self.probabilities.T @ p.reshape(passes, -1) / passes
        terms = -joint * np.log(joint, out=np.zeros_like(joint), where=joint > 0)
        total: NDArray[np.float64] = (self.weights @ terms).reshape(examples, classes).sum(axis=-1)
        return total


def _configurations(
    taken: NDArray[np.float64], before: _Configurations, draws: int, rng: np.random.Generator
) -> _Configurations:
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
