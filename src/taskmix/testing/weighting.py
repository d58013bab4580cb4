"""The conformance kit of weightings."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import numpy as np

from taskmix.rng import stream
from taskmix.testing.common import NOT_RESTORED, assert_refused, names, through_json
from taskmix.weighting.base import (
    Floats,
    JointResult,
    Report,
    Separated,
    Slope,
    Weighting,
    checked_numbers,
)


class WeightingConformance(ABC):
    """The properties that every weighting has, as pytest tests.

    A subclass makes the weighting. A `PracticeWorker` trains for it, so the tests
    need no torch and no data.

    >>> from taskmix.weighting import Joint
    >>> class JointConforms(WeightingConformance):
    ...     def make(self, tasks, target):
    ...         return Joint(tasks, target)
    >>> JointConforms().test_requests_are_well_formed_and_rounds_move_the_model()
    """

    @abstractmethod
    def make(self, tasks: Sequence[str], target: str) -> Weighting:
        """Return a new weighting over these tasks."""

    def test_it_has_a_name_and_keeps_the_order_of_its_tasks(self) -> None:
        """Run files name a weighting in snake case; arrays are in the order of the tasks."""
        weighting = self.make(["b", "a", "c"], "a")
        assert (weighting.tasks, weighting.target) == (("b", "a", "c"), "a")
        assert weighting.name.isidentifier()
        assert weighting.name == weighting.name.lower()

    def test_requests_are_well_formed_and_rounds_move_the_model(self) -> None:
        """The worker checks the arguments of every call."""
        for tasks in (1, 2, 5):
            weighting, worker = self.make(names(tasks), "task0"), PracticeWorker(tasks)
            for _ in range(6):
                before = worker.base.copy()
                _round(weighting, worker)
                assert not np.array_equal(worker.base, before), "the round changed nothing"

    def test_weights_are_numbers_from_zero_on(self) -> None:
        """In every round there is one for each task, and not all are 0."""
        weighting, worker = self.make(names(4), "task0"), PracticeWorker(4)
        for _ in range(10):
            _assert_weights(weighting.weights())
            weighting.weights()[:] = -1.0
            _assert_weights(weighting.weights())
            _round(weighting, worker)

    def test_a_report_names_every_task(self) -> None:
        """It has the weights after the round, and finite losses."""
        weighting, worker = self.make(names(4), "task0"), PracticeWorker(4)
        for _ in range(6):
            report = _round(weighting, worker)
            assert list(report.weights) == list(report.losses) == list(weighting.tasks)
            assert list(report.weights.values()) == weighting.weights().tolist()
            for by_task in (report.losses, report.norms, report.alphas):
                assert set(by_task) in (set(), set(weighting.tasks))
                assert all(map(math.isfinite, by_task.values()))
            assert math.isfinite(report.dev_loss)
            through_json(asdict(report))

    def test_the_same_answers_give_the_same_rounds(self) -> None:
        one, other = (_course(self.make(names(3), "task0"), PracticeWorker(3)) for _ in range(2))
        assert one == other

    def test_looking_at_it_changes_nothing(self) -> None:
        weighting, worker = self.make(names(3), "task0"), PracticeWorker(3)
        course = []
        for _ in range(8):
            weighting.weights(), weighting.state_dict(), repr(weighting)
            course.append(_round(weighting, worker))
        assert course == _course(self.make(names(3), "task0"), PracticeWorker(3))

    def test_a_restored_copy_goes_on_as_the_weighting_that_was_never_stopped(self) -> None:
        """The state passes through JSON after every round."""
        expected = _course(self.make(names(3), "task0"), PracticeWorker(3))
        weighting, worker, course = self.make(names(3), "task0"), PracticeWorker(3), []
        for _ in range(8):
            course.append(_round(weighting, worker))
            saved = through_json(weighting.state_dict())
            restored = self.make(weighting.tasks, weighting.target)
            restored.load_state_dict(saved)
            assert through_json(weighting.state_dict()) == saved, "saving changed the state"
            assert np.array_equal(restored.weights(), weighting.weights()), NOT_RESTORED
            weighting = restored
        assert course == expected, NOT_RESTORED

    def test_a_round_that_was_broken_off_can_be_played_again(self) -> None:
        """Until its end, the state is that of the round's beginning."""
        weighting, worker = self.make(names(3), "task0"), PracticeWorker(3)
        for _ in range(3):
            state = through_json(weighting.state_dict())
            untouched = self.make(weighting.tasks, weighting.target)
            untouched.load_state_dict(state)
            for calls in range(_count_calls(untouched, worker)):
                with suppress(_StoppedError):
                    weighting.round(_Counted(copy.deepcopy(worker), calls))
                after = through_json(weighting.state_dict())
                assert after == state, f"the state had changed at call {calls} of the worker"
            assert _round(weighting, copy.deepcopy(worker)) == _round(untouched, worker)

    def test_the_state_of_other_tasks_is_refused(self) -> None:
        state = through_json(self.make(["a", "b"], "a").state_dict())
        for other in (self.make(["a", "c"], "a"), self.make(["a", "b"], "b")):
            assert_refused("the state of other tasks", other.load_state_dict, state)

    def test_another_target_is_refused(self) -> None:
        assert_refused("a target that is none of the tasks", self.make, ["a", "b"], "c")


class PracticeWorker:
    """A worker for tests, whose model is a point in five dimensions.

    The loss of a task is half the squared distance to its optimum. The first task is the target;
    its dev score falls with its loss. The worker raises `AssertionError` or `UserError` for a call
    with invalid arguments or out of order.

    Args:
        tasks: the number of tasks.

    >>> from taskmix.weighting import Single
    >>> worker = PracticeWorker(tasks=2)
    >>> report = Single(["a", "b"], "a").round(worker)
    >>> worker.end_round()
    >>> bool(report.dev_loss < worker.losses(np.zeros(5))[0])
    True
    """

    def __init__(self, tasks: int) -> None:
        self.points = stream(1, "practice").normal(size=(tasks, 5))
        self.base: Floats = np.zeros(5)
        self.deltas: Floats | None = None
        self.candidate: Floats | None = None
        self.kept: Floats | None = None

    def losses(self, model: Floats) -> Floats:
        """Return the loss of each task, shape `(tasks,)`."""
        halves: Floats = 0.5 * ((model - self.points) ** 2).sum(axis=1)
        return halves

    def end_round(self) -> None:
        """Continue from the kept model if there is one, and reset the rest."""
        if self.kept is not None:
            self.base = self.kept
        self.deltas = self.candidate = self.kept = None

    def separate(
        self,
        scales: Sequence[float],
        fraction: float = 1.0,
        *,
        fresh: bool = True,
        scored: bool = False,
    ) -> Separated:
        _assert_fraction(fraction)
        factors = self._checked(scales, "scales")
        assert (factors >= 0).all(), f"scales: expected none below 0, found {scales}"
        self.deltas = 0.3 * fraction * factors[:, None] * (self.points - self.base)
        ends = self.base + self.deltas
        return Separated(
            norms=np.linalg.norm(self.deltas, axis=1),
            losses=self.losses(self.base),
            scores=np.array([self._score(end) for end in ends]) if scored else None,
            dev=40,
        )

    def together(
        self, weights: Sequence[float], fraction: float = 1.0, *, fresh: bool = False
    ) -> JointResult:
        _assert_fraction(fraction)
        factors = self._checked(weights, "weights")
        _assert_weights(factors)
        pull = factors @ (self.points - self.base)
        self.candidate = self.base + 0.3 * fraction * pull
        losses = np.where(factors > 0, self.losses(self.base), 0.0)
        dev_loss = float(self.losses(self.candidate)[0])
        return JointResult(losses, self._score(self.candidate), dev_loss)

    def slope(
        self, coefficients: Sequence[float], batch: int | None = None, turn: int = 0
    ) -> Slope:
        """Return the dev loss and its gradient at a mixture, with a small error for a batch."""
        assert batch is None or batch > 0, f"batch: found {batch}"
        assert turn >= 0, f"turn: found {turn}"
        assert self.deltas is not None, "slope: expected a call of separate before it"
        model = self._mixed(coefficients)
        error = 0.0 if batch is None else 0.01 * math.sin(turn)
        gradient = self.deltas @ (model - self.points[0] + error)
        return Slope(float(self.losses(model)[0]) + error, gradient)

    def loss(self, coefficients: Sequence[float]) -> float:
        return float(self.losses(self._mixed(coefficients))[0])

    def mix(self, coefficients: Sequence[float]) -> None:
        self.base = self._mixed(coefficients)

    def keep(self) -> None:
        assert self.candidate is not None, "keep: expected a call of together before it"
        self.kept = self.candidate

    def _mixed(self, coefficients: Sequence[float]) -> Floats:
        assert self.deltas is not None, "a mixture: expected a call of separate before it"
        return self.base + self._checked(coefficients, "coefficients") @ self.deltas

    def _checked(self, numbers: Sequence[float], what: str) -> Floats:
        return checked_numbers(numbers, len(self.points), what)

    def _score(self, model: Floats) -> float:
        return float(np.exp(-self.losses(model)[0]))


def _round(weighting: Weighting, worker: PracticeWorker) -> Report:
    report = weighting.round(worker)
    worker.end_round()
    return report


def _course(weighting: Weighting, worker: PracticeWorker) -> list[Report]:
    return [_round(weighting, worker) for _ in range(8)]


class _StoppedError(Exception):
    pass


class _Counted:
    """Passes on so many calls of a worker's methods, and raises at the next one."""

    def __init__(self, worker: PracticeWorker, most: float = math.inf) -> None:
        self._worker = worker
        self._most = most
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        if self.calls == self._most:
            raise _StoppedError
        self.calls += 1
        return getattr(self._worker, name)


def _count_calls(weighting: Weighting, worker: PracticeWorker) -> int:
    counted = _Counted(copy.deepcopy(worker))
    copy.deepcopy(weighting).round(counted)
    return counted.calls


def _assert_weights(weights: Floats) -> None:
    assert weights.ndim == 1
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() > 0


def _assert_fraction(fraction: float) -> None:
    assert 0 < fraction <= 1, f"fraction: expected a number above 0, at most 1, found {fraction}"
