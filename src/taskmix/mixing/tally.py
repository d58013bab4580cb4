"""From the losses of micro-batches, on one rank or several, to the outcome of a draw."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from taskmix.errors import UserError, unknown
from taskmix.mixing.decisions import Decisions, check_measured
from taskmix.policies import DevScore, Gain, Loss, Signal

Scorer = Callable[[int | None], float]
"""From the number of dev examples, the same ones every time, or None for all, to their score.

A score is from 0 to 1, and higher is better.
"""


@dataclass(frozen=True)
class Settled:
    """The outcome of a draw over all of its batches."""

    task: str
    loss: float  # the mean
    examples: int


@dataclass(frozen=True, eq=False)
class _Measured:
    number: int
    loss: Tensor
    weight: Tensor
    examples: int
    again: Callable[[], Tensor] | None


class Tally:
    """Collects the losses of an optimiser step's batches and settles their draws after the step.

    A draw may have several micro-batches, on several ranks. Its outcome is the mean over all of
    them, so it is the same on every rank, and all ranks make the same draws. Losses stay on their
    device until `settle`.

    A policy whose signals are not measured here is refused.

    Args:
        decisions: the mixer or the streams of this rank.
        scorers: by task, a function that scores the current model, for policies that learn from
            scores. Every rank calls it; the score is the mean over the ranks.
    """

    def __init__(self, decisions: Decisions, scorers: Mapping[str, Scorer] | None = None) -> None:
        self._decisions = decisions
        self._scorers = dict(scorers or {})
        self._measured: list[_Measured] = []
        policy = decisions.policy
        for task in self._scorers:
            if task not in policy.tasks:
                raise unknown("task", task, policy.tasks, "scorers")
        check_measured(policy, (signal for signal in policy.needs if not self._measures(signal)))

    def _measures(self, signal: Signal) -> bool:
        if isinstance(signal, DevScore):
            return signal.task in self._scorers
        return isinstance(signal, Gain | Loss)

    def add(
        self,
        number: int,
        loss: Tensor | float,
        examples: int,
        *,
        weight: Tensor | float | None = None,
        again: Callable[[], Tensor] | None = None,
    ) -> None:
        """Add the loss of one batch.

        Args:
            number: the number of its draw.
            loss: the mean loss of the batch.
            examples: the number of examples in the batch.
            weight: the weight of the loss in the mean; the number of examples if None.
            again: computes the loss once more after the step, for policies that learn from gains.
        """
        if again is None and self.wants_gain(number):
            raise UserError(
                f"draw {int(number)}: expected Tally.add(..., again=...), as policy "
                f"{self._decisions.policy.name} learns from gains, found no again"
            )
        weights = _double(examples if weight is None else weight)
        self._measured.append(_Measured(int(number), _double(loss), weights, examples, again))

    def wants_gain(self, number: int) -> bool:
        """Return whether the policy learns from the gain of an open draw."""
        return Gain() in self._decisions.due(number)

    def settle(self) -> list[Settled]:
        """Settle the draws of all batches that were added, in order."""
        rows = [self._row(measured) for measured in self._measured]
        self._measured = []
        totals: dict[int, list[float]] = {}
        for number, *values in _of_all_ranks(rows):
            total = totals.setdefault(int(number), [0.0] * len(values))
            totals[int(number)] = [a + b for a, b in zip(total, values, strict=True)]
        return [self._settle(number, *totals[number]) for number in sorted(totals)]

    def _row(self, measured: _Measured) -> Tensor:
        """Return number, loss and gain times weight, weight and examples; NaN is no gain."""
        loss, weight = measured.loss, measured.weight.to(measured.loss.device)
        gain = torch.full_like(loss, math.nan)
        if measured.again is not None and self.wants_gain(measured.number):
            with torch.no_grad():
                gain = loss - _double(measured.again()).to(loss.device)
        number, examples = map(loss.new_tensor, (measured.number, measured.examples))
        return torch.stack([number, loss * weight, gain * weight, weight, examples])

    def _settle(
        self, number: int, loss: float, gain: float, weight: float, examples: float
    ) -> Settled:
        task = self._decisions.opened(number).task
        mean, mean_gain = (loss / weight, gain / weight) if weight else (math.nan, None)
        scores = self._scores(number)
        self._decisions.settle(number, loss=mean, gain=mean_gain, examples=int(examples), **scores)
        return Settled(task, mean, int(examples))

    def _scores(self, number: int) -> dict[str, Any]:
        for signal in self._decisions.due(number):
            if isinstance(signal, DevScore):
                return {"score": self._evaluate(signal.task, signal.examples)}
        return {}

    def _evaluate(self, task: str, examples: int | None) -> float:
        with torch.no_grad():
            of_rank = torch.tensor([self._scorers[task](examples)], dtype=torch.float64)
        scores = [score for [score] in _of_all_ranks([of_rank])]
        return sum(scores) / len(scores)


def _double(value: Tensor | float) -> Tensor:
    tensor = torch.as_tensor(value).detach()
    # Apple's GPUs have no double precision.
    return (tensor.cpu() if tensor.device.type == "mps" else tensor).double()


def _of_all_ranks(rows: list[Tensor]) -> list[list[float]]:
    if not rows:
        return []
    table = torch.stack(rows)
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        parts = [torch.empty_like(table) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, table)
        table = torch.cat(parts)
    values: list[list[float]] = table.tolist()
    return values


class RandomState:
    """The state of torch's generators, to repeat a forward pass with the same dropout masks.

    >>> state = RandomState()
    >>> first = torch.rand(2)
    >>> with state.again():
    ...     second = torch.rand(2)
    >>> bool((first == second).all())
    True
    """

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw random numbers from this state, and restore the current one afterwards."""
        devices = [] if self._cuda is None else [torch.cuda.current_device()]
        with torch.random.fork_rng(devices=devices):
            torch.set_rng_state(self._cpu)
            if self._cuda is not None:
                torch.cuda.set_rng_state(self._cuda)
            yield
