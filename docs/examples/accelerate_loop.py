"""A loop with accelerate, alone or by `accelerate launch`: all ranks take the same decisions."""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

import taskmix
from taskmix.mixing import Mixed, Mixer, Tally, collate_by

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()
checkpoint = options.out / "checkpoint"

generator, datasets = torch.Generator().manual_seed(0), {}
for name, size in {"a": 64, "b": 200, "c": 33}.items():
    x = torch.randn(size, 5, generator=generator)
    datasets[name] = TensorDataset(x, (x @ torch.randn(5, generator=generator) > 0).long())

torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
accelerator = Accelerator(cpu=True)


def train_step(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss


mixed = Mixed(datasets)  # taskmix
policy = taskmix.Progress(list(datasets))  # taskmix
mixer = Mixer(policy, mixed.sizes, 8, seed=1, batches=accelerator.num_processes)  # taskmix
tally = Tally(mixer)  # taskmix
own = torch.Generator()
loader = DataLoader(mixed, batch_sampler=mixer, collate_fn=collate_by(), generator=own)  # taskmix
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.register_for_checkpointing(mixer)  # taskmix
if checkpoint.exists():
    accelerator.load_state(str(checkpoint))

for batch in loader:
    x, y = batch["batch"]
    loss = train_step(x, y)
    tally.add(batch["draw"], loss, len(x))  # taskmix
    tally.settle()  # taskmix
    if batch["draw"] % 10 == 0:
        accelerator.save_state(str(checkpoint))
    if batch["draw"] == options.steps:
        break

accelerator.print({task: round(share, 2) for task, share in mixer.shares().items()})
