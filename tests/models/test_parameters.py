"""Parameters are counted from configurations alone."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig

from taskmix.errors import UserError
from taskmix.models.build import build
from taskmix.models.parameters import parameters_of
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import Corpus, tokenizer_for
from taskmix.tasks.kinds import Classify, Generate

TASKS = [f"task-{number}" for number in range(8)]


@pytest.fixture
def base(tmp_path: Path) -> str:
    """A folder with the configuration of BERT-base and no weights."""
    BertConfig().save_pretrained(tmp_path)
    return str(tmp_path)


def test_at_the_size_of_bert_base_eight_tasks_cost_less_than_the_paper_says(base: str) -> None:
    found = parameters_of(ModelSpec(encoder=base, conditional=True), TASKS)
    assert found.encoder == 108_891_648
    assert 1 < found.ratio <= 1.12


def test_the_count_is_that_of_the_model_that_is_built() -> None:
    spec = ModelSpec(encoder="small", width=32, vocabulary=64, conditional=True)
    texts = Corpus("some texts", lambda: [f"word{n} some more words {n}" for n in range(200)])
    tokenizer = tokenizer_for(spec, texts)
    kinds = {task: Classify(("a", "b")) for task in TASKS}
    model = build(spec, kinds, tokenizer, 1)
    found = parameters_of(spec.model_copy(update={"vocabulary": tokenizer.vocabulary}), TASKS)
    encoder = list(model.encoder.parameters())
    assert found.total == sum(p.numel() for p in encoder)
    assert found.trained == sum(p.numel() for p in encoder if p.requires_grad)
    assert all(p.device == torch.device("cpu") for p in encoder)


def test_a_plain_encoder_is_counted_too(base: str) -> None:
    found = parameters_of(ModelSpec(encoder=base, layers=6, freeze=3), TASKS)
    assert found.ratio == 1
    assert 0 < found.trained < found.total


def test_what_is_no_text_encoder_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"model\.encoder: expected a text encoder .*'cnn'"):
        parameters_of(ModelSpec(encoder="cnn"), TASKS)


@pytest.mark.parametrize("lora", [None, {"rank": 3}], ids=["all", "lora"])
def test_a_language_model_is_counted_with_its_head_and_adapters(
    lora: dict[str, int] | None,
) -> None:
    spec = ModelSpec(encoder="small", causal=True, width=32, vocabulary=300, lora=lora)
    texts = Corpus("other texts", lambda: [f"word{n} some more words {n}" for n in range(200)])
    model = build(spec, {"t": Generate()}, tokenizer_for(spec, texts), 1)
    vocabulary = tokenizer_for(spec, texts).vocabulary
    found = parameters_of(spec.model_copy(update={"vocabulary": vocabulary}), ["t"])
    parameters = list(model.parameters())
    assert found.total == sum(p.numel() for p in parameters)
    assert found.trained == sum(p.numel() for p in parameters if p.requires_grad)
