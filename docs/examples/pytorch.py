"""A plain PyTorch loop over three data sets, mixed by a policy; stop it and it goes on."""

import argparse
import json
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import bursar
from bursar.mixing import Mixed, Mixer, collate_by

parser = argparse.ArgumentParser()
parser.add_argument("out", type=Path)
parser.add_argument("--steps", type=int, default=40)
out, steps = parser.parse_args().out, parser.parse_args().steps

generator = torch.Generator().manual_seed(0)
datasets = {}
for name, size in {"a": 64, "b": 200, "c": 33}.items():
    x = torch.randn(size, 5, generator=generator)
    y = (x @ torch.randn(5, generator=generator) > 0).long()
    datasets[name] = TensorDataset(x, y)

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

# Beyond what such a loop has already: these lines ...
mixed = Mixed(datasets)
policy = bursar.Progress(list(datasets))
mixer = Mixer(policy, mixed.sizes, batch=8, seed=1, journal=out / "journal.jsonl")
# ... and `batch_sampler=mixer, collate_fn=collate_by()` here; the generator keeps the loader from
# drawing numbers that dropout would have had.
loader = DataLoader(
    mixed, batch_sampler=mixer, collate_fn=collate_by(), num_workers=2, generator=torch.Generator()
)

checkpoint = out / "checkpoint.pt"
if checkpoint.exists():
    saved = torch.load(checkpoint)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    mixer.load_state_dict(json.loads(saved["mixer"]))  # this line

for batch in loader:
    x, y = batch["batch"]
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    mixer.settle(batch["draw"], loss=loss)  # and this one
    if batch["draw"] == steps:
        break

saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
saved["mixer"] = json.dumps(mixer.state_dict())  # and this one
torch.save(saved, checkpoint)
print({task: round(share, 2) for task, share in mixer.shares().items()})
