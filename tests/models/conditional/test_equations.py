"""Every part against the paper's equations: one sequence after the other, in double precision.

Nothing here comes from the library but the weights.
"""

import math

import pytest
import torch
from torch import Tensor

from taskmix.models.conditional import PARTS, ConditionalEncoder, condition
from taskmix.models.conditional.modules import ConditionalAttention

HEADS, PAD, EPS = 2, 1, 1e-12
IDS = [2, 0, 1, 2, 1]


class Reference:
    """CA-MTL for one sequence of one task, as loops over heads, blocks and entries."""

    def __init__(self, conditioned: ConditionalEncoder) -> None:
        self.w = {name: t.double() for name, t in conditioned.state_dict().items()}
        self.rows = [self.w[f"task_embeddings.rows.z_{task}"] for task in conditioned.tasks]
        self.family = conditioned.config.model_type
        self.eps = conditioned.config.layer_norm_eps
        self.layers = conditioned.config.num_hidden_layers
        self.spec = conditioned.spec

    def has(self, prefix: str) -> bool:
        return any(name.startswith(prefix) for name in self.w)

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def film(self, name: str, z: Tensor) -> tuple[Tensor, Tensor]:
        reading = f"{name}.film.read.weight"
        code = self.w[reading] @ z if reading in self.w else z / math.sqrt(len(z))
        both = self.linear(f"{name}.film.write", code)
        half = len(both) // 2
        return both[:half], both[half:]

    def norm(self, name: str, x: Tensor, weight: Tensor | None = None) -> Tensor:
        weight = self.w[f"{name}.weight"] if weight is None else weight
        rows = []
        for row in x:
            centred = row - row.mean()
            rows.append(centred / ((centred**2).mean() + self.eps).sqrt() * weight)
        return torch.stack(rows) + self.w[f"{name}.bias"]

    def conditional_norm(self, condition: str, name: str, x: Tensor, z: Tensor) -> Tensor:
        if not self.has(f"{condition}."):
            return self.norm(name, x)
        gamma, beta = self.film(condition, z)
        return self.norm(name, x, (1 + gamma) * self.w[f"{name}.weight"] + beta)

    def embed(self, ids: Tensor, second: Tensor, z: Tensor) -> Tensor:
        at, tokens = "encoder.embeddings", len(ids)
        start = PAD + 1 if self.family == "roberta" else 0
        x = self.w[f"{at}.word_embeddings.weight"][ids]
        x = x + self.w[f"{at}.position_embeddings.weight"][start : start + tokens]
        x = self.norm(f"{at}.LayerNorm", x + self.w[f"{at}.token_type_embeddings.weight"][second])
        if self.has("encoder.embeddings_project."):
            x = self.linear("encoder.embeddings_project", x)
        if not self.has("alignment."):
            return x
        gamma, beta = self.film("alignment", z)
        if "alignment.delta" not in self.w:
            return (1 + gamma) * x + beta
        r = torch.eye(x.shape[1], dtype=x.dtype) + self.w["alignment.delta"]
        for column in range(len(r)):
            r[:, column] = r[:, column] * (1 + gamma[column]) + beta[column]
        return x @ r

    def bias(self, number: int, head: int, tokens: int, z: Tensor) -> Tensor:
        m = torch.zeros(tokens, tokens, dtype=z.dtype)
        if not self.has(f"conditions.{number}.attention."):
            return m
        blocks = self.w[f"conditions.{number}.attention.blocks"]
        head = head if len(blocks) > 1 else 0
        size = blocks.shape[-1]
        gamma, beta = (
            part.view(len(blocks), size, size)[head]
            for part in self.film(f"conditions.{number}.attention", z)
        )
        for i in range(tokens):
            for j in range(tokens):
                if i // size == j // size and max(i, j) < (self.spec.positions or 24):
                    a = blocks[head, i // size, i % size, j % size]
                    m[i, j] = a * (1 + gamma[i % size, j % size]) + beta[i % size, j % size]
        return m

    def attend(self, number: int, x: Tensor, z: Tensor) -> Tensor:
        at = f"encoder.encoder.layer.{number}.attention.self"
        q, k, v = (self.linear(f"{at}.{name}", x) for name in ("query", "key", "value"))
        width = x.shape[1] // HEADS
        heads = []
        for head in range(HEADS):
            part = slice(head * width, (head + 1) * width)
            scores = q[:, part] @ k[:, part].T / math.sqrt(width)
            scores = scores + self.bias(number, head, len(x), z)
            heads.append(scores.softmax(-1) @ v[:, part])
        return torch.cat(heads, dim=1)

    def bottleneck(self, name: str, x: Tensor, z: Tensor) -> Tensor:
        gamma, beta = self.film(name, z)
        return self.linear(f"{name}.up", self.linear(f"{name}.down", (1 + gamma) * x + beta))

    def layer(self, number: int, x: Tensor, z: Tensor) -> Tensor:
        at, condition = f"encoder.encoder.layer.{number}", f"conditions.{number}"
        a = self.linear(f"{at}.attention.output.dense", self.attend(number, x, z)) + x
        a = self.conditional_norm(f"{condition}.norms.0", f"{at}.attention.output.LayerNorm", a, z)
        inner = torch.nn.functional.gelu(self.linear(f"{at}.intermediate.dense", a))
        f = self.linear(f"{at}.output.dense", inner)
        if self.has(f"{condition}.bottleneck."):
            f = f + self.bottleneck(f"{condition}.bottleneck", f, z)
        return self.conditional_norm(f"{condition}.norms.1", f"{at}.output.LayerNorm", f + a, z)

    def __call__(self, ids: Tensor, second: Tensor, task: int) -> Tensor:
        z = self.rows[task]
        h = self.embed(ids, second, z)
        f = torch.zeros_like(h)
        for number in range(self.layers):
            h = self.layer(number, h, z)
            if self.has(f"conditions.{number}.side."):
                f = f + self.bottleneck(f"conditions.{number}.side", h + f, z)
        return h + f


def compare(conditioned, batch):
    """Both on a mixed batch; the reference sees each sequence alone and without its padding."""
    with torch.no_grad():
        found = conditioned(**batch, task_ids=torch.tensor(IDS)).last_hidden_state
    reference = Reference(conditioned)
    for row, task in enumerate(IDS):
        kept = int(batch["attention_mask"][row].sum())
        ids, second = batch["input_ids"][row, :kept], batch["token_type_ids"][row, :kept]
        expected = reference(ids, second, task)
        assert (found[row, :kept] - expected).abs().max() < 1e-5


@pytest.mark.parametrize("layout", ["base", "large"])
@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize("parts", [(part,) for part in PARTS] + [PARTS], ids="+".join)
def test_a_part_is_what_its_equation_says(make, batch, shaken, parts, family, layout):
    options = {"layout": layout, "rank": 3, "blocks": 4}
    conditioned = condition(make(family, layers=3), ["a", "b", "c"], parts, **options).eval()
    shaken(conditioned)
    compare(conditioned, batch(tokens=9))


@pytest.mark.parametrize(
    "options",
    [
        {"rank": "full"},
        {"alignment": "matrix"},
        {"per_head": True},
        {"blocks": 1},
        {"blocks": 24},
        {"blocks": 3},
        {"blocks": 7},
        {"blocks": 2, "positions": 5},
        {"rank": 40},
        {"bottleneck_width": 7},
    ],
    ids=str,
)
def test_so_is_every_option(make, batch, shaken, options):
    conditioned = condition(make(), ["a", "b", "c"], **{"rank": 3} | options).eval()
    shaken(conditioned)
    compare(conditioned, batch())


@pytest.mark.parametrize("tokens", [5, 6, 7, 12, 24])
def test_blocks_are_cut_to_the_length_of_the_batch(make, batch, shaken, tokens):
    conditioned = condition(make(), ["a", "b", "c"], ["attention"], blocks=4, rank=2).eval()
    shaken(conditioned)
    compare(conditioned, batch(tokens=tokens))


def test_the_blocks_of_the_papers_base_encoder_are_six_of_22_tokens_the_last_of_18():
    attention = ConditionalAttention(width=8, positions=128, blocks=6, rank=2)
    with torch.no_grad():
        attention.blocks.fill_(1.0)
        bias = attention(torch.randn(1, 8), length=128)[0, 0]
    sizes = [22] * 5 + [18]
    assert torch.equal(bias, torch.block_diag(*(torch.ones(size, size) for size in sizes)))


def test_a_rank_above_the_width_is_the_width(make):
    conditioned = condition(make(), ["a"], ["norm"])
    assert conditioned.spec.rank == 12
    assert conditioned.layers()[1][1].norms[0].film.read.weight.shape == (12, 12)


def test_the_parts_stand_where_the_paper_has_them(make):
    conditioned = condition(make(layers=5), ["a"], rank=2, layout="base")
    conditions = [condition for _, condition in conditioned.layers()]
    assert [condition.attention is not None for condition in conditions] == [True] * 5
    assert [len(condition.norms) for condition in conditions] == [0, 0, 2, 2, 2]
    assert [condition.bottleneck is not None for condition in conditions] == [False] * 4 + [True]
    assert not any(condition.side for condition in conditions)
    large = condition(make(layers=24), ["a"], rank=2)
    assert all(one.side is not None and one.bottleneck is None for _, one in large.layers())


def test_a_mixed_batch_gives_what_one_task_after_the_other_gives(make, batch, shaken):
    conditioned = condition(make(), ["a", "b", "c"], rank=3).eval()
    shaken(conditioned)
    columns, ids = batch(padded=False), torch.tensor(IDS)
    with torch.no_grad():
        mixed = conditioned(**columns, task_ids=ids).last_hidden_state
        for task in range(3):
            own = ids == task
            alone = {name: column[own] for name, column in columns.items()}
            expected = conditioned(**alone, task_ids=ids[own]).last_hidden_state
            assert (mixed[own] - expected).abs().max() < 1e-5
        other = conditioned(**columns, task_ids=(ids + 1) % 3).last_hidden_state
    assert ((mixed - other).abs().amax((1, 2)) > 0.01).all()


def test_hidden_states_are_what_enters_each_layer_and_leaves_the_last(make, batch, shaken):
    conditioned = condition(make(), ["a", "b", "c"], rank=3).eval()
    shaken(conditioned)
    columns = batch(padded=False)
    out = conditioned(**columns, task_ids=torch.tensor(IDS), output_hidden_states=True)
    reference = Reference(conditioned)
    z = reference.rows[2]
    first = reference.embed(columns["input_ids"][0], columns["token_type_ids"][0], z)
    assert len(out.hidden_states) == 3
    assert (out.hidden_states[0][0] - first).abs().max() < 1e-5
    assert torch.equal(out.hidden_states[-1], out.last_hidden_state)
