"""MultiMNIST as Kourdis et al. (2020) ran it: one target digit, the other there to help.

`trained` plays one run; `scripts/multimnist.py` plays them all.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from taskmix.models.lenet import LeNet
from taskmix.rng import seed_for, stream
from taskmix.studies.target_results import TargetResult
from taskmix.tasks.multimnist import IMAGES, LABELS, PREFIXES, MultiMnistSource, Side
from taskmix.training.rounds import DevResult, Rounds, Work
from taskmix.weighting import DIW, AlphaVIL, Joint, Report, Single, Sweeps, Weighting

TASKS: tuple[Side, Side] = ("left", "right")
MEAN, SCALE = 0.1307, 0.3081

METHODS: dict[str, Callable[[str], Weighting]] = {
    "single": lambda target: Single(TASKS, target),
    "multi": lambda target: Joint(TASKS, target),
    "diw": lambda target: DIW(TASKS, target),
    "alpha_vil_paper": lambda target: AlphaVIL.paper(TASKS, target),
    "alpha_vil_sweeps": lambda target: AlphaVIL.paper(TASKS, target, tuner=Sweeps()),
    "alpha_vil": lambda target: AlphaVIL(TASKS, target),
}


@dataclass(frozen=True, eq=False)
class Pairs:
    """Overlaid digits: images `(pairs, 28, 28)`, labels of both digits `(pairs, 2)`."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)

    def every_other(self, start: int) -> "Pairs":
        """Return every other one."""
        return Pairs(self.images[start::2], self.labels[start::2])


def read_pairs(folder: Path, split: str, pairs: int | None = None) -> Pairs:
    """Return the first pairs of a split of MultiMNIST, built from MNIST's IDX files in a folder."""
    prefix = PREFIXES[split]
    images, labels = (_there(folder, pattern.format(prefix)) for pattern in (IMAGES, LABELS))
    sources = [MultiMnistSource(images, labels, side, split) for side in TASKS]
    columns = [list(islice(source.rows(), pairs)) for source in sources]
    pixels = np.stack([row.pixels for row in columns[0]])
    digits = np.array([[int(row.label or 0) for row in side] for side in columns]).T
    return Pairs((torch.from_numpy(pixels).float() / 255 - MEAN) / SCALE, torch.from_numpy(digits))


def _there(folder: Path, name: str) -> Path:
    """Return the file, gzipped or not."""
    packed = folder / f"{name}.gz"
    return packed if packed.exists() else folder / name


class PairNet(nn.Module):
    """LeNet and a linear head for each digit."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed_for(seed, "weights"))
            self.encoder = LeNet()
            self.heads = nn.ModuleList(nn.Linear(LeNet.width, 10) for _ in TASKS)

    def forward(self, images: Tensor, tasks: Sequence[int]) -> list[Tensor]:
        """Logits of each of these tasks; the encoder runs once for all."""
        features = self.encoder(images)
        return [self.heads[task](features) for task in tasks]


class PairFeed:
    """Serves `Rounds` with pairs; both tasks see the same images in the same order.

    Args:
        model: whose losses are wanted.
        train: training pairs.
        dev: dev pairs.
        weighting: says which task is the target and whether its dev set is halved.
        seed: of the order.
        batch: pairs in a batch.
    """

    def __init__(
        self, model: PairNet, train: Pairs, dev: Pairs, weighting: Weighting, seed: int, batch: int
    ) -> None:
        self._model = model
        self._train = train
        self._dev = dev
        self._seed = seed
        self._batch = batch
        self._target = weighting.tasks.index(weighting.target)
        halves = dev.every_other(0), dev.every_other(1)
        self._tuning, self._selecting = halves if weighting.split_dev else (dev, dev)

    def train(self, tasks: Sequence[int], fraction: float, number: int) -> Iterator[Work]:
        """Yield a share of the pairs in the order of this round."""
        order = stream(self._seed, "order", number).permutation(len(self._train))
        order = order[: max(1, round(fraction * len(order)))]
        for start in range(0, len(order), self._batch):
            yield self._work(self._train, order[start : start + self._batch], tasks)

    def dev(self, batch: int | None, turn: int) -> Iterator[Work]:
        """Yield all dev pairs for tuning in batches, or the batch whose turn it is."""
        there = len(self._tuning)
        size = batch or self._batch
        starts = range(0, there, size)
        for start in starts if batch is None else [starts[turn % len(starts)]]:
            at = np.arange(start, min(start + size, there))
            yield self._work(self._tuning, at, [self._target])

    def dev_size(self) -> int:
        """Return how many dev pairs there are for tuning."""
        return len(self._tuning)

    def judge(self, task: int, tuning: bool) -> DevResult:
        """Accuracy and loss on the dev pairs for tuning, or those for selecting."""
        return judged(self._model, self._tuning if tuning else self._selecting, task)

    def _work(self, pairs: Pairs, at: NDArray[np.int64], tasks: Sequence[int]) -> Work:
        def losses() -> Mapping[int, Tensor]:
            rows = torch.from_numpy(at)
            labels = pairs.labels[rows]
            logits = self._model(pairs.images[rows], tasks)
            return {
                task: functional.cross_entropy(out, labels[:, task])
                for task, out in zip(tasks, logits, strict=True)
            }

        return Work(len(at), losses)


@torch.no_grad()
def judged(model: PairNet, pairs: Pairs, task: int, batch: int = 256) -> DevResult:
    """Return a task's accuracy and mean loss on some pairs."""
    model.eval()
    right = loss = 0.0
    for start in range(0, len(pairs), batch):
        labels = pairs.labels[start : start + batch, task]
        (logits,) = model(pairs.images[start : start + batch], [task])
        right += float((logits.argmax(1) == labels).sum())
        loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
    return DevResult(right / len(pairs), loss / len(pairs))


@dataclass(frozen=True)
class Setting:
    """What all runs of a study share; the optimiser is the paper's.

    Args:
        epochs: rounds of a run.
        batch: pairs in a batch.
        lr: step size of SGD.
        momentum: its momentum.
    """

    epochs: int
    batch: int = 256
    lr: float = 0.05
    momentum: float = 0.9


@dataclass(frozen=True, eq=False)
class Data:
    """The three splits of a study."""

    train: Pairs
    dev: Pairs
    test: Pairs


def trained(
    method: str,
    targets: Sequence[str],
    seed: int,
    data: Data,
    setting: Setting,
    on_epoch: Callable[[int, dict[str, float]], None] = lambda epoch, scores: None,
) -> list[TargetResult]:
    """Return one run, and what its best snapshot for each of these targets came to.

    A weighting that favours nobody (`multi`) can be asked for several targets at once.
    """
    began = time.perf_counter()
    weighting = METHODS[method](targets[0])
    model = PairNet(seed)
    feed = PairFeed(model, data.train, data.dev, weighting, seed, setting.batch)
    rounds = Rounds(weighting, model, feed, lambda: sgd(model, setting), seed=seed)
    best = {target: Best(model) for target in targets}
    reports = []
    for epoch in range(1, setting.epochs + 1):
        reports.append(rounds.advance())
        scores = rounds.scores()
        for target, snapshot in best.items():
            snapshot.see(epoch, scores[target])
        on_epoch(epoch, scores)
    seconds = time.perf_counter() - began
    return [
        _outcome(method, target, seed, snapshot, data, reports, seconds)
        for target, snapshot in best.items()
    ]


def _outcome(
    method: str,
    target: str,
    seed: int,
    best: "Best",
    data: Data,
    reports: Sequence[Report],
    seconds: float,
) -> TargetResult:
    model, task = best.restored(), TASKS.index(target)
    weights = [list(report.weights.values()) for report in reports]
    return TargetResult(
        method=method,
        target=target,
        seed=seed,
        dev=judged(model, data.dev, task).score,
        test=judged(model, data.test, task).score,
        epoch=best.epoch,
        alphas=[list(report.alphas.values()) for report in reports],
        weights=[[weight / sum(row) for weight in row] for row in weights],
        seconds=round(seconds, 1),
    )


def sgd(model: nn.Module, setting: Setting) -> torch.optim.SGD:
    """Return a new optimiser."""
    return torch.optim.SGD(model.parameters(), lr=setting.lr, momentum=setting.momentum)


class Best:
    """The snapshot of a model that scored best."""

    def __init__(self, model: PairNet) -> None:
        self._model = model
        self._state: dict[str, Tensor] = {}
        self._score = -1.0
        self.epoch = 0

    def see(self, epoch: int, score: float) -> None:
        """Keep the model as it stands if its score is the best so far."""
        if score > self._score:
            self.epoch, self._score = epoch, score
            self._state = {name: value.clone() for name, value in self._model.state_dict().items()}

    def restored(self) -> PairNet:
        """Return the model as it stood then."""
        self._model.load_state_dict(self._state)
        return self._model
