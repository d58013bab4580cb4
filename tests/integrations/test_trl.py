"""The SFTTrainer of TRL."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig

import taskmix
from resuming import (  # noqa: F401 (the tests are collected here)
    Case,
    TestResuming,
    Train,
    Trained,
    logged,
    stop_after,
)
from taskmix.errors import UserError
from taskmix.integrations.transformers import MixtureMixin
from taskmix.integrations.trl import MixtureSFTTrainer
from taskmix.journal import Step, read

SIZES = {"chat": 40, "math": 120, "web": 60}


def tokenizer() -> PreTrainedTokenizerFast:
    words = ["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(60))]
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def data() -> dict[str, Dataset]:
    """Each set has words of its own, so that a packed row shows where it is from."""
    chance, made = random.Random(0), {}
    for place, (name, size) in enumerate(SIZES.items()):
        texts = [
            " ".join(f"w{chance.randrange(20) + 20 * place}" for _ in range(chance.randint(5, 12)))
            for _ in range(size)
        ]
        made[name] = Dataset.from_dict({"text": texts})
    return made


def trainer(folder: Path, **options: Any) -> MixtureSFTTrainer:
    torch.manual_seed(0)
    sizes = {"vocab_size": 63, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    tokens = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, **tokens, attention_dropout=0.1))
    settings = {
        "max_steps": 8,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "save_steps": 3,
        "logging_steps": 4,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "max_length": 24,
        "packing_strategy": "wrapped",
        "seed": 5,
    }
    callbacks = options.pop("callbacks", [])
    policy = options.pop("policy", None) or taskmix.Exp3S(list(SIZES), eta=0.1)
    own = {name: options.pop(name) for name in {"decide"} & set(options)}
    made = MixtureSFTTrainer(
        model,
        SFTConfig(str(folder), **(settings | options)),
        train_dataset=data(),
        processing_class=tokenizer(),
        policy=policy,
        journal=folder / "journal.jsonl",
        callbacks=callbacks,
        **own,
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


@pytest.fixture
def host() -> Train:
    def train(case: Case) -> Trained:
        made = trainer(
            case.folder,
            gradient_accumulation_steps=case.accumulate,
            dataloader_num_workers=case.workers,
            packing=case.workers > 0,
            decide=case.decide,
            policy=case.policy(list(SIZES)),
            callbacks=[stop_after(case)],
        )
        made.train(resume_from_checkpoint=case.checkpoint)
        return Trained(made.mixer, made.model, logged(made))

    return train


def test_each_set_is_packed_by_itself(tmp_path: Path) -> None:
    packed, plain = (trainer(tmp_path, packing=packing) for packing in (True, False))
    for place, name in enumerate(SIZES):
        own = {0, 1, *range(3 + 20 * place, 23 + 20 * place)}
        rows = packed.training_sets[name]["input_ids"]
        assert all(set(row) <= own for row in rows)
        assert len(rows) < len(plain.training_sets[name]) == SIZES[name]
        assert sum(map(len, rows)) == sum(map(len, plain.training_sets[name]["input_ids"]))
    assert packed.mixer.orders["math"].settings()["size"] < SIZES["math"]


class Curious(taskmix.Random):
    """Draws as random does, and has gains measured."""

    needs = frozenset({taskmix.Gain()})


def test_measuring_gains_changes_nothing_in_the_logs(tmp_path: Path) -> None:
    logs = []
    for kind in (taskmix.Random, Curious):
        made = trainer(tmp_path / kind.__name__, policy=kind(list(SIZES)))
        made.train()
        logs.append([entry for entry in made.state.log_history if "num_tokens" in entry])
    assert logs[0] == logs[1]
    assert {"mean_token_accuracy", "loss_math", "share_chat"} <= set(logs[0][-1])
    steps = [each for each in read(tmp_path / "Curious/journal.jsonl") if isinstance(each, Step)]
    assert all(step.gain is not None for step in steps)


@pytest.mark.parametrize(
    "name", ["DPOTrainer", "KTOTrainer", "RewardTrainer", "DistillationTrainer", "GRPOTrainer"]
)
def test_a_trainer_of_trl_that_prepares_its_data_itself_is_refused(name: str) -> None:
    made: Any = type("Mine", (MixtureMixin, getattr(trl, name)), {})
    with pytest.raises(UserError, match=rf"^MixtureMixin: expected .*, found TRL's {name}, "):
        made(train_dataset={"chat": [{"prompt": "1 + 1"}]}, policy=taskmix.Random(["chat"]))
