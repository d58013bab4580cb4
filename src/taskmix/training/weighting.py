"""The driver of weightings: rounds from one snapshot."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from taskmix.config import Objective, RunConfig
from taskmix.errors import UserError
from taskmix.journal import Journal
from taskmix.rng import stream
from taskmix.tasks.batches import Batch, make_part
from taskmix.training.driver import Driver
from taskmix.training.engine import Engine
from taskmix.training.loading import dev_batches, to_device
from taskmix.training.optimizer import load_optimizer_tensors, optimizer_tensors
from taskmix.training.prepare import Prepared
from taskmix.weighting import Report, Weighting
from taskmix.weighting.base import JointResult, Round, Separated, Slope, checked_numbers
from taskmix.weighting.deltas import Deltas

Tensors = dict[str, Tensor]


class WeightingDriver(Driver):
    """Spends a budget of rounds as a weighting decides: it is the weighting's `Worker`."""

    # Data order and dropout depend on the seed, the round and the tasks alone, so that a second
    # try sees the same batches and a resumed run is identical bit for bit. Rounds see the same
    # examples again and again, so frozen layers run on each of them once.

    decider: Weighting

    def __init__(self, engine: Engine, decider: Weighting, journal: Journal) -> None:
        super().__init__(engine, decider, journal)
        self._target = decider.target
        self.tuning = engine.dev[self._target]  # for the weighting
        if decider.split_dev:  # the other half is for selecting the model
            self.tuning, engine.dev[self._target] = self.tuning.halves()
        # Norms are summed in the order of the model's parameters, as the deltas are stacked.
        engine.parameters = [p for p in engine.model.parameters() if p.requires_grad]
        tasks = decider.tasks
        self._deltas = Deltas(engine.model, len(tasks), tasks.index(self._target))
        self._optimizers: dict[str, Tensors] = {}
        self._candidate: Tensors = {}
        self._kept: tuple[Tensors, Tensors] | None = None
        self._begun = False

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
        report = self.play_round()
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
        self.tuning = replace(self.tuning, items=states.add(self._target, self.tuning.items))
        self._begun = True

    def play_round(self) -> Report:
        self._kept = None
        self._deltas.rebase()
        report = self.decider.round(self)
        if not isinstance(report, Report):
            raise UserError(
                f"weighting {self.decider.name}: expected round() to return a Report, "
                f"found {report!r}"
            )
        self._load_kept()
        self.step += 1
        return report

    def _load_kept(self) -> None:
        if self._kept is not None:
            model, self._optimizers["joint"] = self._kept
            self.engine.model.load_state_dict(model)

    def separate(
        self,
        scales: Sequence[float],
        fraction: float = 1.0,
        *,
        fresh: bool = True,
        scored: bool = False,
    ) -> Separated:
        losses, norms, scores = [], [], []
        for place, (task, scale) in enumerate(self._named(scales, "scales").items()):
            slot = f"task {place}"
            optimizer = self._optimizer(slot, fresh)
            losses.append(self._train({task: scale}, fraction, optimizer)[task])
            if not fresh:
                self._optimizers[slot] = optimizer_tensors(optimizer, self.engine.model)
            norms.append(self._deltas.collect(place))
            if scored:
                scores.append(self.engine.score(self._target, self.tuning).score)
            self._deltas.restore()
        dev_scores = np.array(scores) if scored else None
        return Separated(np.array(norms), np.array(losses), dev_scores, len(self.tuning))

    def together(
        self, weights: Sequence[float], fraction: float = 1.0, *, fresh: bool = False
    ) -> JointResult:
        self._deltas.restore()
        optimizer = self._optimizer("joint", fresh)
        named = self._named(weights, "weights")
        if min(named.values()) < 0 or not any(named.values()):
            raise UserError(
                f"weighting {self.decider.name}, weights: expected none below 0 and one above 0, "
                f"found {list(named.values())}"
            )
        trained = {task: weight for task, weight in named.items() if weight}
        means = self._train(trained, fraction, optimizer)
        self._candidate = optimizer_tensors(optimizer, self.engine.model)
        dev = self.engine.score(self._target, self.tuning)
        losses = [means.get(task, 0.0) for task in self.decider.tasks]
        return JointResult(np.array(losses), dev.score, dev.loss)

    def slope(
        self, coefficients: Sequence[float], batch: int | None = None, turn: int = 0
    ) -> Slope:
        self._mix(coefficients)
        self.engine.model.eval()
        self.engine.model.zero_grad(set_to_none=True)
        total = 0.0
        for weight, batch_loss in self._dev_losses(batch, turn):
            loss = batch_loss * weight
            loss.backward()
            total += float(loss.detach())
        self.engine.ranks.add_gradients(self.engine.parameters)
        return Slope(self._sum(total), self._deltas.slope())

    @torch.no_grad()
    def loss(self, coefficients: Sequence[float]) -> float:
        self._mix(coefficients)
        self.engine.model.eval()
        return self._sum(sum(float(loss) * weight for weight, loss in self._dev_losses(None, 0)))

    def mix(self, coefficients: Sequence[float]) -> None:
        self._mix(coefficients)
        self._deltas.rebase()

    def keep(self) -> None:
        state = self.engine.model.state_dict()
        model = {name: tensor.clone() for name, tensor in state.items()}
        self._kept = model, self._candidate

    def _named(self, numbers: Sequence[float], what: str) -> dict[str, float]:
        tasks, where = self.decider.tasks, f"weighting {self.decider.name}, {what}"
        checked = checked_numbers(numbers, len(tasks), where)
        return dict(zip(tasks, checked.tolist(), strict=True))

    def _mix(self, coefficients: Sequence[float]) -> None:
        self._deltas.mix(list(self._named(coefficients, "coefficients").values()))

    def _sum(self, number: float) -> float:
        return float(self.engine.ranks.total(torch.tensor(number, dtype=torch.float64)))

    def _optimizer(self, slot: str, fresh: bool) -> Optimizer:
        """Return a new optimiser, with the slot's state unless it is to be fresh."""
        optimizer = self.engine.new_optimizer()
        if not fresh and slot in self._optimizers:
            # A copy: a try that is not kept must not change it.
            state = {name: tensor.clone() for name, tensor in self._optimizers[slot].items()}
            load_optimizer_tensors(optimizer, self.engine.model, state)
        return optimizer

    def _train(
        self, weights: Mapping[str, float], fraction: float, optimizer: Optimizer
    ) -> dict[str, float]:
        """Train one pass over a share of the tasks' data and return the mean loss of each."""
        where, names = f"round {self.step + 1}", ", ".join(weights)
        self.engine.seed("dropout", self.step, *weights)
        totals, counts = dict.fromkeys(weights, 0.0), dict.fromkeys(weights, 0)
        for number, batches in enumerate(self._batches(list(weights), fraction)):
            self.engine.watchers.working(f"{where}: training {names}, batch {number}")
            result = self.engine.update(optimizer, batches, weights)
            means = self.engine.read(where, result)
            for task, loss in zip(result.tasks, means, strict=True):
                totals[task] += loss
                counts[task] += 1
        return {task: totals[task] / max(1, counts[task]) for task in weights}

    def _batches(self, tasks: Sequence[str], fraction: float) -> Iterator[list[Batch]]:
        """Yield batches of these tasks, at most one of each task at a time, each batch once."""
        # A round reads the next `fraction` of each task's epoch, so that its data depend on the
        # round's number alone. Tasks of different sizes keep pace.
        loader = self.engine.loader
        counts = {task: max(1, round(loader.streams[task].per_epoch * fraction)) for task in tasks}
        for task, count in counts.items():
            loader.go_to(task, *divmod(self.step * count, loader.streams[task].per_epoch))
        steps = max(counts.values())
        for step in range(steps):
            now = [t for t in tasks if (step + 1) * counts[t] // steps > step * counts[t] // steps]
            yield [loader.next(task) for task in now]

    def _dev_losses(self, size: int | None, turn: int) -> Iterator[tuple[float, Tensor]]:
        """Yield the target's loss on each dev batch, with the batch's weight in the mean."""
        engine, items = self.engine, self.tuning.items
        engine.watchers.working(f"round {self.step + 1}: the dev loss of {self._target}")
        batches: Iterable[Batch]
        if size is None:
            examples, at_once = len(items), engine.config.evaluate.batch
            batches = dev_batches(self._target, items, at_once, engine.device, engine.ranks.cut)
        else:
            batch = self._dev_batch(size, turn)
            examples = batch.examples
            batches = engine.with_shares([batch], [self._target])
        engine.spent.add(examples, backward=torch.is_grad_enabled())
        for batch in batches:
            loss = engine.losses(batch)[self._target] * batch.parts[0].share
            yield batch.examples / examples, loss

    def _dev_batch(self, size: int, turn: int) -> Batch:
        """Return a batch of the shuffled dev items; the shuffle is the same in every turn."""
        items = self.tuning.items
        order = stream(self.engine.config.seed, "tuning").permutation(len(items))
        start = turn % math.ceil(len(items) / size) * size
        chosen = {self._target: order[start : start + size]}
        part = make_part({self._target: items}, chosen, self.engine.ranks.cut)
        return to_device(part, self.engine.device)

    def objective(self) -> Objective:
        return Objective(tasks=(self._target,))

    def diagnostics(self) -> dict[str, Any]:
        return {}  # the journal's rounds hold it all

    def state_dict(self) -> dict[str, Any]:
        rounds = {"round": self.step, "weighting": self.decider.state_dict()}
        return super().state_dict() | {"rounds": rounds}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.decider.load_state_dict(state["rounds"]["weighting"])

    def tensors(self) -> Tensors:
        return {
            f"{slot}/{name}": tensor
            for slot, tensors in self._optimizers.items()
            for name, tensor in tensors.items()
        }

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        self._optimizers = {}
        for key, tensor in tensors.items():
            slot, separator, name = key.partition("/")
            if not separator:
                raise UserError(
                    f"checkpoint: expected the optimisers' state by the names of parameters, found "
                    f"{key!r} of taskmix 0.1; start the run again, or go on with that version"
                )
            self._optimizers.setdefault(slot, {})[name] = tensor
