"""Rounds: the worker of a weighting, on a small model of one's own."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from taskmix.config import RunConfig
from taskmix.errors import RunInterruptedError, UserError
from taskmix.journal import Journal, Opening, Round, read
from taskmix.rng import stream
from taskmix.tasks.data import from_data
from taskmix.training import weighting as weighting_module
from taskmix.training.engine import Engine
from taskmix.training.prepare import prepare, resolve
from taskmix.training.weighting import WeightingDriver
from taskmix.weighting import DIW, AlphaVIL, Descent, Joint, Single, Weighting

TASKS = ["near", "far"]
BUILDS = [
    lambda: AlphaVIL(TASKS, "near", fresh=False),
    lambda: AlphaVIL.paper(TASKS, "near", joint=True),
    lambda: DIW(TASKS, "near", tries=3),
    lambda: Joint(TASKS, "near"),
]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.1))
        self.heads = nn.ModuleList(nn.Linear(8, 2) for _ in TASKS)

    def forward(self, batch):
        return {
            part.task: self.heads[TASKS.index(part.task)](self.shared(part.columns[0]))
            for part in batch
        }


def blobs(name: str, split: str) -> TensorDataset:
    """Two tasks with opposite labels on the same examples."""
    x = torch.from_numpy(stream(1, "blobs", split).normal(size=(64, 6))).float()
    y = (x[:, 0] > 0).long()
    return TensorDataset(x, y if name == "near" else 1 - y)


def cross_entropy(outputs, batch):
    return functional.cross_entropy(outputs, batch[1])


def accuracy(outputs, batch) -> float:
    return float((outputs.argmax(1) == batch[1]).mean())


@pytest.fixture
def driver_of(tmp_path: Path) -> Iterator[Callable[..., WeightingDriver]]:
    """Makes a driver of the two tasks, without a run around it."""
    drivers: list[WeightingDriver] = []

    def make(weighting: Weighting, optimizer: str = "sgd", lr: float = 0.3) -> WeightingDriver:
        tasks = {
            name: from_data(
                name,
                train=blobs(name, "train"),
                dev=blobs(name, "dev"),
                loss=cross_entropy,
                score=accuracy,
            )
            for name in TASKS
        }
        config = RunConfig(
            tasks=TASKS,
            weighting={"name": "joint", "target": "near"},
            budget={"rounds": 40, "batch": 16},
            optimizer={"name": optimizer, "lr": lr, "clip": 0, "weight_decay": 0},
            evaluate={"batch": 24},  # 64 examples make chunks of unequal sizes
            device="cpu",
        )
        torch.manual_seed(0)
        engine = Engine(config, prepare(resolve(config, tasks), None, config), Net())
        path = tmp_path / f"journal-{len(drivers)}.jsonl"
        journal = Journal.create(path, Opening("toy", TASKS, {}, 1, {}, {}, "weighting"))
        drivers.append(WeightingDriver(engine, weighting, journal))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.journal.close()
        driver.engine.loader.close()


def tensors(driver: WeightingDriver) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in driver.engine.model.state_dict().items()}


def same(a, b) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def after_scaling(driver_of, weights, weights_on, optimizer):
    """How far a mixture at α = 1 goes when the second task has this weight."""
    weighting = AlphaVIL(TASKS, "near", weights_on=weights_on, tuner=Descent(steps=0))
    weighting.load_state_dict({**weighting.state_dict(), "weights": weights})
    driver = driver_of(weighting, optimizer, lr=0.01)
    before = tensors(driver)
    driver.advance()
    return tensors(driver)["heads.1.weight"] - before["heads.1.weight"]


def test_adam_cancels_weights_on_the_loss(driver_of):
    even = after_scaling(driver_of, [1.0, 1.0], "loss", "adamw")
    faint = after_scaling(driver_of, [1.0, 1e-2], "loss", "adamw")
    torch.testing.assert_close(even, faint, rtol=1e-3, atol=1e-5)


def test_sgd_does_not(driver_of):
    even = after_scaling(driver_of, [1.0, 1.0], "loss", "sgd")
    faint = after_scaling(driver_of, [1.0, 1e-2], "loss", "sgd")
    assert float(faint.norm()) < 0.05 * float(even.norm())


@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_weights_on_the_delta_act_under_any_optimiser(driver_of, optimizer):
    even = after_scaling(driver_of, [1.0, 1.0], "delta", optimizer)
    faint = after_scaling(driver_of, [1.0, 1e-2], "delta", optimizer)
    torch.testing.assert_close(faint, even * (0.01 / 1.01) / 0.5, rtol=1e-3, atol=1e-7)


def test_alpha_vil_learns_the_target_and_favours_it(driver_of):
    driver = driver_of(AlphaVIL(TASKS, "near", fraction=0.5))
    reports = [driver.play_round() for _ in range(30)]
    assert reports[-1].weights["far"] < reports[-1].weights["near"]
    assert reports[-1].dev_loss < reports[0].dev_loss
    assert driver.engine.score("near").score > 0.9


def test_a_whole_dev_slope_is_the_mean_over_examples_of_unequal_chunks(driver_of):
    driver = driver_of(AlphaVIL(TASKS, "near", tuner=Descent(steps=0), split_dev=False))
    driver.advance()
    model = driver.engine.model.eval()
    slope = driver.slope((0.0, 0.0))
    x, y = blobs("near", "dev").tensors
    whole = functional.cross_entropy(model.heads[0](model.shared(x)), y)
    assert slope.loss == pytest.approx(float(whole.detach()), rel=1e-6)
    assert driver.loss((0.0, 0.0)) == pytest.approx(slope.loss, rel=1e-6)


def test_a_dev_batch_is_used_before_the_next_one_is_taken(driver_of, monkeypatch):
    """However many dev batches there are, they are never all in memory."""
    driver, happened = driver_of(AlphaVIL(TASKS, "near", split_dev=False)), []
    driver.advance()
    made, losses = weighting_module.dev_batches, driver.engine.losses

    def taken(*args):
        for batch in made(*args):
            happened.append("taken")
            yield batch

    def used(batch):
        happened.append("used")
        return losses(batch)

    monkeypatch.setattr(weighting_module, "dev_batches", taken)
    monkeypatch.setattr(driver.engine, "losses", used)
    driver.slope((0.0, 0.0))
    driver.loss((0.0, 0.0))
    assert happened == ["taken", "used"] * 6


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_a_resumed_run_goes_on_bit_for_bit(driver_of, build, optimizer):
    straight = driver_of(build(), optimizer, lr=0.05)
    for _ in range(2):
        straight.advance()
    state = json.loads(json.dumps(straight.state_dict()))
    model = tensors(straight)
    moments = {name: value.clone() for name, value in straight.tensors().items()}
    reports = [straight.play_round() for _ in range(2)]
    resumed = driver_of(build(), optimizer, lr=0.05)
    resumed.engine.model.load_state_dict(model)
    resumed.load_state_dict(state)
    resumed.load_tensors(moments)
    assert [resumed.play_round() for _ in range(2)] == reports
    assert same(tensors(straight), tensors(resumed))


def test_optimisers_are_kept_by_the_names_of_their_parameters(driver_of):
    driver = driver_of(AlphaVIL(TASKS, "near", fresh=False), "adamw", lr=0.01)
    driver.advance()
    assert "task 1/heads.1.weight:exp_avg" in driver.tensors()
    assert not any(name.startswith("task 1/heads.0") for name in driver.tensors())


def test_optimisers_of_an_older_version_are_refused(driver_of):
    driver = driver_of(Joint(TASKS, "near"))
    with pytest.raises(UserError, match=r"found 'joint.0.exp_avg' of taskmix 0.1; start the run"):
        driver.load_tensors({"joint.0.exp_avg": torch.zeros(1)})


def test_a_second_try_starts_from_the_same_point_on_the_same_batches(driver_of, monkeypatch):
    diw = DIW(TASKS, "near", tries=2)
    diw.load_state_dict({**diw.state_dict(), "previous": 2.0})
    driver, seen = driver_of(diw), []
    update = driver.engine.update

    def noted(optimizer, batches, weights):
        seen.append([(part.task, part.items.tolist()) for batch in batches for part in batch])
        return update(optimizer, batches, weights)

    monkeypatch.setattr(driver.engine, "update", noted)
    driver.advance()
    joint = [parts for parts in seen if len(parts) == 2]
    assert len(joint) == 8
    assert joint[:4] == joint[4:]


def test_single_leaves_the_other_head_alone(driver_of):
    driver = driver_of(Single(TASKS, "near"))
    before = tensors(driver)
    driver.advance()
    after = tensors(driver)
    assert torch.equal(before["heads.1.weight"], after["heads.1.weight"])
    assert not torch.equal(before["heads.0.weight"], after["heads.0.weight"])


def test_joint_training_keeps_its_optimiser_from_round_to_round(driver_of):
    driver = driver_of(Joint(TASKS, "near"), "adamw", lr=0.01)
    driver.advance()
    driver.advance()
    steps = {int(value) for name, value in driver.tensors().items() if name.endswith("step")}
    assert steps == {8}


def test_a_loss_that_is_no_number_stops_the_run(driver_of):
    driver = driver_of(Joint(TASKS, "near"))
    with torch.no_grad():
        driver.engine.model.shared[0].weight.fill_(float("nan"))
    with pytest.raises(RunInterruptedError, match="task near, round 1: the loss is nan"):
        driver.advance()


def test_a_round_is_written_down(driver_of, tmp_path: Path):
    driver = driver_of(AlphaVIL(TASKS, "near"))
    driver.advance()
    driver.journal.sync()
    [entry] = [record for record in read(tmp_path / "journal-0.jsonl") if type(record) is Round]
    assert set(entry.alphas) == set(entry.weights) == set(entry.norms) == set(TASKS)
    assert entry.step == 1


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        (
            lambda worker: worker.together((float("nan"), 1.0)),
            ", weights: expected a finite number",
        ),
        (lambda worker: worker.together((1.0,)), ", weights: expected a finite number"),
        (lambda worker: worker.together((0.0, 0.0)), ", weights: expected none below 0 and one"),
        (lambda worker: worker.together((1.0, -0.5)), ", weights: expected none below 0 and one"),
        (lambda worker: worker.separate(("x", "y")), ", scales: expected a finite number"),
        (lambda worker: worker.mix((1.0, float("inf"))), ", coefficients: expected a finite"),
        (lambda worker: None, ": expected round() to return a Report, found None"),
    ],
)
def test_a_weighting_of_ones_own_is_checked_while_it_runs(driver_of, call, fault):
    class Mine(Joint):
        name = "mine"

        def round(self, worker):
            call(worker)

    with pytest.raises(UserError) as error:
        driver_of(Mine(TASKS, "near")).advance()
    assert f"weighting mine{fault}" in str(error.value)
