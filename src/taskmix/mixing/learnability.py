"""Prompts by learnability: those whose pass rate is neither 0 nor 1 come more often."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.mixing.orders import BatchOrder
from taskmix.policies.learnability import check_settings, learnability_shares, pass_share
from taskmix.rng import stream


@dataclass(frozen=True)
class PromptLearnability:
    """How the prompts of an environment are drawn by their pass rate p.

    A prompt i that is not waiting for its rewards is drawn with the probability

        π_i = (1 - ε) p_i (1 - p_i) / Σ_j p_j (1 - p_j) + ε/N.

    The score p(1 - p) is that of SFL (Rutherford et al. 2024) and LILO (Foster et al. 2025, arXiv
    2502.12272). Both generate completions for candidates only to estimate p, and train on the
    candidates with the largest scores. Here p_i is a running mean over the groups of completions
    that the prompt has been trained on, p_i ← p_i + α (r - p_i), from 1/2. So it costs no
    completions, but is as old as the prompt's latest group; ε keeps all prompts coming back. A
    prompt without a group has the largest score. The running mean, the proportional share and the
    defaults are ours.

    Args:
        rate: α.
        epsilon: ε, the probability of drawing uniformly.
        lowest: the reward of a failure; rewards are scaled to [0, 1] and clipped.
        highest: the reward of a success.
    """

    rate: float = 0.7
    epsilon: float = 0.1
    lowest: float = 0.0
    highest: float = 1.0

    def __post_init__(self) -> None:
        check_settings(self.rate, self.epsilon, self.lowest, self.highest)


class LearnabilityOrder(BatchOrder):
    """Batches of prompts, drawn without replacement by their learnability.

    A prompt is not drawn again before `tell` has its reward, unless the others do not fill a batch.
    The batches depend on the rewards that were told before them, so the pass rates are part of the
    state.

    Args:
        task: the name of the environment.
        size: the number of its prompts.
        batch: prompts in a batch.
        seed: determines the draws, together with the name and the number of the batch.
        settings: how prompts are drawn.

    >>> order = LearnabilityOrder("math", 4, 2, seed=1, settings=PromptLearnability(rate=1.0))
    >>> for item, reward in enumerate([0.0, 1.0, 0.5, 0.25]):
    ...     order.tell(item, reward)
    >>> order.probabilities().round(2).tolist()
    [0.02, 0.02, 0.54, 0.41]
    >>> order.next()
    [3, 1]
    """

    def __init__(
        self,
        task: str,
        size: int,
        batch: int,
        seed: int,
        settings: PromptLearnability | None = None,
    ) -> None:
        super().__init__(task)
        self._size, self._batch, self._seed = size, min(batch, size), seed
        self._options = settings or PromptLearnability()
        self._pass_rates = np.full(size, 0.5)
        self._waiting: set[int] = set()  # drawn, and not told about

    def probabilities(self) -> NDArray[np.float64]:
        """Return the distribution of the next prompt, shape `(prompts,)`."""
        shares = learnability_shares(self._pass_rates, self._options.epsilon)
        if self._size - len(self._waiting) >= self._batch:
            shares[list(self._waiting)] = 0.0
        distribution: NDArray[np.float64] = shares / shares.sum()
        return distribution

    def tell(self, item: int, reward: float | None) -> None:
        self._waiting.discard(item)
        if reward is None:
            return
        passed = pass_share(reward, self._options.lowest, self._options.highest)
        self._pass_rates[item] += self._options.rate * (passed - self._pass_rates[item])

    def epoch_batches(self, epoch: int) -> Iterator[list[int]]:
        return self.batches_from(epoch, 0)

    def batches_from(self, epoch: int, place: int) -> Iterator[list[int]]:
        for number in range(place, self._size // self._batch):
            rng = stream(self._seed, "prompts", self.task, epoch, number)
            chosen = rng.choice(self._size, self._batch, replace=False, p=self.probabilities())
            self._waiting.update(items := chosen.tolist())
            yield items

    def settings(self) -> dict[str, Any]:
        return {"size": self._size, "batch": self._batch, "learnability": asdict(self._options)}

    def state_dict(self) -> dict[str, Any]:
        known = np.flatnonzero(self._pass_rates != 0.5).tolist()
        return super().state_dict() | {
            "pass_rates": {str(item): float(self._pass_rates[item]) for item in known},
            "waiting": sorted(self._waiting),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._pass_rates = np.full(self._size, 0.5)
        for item, pass_rate in state["pass_rates"].items():
            self._pass_rates[int(item)] = pass_rate
        self._waiting = set(state["waiting"])
