"""The Trainer of transformers over two data sets, mixed by a policy."""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import taskmix
from taskmix.integrations.transformers import MixtureTrainer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)


def counting(period: int) -> Dataset:
    rows = [[(start + i) % period + 1 for i in range(12)] for start in range(64)]
    return Dataset.from_dict({"input_ids": rows, "labels": rows})


fives, nineteens = counting(5), counting(19)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=32,
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
)
model = LlamaForCausalLM(config)
args = TrainingArguments(
    str(options.out),
    max_steps=options.steps,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    eval_strategy="steps",
    eval_steps=10,
    save_steps=10,
    logging_steps=10,
    metric_for_best_model="worst_loss",  # taskmix
    load_best_model_at_end=True,
    lr_scheduler_type="constant",
    report_to=[],
    use_cpu=True,
    dataloader_pin_memory=False,
)

trainer = MixtureTrainer(  # taskmix
    model=model,
    args=args,
    train_dataset={"fives": fives, "nineteens": nineteens},  # taskmix
    eval_dataset={"fives": fives, "nineteens": nineteens},
    policy=taskmix.Exp3S(["fives", "nineteens"]),  # taskmix
    journal=options.out / "journal.jsonl",  # taskmix
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.out)))
