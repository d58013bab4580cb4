"""Training as a selector says: candidates, scores, a mixed batch, a step."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar.journal import SelectionStep
from bursar.models.frozen import FROZEN_STATES
from bursar.selection import Selector, Usage
from bursar.tasks.batches import Batch
from bursar.training.scoring import Candidates, Scorer
from bursar.training.trainer import Job, Trainer


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """What one step trains on.

    Args:
        batches: examples of one task each.
        candidates: by task, how many were scored for the step.
    """

    batches: list[Batch]
    candidates: Mapping[str, int]

    @property
    def examples(self) -> int:
        """How many examples there are."""
        return sum(len(batch.items) for batch in self.batches)


class SelectionTrainer(Trainer):
    """Trains each step of the budget on the examples that a selector chooses.

    Candidates come from each task's stream, so a batch of them has like lengths. Each chosen
    example counts the same in its step. Where lower layers are frozen, training starts from what
    they gave when the candidate was scored.

    Args:
        job: what it works with.
        selector: who decides.
    """

    def __init__(self, job: Job, selector: Selector) -> None:
        super().__init__(job)
        self.selector = selector
        self.usage = Usage({name: len(stream.split) for name, stream in self.streams.items()})
        self._scorer = Scorer(
            self.model,
            {name: task.kind for name, task in self.tasks.items()},
            selector,
            seed=self.config.seed,
            device=self.device,
            autocast=self._autocast,
        )
        self._waiting: list[Chosen] = []

    def advance(self) -> None:
        """Candidates, scores, a mixed batch, a step."""
        began = time.perf_counter()
        step = self.step + 1
        if not self._waiting:
            self._waiting = self.select(step)
        chosen = self._waiting.pop(0)
        shares = [len(batch.items) / chosen.examples for batch in chosen.batches]
        losses = self.update(step, list(zip(chosen.batches, shares, strict=True)))
        for batch in chosen.batches:
            self.usage.add(batch.task, batch.items)
        self.step = step
        self._write(chosen, losses, round(time.perf_counter() - began, 4))

    def _write(self, chosen: Chosen, losses: list[float], seconds: float) -> None:
        counts = {batch.task: len(batch.items) for batch in chosen.batches}
        by_task = dict(zip(counts, losses, strict=True))
        loss = sum(by_task[task] * count for task, count in counts.items()) / chosen.examples
        record = SelectionStep(
            step=self.step,
            candidates=dict(chosen.candidates),
            chosen=counts,
            used=self.usage.fraction,
            loss=loss,
            losses=by_task,
            tokens=sum(batch.tokens for batch in chosen.batches),
            seconds=seconds,
        )
        self.journal.append(record)
        for watcher in self.watchers:
            most = max(counts, key=lambda task: counts[task])
            watcher.stepped(self.step, most, loss, record.tokens or 0)

    def select(self, step: int) -> list[Chosen]:
        """Draw and score candidates, and let the selector choose the steps that come of them."""
        pool = {task: self._pool(task, count, step) for task, count in self._wanted().items()}
        scores = {
            task: np.concatenate([part.scores for part in parts]) for task, parts in pool.items()
        }
        steps = self.selector.choose(scores)
        return [
            Chosen(
                [
                    # What is trained on later may be resumed from a checkpoint before, which keeps
                    # no hidden states.
                    self._gathered(pool[task], places, hidden=number == 0)
                    for task, places in selection.chosen.items()
                    if len(places)
                ],
                selection.candidates,
            )
            for number, selection in enumerate(steps)
        ]

    def _wanted(self) -> dict[str, int]:
        """By task, how many batches of candidates to draw."""
        size = self.config.budget.batch
        return {task: -(-count // size) for task, count in self.selector.candidates().items()}

    def _pool(self, task: str, batches: int, step: int) -> list[Candidates]:
        parts = [self._scorer.score(self.streams[task].next(), step) for _ in range(batches)]
        self.spent.forward += sum(part.passes * len(part.batch.items) for part in parts)
        return parts

    def _gathered(
        self, parts: Sequence[Candidates], places: NDArray[np.int64], hidden: bool
    ) -> Batch:
        """The candidates at these places as a batch, with their hidden states if there are any."""
        task = parts[0].batch.task
        items = np.concatenate([part.batch.items for part in parts])[places]
        batch = self._batch(task, items)
        if hidden and all(part.hidden is not None for part in parts):
            rows = [row for part in parts if part.hidden is not None for row in part.hidden]
            tokens = batch.columns["attention_mask"].shape[1]
            batch.columns[FROZEN_STATES] = _stacked([rows[place] for place in places], tokens)
        return batch

    def _batch(self, task: str, items: NDArray[np.int64]) -> Batch:
        return Batch(task, items, self.streams[task].split.batch(items))

    def diagnostics(self) -> dict[str, Any]:
        """The tasks' shares of candidates and of examples trained on, and the data used of each."""
        return self.selector.diagnostics() | {
            "used": {task: self.usage.of(task) for task in self.tasks}
        }

    def state_dict(self) -> dict[str, Any]:
        """Everything but tensors that the next step depends on."""
        waiting = [
            {batch.task: batch.items.tolist() for batch in chosen.batches}
            for chosen in self._waiting
        ]
        return super().state_dict() | {
            "selector": self.selector.state_dict(),
            "scorer": self._scorer.state_dict(),
            "usage": self.usage.state_dict(),
            "waiting": waiting,
        }

    def load_state_dict(self, step: int, state: Mapping[str, Any]) -> None:
        """Stand where `state_dict` was taken, after `step` steps."""
        super().load_state_dict(step, state)
        self.selector.load_state_dict(state["selector"])
        self._scorer.load_state_dict(state["scorer"])
        self.usage.load_state_dict(state["usage"])
        scored = dict.fromkeys(self.tasks, 0)
        self._waiting = [
            Chosen([self._batch(task, np.array(items)) for task, items in by_task.items()], scored)
            for by_task in state["waiting"]
        ]


def _stacked(rows: Sequence[NDArray[np.float32]], tokens: int) -> NDArray[np.float32]:
    """Rows of whatever padding as one array of this many tokens."""
    stacked = np.zeros((len(rows), tokens, rows[0].shape[1]), dtype=np.float32)
    for place, row in enumerate(rows):
        length = min(tokens, len(row))
        stacked[place, :length] = row[:length]
    return stacked
