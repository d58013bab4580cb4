"""Lightning over three data sets, mixed by a policy."""

import argparse
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import TensorDataset

import taskmix
from taskmix.integrations.lightning import MixtureCallback, MixtureDataModule

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=20)
options = parser.parse_args()

generator, datasets = torch.Generator().manual_seed(0), {}
for name, size in {"a": 64, "b": 200, "c": 33}.items():
    x = torch.randn(size, 5, generator=generator)
    datasets[name] = TensorDataset(x, (x @ torch.randn(5, generator=generator) > 0).long())


class Net(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh())
        self.heads = torch.nn.ModuleDict({task: torch.nn.Linear(16, 2) for task in datasets})

    def training_step(self, batch, batch_idx):
        x, y = batch["batch"]  # taskmix
        head = self.heads[batch["task"]]  # taskmix
        return torch.nn.functional.cross_entropy(head(self.body(x)), y)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


policy = taskmix.Progress(list(datasets))  # taskmix
journal = options.out / "journal.jsonl"  # taskmix
module = MixtureDataModule(datasets, policy, 8, seed=1, journal=journal, num_workers=2)  # taskmix
trainer = lightning.Trainer(
    max_steps=options.steps,
    accumulate_grad_batches=2,
    callbacks=[
        ModelCheckpoint(options.out, filename="last", every_n_train_steps=10),
        MixtureCallback(),  # taskmix
    ],
    accelerator="cpu",
    logger=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
last = options.out / "last.ckpt"
trainer.fit(Net(), module, ckpt_path=last if last.exists() else None)
