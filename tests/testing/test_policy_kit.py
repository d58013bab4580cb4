"""The policy kit catches the mistakes that it is there for."""

import re
from pathlib import Path

import numpy as np
import pytest

from taskmix import Draw, Random
from taskmix.policies import Gain
from taskmix.testing import PolicyConformance


class DrawsFromAnother(Random):
    def _choose(self, probabilities, rng):
        return int(rng.random() ** 2 * len(self.tasks))


class ForgetsItsState(Random):
    def tell(self, outcome):
        self._probabilities = np.roll(np.linspace(1, 2, len(self.tasks)), self.draws)
        self._probabilities = self._probabilities / self._probabilities.sum()


class BelievesAnything(Random):
    def tell(self, outcome):
        self._probabilities = self._probabilities * (1 + (outcome.loss or 0))
        self._probabilities = self._probabilities / self._probabilities.sum()


class HasItsOwnDice(Random):
    dice = np.random.default_rng(1)

    def _choose(self, probabilities, rng):
        return int(self.dice.integers(len(self.tasks)))


class SavesAnArray(Random):
    def _state(self):
        return {"probabilities": self._probabilities}


class Learner(Random):
    """Counts the outcomes of each task, soundly; the mistakes below are made in its place."""

    name = "learner"

    def __init__(self, tasks):
        super().__init__(tasks)
        self.counts = [1] * len(self.tasks)
        self._refresh()

    def _refresh(self):
        self._probabilities = np.array(self.counts) / sum(self.counts)

    def tell(self, outcome):
        self.learn(outcome.draw.index)

    def learn(self, index):
        self.counts[index] += 1
        self._refresh()

    def _state(self):
        return {"counts": list(self.counts)}

    def _load(self, state):
        self.counts = list(state["counts"])
        self._refresh()


class LosesWhatIsOpen(Learner):
    """Learns from the draws that it remembers, and saves none of them."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.open = set()

    def _take(self, index, probabilities):
        draw = super()._take(index, probabilities)
        self.open = {n for n in self.open if n > draw.number - 64} | {draw.number}
        return draw

    def tell(self, outcome):
        if outcome.draw.number in self.open:
            self.open.remove(outcome.draw.number)
            super().tell(outcome)


class KnowsADrawByItsObject(Learner):
    """Takes a draw that was saved and made again for an unknown one."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.latest = []

    def _take(self, index, probabilities):
        draw = super()._take(index, probabilities)
        self.latest = [*self.latest[-63:], draw]
        return draw

    def tell(self, outcome):
        if any(outcome.draw is draw for draw in self.latest):
            super().tell(outcome)


class GoesByTheLatestDraw(Learner):
    """Learns at the end of rounds of four, as counted by draws and not by outcomes."""

    def tell(self, outcome):
        if self.draws % 4 == 0:
            super().tell(outcome)


class CountsTheLatestTask(Learner):
    """Gives the outcome to the task that was drawn last."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.arm = 0

    def _take(self, index, probabilities):
        self.arm = index
        return super()._take(index, probabilities)

    def tell(self, outcome):
        self.learn(self.arm)

    def _state(self):
        return {**super()._state(), "arm": self.arm}

    def _load(self, state):
        super()._load(state)
        self.arm = state["arm"]


class IsDueByTheLatestDraw(Random):
    """Asks for a signal by its own count of draws."""

    needs = frozenset({Gain()})

    def due(self, draw):
        return self.needs if self.draws % 3 == 0 else frozenset()


class ExpectsOrder(Learner):
    """Divides by the number of draws since the last outcome."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.last = 0

    def tell(self, outcome):
        self.counts[outcome.draw.index] += 1 / (outcome.draw.number - self.last)
        self.last = outcome.draw.number
        self._refresh()

    def _state(self):
        return {**super()._state(), "last": self.last}

    def _load(self, state):
        super()._load(state)
        self.last = state["last"]


class ExpectsEachOutcomeOnce(Learner):
    """Crosses a draw off a list, soundly saved, and fails if it is not there."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.open = []

    def _take(self, index, probabilities):
        draw = super()._take(index, probabilities)
        self.open = [*self.open[-63:], draw.number]
        return draw

    def tell(self, outcome):
        self.open.remove(outcome.draw.number)
        super().tell(outcome)

    def _state(self):
        return {**super()._state(), "open": self.open}

    def _load(self, state):
        super()._load(state)
        self.open = list(state["open"])


class RemembersEveryDraw(Learner):
    """Waits for every outcome for ever."""

    def __init__(self, tasks):
        super().__init__(tasks)
        self.open = set()

    def _take(self, index, probabilities):
        draw = super()._take(index, probabilities)
        self.open.add(draw.number)
        return draw

    def tell(self, outcome):
        self.open.discard(outcome.draw.number)
        super().tell(outcome)

    def _state(self):
        return {**super()._state(), "open": sorted(self.open)}

    def _load(self, state):
        super()._load(state)
        self.open = set(state["open"])


class NumbersFromZero(Random):
    def _take(self, index, probabilities):
        draw = super()._take(index, probabilities)
        return Draw(draw.task, draw.index, draw.probabilities, draw.number - 1)


RESTORED = "test_a_restored_copy_goes_on_as_the_policy_that_was_never_stopped"
TOLD_LATE = "test_what_is_learned_does_not_depend_on_when_it_is_told"
DUE = "test_what_is_due_for_a_draw_stays_when_others_are_drawn"


def kit(policy):
    class Kit(PolicyConformance):
        def make(self, tasks):
            return policy(tasks)

    return Kit()


@pytest.mark.parametrize(
    ("policy", "test", "error"),
    [
        (DrawsFromAnother, "test_draws_match_their_probabilities", AssertionError),
        (ForgetsItsState, "test_an_interrupted_course_is_the_uninterrupted_one", AssertionError),
        (BelievesAnything, "test_garbage_is_not_believed", AssertionError),
        (HasItsOwnDice, "test_the_same_generator_gives_the_same_draws", AssertionError),
        (SavesAnArray, "test_a_thousand_tasks", TypeError),
        (LosesWhatIsOpen, RESTORED, AssertionError),
        (LosesWhatIsOpen, "test_an_interrupted_course_is_the_uninterrupted_one", AssertionError),
        (KnowsADrawByItsObject, RESTORED, AssertionError),
        (GoesByTheLatestDraw, TOLD_LATE, AssertionError),
        (CountsTheLatestTask, TOLD_LATE, AssertionError),
        (IsDueByTheLatestDraw, DUE, AssertionError),
        (ExpectsOrder, "test_outcomes_out_of_order_are_no_obstacle", Exception),
        (ExpectsEachOutcomeOnce, "test_outcomes_told_twice_are_no_obstacle", ValueError),
        (RemembersEveryDraw, "test_draws_that_are_never_told_take_no_room", AssertionError),
        (NumbersFromZero, "test_draws_are_numbered_from_one", AssertionError),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_the_kit_refuses(policy, test, error):
    with pytest.raises(error):
        getattr(kit(policy), test)()


def of_the_docs():
    """The policy that docs/policies.md shows, as it stands there."""
    text = (Path(__file__).parents[2] / "docs" / "policies.md").read_text()
    [code] = re.findall(r"```python\n(import taskmix\n.*?class Hardest.*?)```", text, re.DOTALL)
    found = {}
    exec(code, found)
    return found["Hardest"]


@pytest.mark.parametrize("policy", [Random, Learner, of_the_docs()])
def test_a_sound_policy_passes_whole(policy):
    sound = kit(policy)
    for name in dir(sound):
        if name.startswith("test_"):
            getattr(sound, name)()
