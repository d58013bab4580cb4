"""One task's plain encoder out of a conditioned one."""

import pytest
import torch
from transformers import AutoModel, PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.conditional import ConditionalEncoder, condition


def difference(conditioned, plain, batch, task):
    ids = conditioned.ids([task] * 5)
    with torch.no_grad():
        expected = conditioned(**batch, task_ids=ids).last_hidden_state
        extra = {}
        if isinstance(plain, ConditionalEncoder):
            extra = {"task_ids": torch.zeros(5, dtype=torch.long)}
        found = plain(**batch, **extra).last_hidden_state
    return (found - expected)[batch["attention_mask"].bool()].abs().max().item()


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
@pytest.mark.parametrize(
    "parts", [("alignment",), ("norm",), ("bottleneck",), ("alignment", "norm", "bottleneck")]
)
def test_what_can_be_folded_becomes_a_plain_encoder(make, batch, shaken, family, parts):
    conditioned = condition(make(family, layers=3), ["a", "b"], parts, rank=3).eval()
    shaken(conditioned)
    before = {name: t.clone() for name, t in conditioned.state_dict().items()}
    folded = [conditioned.fold(task) for task in ("a", "b")]
    assert all(isinstance(plain, PreTrainedModel) for plain in folded)
    assert difference(conditioned, folded[0], batch(), "a") < 1e-5
    assert difference(conditioned, folded[1], batch(), "b") < 1e-5
    assert difference(conditioned, folded[0], batch(), "b") > 1e-2
    after = conditioned.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.filterwarnings("ignore")
def test_transformers_opens_it(make, batch, shaken, tmp_path):
    conditioned = condition(make(), ["a"], ["alignment", "norm"], rank=3).eval()
    shaken(conditioned)
    conditioned.fold("a").save_pretrained(tmp_path)
    opened = AutoModel.from_pretrained(tmp_path).eval()
    assert difference(conditioned, opened, batch(), "a") < 1e-5


@pytest.mark.parametrize(
    ("parts", "options", "stays"),
    [
        (("attention", "alignment", "norm", "bottleneck"), {}, ("attention",)),
        (("alignment", "norm"), {"alignment": "matrix"}, ("alignment",)),
        (("norm", "bottleneck"), {"layout": "large"}, ("bottleneck",)),
        (
            ("attention", "alignment", "norm", "bottleneck"),
            {"layout": "large", "alignment": "matrix"},
            ("attention", "alignment", "bottleneck"),
        ),
    ],
    ids=str,
)
def test_what_cannot_stays_in_an_encoder_for_one_task(
    make, batch, shaken, tmp_path, parts, options, stays
):
    conditioned = condition(make(layers=3), ["a", "b"], parts, rank=3, **options).eval()
    shaken(conditioned)
    with pytest.raises(UserError, match=f"fold: {' and '.join(stays)} cannot be folded"):
        conditioned.fold("b")
    alone = conditioned.only("b")
    assert alone.tasks == ("b",)
    assert alone.spec.parts == stays
    assert difference(conditioned, alone, batch(), "b") < 1e-5
    alone.save_pretrained(tmp_path)
    loaded = ConditionalEncoder.from_pretrained(tmp_path)
    assert difference(conditioned, loaded, batch(), "b") < 1e-5


def test_nothing_is_left_to_keep_where_all_can_be_folded(make):
    with pytest.raises(UserError, match="everything of task 'a' can be folded"):
        condition(make(), ["a"], ["norm"], rank=2).only("a")


@pytest.mark.parametrize("verb", ["fold", "only"])
def test_an_unknown_task_cannot_be_folded(make, verb):
    conditioned = condition(make(), ["cola"], rank=2)
    with pytest.raises(UserError, match="unknown task 'cloa'; did you mean 'cola'"):
        getattr(conditioned, verb)("cloa")
