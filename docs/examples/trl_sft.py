"""The SFTTrainer of TRL over two data sets, each packed by itself, mixed by a policy."""

import argparse
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.trainer_utils import get_last_checkpoint
from trl import SFTConfig

import taskmix
from taskmix.integrations.trl import MixtureSFTTrainer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

words = {
    word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(40))])
}
vocabulary = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
vocabulary.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=vocabulary, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
)


def counting(by: int) -> Dataset:
    rows = [" ".join(f"w{(start + by * i) % 40}" for i in range(9)) for start in range(80)]
    return Dataset.from_dict({"text": rows})


chat, code = counting(1), counting(3)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=43,
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
args = SFTConfig(
    str(options.out),
    max_steps=options.steps,
    per_device_train_batch_size=4,
    packing=True,
    packing_strategy="wrapped",
    max_length=24,
    save_steps=10,
    logging_steps=10,
    lr_scheduler_type="constant",
    report_to=[],
    use_cpu=True,
    bf16=False,
    gradient_checkpointing=False,
    dataloader_pin_memory=False,
)

trainer = MixtureSFTTrainer(  # taskmix
    model=model,
    args=args,
    train_dataset={"chat": chat, "code": code},  # taskmix
    processing_class=tokenizer,
    policy=taskmix.Temperature({"chat": 80, "code": 80}, temperature=2.0),  # taskmix
    journal=options.out / "journal.jsonl",  # taskmix
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.out)))
