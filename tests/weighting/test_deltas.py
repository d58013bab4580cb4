"""Deltas: the gradient in the coefficients is exact, on real networks."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import BertConfig, BertModel

from taskmix.models.images import LeNet
from taskmix.weighting.deltas import Deltas


class TwoHeads(nn.Module):
    """A shared network and a private head for each of two tasks."""

    def __init__(self, shared, width):
        super().__init__()
        self.shared = shared
        self.heads = nn.ModuleList(nn.Linear(width, 3) for _ in range(2))

    def loss(self, task, inputs, labels):
        return functional.cross_entropy(self.heads[task](self.shared(inputs)), labels)


class Pooled(nn.Module):
    """A two-layer transformer; the mean of its tokens."""

    def __init__(self):
        super().__init__()
        config = BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
        )
        self.encoder = BertModel(config, add_pooling_layer=False)

    def forward(self, ids):
        return self.encoder(input_ids=ids).last_hidden_state.mean(1)


class Normed(nn.Module):
    """Batch normalisation, whose statistics are buffers."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Tanh())

    def forward(self, x):
        return self.layers(x)


def lenet():
    return TwoHeads(LeNet(), 50), torch.rand(6, 28, 28, dtype=torch.float64)


def transformer():
    return TwoHeads(Pooled(), 16), torch.randint(50, (6, 9))


def normed():
    return TwoHeads(Normed(), 16), torch.randn(6, 8, dtype=torch.float64)


def collected(build, optimizer=torch.optim.SGD):
    """A network with the deltas of two tasks; task 0 is the target."""
    torch.manual_seed(3)
    model, inputs = build()
    model = model.double()
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    deltas = Deltas(model, tasks=2, target=0)
    for task in (0, 1):
        model.train()
        steps = optimizer(model.parameters(), lr=0.1)
        for _ in range(3):
            steps.zero_grad()
            model.loss(task, inputs, (labels + task) % 3).backward()
            steps.step()
        deltas.collect(task)
        deltas.restore()
    model.eval()
    return model, deltas, inputs, labels


def dev_loss(model, deltas, inputs, labels, coefficients):
    deltas.mix(coefficients)
    return model.loss(0, inputs, labels)


@pytest.mark.parametrize("build", [lenet, transformer, normed])
def test_the_gradient_is_that_of_finite_differences(build):
    model, deltas, *data = collected(build)
    point = np.array([0.9, 0.4])
    model.zero_grad()
    dev_loss(model, deltas, *data, point).backward()
    found = deltas.slope()
    step = 1e-5
    with torch.no_grad():
        for task in (0, 1):
            away = step * np.eye(2)[task]
            # The fourth-order formula, so that truncation stays far below the bound.
            values = [
                float(dev_loss(model, deltas, *data, point + k * away)) for k in (-2, -1, 1, 2)
            ]
            slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
            assert found[task] == pytest.approx(slope, rel=1e-6)


def test_mixing_moves_every_parameter_by_its_deltas():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    before = [p.detach().clone() for p in model.parameters()]
    deltas = Deltas(model, tasks=3, target=0)
    moves = [[torch.randn_like(p) for p in before] for _ in range(3)]
    for task, move in enumerate(moves):
        for p, start, delta in zip(model.parameters(), before, move, strict=True):
            p.data = start + delta
        norm = deltas.collect(task)
        assert norm == pytest.approx(sum(float((d**2).sum()) for d in move) ** 0.5, rel=1e-5)
    deltas.mix([0.5, -1.0, 2.0])
    for k, p in enumerate(model.parameters()):
        expected = before[k] + 0.5 * moves[0][k] - moves[1][k] + 2 * moves[2][k]
        torch.testing.assert_close(p.detach(), expected)
    deltas.restore()
    for start, p in zip(before, model.parameters(), strict=True):
        assert torch.equal(start, p)


def test_a_private_head_moves_with_its_own_task_alone():
    model, deltas, *_ = collected(lenet)
    before = [p.detach().clone() for p in model.heads.parameters()]
    deltas.mix([1.0, 0.0])
    moved = [not torch.equal(a, b) for a, b in zip(before, model.heads.parameters(), strict=True)]
    assert moved == [True, True, False, False]


def test_frozen_parameters_are_left_out():
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(requires_grad=False)
    deltas = Deltas(model, tasks=1, target=0)
    with torch.no_grad():
        model[1].weight += 1
    assert deltas.collect(0) == pytest.approx(8**0.5)


def test_a_mixture_has_the_buffers_that_the_target_left_behind():
    model, deltas, *_ = collected(normed)
    start = [b.clone() for b in model.buffers()]
    deltas.mix([3.0, -2.0])
    mixed = [b.clone() for b in model.buffers()]
    assert all(float(b.min()) >= 0 for name, b in model.named_buffers() if "var" in name)
    deltas.mix([0.0, 0.0])
    assert all(torch.equal(a, b) for a, b in zip(mixed, model.buffers(), strict=True))
    deltas.restore()
    assert all(torch.equal(a, b) for a, b in zip(start, model.buffers(), strict=True))
    assert int(mixed[2]) == int(start[2]) + 3  # batches that the target's training saw


def test_other_memory_layouts_are_mixed_too():
    model = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
    before = model.weight.detach().clone()
    deltas = Deltas(model, tasks=1, target=0)
    with torch.no_grad():
        model.weight += torch.arange(54.0).view(3, 2, 3, 3)
    deltas.collect(0)
    deltas.mix([2.0])
    torch.testing.assert_close(
        model.weight.detach(), before + 2 * torch.arange(54.0).view(3, 2, 3, 3)
    )
