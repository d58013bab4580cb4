"""BatchBALD: what the answers to several examples would tell together."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.uncertainty.arrays import passes_of
from taskmix.uncertainty.bald import mutual_information
from taskmix.uncertainty.entropy import entropies

LIMIT = 2**14
DRAWS = 500

# Stands for log 0: no configuration that is ever drawn comes near it.
IMPOSSIBLE = -1e4


@dataclass(frozen=True, slots=True)
class JointInformation:
    """A mutual information in nats, and how far it is to be trusted.

    Args:
        value: the information.
        standard_error: of the value; 0 if it is exact. Where the value all but reaches log K, what
            is left hangs on configurations too rare to be drawn, and the error is too small.
        exact: whether every configuration of labels was counted.
    """

    value: float
    standard_error: float
    exact: bool


def batch_bald(
    samples: Any,
    limit: int = LIMIT,
    draws: int = DRAWS,
    rng: np.random.Generator | None = None,
) -> float:
    """Mutual information between the labels of all examples together and the model's weights.

    The value of `joint_mutual_information`, which explains the arguments.

    >>> twice = np.array([[[1.0, 0.0]] * 2, [[0.0, 1.0]] * 2])
    >>> round(batch_bald(twice), 4)  # two examples that say the same say it once
    0.6931
    """
    return joint_mutual_information(samples, limit, draws, rng).value


def joint_mutual_information(
    samples: Any,
    limit: int = LIMIT,
    draws: int = DRAWS,
    rng: np.random.Generator | None = None,
) -> JointInformation:
    """Mutual information between the labels of all examples together and the model's weights.

    Kirsch et al. (2019): I(y₁…yₙ; w) = H(y₁…yₙ) - Σᵢ E H(yᵢ | w). A pass has to mean the same
    weights for all examples: use `consistent_dropout`. With K passes it is at most log K, and close
    to it as soon as a few examples tell the passes apart.

    Args:
        samples: one distribution a pass and example, shape `(passes, examples, classes)`.
        limit: with at most this many configurations of labels, all are counted.
        draws: beyond it, this many configurations are drawn from each pass.
        rng: where the draws come from; a stream of its own, the same at every call, if None.

    >>> joint_mutual_information(np.array([[[1.0, 0.0]], [[0.0, 1.0]]])).exact
    True
    """
    p = passes_of(samples)
    # An example on which all passes agree is independent of them: it tells nothing.
    p = p[:, np.any(p != p[0], axis=(0, 2))]
    _, examples, classes = p.shape
    if examples == 0:
        return JointInformation(0.0, 0.0, exact=True)
    if examples * math.log(classes) <= math.log(limit):
        return JointInformation(float(mutual_information(_joint(p))), 0.0, exact=True)
    return _sampled(p, draws, rng or stream(0, "configurations"))


def _joint(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each pass's probability of every configuration of labels, shape `(passes, classes**n)`."""
    joint = p[:, 0]
    for example in range(1, p.shape[1]):
        joint = (joint[:, :, None] * p[:, example, None, :]).reshape(len(p), -1)
    return joint


def _sampled(p: NDArray[np.float64], draws: int, rng: np.random.Generator) -> JointInformation:
    """I = log K - E H(k | y) over configurations y drawn from each pass in turn.

    It asks how well a configuration tells which of the K equally likely passes it came from. Every
    term lies between 0 and log K, and their spread vanishes at both ends: where the passes agree
    and where they are told apart. Joint entropies of many labels, whose spread grows with their
    number, do not enter.
    """
    if draws < 2:
        raise ValueError(f"draws: expected at least 2, found {draws}")
    likelihood = _Likelihood(p)
    terms = np.stack([likelihood.information(k, draws, rng) for k in range(len(p))])
    # The draws are stratified by pass, so only the spread within a pass counts.
    error = math.sqrt(terms.var(axis=1, ddof=1).mean() / terms.size)
    return JointInformation(float(terms.mean()), error, exact=False)


class _Likelihood:
    """Draws configurations and gives their log-likelihood under every pass by one matrix product.

    A label is coded by which cumulative probabilities its uniform number exceeds; its
    log-probability is then that of class 0 plus the steps from class to class below it.
    """

    def __init__(self, p: NDArray[np.float64]) -> None:
        logs = np.log(p, out=np.full_like(p, IMPOSSIBLE), where=p > 0)
        self._cumulative = np.cumsum(p, axis=-1)[..., :-1]
        self._base = logs[..., 0].sum(axis=1)
        self._steps = np.diff(logs, axis=-1).reshape(len(p), -1).T

    def information(self, k: int, draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return how much configurations y drawn from pass k tell, log K - H(k | y): `(draws,)`."""
        bounds = self._cumulative[k]
        code = (rng.random((draws, len(bounds), 1)) > bounds).reshape(draws, -1)
        likelihood = self._base + code.astype(np.float64) @ self._steps
        posterior = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        posterior /= posterior.sum(axis=1, keepdims=True)
        return math.log(len(self._base)) - entropies(posterior)
