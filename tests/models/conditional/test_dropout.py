"""Layers that are not trained have no dropout, in a conditioned model as in a plain one."""

import pytest
from torch import nn

from taskmix.models.conditional import condition
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.encoders import Encoder, TextEncoder
from taskmix.models.multitask import MultiTaskModel
from taskmix.models.spec import PARTS, ModelSpec
from taskmix.tasks.kinds import Classify
from taskmix.uncertainty.dropout import dropout_modules

KINDS = {"a": Classify(("no", "yes")), "b": Classify(("no", "yes"))}


def multitask(encoder: Encoder, **options: object) -> MultiTaskModel:
    return MultiTaskModel(encoder, KINDS, ModelSpec(**options), seed=1).train()


def dropping(model: MultiTaskModel, pretrained: nn.Module) -> set[str]:
    """The pretrained encoder's modules that are in training mode."""
    return {name for name, module in pretrained.named_modules() if name and module.training}


def plain(make, freeze: int, **options: object) -> set[str]:
    encoder = TextEncoder(make(layers=4), "mean", freeze)
    return dropping(multitask(encoder, **options), encoder.model)


def conditioned(make, freeze: int, parts, **options: object) -> set[str]:
    inner = condition(make(layers=4), list(KINDS), parts, freeze, rank=2)
    return dropping(multitask(ConditionedTextEncoder(inner, "mean"), **options), inner.encoder)


@pytest.mark.parametrize("parts", [*([part] for part in PARTS), PARTS], ids=str)
@pytest.mark.parametrize("freeze", [0, 2, 4])
@pytest.mark.parametrize("frozen_dropout", [False, True])
def test_every_arm_of_a_comparison_has_the_same_dropout(make, parts, freeze, frozen_dropout):
    options = {"frozen_dropout": frozen_dropout}
    found, expected = conditioned(make, freeze, parts, **options), plain(make, freeze, **options)
    assert found == expected


@pytest.mark.parametrize("parts", [(), ("attention",)])
def test_frozen_layers_and_embeddings_have_none_and_trained_layers_have(make, parts):
    found = conditioned(make, 2, parts) if parts else plain(make, 2)
    assert "encoder.layer.2.output.dropout" in found
    assert not {name for name in found if name.startswith(("embeddings", "encoder.layer.1."))}


def test_dropout_in_frozen_layers_leaves_no_fixed_function(make):
    encoder = TextEncoder(make(layers=4), "mean", 2)
    assert len(multitask(encoder).frozen) == 2
    assert len(multitask(encoder, frozen_dropout=True).frozen) == 0


def test_monte_carlo_dropout_drops_where_training_does(make):
    inner = condition(make(layers=4), list(KINDS), ["attention"], 2, rank=2)
    model = multitask(ConditionedTextEncoder(inner, "mean")).eval()
    names = {name.removeprefix("encoder.model.encoder.") for name in dropout_modules(model)}
    assert {name.rpartition(".")[0] for name in names if name.startswith("encoder")} == {
        f"encoder.layer.{layer}.{part}"
        for layer in (2, 3)
        for part in ("attention.output", "output")
    } | {f"encoder.layer.{layer}.attention.self" for layer in (2, 3)}
    assert "heads.a.dropout" in names
    assert not any(module.training for module in model.modules())
