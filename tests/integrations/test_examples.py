"""The examples of the documentation: short, and they run, stop and go on."""

import re
import runpy
import string
import sys
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

DOCS = Path(__file__).parents[2] / "docs"
# Those that train with a loop of somebody else: not own models, nor scripts that write data, nor
# the one that needs SmolLM2 and reasoning-gym.
EXAMPLES = sorted(
    path
    for path in (DOCS / "examples").glob("*.py")
    if not path.stem.startswith(("own_", "grpo_")) and "taskmix" in path.read_text()
)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_runs_and_goes_on(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = []
    for folder, steps in (("whole", 20), ("parts", 10), ("parts", 20)):
        arguments = [str(script), str(tmp_path / folder), "--steps", str(steps)]
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(str(script), run_name="__main__")
        said.append(capsys.readouterr().out.splitlines()[-1:])
    if script.stem == "accelerate_loop":  # has no journal, and says the shares
        assert said[0] == said[2] != said[1]
        return
    journals = [(tmp_path / f / "journal.jsonl").read_bytes() for f in ("whole", "parts")]
    assert journals[0] == journals[1]
    assert journals[0].count(b'"kind":"step"') == 20


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_adds_at_most_ten_lines_and_the_page_shows_them(script: Path) -> None:
    page = (DOCS / "integrations.md").read_text()
    assert f"examples/{script.name}" in page
    lines = script.read_text().splitlines()
    added = [line.removesuffix("  # taskmix").strip() for line in lines if "# taskmix" in line]
    added += [line for line in lines if re.match("(from|import) taskmix", line)]
    assert 3 <= len(added) <= 10
    assert not [line for line in added if line not in page]


def test_the_example_of_reasoning_gym_runs_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("reasoning_gym", reason="needs the extra reasoning")
    script = str(DOCS / "examples/grpo_reasoning.py")
    model = tiny_chat_model(tmp_path / "model")
    for folder, steps in (("whole", 4), ("parts", 2), ("parts", 4)):
        arguments = [script, str(tmp_path / folder), "--steps", str(steps), "--save", "2"]
        monkeypatch.setattr(sys, "argv", [*arguments, "--model", model])
        runpy.run_path(script, run_name="__main__")
    journals = [(tmp_path / f / "journal.jsonl").read_bytes() for f in ("whole", "parts")]
    assert journals[0] == journals[1]
    assert journals[0].count(b'"kind":"step"') == 4


def tiny_chat_model(folder: Path) -> str:
    """A Llama of one layer with random weights, whose tokens are characters."""
    words = {word: i for i, word in enumerate(["<pad>", "<eos>", *string.printable])}
    characters = Tokenizer(models.WordLevel(words, unk_token="<eos>"))
    characters.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=characters, pad_token="<pad>", eos_token="<eos>"
    )
    tokenizer.chat_template = "{% for message in messages %}{{ message.content }}\n{% endfor %}"
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    tokens = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    config = LlamaConfig(vocab_size=len(words), **sizes, **heads, **tokens)
    LlamaForCausalLM(config).save_pretrained(folder)
    return str(folder)
