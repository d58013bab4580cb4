"""A convolutional network of one's own on two image tasks of the catalogue.

python own_network.py runs/pictures
"""

import sys

import torch
from torch import nn

import taskmix


class Network(nn.Module):
    """Two convolutions that both tasks share, and a layer for each."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(3),
            nn.Flatten(),
        )
        self.left, self.right = nn.Linear(288, 10), nn.Linear(288, 10)

    def forward(self, batch):
        """One pass over all pictures of the batch; then each task's layer on its own rows."""
        features = self.body(batch.inputs["pixels"].float().unsqueeze(1) / 255)
        layers = {"digits/left": self.left, "digits/right": self.right}
        return {part.task: layers[part.task](features[part.rows]) for part in batch}


torch.manual_seed(1)
result = taskmix.run(
    {
        "tasks": ["digits/left", "digits/right"],
        "policy": "exp3s",
        "budget": {"steps": 300, "batch": 32},
        "optimizer": {"lr": 0.003},
    },
    sys.argv[1],
    model=Network(),
    resume=True,
)
print({name: round(scores.score, 2) for name, scores in result.tasks.items()})
