"""prime-rl and verl: against our own copies of their interfaces, as they do not install here."""

import importlib.util
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Sized
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Sampler
from torchdata.stateful_dataloader import StatefulDataLoader

import taskmix
from taskmix.errors import UserError
from taskmix.integrations.prime_rl import EnvironmentMix
from taskmix.integrations.verl import MixtureSampler
from taskmix.journal import Step, read

NAMES = ["math", "code"]


class EnvMixStrategy(ABC):
    """The interface of prime-rl that says which environment is next."""

    @abstractmethod
    def pick(self) -> str: ...


class AbstractSampler(Sampler[int]):
    """The base class that verl expects of `data.sampler.class_name`."""

    @abstractmethod
    def __init__(self, data_source: Sized, data_config: Any) -> None: ...


class AbstractCurriculumSampler(AbstractSampler):
    """The base class of the samplers whose `update` verl calls with the rows of a step."""

    @abstractmethod
    def update(self, batch: Any) -> None: ...


def test_a_mix_has_the_methods_of_the_interface_of_prime_rl() -> None:
    names = EnvMixStrategy.__abstractmethods__  # type: ignore[attr-defined]
    assert all(callable(getattr(EnvironmentMix, name, None)) for name in names)


def test_verl_takes_and_updates_the_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """verl checks the class: another one is refused, or never told about a step."""
    packages = ["verl", "verl.experimental", "verl.experimental.dataset"]
    for name in [*packages, module := f"{packages[-1]}.sampler"]:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    vars(sys.modules[module]).update(AbstractCurriculumSampler=AbstractCurriculumSampler)
    spec = importlib.util.find_spec("taskmix.integrations.verl")
    assert spec is not None
    assert spec.loader is not None
    beside_verl = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(beside_verl)
    made = beside_verl.MixtureSampler(data_source=ROWS, data_config={"sampler": {}})
    assert isinstance(made, AbstractCurriculumSampler)
    assert len(list(made)) == len(made) == 32


def mix(folder: Path, **options: Any) -> EnvironmentMix:
    return EnvironmentMix(taskmix.SEC(NAMES), seed=3, journal=folder / "journal.jsonl", **options)


def rewards_of(name: str, round_: int) -> list[float]:
    return [float((round_ + i) % 3 == 0) for i in range(4)] if name == "math" else [1.0] * 4


def rounds(of: EnvironmentMix, first: int, last: int) -> list[str]:
    """Three groups are always under way; reports come in the order of the environments' names."""
    picked = []
    for round_ in range(first, last):
        names = [of.pick() for _ in range(3)]
        picked += names
        for name in sorted(names):
            of.observe(name, rewards_of(name, round_), tokens=[5, 6, 7, 8])
    return picked


def test_a_mix_is_resumed_exactly(tmp_path: Path) -> None:
    whole = mix(tmp_path / "whole")
    expected = rounds(whole, 0, 20)
    parts = mix(tmp_path / "parts")
    picked = rounds(parts, 0, 8)
    state = json.loads(json.dumps(parts.state_dict()))
    rounds(parts, 8, 11)  # lost
    again = mix(tmp_path / "parts")
    again.load_state_dict(state)
    assert picked + rounds(again, 8, 20) == expected
    journals = [(tmp_path / name / "journal.jsonl").read_bytes() for name in ("whole", "parts")]
    assert journals[0] == journals[1]
    assert again.metrics()["share/math"] > 0.6  # code is always solved


def test_the_signals_of_a_group(tmp_path: Path) -> None:
    of = mix(tmp_path)
    name = of.pick()
    of.observe(name, [1.0, 0.0, 0.0, 0.0], tokens=[1, 2, 3, 4])
    [step] = [each for each in read(tmp_path / "journal.jsonl") if isinstance(each, Step)]
    assert (step.task, step.reward, step.spread, step.mute) == (name, 0.25, 0.5, 0.0)
    assert (step.tokens, step.examples) == (10, 4)
    assert step.advantage == pytest.approx((0.75 + 3 * 0.25) / 0.5 / 4, rel=1e-3)


def test_a_completion_without_a_reward_is_left_out(tmp_path: Path) -> None:
    with_none, without = (mix(tmp_path / name) for name in ("with", "without"))
    with_none.observe(with_none.pick(), [1.0, None, 0.0])
    without.observe(without.pick(), [1.0, 0.0])
    found, expected = (
        next(each for each in read(tmp_path / name / "journal.jsonl") if isinstance(each, Step))
        for name in ("with", "without")
    )
    assert found.reward == expected.reward == 0.5
    assert found.spread == expected.spread


def test_a_policy_that_needs_losses_is_refused() -> None:
    with pytest.raises(UserError, match="policy odm: expected one that learns from rewards"):
        EnvironmentMix("odm", {"math": 1, "code": 1}, seed=1)


def test_mistakes_in_reports_are_one_sentence(tmp_path: Path) -> None:
    of = mix(tmp_path)
    name = of.pick()
    other = next(each for each in NAMES if each != name)
    with pytest.raises(UserError, match="expected one that was picked, found none open"):
        of.observe(other, [1.0])
    with pytest.raises(UserError, match="unknown environment"):
        of.observe("maths", [1.0])
    for rewards in ([], [float("nan")]):
        with pytest.raises(UserError, match=f"rewards of {name}: expected finite numbers"):
            of.observe(name, rewards)
    of.drop(name)
    assert not of.open


@dataclass
class Rows:
    """The part of verl's data set that is used."""

    dataframe: dict[str, list[str]]

    def __len__(self) -> int:
        return len(self.dataframe["data_source"])


@dataclass
class Proto:
    """The part of verl's DataProto that is used."""

    batch: dict[str, torch.Tensor]
    non_tensor_batch: dict[str, np.ndarray[Any, Any]]


ROWS = Rows({"data_source": ["math"] * 12 + ["code"] * 20})


def sampler(policy: Any = "sec", batch: int = 4, seed: int | None = 5) -> MixtureSampler:
    section = {"policy": policy}
    return MixtureSampler(ROWS, {"seed": seed, "train_batch_size": batch, "sampler": section})


def step_of(indices: list[int], number: int) -> Proto:
    """Return a step of verl: two completions of each prompt, the rewards at the last token."""
    sources = [ROWS.dataframe["data_source"][index] for index in indices for _ in range(2)]
    mask = torch.tensor([[1, 1, row % 2] for row in range(len(sources))])
    rewards = torch.tensor([row % 2 if name == "math" else 1 for row, name in enumerate(sources)])
    scores = torch.zeros(mask.shape)
    scores[:, 1] = rewards.float()
    advantages = torch.tensor(
        [[0.7 if name == "math" else 0.0] * 3 for name in sources], dtype=torch.float32
    )
    uids = [f"{number}-{row // 2}" for row in range(len(sources))]
    return Proto(
        {"response_mask": mask, "token_level_scores": scores, "advantages": advantages},
        {"uid": np.array(uids), "data_source": np.array(sources)},
    )


def steps(of: MixtureSampler, count: int) -> list[int]:
    drawn, rows = [], iter(of)
    for number in range(count):
        batch = [next(rows) for _ in range(4)]
        drawn += batch
        of.update(step_of(batch, number))
    return drawn


def test_each_seed_of_verl_has_its_own_draws_also_zero() -> None:
    zero, one, none = (list(sampler("random", seed=seed)) for seed in (0, 1, None))
    assert zero != one == none


def test_a_sampler_of_verl_draws_rows_of_the_environments_and_learns() -> None:
    of = sampler({"name": "sec", "temperature": 0.1})
    assert len(of) == 32 == len(list(zip(range(99), sampler(), strict=False)))
    drawn = steps(of, 8)
    assert set(drawn) <= set(range(32))
    assert of.mix.policy.probabilities()[of.mix.policy.tasks.index("math")] > 0.9
    first = [index for index in drawn if index < 12][:12]
    assert len(set(first)) == len(first)  # no prompt comes twice in an epoch of its environment
    assert not of.mix.open


def loader(of: MixtureSampler, batch: int = 4) -> StatefulDataLoader[int]:
    """Return the loader of verl."""
    return StatefulDataLoader(range(32), batch_size=batch, drop_last=True, sampler=of)  # type: ignore[arg-type]


def train(of: MixtureSampler, loaded: Any, until: int = 99) -> list[list[int]]:
    drawn = []
    for number, batch in enumerate(loaded):
        drawn.append(batch.tolist())
        of.update(step_of(batch.tolist(), number))
        if number + 1 == until:
            break
    return drawn


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_the_rows_that_a_loader_of_verl_would_drop_are_not_drawn() -> None:
    of = sampler(batch=5)
    loaded = loader(of, batch=5)
    for _ in range(2):
        assert len(train(of, loaded)) == 6
        assert not of.mix.open
    assert of.mix.policy.draws == 60


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_a_sampler_of_verl_is_resumed_exactly_by_its_loader() -> None:
    whole, parts, again = sampler(), sampler(), sampler()
    expected = train(whole, loader(whole))
    assert len(expected) == 8
    first = loader(parts)
    drawn = train(parts, first, 3)
    state = json.loads(json.dumps(first.state_dict()))
    second = loader(again)
    second.load_state_dict(state)
    assert drawn + train(again, second) == expected


def test_a_mistake_in_the_configuration_is_one_sentence() -> None:
    with pytest.raises(UserError, match="temprature"):
        sampler({"name": "sec", "temprature": 0.1})
    with pytest.raises(UserError, match="temperature: expected a number above 0"):
        sampler({"name": "sec", "temperature": -1.0})
