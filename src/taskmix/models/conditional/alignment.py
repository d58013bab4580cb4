"""Conditional alignment: a task's own linear map between the embeddings and the first layer."""

import torch
from torch import Tensor, nn

from taskmix.models.conditional.film import Film
from taskmix.models.conditional.spec import Rank


class DiagonalAlignment(nn.Module):
    """(1 + γ(z)) x + β(z): what the code of Pilault et al. (2021) has for equation 2.

    Args:
        width: width of the encoder and of the task embeddings.
        rank: of the generator.
        start: standard deviation of its last weights.
    """

    def __init__(self, width: int, rank: Rank = 32, start: float = 0.0) -> None:
        super().__init__()
        self.film = Film(width, width, rank, start)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return the aligned embeddings, shape `(sequences, tokens, width)`."""
        return self.film.modulate(x, codes)


class MatrixAlignment(nn.Module):
    """x R'(z) with R'(z) = (1 + γ(z)) R + β(z), γ and β one number a column: equation 2.

    R starts as the identity and is kept as its difference from it, which leaves x as it is in any
    precision. No task's matrix is formed: x R' = (1 + γ) (x R) + β Σ x.

    Args:
        width: width of the encoder and of the task embeddings.
        rank: of the generator.
        start: standard deviation of its last weights.
    """

    def __init__(self, width: int, rank: Rank = 32, start: float = 0.0) -> None:
        super().__init__()
        self.film = Film(width, width, rank, start)
        self.delta = nn.Parameter(torch.zeros(width, width))

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return the aligned embeddings, shape `(sequences, tokens, width)`."""
        gamma, beta = (part.unsqueeze(1) for part in self.film(codes))
        turned = x + x @ self.delta
        scaled = torch.addcmul(turned, gamma, turned)
        return torch.addcmul(scaled, beta, x.sum(-1, keepdim=True)).to(x.dtype)
