"""Scores of candidates: how unsure the model is of single training examples."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bursar.models.multitask import MultiTaskModel
from bursar.rng import seed_for
from bursar.selection import Selector, example_scores
from bursar.tasks.batches import Batch
from bursar.tasks.kinds import Kind
from bursar.training.evaluation import tensors
from bursar.uncertainty import predictive_samples

# The share of the latest candidates in the running mean of a regression's squared error.
LATEST = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """A batch of candidates of one task, scored.

    Args:
        batch: the candidates.
        scores: their uncertainties, shape `(examples,)`.
        hidden: what the encoder's frozen layers gave, shape `(examples, tokens, width)`; None if
            it has none, or if an example is several sequences.
        passes: how often they passed through the model.
    """

    batch: Batch
    scores: NDArray[np.float64]
    hidden: NDArray[np.float32] | None
    passes: int


class Scorer:
    """Scores candidates without gradient, as a selector wants them scored.

    One pass without dropout gives an entropy. BALD, and any score of a regression, need several
    passes under Monte-Carlo dropout, unless the model has none; frozen layers then run only once.

    Args:
        model: what is unsure.
        kinds: by task, what its outputs mean.
        selector: which score, and how many passes.
        seed: of the dropout masks.
        device: where the model is.
        autocast: whether it runs in mixed precision.
    """

    def __init__(
        self,
        model: MultiTaskModel,
        kinds: Mapping[str, Kind],
        selector: Selector,
        *,
        seed: int,
        device: torch.device,
        autocast: bool,
    ) -> None:
        self._model = model
        self._kinds = kinds
        self._score = selector.score
        self._passes = selector.passes if _drops(model) else 1
        self._frozen = model.frozen
        self._seed = seed
        self._device = device
        self._autocast = autocast
        # Before anything is known, a regression's squared error is its labels' variance.
        self._residuals = {name: 1.0 for name, kind in kinds.items() if kind.name == "regress"}

    @torch.inference_mode()
    def score(self, batch: Batch, step: int) -> Candidates:
        """The uncertainties of a batch of candidates at a step."""
        inputs = tensors(batch, self._device)
        several = self._passes > 1 and (self._score == "bald" or batch.task in self._residuals)
        hidden, samples, passes = None, np.empty(0), 0
        if len(self._frozen) or not several:
            hidden, samples = self._certain(batch.task, inputs)
            passes += 1
        if several:
            samples = self._sampled(batch.task, inputs, hidden, step)
            passes += self._passes
        decisions = example_scores(
            samples, self._score, self._residual(batch.task, samples, inputs)
        )
        scores = self._by_item(batch, inputs, decisions)
        kept = hidden.float().cpu().numpy() if hidden is not None else None
        return Candidates(batch, scores, kept, passes)

    def _by_item(
        self, batch: Batch, inputs: Mapping[str, Tensor], decisions: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The mean over an example's decisions: a tag for each word, a start and an end."""
        owners = self._kinds[batch.task].owners(inputs).cpu().numpy()
        counts = np.bincount(owners, minlength=len(batch.items))
        totals = np.bincount(owners, weights=decisions, minlength=len(batch.items))
        return totals / np.maximum(counts, 1)

    def _certain(
        self, task: str, inputs: Mapping[str, Tensor]
    ) -> tuple[Tensor | None, NDArray[np.float64]]:
        """What the frozen layers give, and the predictions without dropout as a single pass."""
        self._model.eval()
        with self._frozen.recording() as outputs:
            predicted = self._predict(task, inputs)
        samples = predicted.double().cpu().numpy()[None]
        one_sequence = bool(outputs) and len(outputs[0]) == len(predicted)
        return (outputs[0] if one_sequence else None), samples

    def _sampled(
        self, task: str, inputs: Mapping[str, Tensor], hidden: Tensor | None, step: int
    ) -> NDArray[np.float64]:
        seed = seed_for(self._seed, "scoring", step)
        with self._frozen.given(hidden):
            return predictive_samples(
                self._model,
                lambda columns: self._predict(task, columns),
                [inputs],
                self._passes,
                seed,
            )

    def _predict(self, task: str, inputs: Mapping[str, Tensor]) -> Tensor:
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._autocast):
            logits = self._model(task, inputs)
        return self._kinds[task].distribution(logits, inputs)

    def _residual(
        self, task: str, samples: NDArray[np.float64], inputs: Mapping[str, Tensor]
    ) -> float:
        """A regression's squared error in units of the label's variance, over all candidates."""
        if task not in self._residuals:
            return 1.0
        means = torch.from_numpy(samples.mean(axis=0)).to(self._device, torch.float32)
        error = 2 * float(self._kinds[task].loss(means, inputs))
        self._residuals[task] += LATEST * (error - self._residuals[task])
        return self._residuals[task]

    def state_dict(self) -> dict[str, Any]:
        """The running squared errors."""
        return {"residuals": dict(self._residuals)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The counterpart of `state_dict`."""
        self._residuals = dict(state["residuals"])


def _drops(model: nn.Module) -> bool:
    """Whether Monte-Carlo dropout changes anything."""
    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
    return any(isinstance(module, kinds) and module.p > 0 for module in model.modules())
