"""The conformance kit of selectors."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.selection.base import Selection, Selector
from taskmix.testing.common import NOT_RESTORED, assert_refused, names, through_json

Scores = dict[str, NDArray[np.float64]]


class SelectorConformance(ABC):
    """The properties that every selector has, as pytest tests; a subclass makes the selector.

    >>> from taskmix.selection import MTUncertainty
    >>> class MTUncertaintyConforms(SelectorConformance):
    ...     def make(self, tasks, batch):
    ...         return MTUncertainty(tasks, batch)
    >>> MTUncertaintyConforms().test_choices_are_places_among_the_candidates()
    """

    @abstractmethod
    def make(self, tasks: Sequence[str], batch: int) -> Selector:
        """Return a new selector over these tasks, for training steps of `batch` examples."""

    def test_it_has_a_name_and_keeps_the_order_of_its_tasks(self) -> None:
        """Run files name a selector in snake case; arrays are in the order of the tasks."""
        selector = self.make(["b", "a", "c"], 4)
        assert selector.tasks == ("b", "a", "c")
        assert selector.batch == 4
        assert selector.name.isidentifier()
        assert selector.name == selector.name.lower()

    def test_it_asks_for_enough_candidates(self) -> None:
        """A number for each task, in sum at least the examples of one training step."""
        for tasks, batch in ((1, 1), (1, 8), (3, 8), (20, 4)):
            selector = self.make(names(tasks), batch)
            for _ in range(5):
                counts = selector.candidates()
                assert list(counts) == list(selector.tasks)
                assert all(isinstance(count, int) and count >= 0 for count in counts.values())
                assert sum(counts.values()) >= batch
                selector.choose(_scores(selector, stream(1, "enough")))

    def test_choices_are_places_among_the_candidates(self) -> None:
        """Each candidate is chosen at most once, and no step has more than the batch."""
        selector, rng = self.make(names(3), 8), stream(2, "places")
        for extra in (0, 0, 3, 5, 0, 7):
            scores = _scores(selector, rng, extra)
            steps = selector.choose(scores)
            assert steps
            for step in steps:
                assert set(step.chosen) == set(selector.tasks)
                assert 1 <= sum(step.counts.values()) <= selector.batch
            for task, of_task in scores.items():
                places = np.concatenate([step.chosen[task] for step in steps])
                assert len(set(places.tolist())) == len(places), f"{task}: one was chosen twice"
                assert np.isin(places, np.arange(len(of_task))).all(), f"{task}: no such candidate"

    def test_steps_say_how_many_candidates_were_scored_for_them(self) -> None:
        """In sum all candidates; 0 for a step that uses those of an earlier one."""
        selector, rng = self.make(names(3), 8), stream(3, "scored")
        for _ in range(6):
            scores = _scores(selector, rng)
            steps = selector.choose(scores)
            for task, of_task in scores.items():
                assert sum(step.candidates[task] for step in steps) == len(of_task)

    def test_the_same_scores_give_the_same_choices(self) -> None:
        one, other = self.make(names(3), 8), self.make(names(3), 8)
        assert _course(one, 8) == _course(other, 8)

    def test_asking_for_candidates_changes_nothing(self) -> None:
        one, other = self.make(names(3), 8), self.make(names(3), 8)
        rng, same = stream(4, "look"), stream(4, "look")
        for _ in range(6):
            for _ in range(3):
                one.candidates(), one.diagnostics(), repr(one)
            assert _written(one.choose(_scores(one, rng))) == _written(
                other.choose(_scores(other, same))
            )

    def test_a_restored_copy_goes_on_as_the_selector_that_was_never_stopped(self) -> None:
        """The state passes through JSON after every choice, and between candidates and choice."""
        expected = _course(self.make(names(3), 8), 10)
        selector, rng, course = self.make(names(3), 8), stream(5, "course"), []
        for _ in range(10):
            scores = _scores(selector, rng)
            selector = self._restored(selector)
            course.append(_written(selector.choose(scores)))
            selector = self._restored(selector)
        assert course == expected, NOT_RESTORED

    def _restored(self, selector: Selector) -> Selector:
        saved = through_json(selector.state_dict())
        restored, inspected = (self.make(selector.tasks, selector.batch) for _ in range(2))
        restored.load_state_dict(saved)
        inspected.load_state_dict(saved)
        assert through_json(selector.state_dict()) == saved, "saving changed the state"
        assert inspected.candidates() == selector.candidates(), NOT_RESTORED
        assert inspected.diagnostics() == selector.diagnostics(), NOT_RESTORED
        return restored

    def test_the_state_of_other_tasks_is_refused(self) -> None:
        state = through_json(self.make(["a", "b"], 4).state_dict())
        assert_refused("the state of other tasks", self.make(["a", "c"], 4).load_state_dict, state)

    def test_scores_that_are_no_numbers_are_refused(self) -> None:
        for wrong in (np.nan, np.inf, None):
            selector = self.make(names(3), 4)
            scores = _scores(selector, stream(6, "wrong"))
            if wrong is None:
                del scores["task1"]
            else:
                scores["task1"][0] = wrong
            assert_refused(f"scores with {wrong}", selector.choose, scores)

    def test_diagnostics_are_json(self) -> None:
        """At the start and later; they are written to the journal."""
        selector = self.make(names(3), 8)
        json.dumps(selector.diagnostics(), allow_nan=False)
        _course(selector, 3)
        json.dumps(selector.diagnostics(), allow_nan=False)

    def test_a_hundred_tasks(self) -> None:
        selector, rng = self.make(names(100), 8), stream(7, "hundred")
        steps = selector.choose(_scores(selector, rng))
        assert all(1 <= sum(step.counts.values()) <= 8 for step in steps)
        through_json(selector.state_dict())


def _scores(selector: Selector, rng: np.random.Generator, extra: int = 0) -> Scores:
    """Return scores of the candidates; a batch may bring some more than were asked for."""
    counts = selector.candidates()
    return {task: rng.random(count + extra if count else 0) for task, count in counts.items()}


def _course(selector: Selector, choices: int) -> list[list[dict[str, list[int]]]]:
    rng = stream(5, "course")
    return [_written(selector.choose(_scores(selector, rng))) for _ in range(choices)]


def _written(steps: Sequence[Selection]) -> list[dict[str, list[int]]]:
    return [{task: places.tolist() for task, places in step.chosen.items()} for step in steps]
