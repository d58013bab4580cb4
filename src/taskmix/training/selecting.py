"""The driver of selectors: candidates, scores, a mixed batch, a step."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Journal
from taskmix.selection import Selector, Usage
from taskmix.selection.base import candidates_of, steps_of
from taskmix.selection.record import SelectionStep
from taskmix.tasks.batches import FROZEN_STATES, Batch
from taskmix.tasks.data import ReadyBatches
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine
from taskmix.training.frozen_states import FrozenStates
from taskmix.training.prepare import Prepared
from taskmix.training.scoring import Candidates, Scorer
from taskmix.training.stepper import Stepper, task_weights

OFTEN = 2
"""How often a run goes through a task's data for it to pay to keep what frozen layers give."""


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What one step trains on.

    Args:
        items: by task, the items; the tasks in the order in which they stand in the batch.
        states: what the frozen layers gave for them, in that order; None to compute it.
        candidates: by task, how many were scored for the step.
    """

    items: Mapping[str, NDArray[np.int64]]
    states: Sequence[NDArray[np.float32]] | None
    candidates: Mapping[str, int]


class SelectionDriver(Driver):
    """Trains each step of the budget on the examples that a selector chooses.

    Candidates come from each task's stream, so a batch of them has like lengths. The chosen ones of
    all tasks make one mixed batch, which passes through the model once; how much each of them
    counts is up to the run's `loss`. Where lower layers are frozen, training starts from what they
    gave in scoring; and where the budget goes through a task's data more than once, they run on
    each example once.
    """

    decider: Selector

    def __init__(self, engine: Engine, decider: Selector, journal: Journal) -> None:
        super().__init__(engine, decider, journal)
        self.stepper = Stepper(engine)
        self.usage = Usage({name: len(items) for name, items in engine.loader.items.items()})
        self._scorer = Scorer(engine, decider)
        self._waiting: list[Chosen] = []
        self._begun = False

    @classmethod
    def check(cls, decider: Selector, config: RunConfig, prepared: Sequence[Prepared]) -> None:
        """Raise if a task has ready batches, from which no example can be selected."""
        for entry in prepared:
            if isinstance(entry.train, ReadyBatches):
                raise UserError(
                    "selection: expected tasks with a data set, found a loader for "
                    f"{entry.task.name}"
                )

    @classmethod
    def expected_examples(
        cls, decider: Selector, config: RunConfig, sizes: Mapping[str, int]
    ) -> dict[str, float]:
        """Return equal parts: which examples are uncertain is not known yet."""
        return dict.fromkeys(sizes, config.budget.steps * config.budget.batch / len(sizes))

    def advance(self) -> None:
        """Candidates, scores, a mixed batch, a step."""
        if not self._begun:
            self._begin()
        began = time.perf_counter()
        step = self.step + 1
        if not self._waiting:
            self._waiting = self.select(step)
        chosen = self._waiting.pop(0)
        batch = self._batch(chosen)
        moved = self.stepper.step(step, batch, task_weights(batch, self.engine.config.loss))
        losses = self.stepper.read(step, batch, moved)
        for task, items in chosen.items.items():
            self.usage.add(task, items)
        self.step = step
        record = SelectionStep(
            step=step,
            candidates=dict(chosen.candidates),
            chosen=dict(batch.sizes),
            used=self.usage.fraction,
            losses=dict(zip(batch.tasks, losses, strict=True)),
            tokens=batch.tokens,
            seconds=round(time.perf_counter() - began, 4),
        )
        self.journal.append(record)
        self.engine.watchers.advanced(record)

    def _begin(self) -> None:
        """Add what frozen layers give to the data that are gone through often enough to pay.

        Not where ranks have only parts of these layers, which one rank could not run alone.
        """
        engine = self.engine
        self._begun = True
        if engine.ranks.shards:
            return
        states = FrozenStates(
            engine.model,
            batch=engine.config.evaluate.batch,
            device=engine.device,
            cache=engine.cache,
            working=engine.watchers.working,
        )
        for name, items in engine.loader.items.items():
            if self._drawn(name) >= OFTEN * len(items):
                more = engine.ranks.in_turn(partial(states.add, name, items))
                engine.loader.replace(name, more)

    def _drawn(self, task: str) -> int:
        """Return how many candidates of a task the whole budget scores."""
        return (
            candidates_of(self.decider, self.step + 1)[task]
            * self.engine.config.budget.steps
            // (self.decider.every)
        )

    def select(self, step: int) -> list[Chosen]:
        """Draw and score candidates, and let the selector choose the steps that come of them."""
        wanted = self._wanted(step)
        pool = {task: self._pool(task, count, step) for task, count in wanted.items()}
        scores = {
            task: np.concatenate([part.scores for part in parts]) for task, parts in pool.items()
        }
        steps = steps_of(self.decider, scores, step)
        return [
            # What is trained on later may be resumed from a checkpoint before, which holds no
            # states of frozen layers.
            _gathered(pool, selection.chosen, selection.candidates, with_states=number == 0)
            for number, selection in enumerate(steps)
        ]

    def _wanted(self, step: int) -> dict[str, int]:
        """Return by task how many batches of candidates to draw."""
        size = self.engine.config.budget.batch
        wanted = candidates_of(self.decider, step)
        return {task: -(-count // size) for task, count in wanted.items()}

    def _pool(self, task: str, batches: int, step: int) -> list[Candidates]:
        loader = self.engine.loader
        return [self._scorer.score(loader.next(task), step) for _ in range(batches)]

    def _batch(self, chosen: Chosen) -> Batch:
        batch = self.engine.loader.of(chosen.items)
        if chosen.states is None:
            return batch
        tokens = batch.inputs["attention_mask"].shape[1]
        states = torch.from_numpy(_stacked(chosen.states, tokens)).to(self.engine.device)
        return replace(batch, inputs=batch.inputs | {FROZEN_STATES: states})

    def diagnostics(self) -> dict[str, Any]:
        """Return the tasks' shares of candidates and chosen examples, and the data used of each."""
        used = {task: self.usage.of(task) for task in self.engine.tasks}
        return self.decider.diagnostics() | {"used": used}

    def tensors(self) -> dict[str, Tensor]:
        """Return the optimiser's state as named tensors."""
        return self.stepper.tensors()

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors` gave."""
        self.stepper.load_tensors(tensors)

    def state_dict(self) -> dict[str, Any]:
        """Return everything but tensors that the next step depends on."""
        waiting = [
            {task: items.tolist() for task, items in chosen.items.items()}
            for chosen in self._waiting
        ]
        return super().state_dict() | {
            "selector": self.decider.state_dict(),
            "scorer": self._scorer.state_dict(),
            "usage": self.usage.state_dict(),
            "waiting": waiting,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state)
        self.decider.load_state_dict(state["selector"])
        self._scorer.load_state_dict(state["scorer"])
        self.usage.load_state_dict(state["usage"])
        scored = dict.fromkeys(self.engine.tasks, 0)
        self._waiting = [
            Chosen({task: np.array(items) for task, items in by_task.items()}, None, scored)
            for by_task in state["waiting"]
        ]


def _gathered(
    pool: Mapping[str, Sequence[Candidates]],
    chosen: Mapping[str, NDArray[np.int64]],
    candidates: Mapping[str, int],
    *,
    with_states: bool,
) -> Chosen:
    """Return the candidates at the chosen places, with what the frozen layers gave for them."""
    wanted = {task: places for task, places in chosen.items() if len(places)}
    items = {
        task: np.concatenate([part.items for part in pool[task]])[places]
        for task, places in wanted.items()
    }
    states: list[NDArray[np.float32]] | None = [] if with_states else None
    for task, places in wanted.items():
        if states is None or any(part.states is None for part in pool[task]):
            return Chosen(items, None, candidates)
        rows = [row for part in pool[task] if part.states is not None for row in part.states]
        states += [rows[place] for place in places]
    return Chosen(items, states, candidates)


def _stacked(rows: Sequence[NDArray[np.float32]], tokens: int) -> NDArray[np.float32]:
    """Return rows of whatever padding as one array of this many tokens."""
    stacked = np.zeros((len(rows), tokens, rows[0].shape[1]), dtype=np.float32)
    for place, row in enumerate(rows):
        length = min(tokens, len(row))
        stacked[place, :length] = row[:length]
    return stacked
