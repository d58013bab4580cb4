"""Heads: from what the encoder gives to a task's outputs."""

from torch import Tensor, nn


class LinearHead(nn.Module):
    """Dropout and one linear map.

    Args:
        inputs: width of the representation.
        outputs: how many numbers the task needs.
        dropout: probability of dropping an input.
    """

    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Features `(..., inputs)` to logits `(..., outputs)`."""
        logits: Tensor = self.linear(self.dropout(features))
        return logits


class TwoLayerHead(nn.Module):
    """Dropout, a hidden layer with ReLU, and a linear map: Kourdis et al. (2020), section 4.2.

    Args:
        inputs: width of the representation.
        outputs: how many numbers the task needs.
        dropout: probability of dropping an input.
        hidden: width of the hidden layer.
    """

    def __init__(self, inputs: int, outputs: int, dropout: float, hidden: int = 256) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(inputs, hidden)
        self.linear = nn.Linear(hidden, outputs)

    def forward(self, features: Tensor) -> Tensor:
        """Features `(..., inputs)` to logits `(..., outputs)`."""
        logits: Tensor = self.linear(self.hidden(self.dropout(features)).relu())
        return logits
