"""A network of one's own on two tables of scikit-learn. Run it again, and it goes on.

python own_model.py runs/tables
"""

import sys

import torch
from sklearn.datasets import load_breast_cancer, load_wine
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

import taskmix


class Net(nn.Module):
    """A shared body between a layer in and a layer out of each task."""

    def __init__(self):
        super().__init__()
        self.enter = nn.ModuleDict({"tumour": nn.Linear(30, 32), "wine": nn.Linear(13, 32)})
        self.body = nn.Sequential(nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.leave = nn.ModuleDict({"tumour": nn.Linear(32, 2), "wine": nn.Linear(32, 3)})

    def forward(self, batch):
        """Return the outputs of each task that is in the batch."""
        return {part.task: self.outputs(part.task, part.columns[0]) for part in batch}

    def outputs(self, task, table):
        """Return the outputs of one task."""
        return self.leave[task](self.body(self.enter[task](table)))


def task(name, load):
    """A task: its examples, its loss and its score."""
    table, labels = (torch.tensor(array) for array in load(return_X_y=True))
    table = ((table - table.mean(0)) / table.std(0)).float()
    order = torch.randperm(len(table), generator=torch.Generator().manual_seed(1))
    train, dev = order[50:], order[:50]
    return taskmix.from_data(
        name,
        train=TensorDataset(table[train], labels[train]),
        dev=TensorDataset(table[dev], labels[dev]),
        loss=lambda outputs, batch: cross_entropy(outputs, batch[1]),
        score=lambda outputs, batch: (outputs.argmax(1) == batch[1]).mean(),
    )


torch.manual_seed(1)
tasks = [task("tumour", load_breast_cancer), task("wine", load_wine)]
settings = {"policy": "exp3s", "budget": {"steps": 200}, "optimizer": {"lr": 0.003}}
result = taskmix.run(settings, sys.argv[1], model=Net(), tasks=tasks, resume=True)
print({name: round(scores.score, 2) for name, scores in result.tasks.items()})
