"""The driver of policies: draw, batch, step, outcome."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bursar import rng as streams
from bursar.config import RunConfig
from bursar.errors import UserError
from bursar.journal import Journal
from bursar.policies import DevScore, Draw, Gain, Outcome, Policy, Signal, Uncertainty
from bursar.rng import seed_for
from bursar.tasks.batches import Batch
from bursar.tasks.parts import Split
from bursar.training.driver import Driver
from bursar.training.engine import Engine
from bursar.training.loading import dev_batches
from bursar.training.prepare import Prepared
from bursar.training.stepper import Moved, Stepper
from bursar.uncertainty import measure_batches, predictive_samples

FIRST = 1000
"""Draws that a plan looks at."""


class PolicyDriver(Driver):
    """Gives each step of the budget to the task that a policy draws."""

    decider: Policy
    can_change_tasks = True

    def __init__(self, engine: Engine, decider: Policy, journal: Journal) -> None:
        super().__init__(engine, decider, journal)
        self.stepper = Stepper(engine)
        self.rng = streams.stream(engine.config.seed, "draws")
        self._probes: dict[tuple[str, int | None], Split] = {}

    @classmethod
    def expected_examples(
        cls, decider: Policy, config: RunConfig, sizes: Mapping[str, int]
    ) -> dict[str, float]:
        """Return what the first draws ask for, before anything is learned."""
        rng = streams.stream(config.seed, "plan")
        draws = [decider.ask(rng).probabilities for _ in range(min(FIRST, config.budget.steps))]
        examples = config.budget.steps * config.budget.batch
        return dict(zip(decider.tasks, (np.mean(draws, axis=0) * examples).tolist(), strict=True))

    @classmethod
    def check(cls, decider: Policy, config: RunConfig, prepared: Sequence[Prepared]) -> None:
        """Raise if a signal that the policy needs cannot be measured."""
        legacy = any(isinstance(s, Uncertainty) and s.score == "legacy" for s in decider.needs)
        for entry in prepared if legacy else ():
            if entry.task.kind.name == "regress":
                raise UserError(
                    f"policy {config.decider['name']}: score: 'legacy' is not defined for a "
                    f"regression such as {entry.task.name}, expected another score"
                )

    def advance(self) -> None:
        """Draw, batch, step, outcome."""
        began = time.perf_counter()
        step = self.step + 1
        draw = self.decider.ask(self.rng)
        batch = self.engine.loader.next(draw.task)
        moved = self.stepper.step(step, batch, {draw.task: 1.0})
        outcome = self._outcome(step, draw, batch, moved)
        self.decider.tell(outcome)
        self.step = step
        record = self.journal.draw(
            step,
            outcome,
            examples=batch.examples,
            tokens=batch.tokens,
            seconds=round(time.perf_counter() - began, 4),
        )
        self.engine.watchers.advanced(record)

    def _outcome(self, step: int, draw: Draw, batch: Batch, moved: Moved) -> Outcome:
        """Measure the signals that the policy wants of a draw, and no others."""
        due = {type(signal): signal for signal in self.decider.due(draw)}
        after = [self._losses_again(step, batch)] if Gain in due else []
        loss, *gone = self.stepper.read(step, batch, moved, *after)
        return Outcome(
            draw,
            loss=loss,
            gain=loss - gone[0] if gone else None,
            score=self._score(due.get(DevScore)),
            uncertainty=self._uncertainty(step, due.get(Uncertainty)),
        )

    @torch.no_grad()
    def _losses_again(self, step: int, batch: Batch) -> Tensor:
        """Return the loss on the same batch under the same dropout."""
        return self.stepper.losses(step, batch)

    def _score(self, signal: Signal | None) -> float | None:
        if not isinstance(signal, DevScore):
            return None
        return self.engine.score(signal.task, self._probe(signal.task, signal.examples)).score

    def _uncertainty(self, step: int, signal: Signal | None) -> dict[str, float] | None:
        """Return the model's uncertainty on the dev examples of each task."""
        if not isinstance(signal, Uncertainty):
            return None
        seed = seed_for(self.engine.config.seed, "uncertainty", step)
        return {name: self._uncertainty_on(name, signal, seed) for name in self.engine.tasks}

    def _uncertainty_on(self, name: str, signal: Uncertainty, seed: int) -> float:
        engine = self.engine
        split = self._probe(name, signal.examples)
        size = engine.config.evaluate.batch
        batches = dev_batches(name, split.items, size, engine.device, engine.ranks.cut)
        engine.spent.add(signal.passes * len(split))
        kind = engine.tasks[name].kind

        def predict(batch: Batch) -> Tensor:
            return kind.distribution(engine.outputs(batch)[name], batch.parts[0].columns)

        def samples() -> Iterator[NDArray[np.float64]]:
            for batch in batches:
                own = predictive_samples(engine.model, predict, [batch], signal.passes, seed)
                yield from engine.ranks.in_batch_order([own if batch.counts else None])

        return measure_batches(samples(), signal.score, self._residual(name, split, signal))

    def _residual(self, name: str, split: Split, signal: Uncertainty) -> float:
        """Return the mean squared error of a regression, which its entropy needs; 1 elsewhere."""
        if signal.score != "entropy" or self.engine.tasks[name].kind.name != "regress":
            return 1.0
        return 2 * self.engine.score(name, split).loss

    def _probe(self, task: str, examples: int | None) -> Split:
        """Return the dev examples that signals are measured on, the same ones each time."""
        if (task, examples) not in self._probes:
            self._probes[task, examples] = self.engine.dev[task].at_most(examples)
        return self._probes[task, examples]

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state as named tensors."""
        return self.stepper.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave."""
        self.stepper.load_tensors(tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but tensors that the next step depends on."""
        own = {"policy": self.decider.state_dict(), "draws": streams.state_of(self.rng)}
        return super().state_dict() | own

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where `state_dict` was taken."""
        super().load_state_dict(state)
        self.decider.load_state_dict(state["policy"])
        self.rng = streams.restore(state["draws"])

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Go on from a run with other tasks: the policy starts anew, its random stream does not."""
        super().adopt(state)
        self.rng = streams.restore(state["draws"])
