"""GRPO of SmolLM2-135M over two environments of reasoning-gym, mixed by a policy."""

import argparse
import re
from pathlib import Path

import reasoning_gym
from datasets import Dataset
from peft import LoraConfig
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig

import taskmix
from taskmix.integrations.grpo import MixtureGRPOTrainer

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--save", type=int, default=5, help="steps between two checkpoints")
parser.add_argument("--model", help="a folder; SmolLM2-135M-Instruct if not given")
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)


def environment(name, **settings):
    """Return the prompts of an environment of reasoning-gym, and its verifier as a reward."""
    gym = reasoning_gym.create_dataset(name, size=200, seed=1, **settings)

    def verified(completions, number, **columns):
        texts = [completion[0]["content"] for completion in completions]
        answers = [(re.findall(r"-?\d+", text) or [""])[-1] for text in texts]
        return [gym.score_answer(a, gym[i]) for a, i in zip(answers, number, strict=True)]

    questions = [entry["question"] + " Answer with a number only." for entry in gym]
    prompts = [[{"role": "user", "content": question}] for question in questions]
    return Dataset.from_dict({"prompt": prompts, "number": range(200)}), verified


sums, sum_reward = environment("chain_sum", min_terms=2, max_terms=2, min_digits=1, max_digits=1)
letters, letter_reward = environment("letter_counting", min_words=1, max_words=3)

trainer = MixtureGRPOTrainer(
    model=options.model or str(taskmix.models.smollm2()),
    reward_funcs={"sums": sum_reward, "letters": letter_reward},
    args=GRPOConfig(
        str(options.out),
        max_steps=options.steps,
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=8,
        save_steps=options.save,
        logging_steps=1,
        learning_rate=1e-4,
        lr_scheduler_type="constant",
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
    ),
    train_dataset={"sums": sums, "letters": letters},
    policy="dump",
    prompts="learnability",
    peft_config=LoraConfig(r=8, target_modules="all-linear"),
    journal=options.out / "journal.jsonl",
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(str(options.out)))
