"""Conditional attention: a bias on the attention scores that depends on the task."""

import torch
from torch import Tensor, nn

from taskmix.errors import UserError
from taskmix.models.conditional.film import Film
from taskmix.models.conditional.spec import Rank

BLOCK = 16
"""Tokens of a block if nobody says: the paper has 16 in its large encoder and 22 in its base."""


class ConditionalAttention(nn.Module):
    """The bias M(z) = blockdiag(A'_1, ..., A'_N), A'_n = (1 + γ(z)) A_n + β(z), of one layer.

    Pilault et al. (2021), section 2.1.1. It is added to the scores QKᵀ/√(head width) before the
    softmax. Outside the blocks it is 0, so that tokens attend across blocks as they always did;
    the paper's sentence that they cannot is not what its formula says. γ and β have one entry for
    each entry of a block, as in the paper (its code has one for each column), and all blocks share
    them. A starts at zero, as in the code: M is 0, and A and β move in the first step, γ in the
    second.

    The blocks cover all positions of the encoder, and a batch of shorter sequences uses the first
    of them, the last one cut off.

    Args:
        width: width of the task embeddings.
        positions: how many tokens the encoder can read.
        blocks: N; it divides the positions.
        heads: how many biases; 1 is shared by all heads.
        rank: of the generator.
        start: standard deviation of its last weights.

    >>> attention = ConditionalAttention(width=8, positions=12, blocks=3, rank=2)
    >>> attention(torch.randn(5, 8), length=7).shape
    torch.Size([5, 1, 7, 7])
    """

    def __init__(
        self,
        width: int,
        positions: int,
        blocks: int,
        heads: int = 1,
        rank: Rank = 32,
        start: float = 0.0,
    ) -> None:
        super().__init__()
        if positions % blocks:
            raise UserError(
                f"blocks: expected a divisor of the encoder's {positions} positions, found {blocks}"
            )
        self.size = positions // blocks
        self.blocks = nn.Parameter(torch.zeros(heads, blocks, self.size, self.size))
        self.film = Film(width, heads * self.size**2, rank, start)

    def forward(self, codes: Tensor, length: int) -> Tensor:
        """Return the bias of each sequence, shape `(sequences, heads, length, length)`.

        Args:
            codes: the sequences' task embeddings, shape `(sequences, width)`.
            length: tokens in a sequence.
        """
        used = -(-length // self.size)
        gamma, beta = (
            part.view(len(codes), -1, 1, self.size, self.size) for part in self.film(codes)
        )
        blocks = torch.addcmul(beta, self.blocks[:, :used], 1 + gamma)
        return block_diagonal(blocks)[..., :length, :length]


def block_diagonal(blocks: Tensor) -> Tensor:
    """Put blocks on the diagonal of one matrix: `(..., n, s, s)` to `(..., n * s, n * s)`.

    >>> block_diagonal(torch.tensor([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])).tolist()
    [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 6], [0, 0, 7, 8]]
    """
    *many, n, size, _ = blocks.shape
    spread = blocks.new_zeros(*many, n, size, n, size)
    spread.diagonal(dim1=-4, dim2=-2).copy_(blocks.movedim(-3, -1))
    return spread.view(*many, n * size, n * size)


def default_blocks(positions: int) -> int:
    """Return how many blocks of 16 positions there are, or of the next smaller size that fits.

    >>> default_blocks(512), default_blocks(40)
    (32, 4)
    """
    size = next(size for size in range(min(BLOCK, positions), 0, -1) if positions % size == 0)
    return positions // size
