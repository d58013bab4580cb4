"""Folders of pretrained encoders that are not whole: one sentence, never weights out of nowhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from taskmix.errors import UserError
from taskmix.models.build import build_text_encoder
from taskmix.models.encoders import quiet
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import pretrained_tokenizer
from tiny_encoders import FAMILIES, family

WEIGHTS = "model.safetensors"


def cut(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:300])


def emptied(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"")


def gone(folder: Path) -> None:
    (folder / WEIGHTS).unlink()


def without_a_layer(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    left = {name: tensor for name, tensor in tensors.items() if "layer.1." not in name}
    save_file(left, folder / WEIGHTS, {"format": "pt"})


def under_other_names(folder: Path) -> None:
    tensors = load_file(folder / WEIGHTS)
    renamed = {f"x.{name}": tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / WEIGHTS, {"format": "pt"})


def configured(**values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, "expected the whole weights of a bert"),
        (emptied, "expected the whole weights of a bert"),
        (gone, "expected the whole weights of a bert"),
        (configured(hidden_size=48, num_attention_heads=4), "expected the whole weights of a bert"),
        (without_a_layer, r"expected the weights of every layer, found none of .*\(16 are missing"),
        (under_other_names, "expected the weights of every layer, found none of "),
        (configured(num_hidden_layers=5), r"every layer, found none of encoder.layer.2.*\(48 are"),
    ],
)
def test_weights_that_are_not_there_are_one_sentence(
    damage: Callable[[Path], None], words: str, folder: Path
) -> None:
    spec = ModelSpec(encoder=str(folder), max_length=16)
    build_text_encoder(spec, str(folder), 100)
    damage(folder)
    with pytest.raises(UserError, match=words) as refused:
        build_text_encoder(spec, str(folder), 100)
    assert "\n" not in str(refused.value)


def test_a_model_of_pictures_is_no_encoder_of_texts(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with quiet():
        transformers.ViTModel(transformers.ViTConfig(**sizes)).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="is a vit, expected an encoder of texts"):
        build_text_encoder(ModelSpec(encoder=str(tmp_path)), str(tmp_path), 100)


def test_a_folder_without_a_tokenizer_has_no_empty_one(folder: Path) -> None:
    pretrained_tokenizer(str(folder), 16)
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(UserError, match=r"found no tokenizer at .*: its vocabulary is empty"):
        pretrained_tokenizer(str(folder), 16)


def test_an_encoder_that_hardly_minds_the_order_of_words_is_no_decoder(tmp_path: Path) -> None:
    spec = family("modernbert", tmp_path)
    first = spec.model_copy(update={"pooling": "first"})
    assert build_text_encoder(first, str(tmp_path), 400).pooled_width == 32


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # DeBERTa's
def test_a_family_has_fewer_layers_or_says_that_it_cannot(name: str, tmp_path: Path) -> None:
    spec = family(name, tmp_path).model_copy(update={"layers": 1, "freeze": 1})
    if name == "funnel":
        with pytest.raises(UserError, match=r"model.layers: a funnel cannot do with fewer layers"):
            build_text_encoder(spec, str(tmp_path), 400)
        return
    encoder = build_text_encoder(spec, str(tmp_path), 400).eval()
    ids = torch.tensor([[5, 6, 7, 8]])
    found = encoder({"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    assert found.pooled.isfinite().all()
    assert any(not parameter.requires_grad for parameter in encoder.parameters())
