"""Lightning."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import taskmix
from resuming import Case, TestResuming, Train, check  # noqa: F401 (it is collected here)
from taskmix.errors import UserError
from taskmix.integrations.lightning import MixtureCallback, MixtureDataModule
from taskmix.journal import Step, read

NAMES = ["a", "b", "c"]
# Lightning's own: on torch 2.13, on loaders without workers, on folders that it made itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:The 'train_dataloader' does not have many workers"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
]


def data() -> dict[str, TensorDataset]:
    generator, made = torch.Generator().manual_seed(0), {}
    for name, size in {"a": 64, "b": 200, "c": 33}.items():
        x = torch.randn(size, 5, generator=generator)
        made[name] = TensorDataset(x, (x @ torch.randn(5, generator=generator) > 0).long())
    return made


class Net(lightning.LightningModule):
    """One body, and a head for each task, so that every step leaves some heads out."""

    def __init__(self, dropout: float = 0.1, lr: float = 0.01) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(dropout))
        self.heads = nn.ModuleDict({task: nn.Linear(8, 2) for task in NAMES})
        self.lr = lr
        self.seen: list[float] = []

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Tensor:
        x, y = batch["batch"]
        loss = nn.functional.cross_entropy(self.heads[batch["task"]](self.body(x)), y)
        self.log("train_loss", loss)
        if torch.is_grad_enabled():
            self.seen.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Stop(lightning.Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        trainer.should_stop = trainer.global_step == self.step


def fit(
    folder: Path,
    model: Net | None = None,
    *,
    stop: int = 8,
    resume: bool = False,
    accumulate: int = 1,
    logger: Any = False,
    workers: int = 0,
    **options: Any,
) -> tuple[MixtureDataModule, Net]:
    ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    kept = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=3, save_top_k=-1)
    trainer = lightning.Trainer(
        max_steps=8,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp_find_unused_parameters_true" if ranks > 1 else "auto",
        accumulate_grad_batches=accumulate,
        callbacks=[MixtureCallback(), kept, Stop(stop)],
        logger=logger,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=folder,
    )
    policy = options.pop("policy", None) or taskmix.Exp3S(NAMES, eta=0.1)
    module = MixtureDataModule(
        data(),
        policy,
        8,
        seed=3,
        journal=folder / "journal.jsonl",
        num_workers=workers,
        **options,
    )
    model = model or Net()
    trainer.fit(model, module, ckpt_path=folder / "step=3.ckpt" if resume else None)
    return module, model


def training(**options: Any) -> Train:
    def train(case: Case) -> tuple[Any, nn.Module]:
        module, model = fit(
            case.folder,
            stop=case.stop,
            resume=case.resume,
            accumulate=case.accumulate,
            workers=case.workers,
            **options,
        )
        return module.mixer, model

    return train


@pytest.fixture
def host() -> Train:
    return training()


def test_a_resumed_training_with_one_decision_a_batch_does_too(tmp_path: Path) -> None:
    check(training(decide="batch"), tmp_path, 0, 2)


def steps(folder: Path) -> list[Step]:
    return [each for each in read(folder / "journal.jsonl") if isinstance(each, Step)]


def test_a_loss_is_not_divided_by_the_accumulation(tmp_path: Path) -> None:
    _, model = fit(tmp_path, accumulate=2, decide="batch")
    assert [step.loss for step in steps(tmp_path)] == pytest.approx(model.seen, rel=1e-6)


def test_a_gain_is_measured_under_the_same_dropout(tmp_path: Path) -> None:
    fit(tmp_path, Net(dropout=0.5, lr=0.0), accumulate=2)
    assert [step.gain for step in steps(tmp_path)] == pytest.approx([0.0] * 8, abs=1e-6)


def test_losses_and_shares_of_each_set_are_logged(tmp_path: Path) -> None:
    fit(tmp_path, logger=CSVLogger(tmp_path))
    logged = next(tmp_path.rglob("metrics.csv")).read_text().splitlines()
    columns = logged[0].split(",")
    assert {"train_loss", "share_a", "share_b", "share_c"} <= set(columns)
    last = dict(zip(columns, logged[-1].split(","), strict=True))
    assert sum(float(last[f"share_{task}"]) for task in NAMES) == pytest.approx(1)
    assert {f"loss_{step.task}" for step in steps(tmp_path)} <= set(columns)


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^sizes: expected one for each task of the policy"):
        MixtureDataModule(data(), taskmix.Random(["a"]), 8, seed=1)
    with pytest.raises(UserError, match=r"^decide: expected step or batch, found 'epoch'$"):
        fit(tmp_path, decide="epoch")
    trainer = lightning.Trainer(
        max_steps=1,
        accelerator="cpu",
        callbacks=[MixtureCallback()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with pytest.raises(UserError, match=r"^MixtureCallback: expected trainer.fit with a M"):
        trainer.fit(Net(), torch.utils.data.DataLoader(data()["a"]))
