"""The conditional modules of CA-MTL: Pilault et al. (2021), section 2.1.

In all of them `codes` are the sequences' task embeddings z, shape `(sequences, width)`, `rank` is
the rank of the FiLM generator and `start` the standard deviation of its last weights.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from taskmix.errors import UserError, unknown
from taskmix.models.exported import block_bias
from taskmix.models.multitask import key
from taskmix.models.spec import Rank
from taskmix.rng import seed_for

BLOCK_SIZE = 16
"""Default tokens of an attention block; the paper's large encoder has 16, its base encoder 22."""
BOTTLENECK_START = 0.02
"""Standard deviation of the last weights of a bottleneck's generator, as in the paper's code."""


class TaskEmbeddings(nn.Module):
    """The table z of task embeddings; every row is a parameter of its own, named by its task.

    So a new row can train while the old ones keep every bit, and a row is found by its name among
    saved weights when the tasks have changed. A row's initial values are normal with the standard
    deviation `start` and depend on the seed and the task's name alone. (The paper's code has one
    shared d x d matrix behind the rows; here a generator reads the row itself.)

    >>> table = TaskEmbeddings(["cola", "rte"], width=4)
    >>> table(torch.tensor([1, 1, 0])).shape
    torch.Size([3, 4])
    """

    def __init__(
        self, tasks: Sequence[str], width: int, seed: int = 0, start: float = 0.02
    ) -> None:
        super().__init__()
        if not tasks or len(set(tasks)) < len(tasks):
            raise UserError(f"tasks: expected at least one name, each once, found {list(tasks)}")
        self.width = width
        self.tasks = tuple(tasks)
        rows = {row_name(task): random_row(task, width, seed, start) for task in tasks}
        self.rows = nn.ParameterDict(rows)

    def forward(self, task_ids: Tensor) -> Tensor:
        """Return the rows of the tasks, shape `(sequences, width)`."""
        self.check(task_ids)
        return functional.embedding(task_ids, self.table())

    def table(self) -> Tensor:
        """Return the rows in the order of the tasks, shape `(tasks, width)`."""
        # The dictionary's own order is another one: torch sorts the names.
        return torch.stack([self.rows[row_name(task)] for task in self.tasks])

    def check(self, task_ids: Tensor) -> None:
        """Raise unless these are valid ids, one a sequence."""
        if task_ids.ndim != 1 or task_ids.is_floating_point():
            raise UserError(
                "task_ids: expected one integer a sequence, "
                f"found {task_ids.dtype} of shape {tuple(task_ids.shape)}"
            )
        if not task_ids.numel():
            return
        low, high = (int(end) for end in torch.aminmax(task_ids))
        if low < 0 or high >= len(self.tasks):
            raise UserError(
                f"task_ids: expected ids from 0 to {len(self.tasks) - 1}, "
                f"found {low if low < 0 else high}"
            )

    def index(self, task: str) -> int:
        if task not in self.tasks:
            raise unknown("task", task, self.tasks)
        return self.tasks.index(task)

    def row(self, task: str) -> nn.Parameter:
        """Return the parameter of a task's row."""
        self.index(task)
        row: nn.Parameter = self.rows[row_name(task)]
        return row

    def append(self, task: str, row: Tensor) -> None:
        """Add a task behind the others, whose parameters stay the same objects."""
        if task in self.tasks:
            raise UserError(f"task {task!r}: expected a new name, found it among the tasks")
        if row.shape != (self.width,):
            raise UserError(
                f"task {task!r}: expected a row of shape ({self.width},), found {tuple(row.shape)}"
            )
        like = self.row(self.tasks[0])
        new = nn.Parameter(row.detach().to(like.device, like.dtype, copy=True))
        self.rows[row_name(task)] = new
        self.tasks = (*self.tasks, task)


def row_name(task: str) -> str:
    """Return the parameter name of a task's row; the plain name might be taken by torch, as `copy`.

    >>> row_name("copy")
    'z_copy'
    """
    return f"z_{key(task)}"


def random_row(task: str, width: int, seed: int, start: float) -> nn.Parameter:
    """Return a task's initial row, from the seed and the name."""
    generator = torch.Generator().manual_seed(seed_for(seed, "conditional", "task", task))
    return nn.Parameter(start * torch.randn(width, generator=generator, device="cpu"))


class Film(nn.Module):
    """γ and β as linear functions of the task embedding: definition 1.

    Feature-wise linear modulation (Perez et al. 2018) is (1 + γ) W + β here, as in the paper's
    code: zero weights change nothing. The last weights start at zero and those before them do not,
    so that the first step moves the last and the second step the rest.

    A generator of low rank multiplies task embeddings by random rows of length 1, a full one by
    1/√width, so that both learn at about the same pace.
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
        """Return γ and β for task embeddings, each `(..., outputs)`."""
        # Autocast gives bfloat16, in which 1 + γ is 1 for every γ below 0.004.
        generated = self.write(self.read(codes * self.scale)).to(codes.dtype)
        gamma, beta = generated.split(self.outputs, dim=-1)
        return gamma, beta

    def modulate(self, x: Tensor, codes: Tensor) -> Tensor:
        """Return (1 + γ) x + β, the same γ and β for all tokens of a sequence."""
        gamma, beta = self(codes)
        return torch.addcmul(beta.unsqueeze(1), x, 1 + gamma.unsqueeze(1)).to(x.dtype)


class DiagonalAlignment(nn.Module):
    """(1 + γ(z)) x + β(z) behind the embeddings: the paper's code for equation 2."""

    def __init__(self, width: int, rank: Rank = 32, start: float = 0.0) -> None:
        super().__init__()
        self.film = Film(width, width, rank, start)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        return self.film.modulate(x, codes)


class MatrixAlignment(nn.Module):
    """x R'(z) with R'(z) = (1 + γ(z)) R + β(z), γ and β one number a column: equation 2.

    R starts as the identity and is stored as its difference from it, which leaves x unchanged in
    any precision. No task's matrix is formed: x R' = (1 + γ) (x R) + β Σ x.
    """

    def __init__(self, width: int, rank: Rank = 32, start: float = 0.0) -> None:
        super().__init__()
        self.film = Film(width, width, rank, start)
        self.delta = nn.Parameter(torch.zeros(width, width))

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        gamma, beta = (part.unsqueeze(1) for part in self.film(codes))
        turned = x + x @ self.delta
        scaled = torch.addcmul(turned, gamma, turned)
        return torch.addcmul(scaled, beta, x.sum(-1, keepdim=True)).to(x.dtype)


class ConditionalAttention(nn.Module):
    """The bias M(z) = blockdiag(A'_1, ..., A'_N), A'_n = (1 + γ(z)) A_n + β(z): section 2.1.1.

    It is added to the scores QKᵀ/√(head width) of one layer before the softmax. Outside the blocks
    it is 0, so that tokens attend across blocks as before; the paper's sentence that they cannot is
    not what its formula says. γ and β have one entry for each entry of a block, as in the paper
    (its code has one for each column), and all blocks share them. A starts at zero, as in the code:
    M is 0, and A and β move in the first step, γ in the second.

    The blocks cover the first `positions` tokens, the last one cut off if they do not divide them;
    later tokens have no bias. `heads` is the number of biases; 1 is shared by all heads.

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
        if blocks > positions:
            raise UserError(f"blocks: expected 1 to {positions}, one a token, found {blocks}")
        self.positions = positions
        self.size = -(-positions // blocks)
        self.blocks = nn.Parameter(torch.zeros(heads, blocks, self.size, self.size))
        self.film = Film(width, heads * self.size**2, rank, start)

    def forward(self, codes: Tensor, length: int) -> Tensor:
        """Return the bias of each sequence, shape `(sequences, heads, length, length)`."""
        used = -(-min(length, self.positions) // self.size)
        gamma, beta = (
            part.view(len(codes), -1, 1, self.size, self.size) for part in self.film(codes)
        )
        blocks = torch.addcmul(beta, self.blocks[:, :used], 1 + gamma)
        return block_bias(blocks, self.positions, length)

    def blocks_of(self, code: Tensor) -> Tensor:
        """Return all blocks A' of one task, shape `(heads, blocks, size, size)`."""
        gamma, beta = (part.view(-1, 1, self.size, self.size) for part in self.film(code))
        return torch.addcmul(beta, self.blocks, 1 + gamma)


def default_blocks(positions: int) -> int:
    """Return the number of blocks of 16 positions, or of the next smaller size that divides them.

    >>> default_blocks(512), default_blocks(40)
    (32, 4)
    """
    sizes = range(min(BLOCK_SIZE, positions), 0, -1)
    return positions // next(size for size in sizes if positions % size == 0)


class ConditionalNorm(nn.Module):
    """(x - μ)/σ * w(z) + b with w(z) = (1 + γ(z)) w + β(z), for a pretrained norm's w and b.

    Equation 3 as the paper's code has it: the printed equation puts b into the scale, and would not
    be the pretrained norm for any γ and β.
    """

    def __init__(self, width: int, rank: Rank = 32, start: float = 0.0) -> None:
        super().__init__()
        self.film = Film(width, width, rank, start)

    def forward(self, x: Tensor, norm: nn.LayerNorm, codes: Tensor) -> Tensor:
        # The pretrained norm plus the task's change: at the start the same bits, where one
        # product with w(z) would round in another way.
        change = self.change(norm, codes).unsqueeze(1)
        unscaled = functional.layer_norm(x, norm.normalized_shape, eps=norm.eps)
        plain: Tensor = norm(x)
        return torch.addcmul(plain, unscaled, change).to(plain.dtype)

    def change(self, norm: nn.LayerNorm, codes: Tensor) -> Tensor:
        """Return w(z) - w = γ(z) w + β(z), shape `(..., width)`."""
        gamma, beta = self.film(codes)
        return torch.addcmul(beta, gamma, norm.weight)


class ConditionalBottleneck(nn.Module):
    """up(down((1 + γ(z)) x + β(z))), to be added to x: section 2.1.4.

    There is no activation between down and up, as in the paper's code. `up` starts at zero, so that
    nothing is added; the generator does not, as a zero behind a zero would take a third step to
    move.
    """

    def __init__(self, width: int, hidden: int, rank: Rank = 32) -> None:
        super().__init__()
        self.film = Film(width, width, rank, BOTTLENECK_START)
        self.down = nn.Linear(width, hidden)
        self.up = nn.Linear(hidden, width)
        nn.init.zeros_(self.up.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, x: Tensor, codes: Tensor) -> Tensor:
        added: Tensor = self.up(self.down(self.film.modulate(x, codes)))
        return added


class ConditionalLayer(nn.Module):
    """The conditional modules of one layer; the layer itself stays in its encoder.

    With f the output of the layer's feed-forward part and a its input, the layer's output is
    Norm(f + Bottleneck(z, f) + a): Figure 3a, with the bottleneck beside f so that f survives.
    `side` is the bottleneck from the output to the side stream (Figure 3b), which the encoder runs.
    """

    def __init__(
        self,
        attention: ConditionalAttention | None = None,
        norms: Iterable[ConditionalNorm] = (),
        bottleneck: ConditionalBottleneck | None = None,
        side: ConditionalBottleneck | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList(norms)
        self.bottleneck = bottleneck
        self.side = side

    def forward(self, hidden: Tensor, layer: Any, mask: Tensor | None, codes: Tensor) -> Tensor:
        """Run the encoder's `layer` on hidden states `(sequences, tokens, width)`.

        `mask` is true at tokens, shape `(sequences, 1, 1, tokens)`; None means everywhere.
        """
        if self.attention is not None:
            bias = self.attention(codes, hidden.shape[1])
            mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        if not self.norms and self.bottleneck is None:
            output: Tensor = layer(hidden, mask)
            return output
        attended, _ = layer.attention.self(hidden, mask)
        added = layer.attention.output
        middle = self._norm(0, layer, added.dropout(added.dense(attended)) + hidden, codes)
        fed = layer.output.dropout(layer.output.dense(layer.intermediate(middle)))
        if self.bottleneck is not None:
            fed = fed + self.bottleneck(fed, codes)
        return self._norm(1, layer, fed + middle, codes)

    def _norm(self, place: int, layer: Any, x: Tensor, codes: Tensor) -> Tensor:
        norm = norms_of(layer)[place]
        output: Tensor = self.norms[place](x, norm, codes) if self.norms else norm(x)
        return output


def norms_of(layer: Any) -> tuple[Any, Any]:
    """Return a layer's two norms: behind attention, and behind the feed-forward part."""
    return layer.attention.output.LayerNorm, layer.output.LayerNorm


@contextmanager
def seeded(seed: int, *name: str | int) -> Iterator[None]:
    """Make torch's random numbers depend on the seed and the name alone."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed_for(seed, "conditional", *name))
        yield
