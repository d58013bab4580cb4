"""A plain PyTorch loop over three data sets, mixed by a policy; stop it, and it goes on."""

import argparse
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import taskmix
from taskmix.mixing import Mixed, Mixer, collate_by

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=40)
options = parser.parse_args()
checkpoint = options.out / "checkpoint.pt"

generator, datasets = torch.Generator().manual_seed(0), {}
for name, size in {"a": 64, "b": 200, "c": 33}.items():
    x = torch.randn(size, 5, generator=generator)
    datasets[name] = TensorDataset(x, (x @ torch.randn(5, generator=generator) > 0).long())

torch.manual_seed(1)
model = torch.nn.Sequential(
    torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 2)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)


def train_step(x, y):
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


mixed = Mixed(datasets)  # taskmix
policy = taskmix.Progress(list(datasets))  # taskmix
mixer = Mixer(policy, mixed.sizes, 8, seed=1, journal=options.out / "journal.jsonl")  # taskmix
loader = DataLoader(
    mixed,
    batch_sampler=mixer,  # taskmix
    collate_fn=collate_by(),  # taskmix
    num_workers=2,
    generator=torch.Generator(),
)

if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["rng"])
    mixer.load_state_dict(saved["mixer"])  # taskmix

for batch in loader:
    loss = train_step(*batch["batch"])
    mixer.settle(batch["draw"], loss=loss)  # taskmix
    if batch["draw"] % 10 == 0:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "mixer": mixer.state_dict(),  # taskmix
        }
        torch.save(state, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)
    if batch["draw"] == options.steps:
        break
print({task: round(share, 2) for task, share in mixer.shares().items()})
