"""Scores of candidates: the model's uncertainty about single training examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from taskmix.models.frozen import Frozen
from taskmix.rng import seed_for
from taskmix.selection import Selector, example_scores
from taskmix.tasks.batches import Batch, Cut, TaskItems
from taskmix.training.engine import Engine
from taskmix.uncertainty import predictive_samples
from taskmix.uncertainty.dropout import dropout_modules

RESIDUAL_RATE = 0.1  # weight of the latest candidates in a regression's running squared error


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """A scored batch of candidates of one task."""

    items: NDArray[np.int64]
    scores: NDArray[np.float64]
    # Outputs of the frozen layers, shape `(examples, tokens, width)`; None if there are none, if
    # an example is several sequences, or if other ranks scored some.
    states: NDArray[np.float32] | None


class Scorer:
    """Scores candidates without gradients, as a selector configures it."""

    # One pass without dropout gives an entropy. BALD, and any score of a regression, need several
    # passes under Monte-Carlo dropout; frozen layers then run only once.

    def __init__(self, engine: Engine, selector: Selector) -> None:
        self._engine = engine
        self._kinds = {name: task.kind for name, task in engine.tasks.items()}
        self._score = selector.score
        self._passes = selector.passes if dropout_modules(engine.model) else 1
        self._frozen: Frozen = getattr(engine.model, "frozen", None) or Frozen(nn.Identity())
        # Before anything is known, a regression's squared error is its labels' variance.
        self._residuals = {n: 1.0 for n, kind in self._kinds.items() if kind.name == "regress"}

    @torch.inference_mode()
    def score(self, batch: Batch, step: int) -> Candidates:
        [part] = batch
        several = self._passes > 1 and (self._score == "bald" or part.task in self._residuals)
        states, samples, passes = None, np.empty(0), 0
        if len(self._frozen) or not several:
            states, samples = self._certain(batch)
            passes += 1
        if several:
            samples = self._sampled(batch, states, step)
            passes += self._passes
        self._engine.spent.add(passes * batch.examples)
        decisions = example_scores(samples, self._score, self._residual(part, samples))
        scores = self._by_item(part, decisions)
        if self._engine.ranks.count > 1:
            return self._of_all_ranks(batch, scores)
        kept = states.float().cpu().numpy() if states is not None else None
        return Candidates(part.items, scores, kept)

    def _of_all_ranks(self, batch: Batch, scores: NDArray[np.float64]) -> Candidates:
        """Return all candidates with their scores, each rank's at the places of its cut."""
        [part] = batch
        items, every = np.empty(batch.examples, dtype=np.int64), np.empty(batch.examples)
        ranks = self._engine.ranks
        for rank, gathered in enumerate(ranks.gathered((part.items, scores))):
            places = Cut(rank, ranks.count).places(batch.examples)
            if rank < batch.examples:  # else it had none of its own
                items[places], every[places] = gathered
        return Candidates(items, every, None)

    def _by_item(self, part: TaskItems, decisions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over an example's decisions: a tag for each word, a start and an end."""
        owners = self._kinds[part.task].owners(part.columns).cpu().numpy()
        counts = np.bincount(owners, minlength=len(part.items))
        totals = np.bincount(owners, weights=decisions, minlength=len(part.items))
        return totals / np.maximum(counts, 1)

    def _certain(self, batch: Batch) -> tuple[Tensor | None, NDArray[np.float64]]:
        """Return the outputs of the frozen layers, and the predictions of one dropout-free pass."""
        self._engine.model.eval()
        with self._frozen.recording() as outputs:
            predicted = self._engine.distribution(batch)
        samples = predicted.double().cpu().numpy()[None]
        one_sequence = bool(outputs) and len(outputs[0]) == len(batch.parts[0].items)
        return (outputs[0] if one_sequence else None), samples

    def _sampled(self, batch: Batch, states: Tensor | None, step: int) -> NDArray[np.float64]:
        engine = self._engine
        seed = seed_for(engine.config.seed, "scoring", step)
        with self._frozen.given(states):
            return predictive_samples(
                engine.model, engine.distribution, [batch], self._passes, seed
            )

    def _residual(self, part: TaskItems, samples: NDArray[np.float64]) -> float:
        """Return the running squared error of a regression, in units of the label's variance."""
        if part.task not in self._residuals:
            return 1.0
        means = torch.from_numpy(samples.mean(axis=0)).to(self._engine.device, torch.float32)
        loss = self._kinds[part.task].loss(means, part.columns)
        error = 2 * float(self._engine.ranks.total(loss * part.share))
        self._residuals[part.task] += RESIDUAL_RATE * (error - self._residuals[part.task])
        return self._residuals[part.task]

    def state_dict(self) -> dict[str, Any]:
        return {"residuals": dict(self._residuals)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._residuals = dict(state["residuals"])
