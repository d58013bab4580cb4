"""Environments of the RL arena: rules on three digits, and a small model that half knows them.

A prompt is the letter of an environment, three digits and an equals sign, such as `A407=`; the
answer is a string of digits. Before the reinforcement learning, a model is trained on answers of
which a known fraction follows the rule of the environment. The others follow a wrong rule, so that
each environment has to be learned by itself: a model that is only surer of itself is not better.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

Rule = Callable[[str], str]
CHARACTERS = ["<pad>", "<eos>", *"0123456789=", *"ABCDEFGHIJK"]
IDS = {character: number for number, character in enumerate(CHARACTERS)}
DIGITS = ["".join(digits) for digits in product("0123456789", repeat=3)]
HELD_OUT = 200
PAD, EOS = 0, 1


def _nines(digit: str) -> str:
    return str(9 - int(digit))


def _hidden(digits: str) -> str:
    """Return three digits that cannot be guessed."""
    return f"{random.Random(digits).randrange(1000):03}"


@dataclass(frozen=True)
class Environment:
    """A rule, a wrong rule, and the fraction of the first training that follows the rule."""

    letter: str
    rule: Rule
    wrong: Rule
    known: float
    size: int  # training prompts

    def prompt(self, digits: str) -> str:
        return f"{self.letter}{digits}="

    def prompts(self) -> list[str]:
        """Return the digits of the training prompts; those that are held out are none of them."""
        return _shuffled(self.letter)[HELD_OUT:][: self.size]

    def held_out(self) -> list[str]:
        return _shuffled(self.letter)[:HELD_OUT]


@cache
def _shuffled(letter: str) -> list[str]:
    return random.Random(letter).sample(DIGITS, len(DIGITS))


LEARNABLE = (
    Environment("A", lambda d: d[0], lambda d: d[1], 0.5, 80),
    Environment("B", lambda d: d[2], lambda d: d[0], 0.35, 640),
    Environment("C", max, min, 0.25, 160),
    Environment("D", lambda d: _nines(d[0]), lambda d: d[0], 0.2, 80),
    Environment("E", lambda d: d[1], lambda d: _nines(d[1]), 0.15, 320),
    Environment("F", lambda d: d[2] + d[1], lambda d: d[1] + d[2], 0.3, 160),
    Environment("G", lambda d: _nines(d[2]), lambda d: d[2], 0.12, 640),
    Environment("H", min, max, 0.08, 160),
)
SOLVED = Environment("I", lambda d: d[1], lambda d: d[1], 1.0, 640)
HARD = tuple(Environment(letter, _hidden, lambda d: d, 0.0, 640) for letter in "JK")
SUITES = {"speeds": LEARNABLE, "waste": (*LEARNABLE[:6], SOLVED, *HARD)}
"""Of `waste`, a third cannot be improved; the hard ones also have the longest answers."""


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.WordLevel(IDS, unk_token="<eos>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def new_model(seed: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(CHARACTERS),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=16,
            tie_word_embeddings=True,
            pad_token_id=PAD,
            eos_token_id=EOS,
            bos_token_id=EOS,
        )
    )


def encoded(prompts: Sequence[str], answers: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Return ids and labels, padded on the right; all prompts have the same length."""
    rows = [
        [IDS[c] for c in prompt + answer] + [EOS]
        for prompt, answer in zip(prompts, answers, strict=True)
    ]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])
    labels = ids.masked_fill(ids == PAD, -100)
    labels[:, : len(prompts[0])] = -100
    return ids, labels


def supervise(model: LlamaForCausalLM, seed: int, steps: int, batch: int = 128) -> None:
    """Train on prompts of all environments, whose answers follow the right or the wrong rule."""
    chance = random.Random(seed)
    everything = (*LEARNABLE, SOLVED, *HARD)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    model.train()
    for _ in range(steps):
        prompts, answers = [], []
        for environment in chance.choices(everything, k=batch):
            digits = chance.choice(environment.prompts())
            right = chance.random() < environment.known
            prompts.append(environment.prompt(digits))
            answers.append((environment.rule if right else environment.wrong)(digits))
        ids, labels = encoded(prompts, answers)
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()


@torch.no_grad()
def pass_rates(model: LlamaForCausalLM, environments: Sequence[Environment]) -> dict[str, float]:
    """Return the probability of the right answer, the mean over the prompts that are held out."""
    was_training = model.training
    model.eval()
    rates = {}
    for environment in environments:
        digits = environment.held_out()
        ids, labels = encoded(
            [environment.prompt(d) for d in digits], [environment.rule(d) for d in digits]
        )
        logits = model(input_ids=ids).logits[:, :-1].log_softmax(-1)
        targets = labels[:, 1:]
        chosen = logits.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
        rates[environment.letter] = (chosen * (targets >= 0)).sum(1).exp().mean().item()
    model.train(was_training)
    return rates
