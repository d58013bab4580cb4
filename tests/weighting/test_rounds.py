"""Rounds: the executor on small real models."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from taskmix.errors import RunInterruptedError
from taskmix.journal import Round
from taskmix.rng import stream
from taskmix.training.rounds import DevResult, Rounds, Work, record
from taskmix.weighting import DIW, AlphaVIL, Descent, Joint, Single
from taskmix.weighting.base import DevLoss, DevSlope

TASKS = ["near", "far"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.1))
        self.heads = nn.ModuleList(nn.Linear(8, 2) for _ in TASKS)

    def loss(self, task, x, y):
        return functional.cross_entropy(self.heads[task](self.shared(x)), y)


class Blobs:
    """Two tasks with opposite labels."""

    def __init__(self, model, seed=1):
        self.model = model
        self.seed = seed
        rng = stream(seed, "blobs")
        self.x = {s: torch.from_numpy(rng.normal(size=(64, 6))).float() for s in ("train", "dev")}
        self.y = {s: (x[:, 0] > 0).long() for s, x in self.x.items()}
        self.seen = []

    def labels(self, task, split):
        return self.y[split] if task == 0 else 1 - self.y[split]

    def train(self, tasks, fraction, number):
        order = stream(self.seed, "order", number).permutation(64)[: int(64 * fraction)]
        for at in np.array_split(order, max(1, len(order) // 16)):
            self.seen.append((tuple(tasks), at.tolist()))
            yield Work(len(at), lambda at=at: self._losses(tasks, "train", at))

    def _losses(self, tasks, split, at):
        x = self.x[split][at]
        return {task: self.model.loss(task, x, self.labels(task, split)[at]) for task in tasks}

    def dev(self, batch, turn):
        if batch is None:
            chunks = np.array_split(np.arange(64), 3)  # of unequal sizes
        else:
            chunks = [(turn * batch + np.arange(batch)) % 64]
        for at in chunks:
            yield Work(len(at), lambda at=at: self._losses([0], "dev", at))

    def dev_size(self):
        return 64

    @torch.no_grad()
    def judge(self, task, tuning):
        self.model.eval()
        logits = self.model.heads[task](self.model.shared(self.x["dev"]))
        labels = self.labels(task, "dev")
        score = (logits.argmax(1) == labels).float().mean()
        return DevResult(float(score), float(functional.cross_entropy(logits, labels)))


def rounds(weighting, optimizer=torch.optim.SGD, lr=0.3, seed=1):
    torch.manual_seed(0)
    model = Net()
    return Rounds(
        weighting, model, Blobs(model), lambda: optimizer(model.parameters(), lr=lr), seed=seed
    )


def tensors(runner):
    return {name: value.clone() for name, value in runner.model.state_dict().items()}


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def after_scaling(weights, weights_on, optimizer):
    """How far a mixture at α = 1 goes when the second task has this weight."""
    weighting = AlphaVIL(TASKS, "near", weights_on=weights_on, tuner=Descent(steps=0))
    weighting.load_state_dict({**weighting.state_dict(), "weights": weights})
    runner = rounds(weighting, optimizer, lr=0.01)
    before = tensors(runner)
    runner.advance()
    return runner.model.heads[1].weight.detach() - before["heads.1.weight"]


def test_adam_cancels_weights_on_the_loss():
    even = after_scaling([1.0, 1.0], "loss", torch.optim.Adam)
    faint = after_scaling([1.0, 1e-2], "loss", torch.optim.Adam)
    torch.testing.assert_close(even, faint, rtol=1e-3, atol=1e-5)


def test_sgd_does_not():
    even = after_scaling([1.0, 1.0], "loss", torch.optim.SGD)
    faint = after_scaling([1.0, 1e-2], "loss", torch.optim.SGD)
    assert float(faint.norm()) < 0.05 * float(even.norm())


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_weights_on_the_delta_act_under_any_optimiser(optimizer):
    even = after_scaling([1.0, 1.0], "delta", optimizer)
    faint = after_scaling([1.0, 1e-2], "delta", optimizer)
    torch.testing.assert_close(faint, even * (0.01 / 1.01) / 0.5, rtol=1e-3, atol=1e-7)


def test_alpha_vil_learns_the_target_and_favours_it():
    runner = rounds(AlphaVIL(TASKS, "near", fraction=0.5))
    reports = [runner.advance() for _ in range(30)]
    assert reports[-1].weights["far"] < reports[-1].weights["near"]
    assert reports[-1].dev_loss < reports[0].dev_loss
    assert runner.scores()["near"] > 0.9


def test_a_whole_dev_slope_is_the_mean_over_examples_of_unequal_chunks():
    runner = rounds(AlphaVIL(TASKS, "near", tuner=Descent(steps=0)))
    runner.advance()
    runner.model.eval()
    slope = runner.slope(DevSlope((0.0, 0.0)))
    blobs = runner.feed
    whole = runner.model.loss(0, blobs.x["dev"], blobs.y["dev"])
    assert slope.loss == pytest.approx(float(whole.detach()), rel=1e-6)
    assert runner.loss(DevLoss((0.0, 0.0))) == pytest.approx(slope.loss, rel=1e-6)


def test_a_dev_batch_is_made_when_the_one_before_is_done_with(monkeypatch):
    """However many dev batches there are, they are never all in memory."""
    runner, happened = rounds(AlphaVIL(TASKS, "near")), []
    runner.advance()
    dev = runner.feed.dev

    def watched(batch, turn):
        for work in dev(batch, turn):
            happened.append("made")
            yield Work(work.examples, lambda work=work: happened.append("used") or work.losses())

    monkeypatch.setattr(runner.feed, "dev", watched)
    runner.slope(DevSlope((0.0, 0.0)))
    runner.loss(DevLoss((0.0, 0.0)))
    assert happened == ["made", "used"] * 6


@pytest.mark.parametrize(
    "build",
    [
        lambda: AlphaVIL(TASKS, "near", fresh=False),
        lambda: AlphaVIL.paper(TASKS, "near", joint=True),
        lambda: DIW(TASKS, "near", tries=3),
        lambda: Joint(TASKS, "near"),
    ],
)
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_a_resumed_run_goes_on_bit_for_bit(build, optimizer):
    straight = rounds(build(), optimizer, lr=0.05)
    for _ in range(2):
        straight.advance()
    state = json.loads(json.dumps(straight.state_dict()))
    model, moments = tensors(straight), straight.optimizer_tensors()
    moments = {name: value.clone() for name, value in moments.items()}
    reports = [straight.advance() for _ in range(2)]
    resumed = rounds(build(), optimizer, lr=0.05)
    resumed.model.load_state_dict(model)
    resumed.load_state_dict(state)
    resumed.load_optimizer_tensors(moments)
    assert [resumed.advance() for _ in range(2)] == reports
    assert same(tensors(straight), tensors(resumed))


def test_a_second_try_starts_from_the_same_point_on_the_same_batches():
    diw = DIW(TASKS, "near", tries=2)
    diw.load_state_dict({**diw.state_dict(), "previous": 2.0})
    runner = rounds(diw)
    runner.advance()
    joint = [at for tasks, at in runner.feed.seen if tasks == (0, 1)]
    assert joint[: len(joint) // 2] == joint[len(joint) // 2 :]


def test_single_leaves_the_other_head_alone():
    runner = rounds(Single(TASKS, "near"))
    before = tensors(runner)
    runner.advance()
    after = tensors(runner)
    assert torch.equal(before["heads.1.weight"], after["heads.1.weight"])
    assert not torch.equal(before["heads.0.weight"], after["heads.0.weight"])


def test_joint_training_keeps_its_optimiser_from_round_to_round():
    runner = rounds(Joint(TASKS, "near"), torch.optim.Adam, lr=0.01)
    runner.advance()
    runner.advance()
    steps = {int(v) for name, v in runner.optimizer_tensors().items() if name.endswith("step")}
    assert steps == {8}


def test_a_loss_that_is_no_number_stops_the_run():
    runner = rounds(Joint(TASKS, "near"))
    runner.feed.x["train"][:] = float("nan")
    with pytest.raises(RunInterruptedError, match="round 1: the training loss is nan"):
        runner.advance()


def test_a_round_is_written_down():
    runner = rounds(AlphaVIL(TASKS, "near"))
    entry = record(4, runner.advance(), seconds=1.5)
    assert isinstance(entry, Round)
    assert set(entry.alphas) == set(entry.weights) == set(entry.norms) == set(TASKS)
    assert entry.step == 4
