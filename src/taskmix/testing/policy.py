"""The conformance kit of policies."""

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.policies.base import Policy
from taskmix.policies.signals import Draw, Outcome
from taskmix.rng import stream
from taskmix.testing.common import (
    NOT_RESTORED,
    assert_refused,
    garbage,
    names,
    outcome_of,
    through_json,
)


class PolicyConformance(ABC):
    """The properties that every policy has, as pytest tests.

    A subclass makes the policy; the tests use it with 1 to 1000 tasks. They are deterministic and
    need no model, network or clock. Outcomes are told at once in some tests, and in others 5 or 20
    draws late, out of order, twice or never, as with a loader that prefetches batches.

    >>> import taskmix
    >>> class RandomConforms(PolicyConformance):
    ...     def make(self, tasks):
    ...         return taskmix.Random(tasks)
    >>> RandomConforms().test_zero_probability_is_never_drawn()
    """

    #: New policies in the chi-square test, each of which contributes one draw.
    copies = 1000
    #: The most draws before the one that counts in the chi-square test.
    longest = 40
    #: The delays of outcomes, in draws.
    delays = (0, 5, 20)

    @abstractmethod
    def make(self, tasks: Sequence[str]) -> Policy:
        """Return a new policy over these tasks."""

    def test_it_has_a_name_and_keeps_the_order_of_its_tasks(self) -> None:
        """Run files name a policy in snake case; arrays are in the order of the tasks."""
        policy = self.make(["b", "a", "c"])
        assert policy.tasks == ("b", "a", "c")
        assert policy.name.isidentifier()
        assert policy.name == policy.name.lower()

    def test_probabilities_are_a_distribution_at_every_step(self) -> None:
        policy, rng = self.make(names(5)), stream(1, "distribution")
        for _ in range(300):
            _assert_distribution(policy.probabilities(), 5)
            _step(policy, rng)

    def test_a_draw_carries_the_distribution_it_came_from(self) -> None:
        policy, rng = self.make(names(4)), stream(1, "carries")
        for _ in range(60):
            before = policy.probabilities().copy()
            draw = policy.ask(rng)
            assert draw.task == policy.tasks[draw.index]
            assert np.array_equal(draw.probabilities, before)
            assert draw.probability == before[draw.index] > 0
            policy.tell(outcome_of(policy, draw, rng))
            assert np.array_equal(draw.probabilities, before), "a draw's distribution was changed"

    def test_draws_match_their_probabilities(self) -> None:
        """A chi-square test over ten cells with a false-alarm rate of 10^-6.

        Each copy, with one of the delays, makes a number that is uniform on [0, 1) if and only if
        its last draw came from its distribution.
        """
        counts = np.zeros(10)
        for number in range(self.copies):
            rng = stream(number, "chi-square")
            loop = _Loop(self.make(names(5)), rng, self.delays[number % len(self.delays)])
            for _ in range(int(rng.integers(self.longest))):
                loop.step()
            counts[int(10 * _uniform(loop.policy.ask(rng), rng))] += 1
        expected = self.copies / 10
        statistic = float(((counts - expected) ** 2 / expected).sum())
        # The 1 - 10^-6 quantile of chi-square with 9 degrees of freedom.
        assert statistic < 46.1, f"draws do not match probabilities: cells {counts.tolist()}"

    def test_zero_probability_is_never_drawn(self) -> None:
        policy, rng = self.make(names(6)), stream(1, "zero")
        for _ in range(300):
            assert _step(policy, rng).probability > 0

    def test_the_same_generator_gives_the_same_draws(self) -> None:
        one, other = self.make(names(5)), self.make(names(5))
        assert _course(one, stream(3, "same"), 100) == _course(other, stream(3, "same"), 100)

    def test_asking_for_probabilities_changes_nothing(self) -> None:
        one, other = self.make(names(5)), self.make(names(5))
        rng, same = stream(4, "look"), stream(4, "look")
        for _ in range(60):
            for _ in range(3):
                one.probabilities(), one.diagnostics(), repr(one)
            assert _step(one, rng).index == _step(other, same).index

    def test_a_restored_copy_goes_on_as_the_policy_that_was_never_stopped(self) -> None:
        """From any point, with any draws open, also between a draw and its outcome."""
        for delay in self.delays:
            expected = _Loop(self.make(names(4)), stream(5, "restore"), delay).steps(57)
            loop = _Loop(self.make(names(4)), stream(5, "restore"), delay)
            for step in range(45):
                assert self._resumed(loop).steps(12) == expected[step : step + 12], NOT_RESTORED
                loop.ask()
                resumed = self._resumed(loop)
                resumed.tell()
                assert resumed.steps(11) == expected[step + 1 : step + 12], NOT_RESTORED
                loop.tell()

    def test_an_interrupted_course_is_the_uninterrupted_one(self) -> None:
        for delay in self.delays:
            expected = _Loop(self.make(names(4)), stream(7, "course"), delay).steps(60)
            loop, course = _Loop(self.make(names(4)), stream(7, "course"), delay), []
            for _ in range(60):
                course.append(_written(loop.ask()))
                loop = self._resumed(loop)
                loop.tell()
                loop = self._resumed(loop)
            assert course == expected, NOT_RESTORED

    def _resumed(self, loop: "_Loop") -> "_Loop":
        """Return the loop with its policy and its open draws restored from JSON."""
        saved = through_json(loop.policy.state_dict())
        policy = self._restored(loop.policy.tasks, saved)
        assert np.array_equal(policy.probabilities(), loop.policy.probabilities()), NOT_RESTORED
        assert np.array_equal(policy.drawn, loop.policy.drawn)
        assert through_json(loop.policy.state_dict()) == saved, "saving changed the state"
        resumed = _Loop(policy, copy.deepcopy(loop.rng), loop.delay)
        resumed.open = [_rewritten(draw) for draw in loop.open]
        return resumed

    def _restored(self, tasks: Sequence[str], state: dict[str, Any]) -> Policy:
        policy = self.make(tasks)
        try:
            policy.load_state_dict(state)
        except UserError as error:
            raise AssertionError(str(error)) from error
        return policy

    def test_draws_are_numbered_from_one(self) -> None:
        """Asked or replayed, and after a restart as before it."""
        policy, rng = self.make(names(4)), stream(14, "numbers")
        numbers = []
        for _ in range(10):
            draw = policy.ask(rng)
            replayed = policy.replay(draw.index)
            numbers += [draw.number, replayed.number]
            policy = self._restored(policy.tasks, through_json(policy.state_dict()))
        assert numbers == list(range(1, 21))

    def test_what_is_due_for_a_draw_stays_when_others_are_drawn(self) -> None:
        policy, rng = self.make(names(4)), stream(15, "due")
        draws, due = [], []
        for _ in range(40):
            draws.append(policy.ask(rng))
            due.append(policy.due(draws[-1]))
        assert [policy.due(_rewritten(draw)) for draw in draws] == due

    def test_what_is_learned_does_not_depend_on_when_it_is_told(self) -> None:
        """The same outcomes in the same order give the same distribution, at once or late."""
        at_once, rng, outcomes = self.make(names(4)), stream(16, "learned"), []
        for _ in range(60):
            draw = at_once.ask(rng)
            outcomes.append(outcome_of(at_once, draw, rng))
            at_once.tell(outcomes[-1])
        for delay in (*self.delays, 60):
            late = self.make(names(4))
            for number, outcome in enumerate(outcomes, 1):
                late.replay(outcome.draw.index)
                if number > delay:
                    late.tell(outcomes[number - delay - 1])
            for outcome in outcomes[60 - delay :]:
                late.tell(outcome)
            difference = np.abs(late.probabilities() - at_once.probabilities()).max()
            assert difference < 1e-9, f"other probabilities at a delay of {delay} draws"

    def test_outcomes_out_of_order_are_no_obstacle(self) -> None:
        """The distribution and the state stay valid, and the draws can be repeated."""
        for delay in self.delays[1:]:
            courses = []
            for _ in range(2):
                loop = _Loop(self.make(names(4)), stream(17, "order"), delay, in_order=False)
                courses.append(loop.steps(200))
                through_json(loop.policy.state_dict())
            assert courses[0] == courses[1]
            for _, _, probabilities in courses[0]:
                _assert_distribution(np.array(probabilities), 4)

    def test_outcomes_told_twice_are_no_obstacle(self) -> None:
        policy, rng = self.make(names(4)), stream(18, "twice")
        outcomes: list[Outcome] = []
        for _ in range(100):
            outcomes.append(outcome_of(policy, policy.ask(rng), rng))
            for outcome in (outcomes[-1], outcomes[-1], outcomes[rng.integers(len(outcomes))]):
                policy.tell(outcome)
                _assert_distribution(policy.probabilities(), 4)
        assert policy.draws == 100
        through_json(policy.state_dict())

    def test_draws_that_are_never_told_take_no_room(self) -> None:
        """The state stops growing when outcomes stop, after some or before any."""
        for interval in (0, 5):
            policy, rng, sizes = self.make(names(4)), stream(19, "never"), []
            for step in range(1, 4001):
                draw = policy.ask(rng)
                if interval and step % interval == 0 and step <= 2000:
                    policy.tell(outcome_of(policy, draw, rng))
                if step % 2000 == 0:
                    sizes.append(len(json.dumps(policy.state_dict())))
            assert sizes[1] < 1.1 * sizes[0] + 100, f"the state grew from {sizes[0]} to {sizes[1]}"
            _assert_distribution(policy.probabilities(), 4)

    def test_the_state_of_other_tasks_is_refused(self) -> None:
        state = through_json(self.make(["a", "b"]).state_dict())
        assert_refused("the state of other tasks", self.make(["a", "c"]).load_state_dict, state)

    def test_one_task_is_always_drawn(self) -> None:
        policy, rng = self.make(["only"]), stream(8, "one")
        assert {_step(policy, rng).task for _ in range(50)} == {"only"}
        assert policy.probabilities().tolist() == [1.0]

    def test_a_thousand_tasks(self) -> None:
        policy, rng = self.make(names(1000)), stream(9, "thousand")
        for _ in range(50):
            _step(policy, rng)
        _assert_distribution(policy.probabilities(), 1000)
        through_json(policy.state_dict())

    def test_garbage_is_not_believed(self) -> None:
        """The distribution stays valid and the state stays JSON without NaN."""
        for seed in range(5):
            policy, rng = self.make(names(4)), stream(seed, "garbage")
            for _ in range(100):
                draw = policy.ask(rng)
                make_outcome = garbage if rng.random() < 0.5 else outcome_of
                policy.tell(make_outcome(policy, draw, rng))
                _assert_distribution(policy.probabilities(), 4)
            through_json(policy.state_dict())
            json.dumps(policy.diagnostics(), allow_nan=False)

    def test_signals_that_were_not_measured_are_no_obstacle(self) -> None:
        policy, rng = self.make(names(4)), stream(10, "nothing")
        for _ in range(50):
            policy.tell(Outcome(policy.ask(rng)))
        _assert_distribution(policy.probabilities(), 4)

    def test_what_is_due_is_among_its_needs(self) -> None:
        """A trainer that can measure `needs` can measure all that is due."""
        policy, rng = self.make(names(4)), stream(11, "due")
        for _ in range(60):
            assert policy.due(_step(policy, rng)) <= policy.needs

    def test_it_counts_its_draws(self) -> None:
        policy, rng = self.make(names(4)), stream(12, "counts")
        drawn = [_step(policy, rng).index for _ in range(80)]
        assert policy.drawn.tolist() == np.bincount(drawn, minlength=4).tolist()
        assert policy.draws == 80

    def test_repr_is_a_table_of_the_tasks(self) -> None:
        policy, rng = self.make(["cola", "rte"]), stream(13, "table")
        _course(policy, rng, 10)
        title, head, *rows = repr(policy).splitlines()
        assert type(policy).__name__ in title
        assert head.split() == ["task", "share", "drawn", "share", "drawn"]
        assert [row.split()[0] for row in rows] == ["cola", "rte"]
        assert [int(row.split()[2]) for row in rows] == policy.drawn.tolist()


class _Loop:
    """Asks a policy, and tells it outcomes that are a number of draws late."""

    def __init__(
        self, policy: Policy, rng: np.random.Generator, delay: int = 0, in_order: bool = True
    ) -> None:
        self.policy = policy
        self.rng = rng
        self.delay = delay
        self.in_order = in_order
        self.open: list[Draw] = []

    def steps(self, count: int) -> list[tuple[int, int, list[float]]]:
        """Return so many draws, as `_written` returns them; an outcome is told after each."""
        return [_written(self.step()) for _ in range(count)]

    def step(self) -> Draw:
        draw = self.ask()
        self.tell()
        return draw

    def ask(self) -> Draw:
        self.open.append(self.policy.ask(self.rng))
        return self.open[-1]

    def tell(self) -> None:
        if len(self.open) > self.delay:
            draw = self.open.pop(0 if self.in_order else int(self.rng.integers(len(self.open))))
            self.policy.tell(outcome_of(self.policy, draw, self.rng))


def _step(policy: Policy, rng: np.random.Generator) -> Draw:
    return _Loop(policy, rng).step()


def _course(
    policy: Policy, rng: np.random.Generator, steps: int
) -> list[tuple[int, int, list[float]]]:
    return _Loop(policy, rng).steps(steps)


def _written(draw: Draw) -> tuple[int, int, list[float]]:
    return draw.number, draw.index, draw.probabilities.tolist()


def _rewritten(draw: Draw) -> Draw:
    """Return the draw as it is restored from JSON."""
    number, index, probabilities = json.loads(json.dumps(_written(draw)))
    return Draw(draw.task, index, np.array(probabilities), number)


def _uniform(draw: Draw, rng: np.random.Generator) -> float:
    below = float(draw.probabilities[: draw.index].sum())
    return min(below + float(rng.random()) * draw.probability, 1 - 1e-12)


def _assert_distribution(probabilities: NDArray[np.float64], tasks: int) -> None:
    valid = (
        probabilities.shape == (tasks,)
        and np.all(probabilities >= 0)
        and abs(float(probabilities.sum()) - 1) < 1e-9
    )
    assert valid, (
        f"expected probabilities() to return {tasks} numbers, none below 0, with a sum of 1, found "
        f"{probabilities}; tell has to ignore measurements that are missing, infinite or absurd"
    )
