"""A user's mistake is one sentence."""

import subprocess
import sys

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2Model

from taskmix.errors import UserError
from taskmix.models.conditional import ConditionalSpec, condition
from taskmix.models.spec import checked

TINY = {"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "intermediate_size": 8}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"parts": ["nrom"]}, "parts: unknown part 'nrom'; did you mean 'norm'"),
        ({"parts": []}, "parts: expected some of attention, alignment, norm, bottleneck"),
        ({"parts": ["norm", "norm"]}, "each once"),
        ({"rank": 0}, "rank: expected at least 1, found 0"),
        ({"rank": "half"}, "rank: .*found 'half'"),
        ({"blocks": 25}, "blocks: expected 1 to 24, one a token, found 25"),
        ({"positions": 25}, "positions: found 25, but the encoder reads 24 tokens"),
        ({"embedding_start": 0}, "embedding_start: expected a standard deviation above 0, found 0"),
        ({"start": float("nan")}, "start: expected a standard deviation >= 0"),
        ({"blocks": 0}, "blocks: expected at least 1, found 0"),
        ({"freeze": 3}, "freeze: found 3, but the encoder has 2 layers"),
        ({"freeze": 1.5}, "freeze: expected a count of layers or a share from 0 to 1, found 1.5"),
        ({"freeze": -1}, "freeze: expected a count"),
        ({"start": -0.1}, "start: expected a standard deviation >= 0"),
        ({"bottleneck_width": 0}, "bottleneck_width: expected at least 1, found 0"),
        ({"layout": "huge"}, "layout: .*found 'huge'"),
        ({"rnak": 2}, "unknown option 'rnak'; did you mean 'rank'"),
    ],
    ids=str,
)
def test_a_wrong_option(make, options, sentence):
    with pytest.raises(UserError, match=sentence) as error:
        condition(make(), ["a"], **{"rank": 2} | options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("tasks", [[], ["a", "a"]])
def test_tasks_are_named_once(make, tasks):
    with pytest.raises(UserError, match="tasks: expected at least one name, each once"):
        condition(make(), tasks, rank=2)


@pytest.mark.parametrize(
    ("ids", "sentence"),
    [
        ([0, 1, 2, 0, 0], "task_ids: expected ids from 0 to 1, found 2"),
        ([0, -1, 0, 0, 0], "task_ids: expected ids from 0 to 1, found -1"),
        ([[0], [0], [0], [0], [0]], r"expected one integer a sequence, found .* shape \(5, 1\)"),
        ([0.0] * 5, "expected one integer a sequence, found torch.float32"),
    ],
)
def test_a_task_id_that_is_not_in_the_table(make, batch, ids, sentence):
    conditioned = condition(make(), ["a", "b"], rank=2)
    with pytest.raises(UserError, match=sentence):
        conditioned(**batch(), task_ids=torch.tensor(ids))


def test_a_task_name_that_is_not_in_the_table(make):
    with pytest.raises(UserError, match="unknown task 'sst3'; did you mean 'sst2'"):
        condition(make(), ["sst2"], rank=2).ids(["sst3"])


def test_an_encoder_of_another_family():
    decoder = GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=10))
    with pytest.raises(UserError, match=r"encoder: expected one of BertModel.*found GPT2Model"):
        condition(decoder, ["a"])
    model = BertForSequenceClassification(BertConfig(num_attention_heads=2, **TINY))
    with pytest.raises(UserError, match="found BertForSequenceClassification"):
        condition(model, ["a"])
    with pytest.raises(UserError, match="found Linear"):
        condition(torch.nn.Linear(2, 2), ["a"])


def test_an_encoder_that_is_a_decoder_or_has_another_attention(make):
    with pytest.raises(UserError, match="expected an encoder, found a decoder"):
        condition(make(is_decoder=True), ["a"])
    with pytest.raises(UserError, match="expected attn_implementation='sdpa', found 'eager'"):
        condition(make(attn_implementation="eager"), ["a"])


def test_a_spec_says_the_same_words():
    spec = ConditionalSpec(parts=("norm", "attention"), rank="full", freeze=2)
    assert spec.parts == ("attention", "norm")
    assert checked(spec.model_dump()) == spec
    assert ConditionalSpec.model_validate_json(spec.model_dump_json()) == spec


def test_a_run_file_can_be_read_without_torch():
    code = (
        "import sys; from taskmix.models.conditional import ConditionalSpec; ConditionalSpec();"
        "print([m for m in ('torch', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
