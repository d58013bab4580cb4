"""Conditional layer normalisation: a task's own scale."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from taskmix.models.conditional.film import Film
from taskmix.models.conditional.spec import Rank


class ConditionalNorm(nn.Module):
    """(x - μ)/σ * w(z) + b with w(z) = (1 + γ(z)) w + β(z), for a pretrained norm's w and b.

    Equation 3 of Pilault et al. (2021) as their code has it: the printed equation puts b into the
    scale, and would not be the pretrained norm for any γ and β.

    Args:
        width: width of the norm and of the task embeddings.
        rank: of the generator.
        start: standard deviation of its last weights.
    """

    def __init__(self, width: int, rank: Rank = 32, start: float = 0.0) -> None:
        super().__init__()
        self.film = Film(width, width, rank, start)

    def forward(self, x: Tensor, norm: nn.LayerNorm, codes: Tensor) -> Tensor:
        """Return the normalised x, shape `(sequences, tokens, width)`.

        Args:
            x: shape `(sequences, tokens, width)`.
            norm: the pretrained norm.
            codes: the sequences' task embeddings, shape `(sequences, width)`.
        """
        # The pretrained norm plus what the task changes: at the start the same bits, where one
        # product with w(z) would round in another way.
        change = self.change(norm, codes).unsqueeze(1)
        unscaled = functional.layer_norm(x, norm.normalized_shape, eps=norm.eps)
        plain: Tensor = norm(x)
        return torch.addcmul(plain, unscaled, change).to(plain.dtype)

    def change(self, norm: nn.LayerNorm, codes: Tensor) -> Tensor:
        """Return w(z) - w = γ(z) w + β(z), shape `(..., width)`."""
        gamma, beta = self.film(codes)
        return torch.addcmul(beta, gamma, norm.weight)
