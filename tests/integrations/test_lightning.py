"""Lightning."""

from functools import partial
from pathlib import Path
from typing import Any, Literal

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import taskmix
from resuming import Case, TestResuming, Train, Trained, check  # noqa: F401 (it is collected here)
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
    def __init__(self, case: Case) -> None:
        self.case = case

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: Any) -> None:
        trainer.should_stop = self.case.ends(trainer.global_step)


def fit(
    case: Case,
    model: Net | None = None,
    *,
    limit: int | None = None,
    saving: dict[str, Any] | None = None,
    logger: Any = False,
    scorers: Any = None,
    **options: Any,
) -> Trained:
    ranks = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
    saving = saving or {"every_n_train_steps": 3}
    kept = ModelCheckpoint(case.folder, filename="{step}", save_top_k=-1, **saving)
    trainer = lightning.Trainer(
        max_steps=8,
        limit_train_batches=limit,
        accelerator="cpu",
        devices=ranks,
        strategy="ddp_find_unused_parameters_true" if ranks > 1 else "auto",
        accumulate_grad_batches=case.accumulate,
        callbacks=[MixtureCallback(scorers), kept, Stop(case)],
        logger=logger,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        default_root_dir=case.folder,
    )
    policy = options.pop("policy", None) or case.policy(NAMES)
    module = MixtureDataModule(
        data(),
        policy,
        8,
        seed=3,
        journal=case.journal,
        num_workers=case.workers,
        **({"decide": case.decide} | options),
    )
    model = model or Net()
    saved = min(case.folder.glob("step=*.ckpt"), default=None) if case.resume else None
    trainer.fit(model, module, ckpt_path=saved)
    assert module.mixer is not None
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return Trained(module.mixer, model, metrics)


@pytest.fixture
def host() -> Train:
    return fit


@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("decide", ["step", "batch"])
@pytest.mark.parametrize(
    "saving",
    [{"every_n_train_steps": 2}, {"every_n_epochs": 1, "save_on_train_epoch_end": True}],
    ids=["steps", "epochs"],
)
def test_so_it_does_with_epochs_that_end_within_a_step(
    tmp_path: Path, accumulate: int, decide: Literal["step", "batch"], saving: dict[str, Any]
) -> None:
    """Lightning steps at the end of an epoch, after however few batches."""
    train = partial(fit, limit=6 if accumulate == 4 else 3, saving=saving)
    check(train, tmp_path, 2, accumulate, decide, kill=True)


def steps(folder: Path) -> list[Step]:
    return [each for each in read(folder / "journal.jsonl") if isinstance(each, Step)]


def whole(folder: Path, accumulate: int = 1, decide: Literal["step", "batch"] = "step") -> Case:
    return Case(folder, 0, accumulate, decide, stop=8)


def test_a_loss_is_not_divided_by_the_accumulation(tmp_path: Path) -> None:
    _, model, _ = fit(whole(tmp_path, 2, "batch"))
    assert [step.loss for step in steps(tmp_path)] == pytest.approx(model.seen, rel=1e-6)


def test_a_gain_is_measured_under_the_same_dropout(tmp_path: Path) -> None:
    fit(whole(tmp_path, 2), Net(dropout=0.5, lr=0.0))
    assert [step.gain for step in steps(tmp_path)] == pytest.approx([0.0] * 8, abs=1e-6)


def test_losses_and_shares_of_each_set_are_logged(tmp_path: Path) -> None:
    fit(whole(tmp_path), logger=CSVLogger(tmp_path))
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
        fit(whole(tmp_path), decide="epoch")
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
