"""The dear signals are what they say, and their price is counted."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from taskmix.config import RunConfig
from taskmix.errors import RunInterruptedError, UserError
from taskmix.policies import Alignment, DevLosses, DevScore, Outcome, Policy, Signal
from taskmix.tasks.batches import Batch, in_order
from taskmix.training import meters
from taskmix.training.loading import to_device
from taskmix.training.meters import Meter, StepTaken
from taskmix.training.policy import PolicyDriver

Toy = Callable[..., RunConfig]
DriverFor = Callable[..., PolicyDriver]


class Curious(Policy):
    """Wants one signal of every draw."""

    name = "curious"

    def __init__(self, signal: Any) -> None:
        super().__init__(["a", "b", "c"])
        self.needs = frozenset({signal})
        self.told: list[Outcome] = []

    def probabilities(self) -> NDArray[np.float64]:
        return np.full(3, 1 / 3)

    def tell(self, outcome: Outcome) -> None:
        self.told.append(outcome)


def dev(driver: PolicyDriver, task: str, examples: int) -> Batch:
    split = driver.engine.dev[task].at_most(examples)
    [batch] = in_order(task, split.items, 1000)
    return to_device(batch, torch.device("cpu"))


def mean_loss(model: torch.nn.Module, driver: PolicyDriver, batch: Batch) -> torch.Tensor:
    [part] = batch
    return driver.engine.tasks[part.task].kind.loss(model(batch)[part.task], part.columns)


def test_dev_losses_are_those_behind_the_step(toy: Toy, driver_for: DriverFor) -> None:
    policy = Curious(DevLosses(("b", "a"), 12))
    driver = driver_for(toy(), policy)
    for _ in range(3):
        forward, backward = driver.engine.spent.forward, driver.engine.spent.backward
        driver.advance()
        told = policy.told[-1]
        assert told.dev_losses is not None
        assert set(told.dev_losses) == {"a", "b"}
        model = copy.deepcopy(driver.engine.model).eval()
        with torch.no_grad():
            for task, loss in told.dev_losses.items():
                assert loss == pytest.approx(float(mean_loss(model, driver, dev(driver, task, 12))))
        trained = driver.engine.spent.backward - backward
        assert driver.engine.spent.forward - forward == trained + 24
        assert told.alignment is None


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_the_alignment_is_that_of_two_gradients_before_the_step(
    toy: Toy, driver_for: DriverFor, clip: float
) -> None:
    policy = Curious(Alignment(("c", "a"), 12))
    driver = driver_for(toy(optimizer={"clip": clip}, model={"dropout": 0.0}), policy)
    drawn: list[Batch] = []
    serve = driver.engine.loader.next
    driver.engine.loader.next = lambda task: drawn.append(serve(task)) or drawn[-1]  # type: ignore[method-assign,func-returns-value]
    longest = clip or math.inf
    for _ in range(4):
        model = copy.deepcopy(driver.engine.model)
        forward, backward = driver.engine.spent.forward, driver.engine.spent.backward
        driver.advance()
        own = clipped(model.train(), driver, drawn[-1], longest)
        targets = [clipped(model.eval(), driver, dev(driver, t, 12), longest) for t in ("c", "a")]
        product = sum(
            float((own[name] * (targets[0][name] + targets[1][name])).sum()) / 2 for name in own
        )
        length = math.sqrt(sum(float(each.square().sum()) for each in own.values()))
        told = policy.told[-1]
        assert told.alignment == pytest.approx(product, rel=1e-4, abs=1e-7)
        assert told.gradient == pytest.approx(length, rel=1e-4)
        assert driver.engine.spent.forward - forward == drawn[-1].examples + 24
        assert driver.engine.spent.backward - backward == drawn[-1].examples + 24


def clipped(
    model: torch.nn.Module, driver: PolicyDriver, batch: Batch, longest: float
) -> dict[str, torch.Tensor]:
    model.zero_grad()
    mean_loss(model, driver, batch).backward()
    found = {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in model.named_parameters()
    }
    length = math.sqrt(sum(float(each.square().sum()) for each in found.values()))
    return {name: each * min(1.0, longest / length) for name, each in found.items()}


def test_measuring_changes_nothing_of_the_training(toy: Toy, driver_for: DriverFor) -> None:
    weights = []
    for signal in (DevLosses(None, 5), Alignment(None, 5), None):
        driver = driver_for(toy(model={"dropout": 0.3}), Curious(signal))
        if signal is None:
            driver.decider.needs = frozenset()
        for _ in range(5):
            driver.advance()
        weights.append(driver.engine.model.state_dict())
    *others, plain = weights
    for other in others:
        assert all(torch.equal(other[name], tensor) for name, tensor in plain.items())


@dataclass(frozen=True)
class Weights(Signal):
    """A signal of one's own: how many weights the model has."""


class WeightsMeter(Meter):
    def after(self, signal: Weights, step: StepTaken) -> dict[str, float]:
        return {"score": float(sum(p.numel() for p in self.engine.model.parameters()))}


def test_a_new_signal_is_a_class_and_a_row_in_the_table_of_meters(
    toy: Toy, driver_for: DriverFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, config = Curious(Weights()), toy()
    with pytest.raises(UserError, match=r"^policy .*: expected signals .*, found Weights$"):
        PolicyDriver.check(policy, config, ())
    monkeypatch.setitem(meters.METERS, Weights, WeightsMeter)  # type: ignore[arg-type]
    PolicyDriver.check(policy, config, ())
    driver = driver_for(config, policy)
    driver.advance()
    told = policy.told[-1]
    assert told.score == sum(p.numel() for p in driver.engine.model.parameters())
    assert told.measured().keys() == {"loss", "score", "examples", "tokens"}


def test_a_signal_that_is_no_number_ends_the_run(
    toy: Toy, driver_for: DriverFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters.DevScoreMeter, "after", lambda *_: {"score": math.nan})
    driver = driver_for(toy(), Curious(DevScore("a")))
    with pytest.raises(RunInterruptedError, match=r"^task ., step 1: the score is nan, no number"):
        driver.advance()
