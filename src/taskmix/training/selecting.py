"""The driver of selectors: candidates, scores, a mixed batch, a step."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Journal
from taskmix.selection import Selector, Usage
from taskmix.selection.base import SelectionStep, candidates_of, steps_of
from taskmix.tasks.batches import Batch
from taskmix.tasks.data import ReadyBatches
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine
from taskmix.training.prepare import Prepared
from taskmix.training.scoring import Candidates, Scorer

MIN_EPOCHS = 2  # from which on caching the outputs of frozen layers pays


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The examples of one step."""

    items: Mapping[str, NDArray[np.int64]]  # by task, in the order of the batch
    states: Sequence[NDArray[np.float32]] | None  # of the frozen layers; None to compute them
    candidates: Mapping[str, int]  # by task, how many were scored
    uncertainties: Mapping[str, float] = field(default_factory=dict)  # by task, their mean score


class SelectionDriver(Driver):
    """Trains each step of the budget on the examples that a selector chooses."""

    decider: Selector

    def __init__(self, engine: Engine, decider: Selector, journal: Journal) -> None:
        super().__init__(engine, decider, journal)
        self.usage = Usage({name: len(items) for name, items in engine.loader.items.items()})
        self._scorer = Scorer(engine, decider)
        self._waiting: list[Chosen] = []
        self._begun = False

    @classmethod
    def check(cls, decider: Selector, config: RunConfig, prepared: Sequence[Prepared]) -> None:
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
        # Equal parts: which examples are uncertain is not known yet.
        return dict.fromkeys(sizes, config.budget.steps * config.budget.batch / len(sizes))

    def advance(self) -> None:
        if not self._begun:
            self._begin()
        began = time.perf_counter()
        step = self.step + 1
        if not self._waiting:
            self._waiting = self.select(step)
        chosen = self._waiting.pop(0)
        batch = self.engine.loader.of(chosen.items, chosen.states)
        result = self.engine.step(step, batch, task_weights(batch, self.engine.config.loss))
        losses = self.engine.read(f"step {step}", result)
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
            uncertainties=dict(chosen.uncertainties),
        )
        self.journal.append(record)
        self.engine.watchers.advanced(record)

    def _begin(self) -> None:
        """Cache the outputs of frozen layers for tasks of which the budget sees enough epochs."""
        engine = self.engine
        self._begun = True
        if engine.ranks.shards:  # no rank could run these layers alone
            return
        states = engine.frozen_states()
        for name, items in engine.loader.items.items():
            if self._drawn(name) >= MIN_EPOCHS * len(items):
                engine.loader.replace(name, states.add(name, items))

    def _drawn(self, task: str) -> int:
        """Return how many candidates of a task the budget scores in total."""
        candidates = candidates_of(self.decider, self.step + 1)[task]
        return candidates * self.engine.config.budget.steps // self.decider.every

    def select(self, step: int) -> list[Chosen]:
        """Draw and score candidates, and return the steps that the selector makes of them."""
        loader, size = self.engine.loader, self.engine.config.budget.batch
        pool = {}
        for task, count in candidates_of(self.decider, step).items():
            batches = -(-count // size)
            pool[task] = [self._scorer.score(loader.next(task), step) for _ in range(batches)]
        scores = {
            task: np.concatenate([part.scores for part in parts]) for task, parts in pool.items()
        }
        steps = steps_of(self.decider, scores, step)
        first, *later = [
            # A later step may be resumed from a checkpoint, which holds no states.
            _gathered(pool, selection.chosen, selection.candidates, with_states=number == 0)
            for number, selection in enumerate(steps)
        ]
        means = {task: float(of_task.mean()) for task, of_task in scores.items()}
        return [replace(first, uncertainties=means), *later]

    def diagnostics(self) -> dict[str, Any]:
        used = {task: self.usage.of(task) for task in self.engine.tasks}
        return self.decider.diagnostics() | {"used": used}

    def state_dict(self) -> dict[str, Any]:
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
    """Return the candidates at the chosen places, with the outputs of the frozen layers."""
    chosen = {task: places for task, places in chosen.items() if len(places)}
    items = {
        task: np.concatenate([part.items for part in pool[task]])[places]
        for task, places in chosen.items()
    }
    states: list[NDArray[np.float32]] | None = [] if with_states else None
    for task, places in chosen.items():
        if states is None or any(part.states is None for part in pool[task]):
            return Chosen(items, None, candidates)
        rows = [row for part in pool[task] if part.states is not None for row in part.states]
        states += [rows[place] for place in places]
    return Chosen(items, states, candidates)


def task_weights(batch: Batch, loss: str) -> dict[str, float]:
    """Return the weight of each task's mean loss in the loss of a mixed batch."""
    # Equation 1 of Pilault et al. (2021) is the sum over tasks; their code takes the mean over the
    # tasks that are in the batch.
    match loss:
        case "mean":
            return dict.fromkeys(batch.tasks, 1 / len(batch.tasks))
        case "sum":
            return dict.fromkeys(batch.tasks, 1.0)
    return {task: size / batch.examples for task, size in batch.sizes.items()}
