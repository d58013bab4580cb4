import numpy as np
import pytest
import torch
from torch import nn

from taskmix.models import build
from taskmix.models.encoders import Representation, TextEncoder, pool
from taskmix.models.images import CNN, ImageEncoder
from taskmix.models.multitask import LinearHead, MultiTaskModel, TwoLayerHead, key
from taskmix.models.spec import ModelSpec, Pooling
from taskmix.tasks.batches import ready_batch
from taskmix.tasks.kinds import Classify, Kind, Regress, Tag
from taskmix.tasks.tokenizer import Tokenizer

SPEC = ModelSpec(encoder="small", width=32, attention_heads=2, layers=3, max_length=32)
TOKENIZER = Tokenizer.train(["the cat sat on a mat"] * 9, 100, max_length=32)
YES_NO = Classify(("no", "yes"))


def built(kinds: dict[str, Kind], **change: object) -> MultiTaskModel:
    spec = ModelSpec(**(SPEC.model_dump() | change))  # type: ignore[arg-type]
    return build.build(spec, kinds, TOKENIZER, seed=1).eval()


def logits(model: MultiTaskModel, task: str, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """What the model gives for a batch of one task."""
    marks = {"marks": inputs["marks"]} if "marks" in inputs else {}
    read = {name: column for name, column in inputs.items() if name != "marks"}
    count = len(next(iter(read.values())))
    found: torch.Tensor = model(ready_batch(task, np.arange(count), read, marks))[task]
    return found


def rows(*lengths: int) -> dict[str, torch.Tensor]:
    """Rows of these lengths; what a row holds does not depend on the others."""
    width = max(lengths)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    ids = torch.tensor(
        [[(7 * length + 3 * at) % 15 + 5 for at in range(width)] for length in lengths]
    )
    return {"input_ids": ids * mask, "attention_mask": mask}


@pytest.mark.parametrize("pooling", ["mean", "first", "pair"])
@torch.inference_mode()
def test_the_logits_of_a_row_do_not_depend_on_the_rows_beside_it(pooling: str) -> None:
    model = built({"a": YES_NO, "t": Tag(("O", "B", "I"))}, pooling=pooling)
    alone = rows(4)
    crowd = rows(4, 9, 30)
    torch.testing.assert_close(
        logits(model, "a", crowd)[:1], logits(model, "a", alone), rtol=0, atol=1e-5
    )
    torch.testing.assert_close(
        logits(model, "t", crowd)[:1, :4], logits(model, "t", alone), rtol=0, atol=1e-5
    )


def test_the_mean_is_over_the_tokens_that_are_there() -> None:
    tokens = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [99.0, 99.0]]])
    mask = torch.tensor([[1, 1, 0]])
    assert pool(tokens, mask, None, "mean").tolist() == [[2.0, 4.0]]
    assert pool(tokens, mask, None, "first").tolist() == [[1.0, 2.0]]


def test_a_pair_is_how_the_means_of_two_texts_compare() -> None:
    tokens = torch.tensor([[[1.0, 2.0], [3.0, 6.0], [-2.0, 8.0], [9.0, 9.0]]])
    mask = torch.tensor([[1, 1, 1, 0]])
    second = torch.tensor([[0, 0, 1, 0]])
    u, v = [2.0, 4.0], [-2.0, 8.0]
    assert pool(tokens, mask, second, "pair").tolist() == [[*u, *v, 4.0, 4.0, -4.0, 32.0]]
    u = pool(tokens, mask, None, "mean").tolist()[0]
    assert pool(tokens, mask, None, "pair").tolist() == [[*u, 0.0, 0.0, *u, 0.0, 0.0]]


@pytest.mark.parametrize("pooling", ["mean", "pair"])
@torch.inference_mode()
def test_a_head_is_as_wide_as_what_it_reads(pooling: Pooling) -> None:
    marked = Classify(("no", "yes"), marks=2)
    model = built({"a": YES_NO, "m": marked, "t": Tag(("O", "B"))}, pooling=pooling)
    inputs = rows(6, 9) | {"marks": torch.tensor([[[1, 3], [4, 5]], [[0, 2], [2, 7]]])}
    inputs["token_type_ids"] = (torch.arange(9) > 3).long() * inputs["attention_mask"]
    assert logits(model, "m", inputs).shape == (2, 2)
    del inputs["marks"]
    assert logits(model, "a", inputs).shape == (2, 2)
    assert logits(model, "t", inputs).shape == (2, 9, 2)
    one = inputs | {"token_type_ids": torch.zeros_like(inputs["input_ids"])}
    assert not torch.allclose(logits(model, "a", one), logits(model, "a", inputs))


def test_a_head_begins_the_same_whichever_other_tasks_there_are() -> None:
    alone = built({"a": YES_NO})
    among = built({"z": Regress(), "a": YES_NO, "b": YES_NO})
    torch.testing.assert_close(
        alone.heads["a"].linear.weight, among.heads["a"].linear.weight, rtol=0, atol=0
    )
    assert not torch.equal(among.heads["a"].linear.weight, among.heads["b"].linear.weight)


def test_a_task_trains_its_own_head_and_no_other() -> None:
    model = built({"a": YES_NO, "b": YES_NO})
    inputs = rows(5, 6)
    YES_NO.loss(logits(model, "a", inputs), {"labels": torch.tensor([0, 1])}).backward()
    assert model.heads["a"].linear.weight.grad is not None
    assert model.heads["b"].linear.weight.grad is None
    assert all(p.grad is not None for p in model.encoder.parameters())


@pytest.mark.parametrize("frozen", [0, 1, 3])
def test_frozen_layers_and_their_embeddings_are_not_trained(frozen: int) -> None:
    encoder = built({"a": YES_NO}, freeze=frozen).encoder
    assert isinstance(encoder, TextEncoder)
    trained = {name for name, p in encoder.model.named_parameters() if p.requires_grad}
    layers = {int(name.split(".")[2]) for name in trained if name.startswith("encoder.layer")}
    assert layers == set(range(frozen, 3))
    assert any(name.startswith("embeddings") for name in trained) == (frozen == 0)


@pytest.mark.parametrize("name", ["glue/rte", "v1.0", "50%", "50%25", "a.b.c"])
def test_any_name_of_a_task_will_do(name: str) -> None:
    model = built({name: YES_NO, "v1%2E0": YES_NO})
    assert logits(model, name, rows(3)).shape == (1, 2)


def test_names_that_differ_have_heads_that_differ() -> None:
    names = ["a.b", "a%2Eb", "a%252Eb", "a%b"]
    assert len({key(name) for name in names}) == 4


def test_marked_pieces_join_the_pooled_vector_as_their_means() -> None:
    kind = Classify(("no", "yes"), marks=2)
    model = built({"wic": kind})
    tokens = torch.arange(2 * 4 * 32, dtype=torch.float32).view(2, 4, 32)
    marks = torch.tensor([[[1, 3], [0, 1]], [[3, 4], [1, 4]]])
    seen = Representation(tokens[:, 0], tokens)
    head = model.heads["wic"]
    assert isinstance(head, LinearHead)
    assert head.linear.in_features == 3 * 32
    expected = head(
        torch.stack(
            [
                torch.cat([tokens[0, 0], tokens[0, 1:3].mean(0), tokens[0, 0]]),
                torch.cat([tokens[1, 0], tokens[1, 3], tokens[1, 1:4].mean(0)]),
            ]
        )
    )
    model.encode = lambda batch: seen  # type: ignore[method-assign]
    inputs = rows(4, 4) | {"marks": marks}
    torch.testing.assert_close(logits(model, "wic", inputs), expected)


def test_a_task_on_tokens_needs_an_encoder_that_gives_them() -> None:
    spec = ModelSpec(encoder="cnn")
    model = MultiTaskModel(ImageEncoder(CNN(), 64, 0.0, 1.0), {"t": Tag(("O", "B"))}, spec, seed=1)
    with pytest.raises(TypeError, match="task t reads tokens, but the encoder gives none"):
        logits(model, "t", {"pixels": torch.zeros(1, 8, 8, dtype=torch.uint8)})


def test_heads_are_a_dropout_and_linear_maps() -> None:
    x = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    linear = LinearHead(8, 3, dropout=0.5).eval()
    torch.testing.assert_close(linear(x), x @ linear.linear.weight.T + linear.linear.bias)
    two = TwoLayerHead(8, 3, dropout=0.5, hidden=16).eval()
    hidden = (x @ two.hidden.weight.T + two.hidden.bias).clamp(min=0)
    torch.testing.assert_close(two(x), hidden @ two.linear.weight.T + two.linear.bias)
    assert isinstance(two.dropout, nn.Dropout)
    assert built({"a": YES_NO}, head="two_layer", head_width=7).heads["a"].hidden.out_features == 7


def test_pictures_reach_the_network_with_mean_0_and_spread_1() -> None:
    seen = []

    class Look(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            seen.append(images)
            return images.flatten(1)

    ImageEncoder(Look(), 4, mean=0.5, scale=0.25)({"pixels": torch.tensor([[[0, 255], [51, 0]]])})
    torch.testing.assert_close(seen[0], torch.tensor([[[-2.0, 2.0], [-1.2, -2.0]]]))


@pytest.mark.parametrize("size", [8, 28, 36])
def test_the_cnn_takes_pictures_of_any_size(size: int) -> None:
    assert CNN()(torch.zeros(2, size, size)).shape == (2, 64)
