"""The trainer of sentence-transformers."""

import pickle
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import (
    CosineSimilarityLoss,
    MultipleNegativesRankingLoss,
)
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizerFast

import taskmix
from resuming import (  # noqa: F401 (the tests are collected here)
    Case,
    TestResuming,
    Train,
    Trained,
    logged,
    stop_after,
)
from taskmix.integrations.sentence_transformers import MixtureSentenceTransformerTrainer
from taskmix.journal import Step, read

NAMES = ["nli", "sts", "dup"]
# Accelerate's, of torch, by two ranks.
pytestmark = pytest.mark.filterwarnings("ignore:`broadcast_buffers` is deprecated:FutureWarning")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(60))]
    BertTokenizerFast(vocab={w: i for i, w in enumerate(words)}).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"vocab_size": 65, "hidden_size": 8, "intermediate_size": 16}
    BertModel(BertConfig(**sizes, num_hidden_layers=1, num_attention_heads=2)).save_pretrained(
        folder
    )
    return folder


def data() -> dict[str, Dataset]:
    chance = random.Random(0)

    def line() -> str:
        return " ".join(f"w{chance.randrange(60)}" for _ in range(6))

    scored = [
        {"sentence1": line(), "sentence2": line(), "score": chance.random()} for _ in range(50)
    ]
    return {
        "nli": Dataset.from_list([{"anchor": line(), "positive": line()} for _ in range(32)]),
        "sts": Dataset.from_list(scored),
        "dup": Dataset.from_list([{"anchor": line(), "positive": line()} for _ in range(15)]),
    }


def trainer(folder: Path, encoder: Path, **options: Any) -> MixtureSentenceTransformerTrainer:
    torch.manual_seed(0)
    reader = Transformer(str(encoder))
    model = SentenceTransformer(modules=[reader, Pooling(8)], device="cpu")
    ranking, cosine = MultipleNegativesRankingLoss(model), CosineSimilarityLoss(model)
    settings = {
        "max_steps": 8,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "save_steps": 3,
        "logging_steps": 4,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "batch_sampler": "no_duplicates",
        "dataloader_pin_memory": False,
        "seed": 3,
    }
    callbacks = options.pop("callbacks", [])
    policy = options.pop("policy", None) or taskmix.Exp3S(NAMES, eta=0.1)
    own = {name: options.pop(name) for name in {"decide"} & set(options)}
    made = MixtureSentenceTransformerTrainer(
        model,
        SentenceTransformerTrainingArguments(str(folder), **(settings | options)),
        train_dataset=data(),
        loss={"nli": ranking, "sts": cosine, "dup": ranking},
        policy=policy,
        journal=folder / "journal.jsonl",
        callbacks=callbacks,
        **own,
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


@pytest.fixture
def host(encoder: Path) -> Train:
    def train(case: Case) -> Trained:
        made = trainer(
            case.folder,
            encoder,
            gradient_accumulation_steps=case.accumulate,
            dataloader_num_workers=case.workers,
            decide=case.decide,
            policy=case.policy(NAMES),
            callbacks=[stop_after(case)],
        )
        made.train(resume_from_checkpoint=case.checkpoint)
        return Trained(made.mixer, made.model, logged(made))

    return train


@pytest.mark.parametrize("sampler", ["batch_sampler", "no_duplicates"])
def test_one_sets_order_does_not_depend_on_the_others(
    tmp_path: Path, encoder: Path, sampler: str
) -> None:
    orders = []
    for others in (0, 3):
        mixer = trainer(tmp_path, encoder, batch_sampler=sampler).mixer
        seen = []
        for _ in range(12):  # more than an epoch of 8
            for _ in range(others):
                mixer.orders["sts"].next()
            seen.append(mixer.orders["nli"].next())
        orders.append(seen)
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][8]
    assert sorted(item for batch in orders[0][:8] for item in batch) == list(range(32))


def test_the_arguments_can_be_pickled_at_a_checkpoint(tmp_path: Path, encoder: Path) -> None:
    # A lambda as multi_dataset_batch_sampler would not.
    assert pickle.loads(pickle.dumps(trainer(tmp_path, encoder).args)).max_steps == 8


def test_every_set_is_trained_by_its_own_loss(tmp_path: Path, encoder: Path) -> None:
    made = trainer(tmp_path, encoder, decide="batch", gradient_accumulation_steps=2)
    called: list[str] = []
    for name, loss in made.loss.items():
        made.loss[name] = _Named(name, loss, called)
    made.train()
    steps = [each for each in read(tmp_path / "journal.jsonl") if isinstance(each, Step)]
    # Each step has two batches, and then the gains of both.
    tasks = [step.task for step in steps]
    pairs = [tasks[i : i + 2] for i in range(0, 16, 2)]
    assert called == [task for pair in pairs for task in pair * 2]


class _Named(nn.Module):
    def __init__(self, name: str, loss: nn.Module, called: list[str]) -> None:
        super().__init__()
        self.name, self.loss, self.called = name, loss, called

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.called.append(self.name)
        found: torch.Tensor = self.loss(*args, **kwargs)
        return found
