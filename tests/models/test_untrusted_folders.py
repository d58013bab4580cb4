"""A folder of a model is data: its code does not run, its pickles are not read."""

import io
import json
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from taskmix.errors import UserError
from taskmix.models.build import build_text_encoder
from taskmix.models.causal import build_causal
from taskmix.models.conditional import ConditionalEncoder
from taskmix.models.encoders import pretrained_config
from taskmix.models.parameters import parameters_of
from taskmix.models.saving import load
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import pretrained_tokenizer

CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


def change(folder: Path, name: str, **values: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def add_code(folder: Path, **values: Any) -> Path:
    """Name code of the folder for everything that transformers might load from it."""
    ran = folder / "ran"
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w')\n")
    autos = ("AutoConfig", "AutoModel", "AutoModelForCausalLM")
    change(folder, CONFIG, auto_map=dict.fromkeys(autos, "evil.Evil"), **values)
    change(folder, TOKENIZER, auto_map={"AutoTokenizer": ["evil.Evil", "evil.Evil"]}, **values)
    return ran


def spec_of(folder: Path) -> ModelSpec:
    return ModelSpec(encoder=str(folder), max_length=16)


LOADERS: dict[str, Callable[[Path], Any]] = {
    "config": lambda folder: pretrained_config(str(folder)),
    "encoder": lambda folder: build_text_encoder(spec_of(folder), str(folder), 100),
    "conditioned encoder": lambda folder: ConditionalEncoder.from_pretrained(folder),
    "language model": lambda folder: build_causal(spec_of(folder), str(folder), 100),
    "tokenizer": lambda folder: pretrained_tokenizer(str(folder), 16),
    "parameters": lambda folder: parameters_of(spec_of(folder), ["a"]),
    "saved model": load,
}


@pytest.mark.parametrize("unknown", [False, True], ids=["known", "unknown architecture"])
@pytest.mark.parametrize("loader", LOADERS)
def test_code_beside_a_model_never_runs_whatever_is_answered(
    loader: str, unknown: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = add_code(folder, **({"model_type": "evil"} if unknown else {}))
    if unknown:
        change(folder, TOKENIZER, tokenizer_class="EvilTokenizer")
    answers = io.StringIO("y\n" * 20)
    monkeypatch.setattr(sys, "stdin", answers)
    with suppress(UserError):
        LOADERS[loader](folder)
    assert not ran.exists()
    assert answers.tell() == 0, "no question was asked"
    assert not {"evil", "transformers_modules.bert.evil"} & set(sys.modules)


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("content", ["pickle", "torch", "broken"])
def test_weights_in_a_pickle_are_one_sentence(content: str, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    path, ran = folder / "pytorch_model.bin", folder / "ran"
    if content == "pickle":
        path.write_bytes(pickle.dumps({"embeddings": Bomb(ran)}))
    elif content == "torch":
        torch.save({"embeddings.word_embeddings.weight": torch.zeros(2, 2)}, path)
    else:
        path.write_bytes(b"broken")
    with pytest.raises(
        UserError, match=r"expected the whole weights of a bert, .*safetensors"
    ) as e:
        build_text_encoder(spec_of(folder), str(folder), 100)
    assert "\n" not in str(e.value)
    assert not ran.exists()


FORGED: dict[str, dict[str, Any]] = {
    "bitsandbytes": {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
    "unknown quantization": {"quantization_config": {"quant_method": "evil"}},
    "quantization without a method": {"quantization_config": {}},
    "foreign kernels": {"_attn_implementation": "evil/attention", "attn_implementation": "evil/a"},
    "kernels of another name": {"_attn_implementation": "flash_attention_9"},
    "a width of letters": {"hidden_size": "wide"},
    "no heads": {"num_attention_heads": 0},
    "an activation that is not there": {"hidden_act": "evil"},
    "a negative vocabulary": {"vocab_size": -3},
    "an unknown type": {"dtype": "float17"},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_configuration_is_one_sentence(name: str, folder: Path) -> None:
    change(folder, CONFIG, **FORGED[name])
    with pytest.raises(UserError, match=r"^model\.") as refused:
        build_text_encoder(spec_of(folder), str(folder), 100)
    assert "\n" not in str(refused.value)


def test_quantized_weights_are_refused_before_anything_is_loaded(folder: Path) -> None:
    change(folder, CONFIG, **FORGED["bitsandbytes"])
    with pytest.raises(UserError, match="expected weights in full, found quantized ones"):
        build_text_encoder(spec_of(folder), str(folder), 100)
