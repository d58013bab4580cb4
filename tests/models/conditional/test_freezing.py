"""Freezing freezes what it says, trains what it says, and tells what stays fixed."""

import pytest
import torch

from taskmix.models.conditional import condition
from taskmix.models.conditioned import ConditionedTextEncoder

IDS = torch.tensor([0, 1, 1, 0, 1])


def trained(conditioned) -> set[str]:
    return {name for name, parameter in conditioned.named_parameters() if parameter.requires_grad}


def test_half_of_the_layers_and_the_embeddings_are_frozen_and_the_rest_is_trained(make):
    conditioned = condition(make(layers=4), ["a", "b"], rank=2, freeze=0.5)
    names = {name for name, _ in conditioned.named_parameters()}
    below = ("encoder.embeddings.", "encoder.encoder.layer.0.", "encoder.encoder.layer.1.")
    frozen = {name for name in names if name.startswith(below)}
    assert names - trained(conditioned) == frozen
    assert {name.split(".")[0] for name in names - frozen} == {
        "alignment",
        "conditions",
        "encoder",
        "task_embeddings",
    }
    assert {name[:24] for name in names - frozen if name.startswith("encoder")} == {
        "encoder.encoder.layer.2.",
        "encoder.encoder.layer.3.",
    }


def test_training_moves_what_is_trained_and_nothing_else(make, batch):
    conditioned = condition(make(layers=4), ["a", "b"], rank=2, blocks=4).train()
    before = {name: p.detach().clone() for name, p in conditioned.named_parameters()}
    optimizer = torch.optim.AdamW(conditioned.parameters(), lr=0.01)
    torch.manual_seed(4)
    wanted = torch.randn(5, 9, 12)
    for _ in range(3):
        optimizer.zero_grad()
        out = conditioned(**batch(), task_ids=IDS).last_hidden_state
        ((out - wanted) ** 2).mean().backward()
        optimizer.step()
    moved = {n for n, p in conditioned.named_parameters() if not torch.equal(p, before[n])}
    assert moved == trained(conditioned)
    assert "conditions.0.attention.film.write.weight" in moved, "it trains in a frozen layer"


def test_nothing_is_frozen_if_nothing_is_said_to_be(make):
    conditioned = condition(make(), ["a"], rank=2, freeze=0)
    assert trained(conditioned) == {name for name, _ in conditioned.named_parameters()}


@pytest.mark.parametrize(("freeze", "count"), [(3, 3), (1, 1), (1.0, 4), (0.3, 1), (4, 4)])
def test_a_count_is_a_count_and_a_share_is_a_share(make, freeze, count):
    conditioned = condition(make(layers=4), ["a"], rank=2, freeze=freeze)
    open_layers = {int(name.split(".")[3]) for name in trained(conditioned) if ".layer." in name}
    assert open_layers == set(range(count, 4))


def fixed_layers(conditioned) -> int:
    return len(ConditionedTextEncoder(conditioned, "mean").frozen())


@pytest.mark.parametrize(
    ("parts", "options", "fixed"),
    [
        (["norm"], {"freeze": 0.5}, 2),
        (["norm"], {"freeze": 1}, 1),
        (["bottleneck"], {"freeze": 3}, 3),
        (["bottleneck"], {"freeze": 0.5}, 2),
        (["norm", "bottleneck"], {"freeze": 4}, 2),
        (["attention"], {"freeze": 0.5}, 0),
        (["alignment"], {"freeze": 0.5}, 0),
        (["bottleneck"], {"freeze": 0.5, "layout": "large"}, 0),
        (["norm"], {"freeze": 0}, 0),
    ],
    ids=str,
)
def test_the_layers_below_every_trained_module_are_fixed(make, parts, options, fixed):
    assert fixed_layers(condition(make(layers=4), ["a"], parts, rank=2, **options)) == fixed


def test_a_trained_task_embedding_moves_what_reads_it(make):
    conditioned = condition(make(layers=4), ["a"], ["norm"], rank=2)
    conditioned.requires_grad_(False)
    assert fixed_layers(conditioned) == 4
    conditioned.task_embeddings.row("a").requires_grad_(True)
    assert fixed_layers(conditioned) == 2
