"""A selector that chooses nothing, or what is not there, is found out in one sentence."""

import numpy as np
import pytest

from taskmix.errors import UserError
from taskmix.selection import MTUncertainty
from taskmix.selection.base import Selection, candidates_of, steps_of

NOTHING = np.array([], dtype=np.int64)


class Mine(MTUncertainty):
    """Returns whatever it is given."""

    name = "mine"

    def __init__(self, found):
        super().__init__(["a", "b"], 4)
        self.found = found

    def candidates(self):
        return self.found

    def choose(self, scores):
        return self.found


@pytest.mark.parametrize("found", [None, {}, {"a": 4}, {"a": 4, "b": 0}, {"a": 4, "b": 1.5}, 8])
def test_every_task_has_candidates(found):
    with pytest.raises(UserError, match=r"mine, step 3: expected candidates\(\) to return"):
        candidates_of(Mine(found), 3)
    assert candidates_of(Mine({"a": 4, "b": np.int64(2)}), 3) == {"a": 4, "b": 2}


def selection(a, b):
    return Selection({"a": np.array(a), "b": np.array(b)}, {"a": 4, "b": 4})


@pytest.mark.parametrize(
    "found",
    [
        None,
        [],
        [5],
        [selection(NOTHING, NOTHING)],
        [selection([0], [4])],
        [selection([-1], [0])],
        [selection([0.5], [0])],
        [Selection({"a": np.array([0])}, {"a": 4, "b": 4})],
    ],
)
def test_what_is_chosen_is_among_the_candidates(found):
    scores = {"a": np.ones(4), "b": np.ones(4)}
    with pytest.raises(UserError, match=r"selection mine, step 3: expected choose\(\) to return"):
        steps_of(Mine(found), scores, 3)
    sound = [selection([3, 0], NOTHING)]
    assert steps_of(Mine(sound), scores, 3) == sound
