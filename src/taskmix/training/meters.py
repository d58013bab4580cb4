"""Meters: how the trainer measures each signal."""

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from taskmix.errors import UserError
from taskmix.policies import (
    Alignment,
    BatchScore,
    DevLosses,
    DevScore,
    Gain,
    Loss,
    Signal,
    Uncertainty,
)
from taskmix.rng import seed_for
from taskmix.tasks.batches import Batch
from taskmix.tasks.parts import Split
from taskmix.training.engine import Engine, StepResult
from taskmix.training.evaluation import metrics_of, score_of
from taskmix.training.loading import dev_batches
from taskmix.training.prepare import Prepared
from taskmix.uncertainty import measure_batches, predictive_samples


@dataclass
class StepTaken:
    """A training step on a batch of one task."""

    number: int
    task: str
    batch: Batch
    result: StepResult
    loss: float | None = None  # before the step, once it was read


class Meter(ABC):
    """Measures one type of signal. A new signal has a meter here and a row in `METERS`."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._probes: dict[tuple[str, int | None], Split] = {}

    @classmethod  # noqa: B027 (most signals can be measured in any run)
    def check(cls, signal: Any, policy: str, prepared: Sequence[Prepared]) -> None:
        """Raise if the signal cannot be measured on these tasks."""

    def before(self, signal: Any) -> None:  # noqa: B027 (most signals need nothing of it)
        """Measure quantities that depend on the weights before the step."""

    @abstractmethod
    def after(self, signal: Any, step: StepTaken) -> Mapping[str, Any]:
        """Return the remaining measurements by their names in `Outcome`."""

    def probe(self, task: str, examples: int | None) -> Split:
        """Return the fixed dev examples that signals are measured on."""
        if (task, examples) not in self._probes:
            self._probes[task, examples] = self.engine.dev[task].at_most(examples)
        return self._probes[task, examples]

    def names(self, tasks: tuple[str, ...] | None) -> list[str]:
        return list(self.engine.tasks if tasks is None else tasks)


class LossMeter(Meter):
    def after(self, signal: Loss, step: StepTaken) -> Mapping[str, Any]:
        if step.loss is None:
            [step.loss] = self.engine.read(f"step {step.number}", step.result)
        return {"loss": step.loss}


class BatchScoreMeter(Meter):
    """Scores the predictions of the training's own forward pass."""

    _kinds = frozenset({"classify", "regress", "multilabel", "python"})  # need no rows for a score

    def before(self, signal: BatchScore) -> None:
        self._raw: list[Any] = []
        self._items: list[NDArray[np.int64]] = []
        if self.engine.ranks.count == 1:
            self.engine.on_outputs = self._predict

    def _predict(self, batch: Batch, outputs: Mapping[str, Any]) -> None:
        [part] = batch
        kind = self.engine.tasks[part.task].kind
        if kind.name in self._kinds:
            with torch.no_grad():
                self._raw += kind.predictions(outputs[part.task], part.columns)
            self._items.append(part.items)

    def after(self, signal: BatchScore, step: StepTaken) -> Mapping[str, Any]:
        self.engine.on_outputs = None
        engine, task = self.engine, self.engine.tasks[step.task]
        repeated = engine.loader.streams[step.task].state_dict()["epoch"] > 0
        if repeated or not self._raw:
            return {}
        train = engine.train[step.task]
        python = task.kind.name == "python"  # its predictions come with their targets
        split = train if python else train.take(np.concatenate(self._items))
        scored = task.kind.scored(self._raw, split, iter(()))
        return {"batch_score": score_of(task, metrics_of(task, scored))}


class GainMeter(Meter):
    """Passes the same batch once more, under the same dropout."""

    def after(self, signal: Gain, step: StepTaken) -> Mapping[str, Any]:
        self.engine.seed("dropout", step.number)
        with torch.no_grad():
            losses = self.engine.mean_losses([step.batch])
        # Both losses are read at once, so that the host waits for the device only once.
        step.loss, later = self.engine.read(f"step {step.number}", step.result, losses)
        return {"gain": step.loss - later}


class DevScoreMeter(Meter):
    def after(self, signal: DevScore, step: StepTaken) -> Mapping[str, Any]:
        probe = self.probe(signal.task, signal.examples)
        return {"score": self.engine.score(signal.task, probe).score}


class DevLossesMeter(Meter):
    def after(self, signal: DevLosses, step: StepTaken) -> Mapping[str, Any]:
        probes = {name: self.probe(name, signal.examples) for name in self.names(signal.tasks)}
        losses = {name: self.engine.score(name, probe).loss for name, probe in probes.items()}
        return {"dev_losses": losses}


class AlignmentMeter(Meter):
    _dev_gradient: Sequence[Tensor] = ()

    def before(self, signal: Alignment) -> None:
        """Compute the mean of the tasks' dev gradients, each clipped, one tensor a parameter."""
        names = self.names(signal.tasks)
        clip = self.engine.config.optimizer.clip or math.inf
        mean = [torch.zeros_like(parameter) for parameter in self.engine.parameters]
        for name in names:
            gradient = self._gradient_on(name, self.probe(name, signal.examples))
            scale = torch.clamp(clip / (norm_of(gradient) + 1e-6), max=1.0) / len(names)
            for summed, part in zip(mean, gradient, strict=True):
                summed.add_(part * scale)
        self._dev_gradient = mean

    def after(self, signal: Alignment, step: StepTaken) -> Mapping[str, Any]:
        gradient = [parameter.grad for parameter in self.engine.parameters]
        pairs = [(a, b) for a, b in zip(gradient, self._dev_gradient, strict=True) if a is not None]
        product = torch.stack([(a * b).sum() for a, b in pairs]).sum()
        self._dev_gradient = ()
        alignment, norm = torch.stack([product, norm_of([a for a, _ in pairs])]).tolist()
        return {"alignment": alignment, "gradient": norm}

    def _gradient_on(self, name: str, split: Split) -> list[Tensor]:
        """Return the gradient of the mean loss on a split, without dropout."""
        # Every rank passes all examples: there are few, and the sum has the same bits on all.
        engine, parameters = self.engine, self.engine.parameters
        engine.model.eval()
        total, counted = [torch.zeros_like(parameter) for parameter in parameters], 0
        size = engine.config.evaluate.batch
        engine.spent.add(len(split), backward=True)
        for batch in dev_batches(name, split.items, size, engine.device):
            [part] = batch
            count = engine.tasks[name].kind.counted(part.columns, len(part.items))
            loss = engine.losses(batch)[name]
            gradient = torch.autograd.grad(loss * count, parameters, allow_unused=True)
            counted += count
            for summed, part_gradient in zip(total, gradient, strict=True):
                if part_gradient is not None:
                    summed.add_(part_gradient)
        return [summed / max(1, counted) for summed in total]


class UncertaintyMeter(Meter):
    @classmethod
    def check(cls, signal: Uncertainty, policy: str, prepared: Sequence[Prepared]) -> None:
        for entry in prepared if signal.score == "legacy" else ():
            if entry.task.kind.name == "regress":
                raise UserError(
                    f"policy {policy}: score: 'legacy' is not defined for a "
                    f"regression such as {entry.task.name}, expected another score"
                )

    def after(self, signal: Uncertainty, step: StepTaken) -> Mapping[str, Any]:
        seed = seed_for(self.engine.config.seed, "uncertainty", step.number)
        return {"uncertainty": {name: self._on(name, signal, seed) for name in self.names(None)}}

    def _on(self, name: str, signal: Uncertainty, seed: int) -> float:
        engine = self.engine
        split = self.probe(name, signal.examples)
        size = engine.config.evaluate.batch
        batches = dev_batches(name, split.items, size, engine.device, engine.ranks.cut)
        engine.spent.add(signal.passes * len(split))

        def samples() -> Iterator[NDArray[np.float64]]:
            for batch in batches:
                of_rank = predictive_samples(
                    engine.model, engine.distribution, [batch], signal.passes, seed
                )
                yield from engine.ranks.in_batch_order([of_rank if batch.counts else None])

        return measure_batches(samples(), signal.score, self._residual(name, split, signal))

    def _residual(self, name: str, split: Split, signal: Uncertainty) -> float:
        """Return a regression's mean squared error, which its entropy needs; 1 for other kinds."""
        if signal.score != "entropy" or self.engine.tasks[name].kind.name != "regress":
            return 1.0
        return 2 * self.engine.score(name, split).loss


# Meters measure in this order: the loss before anything is evaluated.
METERS: Mapping[type[Signal], type[Meter]] = {
    Alignment: AlignmentMeter,
    BatchScore: BatchScoreMeter,
    Gain: GainMeter,
    Loss: LossMeter,
    DevScore: DevScoreMeter,
    Uncertainty: UncertaintyMeter,
    DevLosses: DevLossesMeter,
}


class Meters:
    """Measures the signals that are due for a draw, and always the loss."""

    def __init__(self, engine: Engine) -> None:
        self._meters = {signal: meter(engine) for signal, meter in METERS.items()}
        self._due: dict[type[Signal], Signal] = {}

    @staticmethod
    def check(needs: Collection[Signal], policy: str, prepared: Sequence[Prepared]) -> None:
        for signal in needs:
            if type(signal) not in METERS:
                raise UserError(
                    f"policy {policy}: expected signals that the trainer measures, "
                    f"{', '.join(known.__name__ for known in METERS)}, found "
                    f"{type(signal).__name__}"
                )
            METERS[type(signal)].check(signal, policy, prepared)

    def before(self, due: Collection[Signal]) -> None:
        by_type = {type(signal): signal for signal in (Loss(), *due)}
        self._due = {signal: by_type[signal] for signal in METERS if signal in by_type}
        for type_, signal in self._due.items():
            self._meters[type_].before(signal)

    def after(self, step: StepTaken) -> dict[str, Any]:
        measured: dict[str, Any] = {}
        for type_, signal in self._due.items():
            measured |= self._meters[type_].after(signal, step)
        return measured


def norm_of(gradient: Sequence[Tensor]) -> Tensor:
    norms = torch.stack([torch.linalg.vector_norm(part) for part in gradient])
    norm: Tensor = torch.linalg.vector_norm(norms)
    return norm
