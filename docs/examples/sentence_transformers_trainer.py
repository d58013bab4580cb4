"""The trainer of sentence-transformers: two data sets, each with its own loss, and a policy."""

import argparse
import random
import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import (
    CosineSimilarityLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import BertConfig, BertModel, BertTokenizerFast
from transformers.trainer_utils import get_last_checkpoint

import taskmix
from taskmix.integrations.sentence_transformers import MixtureSentenceTransformerTrainer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

chance = random.Random(0)
torch.manual_seed(0)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(60))]
config = BertConfig(
    vocab_size=65, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
)
with tempfile.TemporaryDirectory() as folder:
    BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder)
    BertModel(config).save_pretrained(folder)
    reader = Transformer(folder)
model = SentenceTransformer(modules=[reader, Pooling(16)], device="cpu")


def line() -> str:
    return " ".join(chance.choices(words[5:], k=6))


pairs = Dataset.from_list([{"anchor": line(), "positive": line()} for _ in range(40)])
scored = Dataset.from_list([{"a": line(), "b": line(), "score": 0.5} for _ in range(60)])
args = SentenceTransformerTrainingArguments(
    str(options.out),
    max_steps=options.steps,
    per_device_train_batch_size=4,
    batch_sampler="no_duplicates",
    save_steps=10,
    logging_steps=10,
    lr_scheduler_type="constant",
    report_to=[],
    use_cpu=True,
    dataloader_pin_memory=False,
)

trainer = MixtureSentenceTransformerTrainer(  # taskmix
    model=model,
    args=args,
    train_dataset={"pairs": pairs, "scored": scored},
    loss={"pairs": MultipleNegativesRankingLoss(model), "scored": CosineSimilarityLoss(model)},
    policy=taskmix.Exp3S(["pairs", "scored"]),  # taskmix
    journal=options.out / "journal.jsonl",  # taskmix
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.out)))
