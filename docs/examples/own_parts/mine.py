"""A policy, a kind with its own head, and an encoder, for the run file beside this one."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from taskmix.models import Encoder, Representation
from taskmix.policies import Outcome, Policy
from taskmix.tasks.kinds import Classify


class HighestLoss(Policy):
    """Draws twice as often the task whose latest loss was the highest.

    Args:
        tasks: the names of the tasks.
        factor: how much more often it is drawn than each of the others.
    """

    name = "highest_loss"

    def __init__(self, tasks, factor=2.0):
        super().__init__(tasks)
        self._factor = factor
        self._losses = [0.0] * len(self.tasks)

    def probabilities(self):
        """Return the same for all tasks but one."""
        weights = np.ones(len(self.tasks))
        weights[int(np.argmax(self._losses))] = self._factor
        return weights / weights.sum()

    def tell(self, outcome: Outcome):
        """Remember the loss, if there is one."""
        if outcome.loss is not None and np.isfinite(outcome.loss):
            self._losses[outcome.draw.index] = outcome.loss

    def _state(self):
        return {"losses": self._losses}

    def _load(self, state):
        self._losses = list(state["losses"])


@dataclass(frozen=True)
class Smoothed(Classify):
    """Classes with smoothed labels, under a head with a hidden layer."""

    smoothing: float = 0.1

    def head(self, inputs, make):
        """Return a head of one's own, in place of the one that the run file asks for."""
        return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, self.width))

    def loss(self, outputs, batch):
        """Return the cross-entropy with smoothed labels."""
        labels = batch["labels"]
        return nn.functional.cross_entropy(outputs, labels, label_smoothing=self.smoothing)


class BagOfWords(Encoder):
    """The mean of word vectors.

    Args:
        vocabulary: how many token ids there are.
        width: how wide a vector is; an option of the run file's model.
    """

    def __init__(self, vocabulary, width=32):
        super().__init__()
        self.width = width
        self.vectors = nn.Embedding(vocabulary, width)

    def forward(self, inputs):
        """Return a vector for each text, and one for each token."""
        tokens = self.vectors(inputs["input_ids"])
        mask = inputs["attention_mask"].unsqueeze(-1)
        return Representation((tokens * mask).sum(1) / torch.clamp(mask.sum(1), min=1), tokens)
