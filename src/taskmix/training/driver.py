"""Drivers: each has the engine carry out the decisions of one family of deciders."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from taskmix.config import Objective, RunConfig
from taskmix.journal import Journal
from taskmix.training.engine import Engine
from taskmix.training.optimizer import load_optimizer_tensors, optimizer_tensors
from taskmix.training.prepare import Prepared


class Driver(ABC):
    """Spends the budget of a run unit by unit as a decider says, and writes the journal."""

    def __init__(self, engine: Engine, decider: Any, journal: Journal) -> None:
        self.engine = engine
        self.decider = decider
        self.journal = journal
        self.step = 0

    @classmethod  # noqa: B027 (a driver may take any run)
    def check(cls, decider: Any, config: RunConfig, prepared: Sequence[Prepared]) -> None:
        """Raise if this decider cannot run on these tasks."""

    @abstractmethod
    def advance(self) -> None:
        """Spend one unit of the budget, record it in the journal and notify the watchers."""

    @classmethod
    @abstractmethod
    def expected_examples(
        cls, decider: Any, config: RunConfig, sizes: Mapping[str, int]
    ) -> dict[str, float]:
        """Return by task how many examples a plan expects the budget to train on."""

    def diagnostics(self) -> dict[str, Any]:
        beliefs: dict[str, Any] = self.decider.diagnostics()
        return beliefs

    def objective(self) -> Objective:
        """Return the default objective, for a configuration without one."""
        return Objective(tasks=tuple(self.engine.tasks))

    def tensors(self) -> dict[str, Tensor]:
        return optimizer_tensors(self.engine.optimizer, self.engine.model)

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        load_optimizer_tensors(self.engine.optimizer, self.engine.model, tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but tensors that the next unit depends on."""
        return {"step": self.step, "engine": self.engine.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        self.engine.load_state_dict(state["engine"])
