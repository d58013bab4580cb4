"""Training as a weighting says: rounds from one snapshot."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from bursar.rng import stream
from bursar.tasks.batches import Batch, in_order
from bursar.tasks.encoding import Encoded
from bursar.tasks.parts import Split
from bursar.training.evaluation import evaluate, tensors
from bursar.training.folder import Scores
from bursar.training.frozen_states import FrozenStates
from bursar.training.optimizer import build_optimizer
from bursar.training.rounds import DevResult, Rounds, Work, record
from bursar.training.trainer import Job, Trainer
from bursar.weighting import Weighting


class WeightingTrainer(Trainer):
    """Spends a budget of rounds as a weighting says; a step of the run is a round.

    Rounds see the same examples again and again: frozen layers are run on each of them once.

    Args:
        job: what it works with.
        weighting: who decides.
    """

    def __init__(self, job: Job, weighting: Weighting) -> None:
        super().__init__(job)
        self.weighting = weighting
        self.tuning = dict(self.dev)
        if weighting.split_dev:
            halves = self.dev[weighting.target].halves()
            self.tuning[weighting.target], self.dev[weighting.target] = halves
        self._cache = job.cache
        self._begun = False
        self.rounds = Rounds(
            weighting,
            self.model,
            TaskFeed(self),
            self._new_optimizer,
            seed=self.config.seed,
            clip=self.config.optimizer.clip or None,
            working=self._working,
        )

    def _new_optimizer(self) -> Optimizer:
        return build_optimizer(self.model, self.config.optimizer)

    def _working(self, text: str) -> None:
        for watcher in self.watchers:
            watcher.working(text)

    def advance(self) -> None:
        """One round."""
        if not self._begun:
            self._begin()
        began = time.perf_counter()
        report = self.rounds.advance()
        self.step = self.rounds.number
        self.journal.append(record(self.step, report, round(time.perf_counter() - began, 4)))
        for watcher in self.watchers:
            watcher.stepped(self.step, self.weighting.target, report.dev_loss, 0)

    def _begin(self) -> None:
        """Add what frozen layers give to every split, once the model's tensors are in place."""
        kept = FrozenStates(
            self.model,
            batch=self.config.evaluate.batch,
            device=self.device,
            cache=self._cache,
            working=self._working,
        )
        for name, batches in self.streams.items():
            batches.split = kept.add(name, batches.split)
        for splits in (self.tuning, self.dev):
            for name, split in splits.items():
                splits[name] = replace(split, encoded=kept.add(name, split.encoded))
        self._begun = True

    def selection_score(self, scores: Mapping[str, Scores], score: float) -> float:
        """By what the best model is told: the target's score."""
        return scores[self.weighting.target].score

    def optimizer_tensors(self) -> dict[str, Tensor]:
        """The optimisers that a weighting keeps from round to round."""
        return self.rounds.optimizer_tensors()

    def load_optimizer_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The counterpart of `optimizer_tensors`."""
        self.rounds.load_optimizer_tensors(tensors)

    def state_dict(self) -> dict[str, Any]:
        """Everything but tensors that the next round depends on."""
        return super().state_dict() | {"rounds": self.rounds.state_dict()}

    def load_state_dict(self, step: int, state: Mapping[str, Any]) -> None:
        """Stand where `state_dict` was taken, after `step` rounds."""
        super().load_state_dict(step, state)
        self.rounds.load_state_dict(state["rounds"])


class TaskFeed:
    """Serves rounds from the tasks' streams.

    A round with a share ρ reads the next ρ of each task's epoch, so that its data depend on the
    round's number alone and every try of a round sees the same batches.

    Args:
        trainer: whose tasks and model these are.
    """

    def __init__(self, trainer: WeightingTrainer) -> None:
        self._trainer = trainer
        self._names = list(trainer.tasks)

    def train(self, tasks: Sequence[int], fraction: float, number: int) -> Iterator[Work]:
        """A share of these tasks' batches; several tasks keep pace, each batch being used once."""
        batches = {task: self._batches(task, fraction, number) for task in tasks}
        counts = {task: self._count(task, fraction) for task in tasks}
        steps = max(counts.values())
        for step in range(steps):
            now = [t for t in tasks if (step + 1) * counts[t] // steps > step * counts[t] // steps]
            yield self._work({task: next(batches[task]) for task in now}, backward=True)

    def _count(self, task: int, fraction: float) -> int:
        return max(1, round(self._trainer.streams[self._names[task]].per_epoch * fraction))

    def _batches(self, task: int, fraction: float, number: int) -> Iterator[Batch]:
        stream = self._trainer.streams[self._names[task]]
        count = self._count(task, fraction)
        epoch, place = divmod(number * count, stream.per_epoch)
        stream.load_state_dict({"epoch": epoch, "place": place})
        for _ in range(count):
            yield stream.next()

    def _work(self, batches: Mapping[int, Batch], *, backward: bool) -> Work:
        trainer = self._trainer
        examples = sum(len(batch.items) for batch in batches.values())

        def losses() -> Mapping[int, Tensor]:
            trainer.spent.forward += examples
            trainer.spent.backward += examples if torch.is_grad_enabled() and backward else 0
            return {
                task: trainer.loss(batch.task, tensors(batch, trainer.device))
                for task, batch in batches.items()
            }

        return Work(examples, losses)

    def dev(self, batch: int | None, turn: int) -> Iterator[Work]:
        """The target's dev data for tuning: all of it, or the batch whose turn it is."""
        name = self._trainer.weighting.target
        encoded = self._tuned().encoded
        target = self._names.index(name)
        if batch is None:
            parts = list(in_order(name, encoded, self._trainer.config.evaluate.batch))
        else:
            parts = [self._turn(encoded, batch, turn)]
        yield from (self._work({target: part}, backward=True) for part in parts)

    def _turn(self, encoded: Encoded, size: int, turn: int) -> Batch:
        """One of the batches that a fixed shuffle of the dev items is cut into."""
        order = stream(self._trainer.config.seed, "tuning").permutation(len(encoded))
        start = turn % math.ceil(len(encoded) / size) * size
        items = order[start : start + size]
        return Batch(self._trainer.weighting.target, items, encoded.batch(items))

    def dev_size(self) -> int:
        """How many dev examples of the target there are for tuning."""
        return len(self._tuned())

    def _tuned(self) -> Split:
        return self._trainer.tuning[self._trainer.weighting.target]

    def judge(self, task: int, tuning: bool) -> DevResult:
        """A task's score on its dev data for tuning, or on those for selecting the model."""
        trainer = self._trainer
        name = self._names[task]
        split = (trainer.tuning if tuning else trainer.dev)[name]
        trainer.spent.forward += len(split)
        size = trainer.config.evaluate.batch
        scores = evaluate(trainer.model, trainer.tasks[name], split, size, trainer.device)
        return DevResult(scores.score, scores.loss)
