"""The GRPOTrainer of TRL over two environments that are mixed by a policy."""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig

import taskmix
from taskmix.integrations.grpo import MixtureGRPOTrainer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

characters = ["<pad>", "<eos>", *"0123456789=ab"]
vocabulary = Tokenizer(
    models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token="<eos>")
)
vocabulary.pre_tokenizer = pre_tokenizers.Split("", "isolated")
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<eos>", padding_side="left"
)

even = Dataset.from_dict({"prompt": [f"a{i:02}=" for i in range(80)]})
long = Dataset.from_dict({"prompt": [f"b{i:02}=" for i in range(40)]})


def is_even(completions, **columns):
    return [float(text[-1:] in set("02468")) for text in completions]


def is_long(completions, **columns):
    return [len(text) / 8 for text in completions]


torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=len(characters),
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=2,
    pad_token_id=0,
    eos_token_id=1,
    bos_token_id=1,
)
model = LlamaForCausalLM(config)
args = GRPOConfig(
    str(options.out),
    max_steps=options.steps,
    per_device_train_batch_size=8,
    num_generations=4,
    max_completion_length=8,
    save_steps=10,
    logging_steps=10,
    learning_rate=1e-3,
    lr_scheduler_type="constant",
    report_to=[],
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    dataloader_pin_memory=False,
)

trainer = MixtureGRPOTrainer(  # taskmix
    model=model,
    reward_funcs={"even": is_even, "long": is_long},  # taskmix
    args=args,
    train_dataset={"even": even, "long": long},  # taskmix
    processing_class=tokenizer,
    policy=taskmix.SEC(["even", "long"]),  # taskmix
    journal=options.out / "journal.jsonl",  # taskmix
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.out)))
