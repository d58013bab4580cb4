"""The driver of weightings: rounds from one snapshot."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from taskmix.config import Objective, RunConfig
from taskmix.errors import UserError
from taskmix.journal import Journal
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine
from taskmix.training.prepare import Prepared
from taskmix.training.rounds import Rounds
from taskmix.weighting import Weighting
from taskmix.weighting.base import Round


class WeightingDriver(Driver):
    """Spends a budget of rounds as a weighting decides."""

    decider: Weighting
    # Rounds see the same examples again and again, so frozen layers run on each of them once.

    def __init__(self, engine: Engine, decider: Weighting, journal: Journal) -> None:
        super().__init__(engine, decider, journal)
        tuning = engine.dev[decider.target]
        if decider.split_dev:
            tuning, engine.dev[decider.target] = tuning.halves()
        self._begun = False
        self.rounds = Rounds(engine, decider, tuning)

    @classmethod
    def check(cls, decider: Weighting, config: RunConfig, prepared: Sequence[Prepared]) -> None:
        if config.budget.accumulate > 1:
            raise UserError(
                "budget.accumulate: expected 1 with a weighting, whose rounds pass whole batches, "
                f"found {config.budget.accumulate}"
            )
        for entry in prepared:
            if decider.split_dev and entry.task.name == decider.target:
                entry.dev.halves()

    @classmethod
    def expected_examples(
        cls, decider: Weighting, config: RunConfig, sizes: Mapping[str, int]
    ) -> dict[str, float]:
        if config.budget.count != "steps":  # how many rounds that is depends on what they cost
            examples = config.budget.steps * config.budget.batch / sum(sizes.values())
            return {task: examples * size for task, size in sizes.items()}
        fraction = float(getattr(decider, "fraction", 1.0))
        return {task: config.budget.rounds * fraction * size for task, size in sizes.items()}

    def advance(self) -> None:
        if not self._begun:
            self._begin()
        began = time.perf_counter()
        report = self.rounds.advance()
        self.step = self.rounds.number
        record = Round(
            self.step,
            report.norms,
            report.alphas,
            report.weights,
            report.dev_loss,
            report.losses,
            round(time.perf_counter() - began, 4),
        )
        self.journal.append(record)
        self.engine.watchers.advanced(record)

    def _begin(self) -> None:
        """Add the outputs of frozen layers to every split; the weights must be loaded."""
        engine, states = self.engine, self.engine.frozen_states()
        for name, items in engine.loader.items.items():
            engine.loader.replace(name, states.add(name, items))
        for name, split in engine.dev.items():
            engine.dev[name] = replace(split, items=states.add(name, split.items))
        tuning = self.rounds.tuning
        tuning = replace(tuning, items=states.add(self.decider.target, tuning.items))
        self.rounds.tuning = tuning
        self._begun = True

    def objective(self) -> Objective:
        return Objective(tasks=(self.decider.target,))

    def diagnostics(self) -> dict[str, Any]:
        return {}  # the journal's rounds hold it all

    def tensors(self) -> dict[str, Tensor]:
        return self.rounds.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self.rounds.load_tensors(tensors)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"rounds": self.rounds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.rounds.load_state_dict(state["rounds"])
