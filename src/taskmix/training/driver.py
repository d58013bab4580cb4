"""Drivers: each asks one family of deciders, and has the engine do it."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from taskmix.config import Objective, RunConfig
from taskmix.journal import Journal
from taskmix.training.engine import Engine
from taskmix.training.prepare import Prepared


class Driver(ABC):
    """Spends the budget of a run, unit by unit, as a decider says.

    Args:
        engine: executes.
        decider: decides.
        journal: where every unit is written down.
    """

    can_change_tasks: ClassVar[bool] = False
    """Whether a run can go on with other tasks, the decider starting anew."""

    def __init__(self, engine: Engine, decider: Any, journal: Journal) -> None:
        self.engine = engine
        self.decider = decider
        self.journal = journal
        self.step = 0

    @classmethod  # noqa: B027 (a driver may take any run)
    def check(cls, decider: Any, config: RunConfig, prepared: Sequence[Prepared]) -> None:
        """Raise one sentence if a run of this decider on these tasks cannot be.

        Args:
            decider: as it is at the start.
            config: of the run.
            prepared: the tasks.
        """

    @abstractmethod
    def advance(self) -> None:
        """Spend one unit of the budget, write it down and tell the watchers."""

    @classmethod
    @abstractmethod
    def expected_examples(
        cls, decider: Any, config: RunConfig, sizes: Mapping[str, int]
    ) -> dict[str, float]:
        """Return how many examples of each task the budget will train on, before any is learned.

        Args:
            decider: as it is at the start.
            config: of the run.
            sizes: by task, its training examples.
        """

    def diagnostics(self) -> dict[str, Any]:
        """Return what the decider believes, for the journal."""
        found: dict[str, Any] = self.decider.diagnostics()
        return found

    def objective(self) -> Objective:
        """Return what the run is for, where its configuration does not say."""
        return Objective(tasks=tuple(self.engine.tasks))

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return the state of the optimisers as named tensors."""

    @abstractmethod
    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything but tensors that the next unit depends on."""
        return {"step": self.step, "engine": self.engine.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.step = state["step"]
        self.engine.load_state_dict(state["engine"])

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Take over what a run with other tasks has in common with this one."""
        self.step = state["step"]
        self.engine.load_state_dict(state["engine"])
