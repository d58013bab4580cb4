"""The driver of policies: draw, batch, step, outcome."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taskmix import rng as streams
from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Journal
from taskmix.policies import (
    Alignment,
    DevLosses,
    DevScore,
    Draw,
    Gain,
    Outcome,
    Policy,
    Signal,
    Skill,
    Uncertainty,
)
from taskmix.rng import seed_for
from taskmix.tasks.batches import Batch
from taskmix.tasks.parts import Split
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine
from taskmix.training.loading import dev_batches
from taskmix.training.optimizer import trained
from taskmix.training.prepare import Prepared
from taskmix.training.stepper import Moved, Stepper
from taskmix.uncertainty import measure_batches, predictive_samples

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
        self._guesses: dict[tuple[str, int | None], float | None] = {}

    @classmethod
    def expected_examples(
        cls, decider: Policy, config: RunConfig, sizes: Mapping[str, int]
    ) -> dict[str, float]:
        """Return what the first draws ask for, before anything is learned."""
        rng = streams.stream(config.seed, "plan")
        draws = [decider.ask(rng).probabilities for _ in range(min(FIRST, config.budget.steps))]
        shares = np.mean(draws, axis=0)
        batches = [min(config.budget.batch, sizes[task]) for task in decider.tasks]
        examples = config.budget.steps * shares * np.array(batches)
        return dict(zip(decider.tasks, examples.tolist(), strict=True))

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
        due = {type(signal): signal for signal in self.decider.due(draw)}
        downhill = self._dev_gradient(due.get(Alignment))
        moved = self.stepper.step(step, batch, {draw.task: 1.0})
        alignment, gradient = self._aligned(downhill)
        outcome = self._outcome(step, draw, batch, moved, due)
        outcome = replace(outcome, alignment=alignment, gradient=gradient)
        self.decider.tell(outcome)
        self.step = step
        record = self.journal.draw(
            step,
            outcome,
            examples=batch.examples,
            seconds=round(time.perf_counter() - began, 4),
        )
        self.engine.watchers.advanced(record)

    def _outcome(
        self, step: int, draw: Draw, batch: Batch, moved: Moved, due: Mapping[type[Signal], Signal]
    ) -> Outcome:
        """Measure the signals that the policy wants of a draw, and no others."""
        after = [self._losses_again(step, batch)] if Gain in due else []
        loss, *gone = self.stepper.read(step, batch, moved, *after)
        return Outcome(
            draw,
            loss=loss,
            gain=loss - gone[0] if gone else None,
            score=self._score(due.get(DevScore)),
            uncertainty=self._uncertainty(step, due.get(Uncertainty)),
            tokens=batch.tokens,
            dev_losses=self._dev_losses(due.get(DevLosses)),
            skill=self._skill(draw.task, due.get(Skill)),
        )

    @torch.no_grad()
    def _losses_again(self, step: int, batch: Batch) -> Tensor:
        """Return the loss on the same batch under the same dropout."""
        return self.stepper.losses(step, batch)

    def _score(self, signal: Signal | None) -> float | None:
        if not isinstance(signal, DevScore):
            return None
        return self.engine.score(signal.task, self._probe(signal.task, signal.examples)).score

    def _skill(self, task: str, signal: Signal | None) -> float | None:
        if not isinstance(signal, Skill):
            return None
        probe = self._probe(task, signal.examples)
        if (task, signal.examples) not in self._guesses:
            self._guesses[task, signal.examples] = self.engine.guess(task, probe)
        guess = self._guesses[task, signal.examples]
        if guess is None or guess >= 1:
            return None
        return (self.engine.score(task, probe).score - guess) / (1 - guess)

    def _dev_losses(self, signal: Signal | None) -> dict[str, float] | None:
        if not isinstance(signal, DevLosses):
            return None
        names = self.engine.tasks if signal.tasks is None else signal.tasks
        probes = {name: self._probe(name, signal.examples) for name in names}
        return {name: self.engine.score(name, probe).loss for name, probe in probes.items()}

    def _dev_gradient(self, signal: Signal | None) -> list[Tensor] | None:
        """Return the mean of the tasks' dev gradients, each clipped, one tensor a parameter."""
        if not isinstance(signal, Alignment):
            return None
        names = list(self.engine.tasks if signal.tasks is None else signal.tasks)
        total = [torch.zeros_like(each) for each in trained(self.stepper.optimizer)]
        for name in names:
            found = self._gradient_on(name, self._probe(name, signal.examples))
            scale = self._clipped(length_of(found)) / len(names)
            for whole, part in zip(total, found, strict=True):
                whole.add_(part * scale)
        return total

    def _gradient_on(self, name: str, split: Split) -> list[Tensor]:
        """Return the gradient of the mean loss on some examples, dropout turned off.

        Every rank passes all of them: there are few, and the sum has the same bits on all.
        """
        engine, parameters = self.engine, list(trained(self.stepper.optimizer))
        engine.model.eval()
        total, counted = [torch.zeros_like(each) for each in parameters], 0
        size = engine.config.evaluate.batch
        engine.spent.add(len(split), backward=True)
        for batch in dev_batches(name, split.items, size, engine.device):
            [own] = batch
            count = engine.tasks[name].kind.counted(own.columns, len(own.items))
            loss = engine.losses(batch)[name]
            found = torch.autograd.grad(loss * count, parameters, allow_unused=True)
            counted += count
            for whole, part in zip(total, found, strict=True):
                if part is not None:
                    whole.add_(part)
        return [each / max(1, counted) for each in total]

    def _clipped(self, length: Tensor) -> Tensor:
        """Return by what a gradient of this length is multiplied when it is clipped."""
        longest = self.engine.config.optimizer.clip or math.inf
        return torch.clamp(longest / (length + 1e-6), max=1.0)

    def _aligned(self, downhill: Sequence[Tensor] | None) -> tuple[float | None, float | None]:
        """Return the inner product of the step's gradient with another, and its own length."""
        if downhill is None:
            return None, None
        found = [each.grad for each in trained(self.stepper.optimizer)]
        pairs = [(a, b) for a, b in zip(found, downhill, strict=True) if a is not None]
        product = torch.stack([(a * b).sum() for a, b in pairs]).sum()
        both = torch.stack([product, length_of([a for a, _ in pairs])]).tolist()
        return both[0], both[1]

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
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state)
        self.decider.load_state_dict(state["policy"])
        self.rng = streams.restore(state["draws"])

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Go on from a run with other tasks: the policy starts anew, its random stream does not."""
        super().adopt(state)
        self.rng = streams.restore(state["draws"])


def length_of(gradient: Sequence[Tensor]) -> Tensor:
    """Return the length of a gradient that is given by parameter."""
    parts = torch.stack([torch.linalg.vector_norm(each) for each in gradient])
    length: Tensor = torch.linalg.vector_norm(parts)
    return length
