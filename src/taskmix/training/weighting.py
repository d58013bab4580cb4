"""The driver of weightings: rounds from one snapshot."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from taskmix.config import Objective, RunConfig
from taskmix.errors import UserError
from taskmix.journal import Journal
from taskmix.rng import stream
from taskmix.tasks.batches import Batch, Items, make_part
from taskmix.tasks.parts import Split
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine
from taskmix.training.frozen_states import FrozenStates
from taskmix.training.loading import dev_batches, to_device
from taskmix.training.optimizer import build_optimizer
from taskmix.training.prepare import Prepared
from taskmix.training.rounds import DevResult, Rounds, Work, record
from taskmix.weighting import Weighting


class WeightingDriver(Driver):
    """Spends a budget of rounds as a weighting says.

    Rounds see the same examples again and again: frozen layers are run on each of them once.
    """

    decider: Weighting

    def __init__(self, engine: Engine, decider: Weighting, journal: Journal) -> None:
        super().__init__(engine, decider, journal)
        self.tuning = dict(engine.dev)
        if decider.split_dev:
            halves = engine.dev[decider.target].halves()
            self.tuning[decider.target], engine.dev[decider.target] = halves
        self._begun = False
        self.rounds = Rounds(
            decider,
            engine.model,
            TaskFeed(engine, decider.target, self.tuning),
            self._new_optimizer,
            seed=engine.config.seed,
            clip=engine.config.optimizer.clip or None,
            working=engine.watchers.working,
            ranks=engine.ranks,
        )

    @classmethod
    def check(cls, decider: Weighting, config: RunConfig, prepared: Sequence[Prepared]) -> None:
        """Raise if rounds cannot be played so, or the target's dev split cannot be halved."""
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
        """Return the share of its data that each task sees in all rounds, each trained once."""
        if config.budget.count != "steps":  # how many rounds that is depends on what they cost
            examples = config.budget.steps * config.budget.batch / sum(sizes.values())
            return {task: examples * size for task, size in sizes.items()}
        fraction = float(getattr(decider, "fraction", 1.0))
        return {task: config.budget.rounds * fraction * size for task, size in sizes.items()}

    def _new_optimizer(self) -> Optimizer:
        return build_optimizer(self.engine.model, self.engine.config.optimizer)

    def advance(self) -> None:
        """Play one round."""
        if not self._begun:
            self._begin()
        began = time.perf_counter()
        report = self.rounds.advance()
        self.step = self.rounds.number
        found = record(self.step, report, round(time.perf_counter() - began, 4))
        self.journal.append(found)
        self.engine.watchers.advanced(found)

    def _begin(self) -> None:
        """Add what frozen layers give to every split, once the model's tensors are in place."""
        engine = self.engine
        states = FrozenStates(
            engine.model,
            batch=engine.config.evaluate.batch,
            device=engine.device,
            cache=engine.cache,
            working=engine.watchers.working,
        )
        in_turn = engine.ranks.in_turn
        for name, items in engine.loader.items.items():
            engine.loader.replace(name, in_turn(partial(states.add, name, items)))
        for splits in (self.tuning, engine.dev):
            for name, split in splits.items():
                more = in_turn(partial(states.add, name, split.items))
                splits[name] = replace(split, items=more)
        self._begun = True

    def objective(self) -> Objective:
        """Return the target's score."""
        return Objective(tasks=(self.decider.target,))

    def diagnostics(self) -> dict[str, Any]:
        """Return nothing: the journal's rounds hold all that a weighting believes."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimisers that a weighting keeps from round to round."""
        return self.rounds.optimizer_tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave."""
        self.rounds.load_optimizer_tensors(tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but tensors that the next round depends on."""
        return super().state_dict() | {"rounds": self.rounds.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state)
        self.rounds.load_state_dict(state["rounds"])


class TaskFeed:
    """Serves rounds from the tasks' streams.

    A round that uses a fraction ρ of the data reads the next ρ of each task's epoch, so that its
    data depend on the round's number alone and every try of a round sees the same batches.

    Args:
        engine: whose tasks and model these are.
        target: the task that is tuned for.
        tuning: by task, the dev split that tuning uses; selecting the model uses the engine's.
    """

    def __init__(self, engine: Engine, target: str, tuning: Mapping[str, Split]) -> None:
        self._engine = engine
        self._target = target
        self._tuning = tuning
        self._names = list(engine.tasks)

    def train(self, tasks: Sequence[int], fraction: float, number: int) -> Iterator[Work]:
        """Yield a part of these tasks' batches; several tasks keep pace, each batch used once."""
        counts = {task: self._count(task, fraction) for task in tasks}
        for task, count in counts.items():
            name = self._names[task]
            place = divmod(number * count, self._engine.loader.streams[name].per_epoch)
            self._engine.loader.go_to(name, *place)
        steps = max(counts.values())
        for step in range(steps):
            now = [t for t in tasks if (step + 1) * counts[t] // steps > step * counts[t] // steps]
            batches = [self._engine.loader.next(self._names[task]) for task in now]
            self._spend(sum(batch.examples for batch in batches))
            yield self._work(self._engine.weighed(batches, [self._names[task] for task in now]))

    def _count(self, task: int, fraction: float) -> int:
        return max(1, round(self._engine.loader.streams[self._names[task]].per_epoch * fraction))

    def _work(self, batches: Sequence[Batch]) -> Work:
        def losses() -> Mapping[int, Tensor]:
            found = [(batch.parts[0], self._engine.losses(batch)) for batch in batches]
            return {
                self._names.index(part.task): by_task[part.task] * part.share
                for part, by_task in found
            }

        return Work(sum(batch.examples for batch in batches), losses)

    def _spend(self, examples: int) -> None:
        """Note what all ranks together pass through the model next."""
        self._engine.spent.add(examples, backward=torch.is_grad_enabled())

    def dev(self, batch: int | None, turn: int) -> Iterator[Work]:
        """Yield the target's dev data for tuning: all of it, or the batch whose turn it is."""
        items = self._tuning[self._target].items
        if batch is not None:
            part = self._turn(items, batch, turn)
            self._spend(part.examples)
            yield self._work(self._engine.weighed([part], [self._target]))
            return
        self._spend(len(items))
        size, device = self._engine.config.evaluate.batch, self._engine.device
        for part in dev_batches(self._target, items, size, device, self._engine.ranks.cut):
            yield self._work([part])

    def _turn(self, items: Items, size: int, turn: int) -> Batch:
        """Return one of the batches that a fixed shuffle of the dev items is cut into."""
        order = stream(self._engine.config.seed, "tuning").permutation(len(items))
        start = turn % math.ceil(len(items) / size) * size
        chosen = {self._target: order[start : start + size]}
        part = make_part({self._target: items}, chosen, self._engine.ranks.cut)
        return to_device(part, self._engine.device)

    def dev_size(self) -> int:
        """Return how many dev examples of the target there are for tuning."""
        return len(self._tuning[self._target])

    def judge(self, task: int, tuning: bool) -> DevResult:
        """Return a task's score on its dev data for tuning, or on those for selecting the model."""
        name = self._names[task]
        scores = self._engine.score(name, self._tuning[name] if tuning else None)
        return DevResult(scores.score, scores.loss)
