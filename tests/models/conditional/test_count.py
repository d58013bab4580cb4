"""Parameter counts, without weights."""

import pytest
import torch
from transformers import BertConfig, BertModel, RobertaConfig, RobertaModel

from taskmix.models.conditional import condition, count_parameters

EIGHT = [f"task-{number}" for number in range(8)]


def on_meta(model, **options):
    with torch.device("meta"):
        return count_parameters(condition(model(), EIGHT, **options))


def base():
    return BertModel(BertConfig())


def test_bert_base_with_eight_tasks_is_as_small_as_the_paper_says():
    count = on_meta(base)
    assert count.ratio <= 1.12
    assert count.trained_per_task <= 0.056, "Table 2: 5.6% trained a task"


def test_the_count_is_the_sum_of_the_tensors():
    """BERT-base by hand: width 768, 12 layers, rank 32, 32 blocks of 16."""
    count = on_meta(base)
    generator = 32 * 768  # what reads a task embedding
    attention = 12 * (generator + (32 + 1) * 2 * 16**2 + 32 * 16**2)
    modulation = generator + (32 + 1) * 2 * 768
    norms, alignment = 6 * 2 * modulation, modulation
    bottleneck = modulation + 768 * 256 + 256 + 256 * 768 + 768
    assert count.shared == attention + norms + alignment + bottleneck
    assert count.embeddings == 8 * 768
    assert count.encoder == 108_891_648, "BERT-base without its pooler"
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    assert count.encoder_trained == 6 * layer
    assert count.total == count.encoder + count.shared + count.embeddings
    assert count.trained == count.encoder_trained + count.shared + count.embeddings


@pytest.mark.parametrize(
    ("model", "most"),
    [
        (lambda: RobertaModel(RobertaConfig(max_position_embeddings=514)), 1.12),
        (
            lambda: BertModel(
                BertConfig(
                    hidden_size=1024,
                    num_hidden_layers=24,
                    num_attention_heads=16,
                    intermediate_size=4096,
                )
            ),
            1.12,
        ),
    ],
    ids=["roberta-base", "bert-large"],
)
def test_so_are_the_others(model, most):
    assert on_meta(model).ratio <= most


def test_another_task_costs_one_row(make):
    conditioned = condition(make(), ["a"], rank=2)
    before = count_parameters(conditioned)
    conditioned.add_task("b")
    after = count_parameters(conditioned)
    assert after.total - before.total == 12
    assert (before.tasks, after.tasks) == (1, 2)


def test_the_count_agrees_with_the_module(make):
    conditioned = condition(make(), ["a", "b"], rank=2)
    count = count_parameters(conditioned)
    assert count.total == sum(p.numel() for p in conditioned.parameters())
    assert count.trained == sum(p.numel() for p in conditioned.parameters() if p.requires_grad)
