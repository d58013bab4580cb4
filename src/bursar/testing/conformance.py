"""What every policy must do, whatever it decides by."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bursar.errors import UserError
from bursar.policies.base import Draw, Outcome, Policy
from bursar.rng import stream
from bursar.testing.outcomes import garbage, outcome_of


class PolicyConformance(ABC):
    """The properties that every policy has, as pytest tests.

    The author of a policy subclasses this in a test module, says how to make one, and runs pytest:

        from bursar.testing import PolicyConformance

        class TestMyPolicy(PolicyConformance):
            def make(self, tasks):
                return MyPolicy(tasks, greed=0.3)

    Every test then makes its own policies, for one task, a few, or a thousand. Nothing here needs
    the clock, the network or a model; every random stream is fixed, so a pass is a pass for ever.

    >>> import bursar
    >>> class RandomConforms(PolicyConformance):
    ...     def make(self, tasks):
    ...         return bursar.Random(tasks)
    >>> RandomConforms().test_zero_probability_is_never_drawn()
    """

    #: Fresh policies in the chi-square test, each of which contributes one draw.
    copies = 1000
    #: At most so many draws before the one that the chi-square test looks at.
    longest = 40

    @abstractmethod
    def make(self, tasks: Sequence[str]) -> Policy:
        """A fresh policy over these tasks."""

    def test_it_has_a_name_and_keeps_the_order_of_its_tasks(self) -> None:
        """Run files name a policy in snake case; arrays are in the order of the tasks."""
        policy = self.make(["b", "a", "c"])
        assert policy.tasks == ("b", "a", "c")
        assert policy.name.isidentifier()
        assert policy.name == policy.name.lower()

    def test_probabilities_are_a_distribution_at_every_step(self) -> None:
        """They are finite, not negative, and sum to one."""
        policy, rng = self.make(_names(5)), stream(1, "distribution")
        for _ in range(300):
            _assert_distribution(policy.probabilities(), 5)
            _step(policy, rng)

    def test_a_draw_carries_the_distribution_it_came_from(self) -> None:
        """What `probabilities` says before is what the draw is logged with."""
        policy, rng = self.make(_names(4)), stream(1, "carries")
        for _ in range(60):
            told = policy.probabilities().copy()
            draw = policy.ask(rng)
            assert draw.task == policy.tasks[draw.index]
            assert np.array_equal(draw.probabilities, told)
            assert draw.probability == told[draw.index] > 0
            policy.tell(outcome_of(policy, draw, rng))
            assert np.array_equal(draw.probabilities, told), "a draw's distribution was written to"

    def test_draws_match_their_probabilities(self) -> None:
        """Chi-square over ten cells; a policy that conforms fails for one choice of seed in 10^6.

        A draw is turned into a number that is uniform on [0, 1) if and only if the draw came from
        its distribution, however that changed before. Every copy gives one such number.
        """
        counts = np.zeros(10)
        for copy in range(self.copies):
            rng = stream(copy, "chi-square")
            policy = self.make(_names(5))
            for _ in range(int(rng.integers(self.longest))):
                _step(policy, rng)
            counts[int(10 * _uniform(policy.ask(rng), rng))] += 1
        expected = self.copies / 10
        statistic = float(((counts - expected) ** 2 / expected).sum())
        # The 1 - 10^-6 quantile of chi-square with 9 degrees of freedom.
        assert statistic < 46.1, f"draws do not match probabilities: cells {counts.tolist()}"

    def test_zero_probability_is_never_drawn(self) -> None:
        """Even where rounding would let it slip through."""
        policy, rng = self.make(_names(6)), stream(1, "zero")
        for _ in range(300):
            assert _step(policy, rng).probability > 0

    def test_the_same_generator_gives_the_same_draws(self) -> None:
        """Nothing is drawn from elsewhere."""
        one, other = self.make(_names(5)), self.make(_names(5))
        assert _course(one, stream(3, "same"), 100) == _course(other, stream(3, "same"), 100)

    def test_asking_for_probabilities_changes_nothing(self) -> None:
        """To look is not to draw."""
        one, other = self.make(_names(5)), self.make(_names(5))
        rng, same = stream(4, "look"), stream(4, "look")
        for _ in range(60):
            for _ in range(3):
                one.probabilities(), one.diagnostics(), repr(one)
            assert _step(one, rng).index == _step(other, same).index

    def test_a_restored_copy_goes_on_identically_from_any_point(self) -> None:
        """State passes through JSON, also between a draw and its outcome."""
        policy, rng = self.make(_names(4)), stream(5, "restore")
        for step in range(45):
            self._assert_restorable(policy)
            draw = policy.ask(rng)
            if step % 5 == 0:
                self._assert_restorable(policy, outcome_of(policy, draw, rng))
            policy.tell(outcome_of(policy, draw, rng))

    def _assert_restorable(self, policy: Policy, pending: Outcome | None = None) -> None:
        saved = _through_json(policy.state_dict())
        one, other = (self._restored(policy.tasks, saved) for _ in range(2))
        if pending is not None:
            one.tell(pending)
            other.tell(pending)
        assert _course(one, stream(6, "goes on"), 12) == _course(other, stream(6, "goes on"), 12)
        assert _through_json(policy.state_dict()) == saved, "saving or restoring changed the state"
        resumed = self._restored(policy.tasks, saved)
        assert np.array_equal(resumed.probabilities(), policy.probabilities())
        assert np.array_equal(resumed.drawn, policy.drawn)

    def test_an_interrupted_course_is_the_uninterrupted_one(self) -> None:
        """Restoring a copy after every single step leaves the whole course as it was."""
        expected = _course(self.make(_names(4)), stream(7, "course"), 60)
        policy, rng, course = self.make(_names(4)), stream(7, "course"), []
        for _ in range(60):
            course += _course(policy, rng, 1)
            policy = self._restored(policy.tasks, _through_json(policy.state_dict()))
        assert course == expected

    def _restored(self, tasks: Sequence[str], state: dict[str, Any]) -> Policy:
        policy = self.make(tasks)
        try:
            policy.load_state_dict(state)
        except UserError as error:
            raise AssertionError(str(error)) from error
        return policy

    def test_the_state_of_other_tasks_is_refused(self) -> None:
        """One sentence, not a policy that mixes tasks up."""
        state = _through_json(self.make(["a", "b"]).state_dict())
        try:
            self.make(["a", "c"]).load_state_dict(state)
        except ValueError:
            return
        raise AssertionError("expected a ValueError for the state of other tasks")

    def test_one_task_is_always_drawn(self) -> None:
        """The smallest case there is."""
        policy, rng = self.make(["only"]), stream(8, "one")
        assert {_step(policy, rng).task for _ in range(50)} == {"only"}
        assert policy.probabilities().tolist() == [1.0]

    def test_a_thousand_tasks(self) -> None:
        """The distribution stays one, and the state still passes through JSON."""
        policy, rng = self.make(_names(1000)), stream(9, "thousand")
        for _ in range(50):
            _step(policy, rng)
        _assert_distribution(policy.probabilities(), 1000)
        _through_json(policy.state_dict())

    def test_garbage_is_not_believed(self) -> None:
        """Whatever is told, the distribution stays one and the state stays JSON without NaN."""
        for seed in range(5):
            policy, rng = self.make(_names(4)), stream(seed, "garbage")
            for _ in range(100):
                draw = policy.ask(rng)
                told = garbage if rng.random() < 0.5 else outcome_of
                policy.tell(told(policy, draw, rng))
                _assert_distribution(policy.probabilities(), 4)
            _through_json(policy.state_dict())
            json.dumps(policy.diagnostics(), allow_nan=False)

    def test_signals_that_were_not_measured_are_no_obstacle(self) -> None:
        """A policy told nothing but the draw goes on drawing."""
        policy, rng = self.make(_names(4)), stream(10, "nothing")
        for _ in range(50):
            policy.tell(Outcome(policy.ask(rng)))
        _assert_distribution(policy.probabilities(), 4)

    def test_what_is_due_is_among_its_needs(self) -> None:
        """A trainer that provides for `needs` can measure whatever falls due."""
        policy, rng = self.make(_names(4)), stream(11, "due")
        for _ in range(60):
            assert policy.due(_step(policy, rng)) <= policy.needs

    def test_it_counts_its_draws(self) -> None:
        """The table of `repr` relies on it."""
        policy, rng = self.make(_names(4)), stream(12, "counts")
        drawn = [_step(policy, rng).index for _ in range(80)]
        assert policy.drawn.tolist() == np.bincount(drawn, minlength=4).tolist()
        assert policy.draws == 80

    def test_repr_is_a_table_of_the_tasks(self) -> None:
        """Task, share asked, times drawn, share drawn."""
        policy, rng = self.make(["cola", "rte"]), stream(13, "table")
        _course(policy, rng, 10)
        title, head, *rows = repr(policy).splitlines()
        assert type(policy).__name__ in title
        assert head.split() == ["task", "share", "drawn", "share", "drawn"]
        assert [row.split()[0] for row in rows] == ["cola", "rte"]
        assert [int(row.split()[2]) for row in rows] == policy.drawn.tolist()


def _names(count: int) -> list[str]:
    return [f"task{i}" for i in range(count)]


def _step(policy: Policy, rng: np.random.Generator) -> Draw:
    draw = policy.ask(rng)
    policy.tell(outcome_of(policy, draw, rng))
    return draw


def _course(policy: Policy, rng: np.random.Generator, steps: int) -> list[tuple[int, list[float]]]:
    draws = [_step(policy, rng) for _ in range(steps)]
    return [(draw.index, draw.probabilities.tolist()) for draw in draws]


def _uniform(draw: Draw, rng: np.random.Generator) -> float:
    below = float(draw.probabilities[: draw.index].sum())
    return min(below + float(rng.random()) * draw.probability, 1 - 1e-12)


def _through_json(state: dict[str, Any]) -> dict[str, Any]:
    restored: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return restored


def _assert_distribution(probabilities: NDArray[np.float64], tasks: int) -> None:
    assert probabilities.shape == (tasks,)
    assert np.all(np.isfinite(probabilities))
    assert np.all(probabilities >= 0)
    assert abs(float(probabilities.sum()) - 1) < 1e-9
