"""No distribution, or a state that does not fit, is refused in one sentence."""

import json

import numpy as np
import pytest

from taskmix import Outcome, Policy, Random
from taskmix.config import build_policy
from taskmix.errors import UserError
from taskmix.policies import ToldDraws
from taskmix.rng import stream
from taskmix.run_info import RunInfo


class Mine(Policy):
    """Returns whatever it is given."""

    name = "mine"

    def __init__(self, found):
        super().__init__(["a", "b"])
        self.found = found

    def probabilities(self):
        return self.found


EXPECTED = "expected probabilities() to return an array of 2 numbers, none below 0, with a sum of 1"


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (np.array([-0.5, 1.5]), "-0.5 among them"),
        (np.array([1.0, 1.0]), "a sum of 2.0"),
        (np.array([0.5, 0.4]), "a sum of 0.9"),
        (np.array([1.0]), "the shape (1,)"),
        (np.array([[0.5, 0.5]]), "the shape (1, 2)"),
        (np.array([0.5, np.nan]), "nan among them"),
        (np.array([np.inf, 0.0]), "a sum of inf"),
        (np.array([0.5, -np.inf]), "-inf among them"),
        (np.array([0.5, 0.5], dtype=object), "the dtype object"),
        ([0.5, 0.5], "a list"),
        (None, "a NoneType"),
    ],
)
@pytest.mark.parametrize("frozen", [False, True])
def test_what_is_no_distribution_is_refused_in_one_sentence(found, fault, frozen):
    policy, rng = Mine(np.array([0.5, 0.5])), stream(1, "checks")
    policy.ask(rng)
    if frozen and isinstance(found, np.ndarray):
        found.setflags(write=False)
    policy.found = found
    for draw in (lambda: policy.ask(rng), lambda: policy.replay(0)):
        with pytest.raises(UserError) as error:
            draw()
        assert str(error.value) == f"policy mine, draw 2: {EXPECTED}, found {fault}"
    assert policy.draws == 1


def test_a_policy_class_without_a_name_or_with_needs_that_are_no_signals_is_refused():
    class Nameless(Random):
        name = None

    class Needy(Random):
        needs = "gain"

    with pytest.raises(UserError, match=r'^policy class Nameless: expected .* name = "nameless"'):
        Nameless(["a"])
    with pytest.raises(UserError, match=r"^policy class Needy: expected needs to be .* 'gain'$"):
        Needy(["a"])


def test_a_state_without_what_tell_changes_names_the_attribute_saved():
    class Forgetful(Mine):
        pass

    policy = Forgetful(np.array([0.5, 0.5]))
    policy.ask(stream(1, "checks"))
    state = json.loads(json.dumps(policy.state_dict()))
    with pytest.raises(UserError, match=r"found another .*: its class does not list in _saved"):
        Forgetful(np.array([0.1, 0.9])).load_state_dict(state)


def test_a_name_of_another_family_and_a_text_for_a_list_are_said_in_plain_words():
    info = RunInfo({"a": 1, "b": 1}, 1, 1)
    with pytest.raises(UserError, match=r"^policy: .* found 'mt_uncertainty', a selection$"):
        build_policy("mt_uncertainty", info)
    with pytest.raises(
        UserError, match=r"targets: expected a list, such as \['a'\], found a text$"
    ):
        build_policy({"name": "aimed", "targets": "a"}, info)


def test_an_array_that_is_changed_in_place_is_drawn_from_as_it_is_now():
    policy, rng = Mine(np.array([1.0, 0.0])), stream(1, "in place")
    first = policy.ask(rng)
    again = policy.ask(rng)
    policy.found[:] = [0.0, 1.0]
    second = policy.ask(rng)
    assert first.probabilities.tolist() == again.probabilities.tolist() == [1.0, 0.0]
    assert (first.task, second.task) == ("a", "b")
    assert second.probabilities.tolist() == [0.0, 1.0]
    policy.found[0] = 1.0
    with pytest.raises(UserError, match=r"policy mine, draw 4: .* found a sum of 2\.0"):
        policy.ask(rng)


def test_a_row_of_a_table_is_drawn_from_as_it_is_now():
    table = np.array([[0.5, 0.5], [1.0, 0.0]])
    policy, rng = Mine(table[1]), stream(1, "table")
    first = policy.ask(rng)
    table[1] = [0.0, 1.0]
    second = policy.ask(rng)
    assert (first.task, second.task) == ("a", "b")
    assert first.probabilities.tolist() == [1.0, 0.0]


def test_what_a_draw_carries_cannot_be_written_to():
    draw = Mine(np.array([0.5, 0.5])).ask(stream(1, "carries"))
    with pytest.raises(ValueError, match="read-only"):
        draw.probabilities[0] = 1.0


def test_equal_arrays_are_handed_out_as_one():
    """The journal writes a distribution when its object changes."""
    policy, rng = Mine(np.array([0.5, 0.5])), stream(1, "one")
    first = policy.ask(rng)
    policy.found = np.array([0.5, 0.5])
    assert policy.ask(rng).probabilities is first.probabilities


@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_other_numbers_are_taken_as_floats(dtype):
    draw = Mine(np.array([1, 0], dtype=dtype)).ask(stream(1, "floats"))
    assert draw.probabilities.dtype == np.float64
    assert draw.probability == 1.0


def test_a_read_only_array_is_checked_and_summed_once(monkeypatch):
    policy, rng, accepted = Random(["a", "b"]), stream(1, "once"), []
    accept = Policy._accept
    monkeypatch.setattr(Policy, "_accept", lambda s, found: accepted.append(1) or accept(s, found))
    for _ in range(50):
        policy.ask(rng)
    assert len(accepted) == 1


class Forgetful(Random):
    """Learns, and saves nothing of it."""

    name = "forgetful"

    def tell(self, outcome):
        shares = np.arange(1.0, len(self.tasks) + 1)
        self._probabilities = shares / shares.sum()


def test_a_learning_policy_without_state_is_found_out_when_it_is_resumed():
    policy, rng = Forgetful(["a", "b"]), stream(1, "resumed")
    policy.tell(Outcome(policy.ask(rng), loss=1.0))
    state = json.loads(json.dumps(policy.state_dict()))
    with pytest.raises(UserError, match="policy forgetful, draw 2: expected the distribution that"):
        Forgetful(["a", "b"]).load_state_dict(state)


class Declared(Random):
    """Names what changes, and writes neither `_state` nor `_load`."""

    name = "declared"
    _saved = ("_losses", "_count", "_seen", "inner")

    def __init__(self, tasks):
        super().__init__(tasks)
        self._losses = np.ones(len(self.tasks))
        self._count = 0
        self._seen: list[list[int]] = []
        self.inner = ToldDraws()

    def tell(self, outcome):
        if self.inner.first(outcome.draw.number):
            self._losses[outcome.draw.index] = outcome.loss
            self._count += 0.5
            self._seen.append([outcome.draw.number])


def declared_state():
    policy, rng = Declared(["a", "b"]), stream(1, "declared")
    policy.tell(Outcome(policy.ask(rng), loss=3.0))
    return policy, json.loads(json.dumps(policy.state_dict()))


def test_what_a_policy_declares_is_saved_and_restored():
    policy, state = declared_state()
    assert {"losses", "count", "seen", "inner"} < set(state)
    restored = Declared(["a", "b"])
    restored.load_state_dict(state)
    assert restored.state_dict() == policy.state_dict()
    again, rng = json.loads(json.dumps(state)), stream(2, "declared")
    restored.tell(Outcome(restored.ask(rng), loss=2.0))
    assert state == again, "what is learned later is not written into a loaded state"


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("losses", [1.0], r"an array of float64 with the shape \(2,\)"),
        ("losses", [[1.0], [2.0, 3.0]], r"an array of float64 with the shape \(2,\)"),
        ("losses", ["x", "y"], r"an array of float64 with the shape \(2,\)"),
        ("losses", None, r"an array of float64 with the shape \(2,\)"),
        ("count", "three", "a Number"),
        ("seen", {}, "a list"),
    ],
)
def test_a_state_of_another_shape_or_type_is_refused_in_one_sentence(key, value, expected):
    _, state = declared_state()
    with pytest.raises(UserError, match=f"^state, {key}: expected {expected}, found "):
        Declared(["a", "b"]).load_state_dict(state | {key: value})


def test_a_state_without_a_declared_value_is_refused_in_one_sentence():
    _, state = declared_state()
    del state["losses"]
    with pytest.raises(UserError, match=r"^state: expected a value for 'losses', found "):
        Declared(["a", "b"]).load_state_dict(state)
