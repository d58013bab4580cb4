"""The kit catches the mistakes that it is there for."""

import numpy as np
import pytest

from bursar import Random
from bursar.testing import PolicyConformance


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
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_the_kit_refuses(policy, test, error):
    with pytest.raises(error):
        getattr(kit(policy), test)()


def test_a_sound_policy_passes_whole():
    sound = kit(Random)
    for name in dir(sound):
        if name.startswith("test_"):
            getattr(sound, name)()
