"""Conditional bottleneck: a narrow linear detour that depends on the task."""

from torch import Tensor, nn

from taskmix.models.conditional.film import Film
from taskmix.models.conditional.spec import Rank

GENERATED = 0.02
"""Standard deviation of the generator's last weights, as in the paper's code."""


class ConditionalBottleneck(nn.Module):
    """up(down((1 + γ(z)) x + β(z))): section 2.1.4 of Pilault et al. (2021).

    There is no activation between down and up, as in the paper's code. `up` starts at zero, so
    that the detour adds nothing; the generator does not, as a zero behind a zero would take a third
    step to move.

    Args:
        width: width of the encoder and of the task embeddings.
        hidden: width of the bottleneck.
        rank: of the generator.
    """

    def __init__(self, width: int, hidden: int, rank: Rank = 32) -> None:
        super().__init__()
        self.film = Film(width, width, rank, GENERATED)
        self.down = nn.Linear(width, hidden)
        self.up = nn.Linear(hidden, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return what the detour adds, shape `(sequences, tokens, width)`.

        Args:
            x: shape `(sequences, tokens, width)`.
            codes: the sequences' task embeddings, shape `(sequences, width)`.
        """
        added: Tensor = self.up(self.down(self.film.modulate(x, codes)))
        return added
