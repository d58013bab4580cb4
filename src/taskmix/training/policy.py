"""The driver of policies: draw, batch, step, outcome."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from taskmix import rng as streams
from taskmix.config import RunConfig
from taskmix.journal import Journal
from taskmix.mixing.decisions import Decisions
from taskmix.policies import BatchScore, Policy
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine, check_finite
from taskmix.training.meters import Meters, StepTaken
from taskmix.training.prepare import Prepared

PLANNED_DRAWS = 1000  # draws that a plan averages over


class PolicyDriver(Driver):
    """Gives each step of the budget to the task that a policy draws."""

    decider: Policy

    def __init__(self, engine: Engine, decider: Policy, journal: Journal) -> None:
        super().__init__(engine, decider, journal)
        self.decisions = Decisions(decider, seed=engine.config.seed, journal=journal)
        self._meters = Meters(engine)
        self._always = [BatchScore()] if engine.config.evaluate.batches else []

    @classmethod
    def expected_examples(
        cls, decider: Policy, config: RunConfig, sizes: Mapping[str, int]
    ) -> dict[str, float]:
        rng = streams.stream(config.seed, "plan")
        count = min(PLANNED_DRAWS, config.budget.steps)
        shares = np.mean([decider.ask(rng).probabilities for _ in range(count)], axis=0)
        batches = [min(config.budget.batch, sizes[task]) for task in decider.tasks]
        examples = config.budget.steps * shares * np.array(batches)
        return dict(zip(decider.tasks, examples.tolist(), strict=True))

    @classmethod
    def check(cls, decider: Policy, config: RunConfig, prepared: Sequence[Prepared]) -> None:
        Meters.check(decider.needs, str(config.decider["name"]), prepared)

    def advance(self) -> None:
        began = time.perf_counter()
        step = self.step + 1
        draw = self.decisions.ask()
        batch = self.engine.loader.next(draw.task)
        self._meters.before([*self._always, *self.decisions.due(draw.number)])
        result = self.engine.step(step, batch, {draw.task: 1.0})
        measured = self._meters.after(StepTaken(step, draw.task, batch, result))
        for name, value in measured.items():
            if isinstance(value, float):
                check_finite(value, f"task {draw.task}, step {step}: the {name}")
        record = self.decisions.settle(
            draw.number,
            step=step,
            seconds=round(time.perf_counter() - began, 4),
            examples=batch.examples,
            tokens=batch.tokens,
            **measured,
        )
        assert record is not None  # a run has a journal
        self.step = step
        self.engine.watchers.advanced(record)

    def state_dict(self) -> dict[str, Any]:
        draws = streams.state_of(self.decisions.rng)
        return super().state_dict() | {"policy": self.decider.state_dict(), "draws": draws}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.decider.load_state_dict(state["policy"])
        self.decisions.rng = streams.restore(state["draws"])

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Continue a run of other tasks: the policy starts anew, its random stream does not."""
        super().load_state_dict(state)
        self.decisions.rng = streams.restore(state["draws"])
