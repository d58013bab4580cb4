"""Feature-wise linear modulation (Perez et al. 2018), generated from task embeddings."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from taskmix.models.conditional.spec import Rank
from taskmix.rng import seed_for


class Film(nn.Module):
    """γ and β as linear functions of the task embedding: definition 1 of Pilault et al. (2021).

    What is modulated is (1 + γ) W + β, as in the paper's code: zero weights change nothing. The
    last weights start at zero, and what is before them does not, so that the first step moves the
    last and the second step the rest.

    Task embeddings have entries of variance 1. A generator of low rank reads them through random
    rows of length 1, a full one scaled by 1/√width: so a generator of the default rank and a full
    one learn at about the same pace.

    Args:
        width: width of the task embeddings.
        outputs: how many γ, and how many β.
        rank: rank of the generator; `full` for one matrix.
        start: standard deviation of the last weights.
    """

    def __init__(self, width: int, outputs: int, rank: Rank, start: float = 0.0) -> None:
        super().__init__()
        self.outputs = outputs
        self.scale = 1 / math.sqrt(width) if rank == "full" else 1.0
        self.read: nn.Module = nn.Identity()
        if rank != "full":
            reading = nn.Linear(width, rank, bias=False)
            nn.init.normal_(reading.weight, std=1 / math.sqrt(width))
            self.read = reading
        self.write = nn.Linear(width if rank == "full" else rank, 2 * outputs)
        nn.init.normal_(self.write.weight, std=start)
        nn.init.zeros_(self.write.bias)

    def forward(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return γ and β for task embeddings, each `(..., outputs)`.

        Args:
            codes: task embeddings, shape `(..., width)`.
        """
        # Autocast gives bfloat16, in which 1 + γ is 1 for every γ below 0.004.
        made = self.write(self.read(codes * self.scale)).to(codes.dtype)
        gamma, beta = made.split(self.outputs, dim=-1)
        return gamma, beta

    def modulate(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return (1 + γ) x + β, the same γ and β for all tokens of a sequence.

        Args:
            x: shape `(sequences, tokens, outputs)`.
            codes: the sequences' task embeddings, shape `(sequences, width)`.
        """
        gamma, beta = self(codes)
        return torch.addcmul(beta.unsqueeze(1), x, 1 + gamma.unsqueeze(1)).to(x.dtype)


@contextmanager
def seeded(seed: int, *name: str | int) -> Iterator[None]:
    """Inside it, torch's random numbers depend on the seed and the name alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for(seed, "conditional", *name))
        yield
