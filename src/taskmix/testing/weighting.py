"""The conformance kit of weightings."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from taskmix.rng import stream
from taskmix.testing.common import NOT_RESTORED, assert_refused, names, through_json
from taskmix.weighting.base import (
    DevLoss,
    DevSlope,
    Floats,
    JointResult,
    Mix,
    Report,
    Separate,
    Separated,
    Slope,
    Together,
    Weighting,
    play,
)


class WeightingConformance(ABC):
    """The properties that every weighting has, as pytest tests.

    A subclass makes the weighting. A `PracticeWorker` answers its requests, so no test needs torch
    or data.

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
        """The worker checks each request."""
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
            expected, requests = _counted(untouched, copy.deepcopy(worker))
            for count in range(requests + 1):
                _break_off(weighting, copy.deepcopy(worker), count)
                after = through_json(weighting.state_dict())
                assert after == state, f"the state had changed at request {count} of {requests}"
            assert _round(weighting, worker) == expected

    def test_the_state_of_other_tasks_is_refused(self) -> None:
        state = through_json(self.make(["a", "b"], "a").state_dict())
        for other in (self.make(["a", "c"], "a"), self.make(["a", "b"], "b")):
            assert_refused("the state of other tasks", other.load_state_dict, state)

    def test_another_target_is_refused(self) -> None:
        assert_refused("a target that is none of the tasks", self.make, ["a", "b"], "c")


class PracticeWorker:
    """A worker for tests, whose model is a point in five dimensions.

    The loss of a task is half the squared distance to its optimum. The first task is the target;
    its dev score falls with its loss. The worker raises `AssertionError` for a request that is not
    well formed or comes out of order.

    Args:
        tasks: the number of tasks.

    >>> from taskmix.weighting import Single
    >>> worker = PracticeWorker(tasks=2)
    >>> report = play(Single(["a", "b"], "a"), worker)
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

    def separate(self, request: Separate) -> Separated:
        _assert_fraction(request.fraction)
        scales = self._checked(request.scales, "scales")
        assert (scales >= 0).all(), f"scales: expected none below 0, found {request.scales}"
        self.deltas = 0.3 * request.fraction * scales[:, None] * (self.points - self.base)
        ends = self.base + self.deltas
        return Separated(
            norms=np.linalg.norm(self.deltas, axis=1),
            losses=self.losses(self.base),
            scores=np.array([self._score(end) for end in ends]) if request.scored else None,
            dev=40,
        )

    def together(self, request: Together) -> JointResult:
        _assert_fraction(request.fraction)
        weights = self._checked(request.weights, "weights")
        assert (weights >= 0).all(), f"weights: expected none below 0, found {request.weights}"
        assert weights.sum() > 0, "weights: expected one above 0, found none"
        pull = weights @ (self.points - self.base)
        self.candidate = self.base + 0.3 * request.fraction * pull
        losses = np.where(weights > 0, self.losses(self.base), 0.0)
        dev_loss = float(self.losses(self.candidate)[0])
        return JointResult(losses, self._score(self.candidate), dev_loss)

    def slope(self, request: DevSlope) -> Slope:
        """Return the dev loss and its gradient at a mixture, with a small error for a batch."""
        assert request.batch is None or request.batch > 0, f"batch: found {request.batch}"
        assert request.turn >= 0, f"turn: found {request.turn}"
        assert self.deltas is not None, "DevSlope: expected a Separate before it"
        model = self._mixed(request.coefficients)
        error = 0.0 if request.batch is None else 0.01 * math.sin(request.turn)
        gradient = self.deltas @ (model - self.points[0] + error)
        return Slope(float(self.losses(model)[0]) + error, gradient)

    def loss(self, request: DevLoss) -> float:
        return float(self.losses(self._mixed(request.coefficients))[0])

    def mix(self, request: Mix) -> None:
        self.base = self._mixed(request.coefficients)

    def keep(self) -> None:
        assert self.candidate is not None, "Keep: expected a Together before it"
        self.kept = self.candidate

    def _mixed(self, coefficients: Sequence[float]) -> Floats:
        assert self.deltas is not None, "a mixture: expected a Separate before it"
        return self.base + self._checked(coefficients, "coefficients") @ self.deltas

    def _checked(self, values: Sequence[float], what: str) -> Floats:
        assert isinstance(values, tuple), f"{what}: expected a tuple, found {values!r}"
        assert all(type(value) is float for value in values), f"{what}: found {values!r}"
        assert len(values) == len(self.points), f"{what}: expected one a task, found {values!r}"
        assert all(map(math.isfinite, values)), f"{what}: expected finite, found {values!r}"
        return np.array(values)

    def _score(self, model: Floats) -> float:
        return float(np.exp(-self.losses(model)[0]))


def _round(weighting: Weighting, worker: PracticeWorker) -> Report:
    report = play(weighting, worker)
    worker.end_round()
    return report


def _course(weighting: Weighting, worker: PracticeWorker) -> list[Report]:
    return [_round(weighting, worker) for _ in range(8)]


def _counted(weighting: Weighting, worker: PracticeWorker) -> tuple[Report, int]:
    """Play a round; return its report and how many requests it took."""
    conversation, answer, requests = weighting.round(), None, 0
    while True:
        try:
            request = conversation.send(answer)
        except StopIteration as end:
            return end.value, requests
        answer, requests = request.by(worker), requests + 1


def _break_off(weighting: Weighting, worker: PracticeWorker, requests: int) -> None:
    """Play a round up to its request of this number, and leave that unanswered."""
    conversation, answer = weighting.round(), None
    for _ in range(requests):
        answer = conversation.send(answer).by(worker)
    conversation.close()


def _assert_weights(weights: Floats) -> None:
    assert weights.ndim == 1
    assert np.isfinite(weights).all()
    assert (weights >= 0).all()
    assert weights.sum() > 0


def _assert_fraction(fraction: float) -> None:
    assert 0 < fraction <= 1, f"fraction: expected a number above 0, at most 1, found {fraction}"
