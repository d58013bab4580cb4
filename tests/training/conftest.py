"""Small tasks that are read from memory, runs on them, and what has to be equal of two runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from taskmix.config import RunConfig, build_decider
from taskmix.journal import Journal, Opening, read, without_times
from taskmix.models.build import build
from taskmix.policies import POLICIES, Policy, Rewards
from taskmix.records import UnitRecord
from taskmix.rng import stream
from taskmix.tasks.kinds import Classify
from taskmix.tasks.metrics import ACCURACY
from taskmix.tasks.rows import ImageRow
from taskmix.tasks.task import Task
from taskmix.training.engine import Engine
from taskmix.training.policy import PolicyDriver
from taskmix.training.prepare import prepare, resolve, run_info_of
from taskmix.training.watching import Watcher

OPTIONS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2},
    "annealed": {"epochs": 3},
    "fixed": {"probabilities": {"a": 0.2, "b": 0.3, "c": 0.5}},
    "cycle": {"ratio": {"a": 2, "b": 1, "c": 1}},
    "schedule": {"phases": [{"a": 0.2, "b": 0.3, "c": 0.5}, {"a": 0.5, "b": 0.5, "c": 0.0}]},
    "exp3s": {"eta": 0.1},
    "thompson": {"primary": "c", "batches": 2},
    "active": {"every": 3, "passes": 2, "examples": 10},
    "odm": {"warmup": 2},
    "ado": {"every": 6, "ignored": 0, "irreducible": -10},
    "aioli": {"every": 7, "repeats": 1, "stretch": 1, "examples": 10},
    "doge": {"every": 1, "examples": 10, "rate": 0.5},
}
SPECS = [
    {"name": cls.name, **OPTIONS.get(cls.name, {})}
    for cls in POLICIES
    if Rewards() not in cls.needs  # of reinforcement learning
]
SPECS.append({"name": "exp3s", "eta": 0.1, "draws": "stratified"})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `any_policy` is run with each policy of the house."""
    if "any_policy" in metafunc.fixturenames:
        metafunc.parametrize("any_policy", SPECS, ids=[spec["name"] for spec in SPECS])


@dataclass(frozen=True)
class Pictures:
    """Noise of 6x6 pixels with a bright row where the class is."""

    task: str
    split: str
    count: int
    classes: int

    @property
    def where(self) -> str:
        return f"{self.task}, {self.split}"

    def rows(self) -> Iterator[ImageRow]:
        rng = stream(0, "pictures", self.task, self.split)
        for at in range(1, self.count + 1):
            pixels = rng.integers(100, size=(6, 6), dtype=np.uint8)
            label = at % self.classes
            pixels[label] += 60
            yield ImageRow(at, pixels, str(label))

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return repr(self)


@pytest.fixture(scope="session")
def toys() -> Mapping[str, Task]:
    """Three tasks of different sizes."""

    def task(name: str, count: int, classes: int) -> Task:
        sources = {
            split: Pictures(name, split, rows, classes)
            for split, rows in {"train": count, "dev": 30}.items()
        }
        kind = Classify(tuple(str(number) for number in range(classes)))
        return Task(name, kind, sources, (ACCURACY,))

    return {"a": task("a", 60, 3), "b": task("b", 25, 2), "c": task("c", 10, 2)}


def toy_config(**changes: Any) -> RunConfig:
    values = {
        "tasks": ["a", "b", "c"],
        "budget": {"steps": 12, "batch": 4},
        "optimizer": {"lr": 3e-3, "head_factor": 1},
        "evaluate": {"every": 4},
    }
    return RunConfig.model_validate(values | changes)


@pytest.fixture(scope="session")
def toy() -> Callable[..., RunConfig]:
    """Makes a short run of the three tasks; its arguments are the keys of a run file."""
    return toy_config


@pytest.fixture(scope="session")
def everything() -> Callable[[Path], dict[str, Any]]:
    """All of a run folder that has to be equal in two runs, times apart."""

    def read_all(folder: Path) -> dict[str, Any]:
        files = ["run.yaml", "scores.json"]
        files += [str(p.relative_to(folder)) for p in folder.glob("model/*") if p.is_file()]
        files += [str(path.relative_to(folder)) for path in folder.rglob("*.safetensors")]
        seen: dict[str, Any] = {name: (folder / name).read_bytes() for name in files}
        seen["journal"] = [without_times(record) for record in read(folder / "journal.jsonl")]
        return seen

    return read_all


class InterruptionError(Exception):
    """What stops a run in a test."""


class Interrupter(Watcher):
    """A watcher that stops the run behind a step, or behind an evaluation."""

    def __init__(self, step: int | None = None, evaluation: int | None = None) -> None:
        self.step = step
        self.evaluation = evaluation

    def advanced(self, record: UnitRecord) -> None:
        if record.step == self.step:
            raise InterruptionError(f"step {record.step}")

    def evaluated(self, step: int, scores: object, score: float, best: bool) -> None:
        if step == self.evaluation:
            raise InterruptionError(f"evaluation {step}")


@pytest.fixture(scope="session")
def interrupter() -> Callable[..., Interrupter]:
    return Interrupter


@pytest.fixture(scope="session")
def interruption() -> type[Exception]:
    return InterruptionError


@pytest.fixture
def driver_for(toys: Mapping[str, Task], tmp_path: Path) -> Iterator[Callable[..., PolicyDriver]]:
    """Makes a driver of the three tasks, without a run around it."""
    drivers: list[PolicyDriver] = []

    def make(config: RunConfig, policy: Policy | None = None) -> PolicyDriver:
        prepared = prepare(resolve(config, toys), None, config)
        info = run_info_of(config, prepared)
        kinds = {entry.task.name: entry.task.kind for entry in prepared}
        path = tmp_path / f"journal-{len(drivers)}.jsonl"
        journal = Journal.create(path, Opening("toy", info.tasks, {}, 1, {}, {}))
        decider = policy or build_decider(config, info)
        assert isinstance(decider, Policy)
        model = build(config.model, kinds, None, config.seed)
        drivers.append(PolicyDriver(Engine(config, prepared, model), decider, journal))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.journal.close()
        driver.engine.loader.close()
