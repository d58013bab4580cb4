"""What each policy makes of outcomes that come late, out of order, twice or never."""

import json

import numpy as np
import pytest

from taskmix import ActivePrioritization, Draw, Exp3S, Outcome, Progress, Stratified, Thompson
from taskmix.bandit import Environment, simulate
from taskmix.policies import ToldDraws
from taskmix.rng import stream
from taskmix.testing import outcome_of

TASKS = list("abcd")
LEARNERS = {
    "exp3s": lambda tasks: Exp3S(tasks, eta=0.2),
    "exp3s to the letter": lambda tasks: Exp3S(tasks, eta=0.2, divide_by="rho"),
    "progress": Progress,
    "thompson": lambda tasks: Thompson(tasks, tasks[0], batches=3),
    "active": lambda tasks: ActivePrioritization(tasks, every=5),
    "stratified": lambda tasks: Stratified(Exp3S(tasks, eta=0.2)),
}
each_learner = pytest.mark.parametrize("make", LEARNERS.values(), ids=LEARNERS)


def played(policy, steps, seed=1):
    """Ask and tell at once; returns the outcomes."""
    rng, outcomes = stream(seed, "played"), []
    for _ in range(steps):
        draw = policy.ask(rng)
        outcomes.append(outcome_of(policy, draw, rng))
        policy.tell(outcomes[-1])
    return outcomes


def learned(policy):
    """The state without what counts draws alone."""
    state = json.loads(json.dumps(policy.state_dict()))
    return {key: state[key] for key in state if key not in ("drawn", "next")}


@each_learner
def test_an_outcome_that_is_told_again_changes_nothing(make):
    policy = make(TASKS)
    outcomes = played(policy, 61)
    state = learned(policy)
    for outcome in [*outcomes, *outcomes[::-1]]:
        policy.tell(outcome)
    assert learned(policy) == state


@each_learner
def test_an_outcome_that_is_told_again_after_a_restart_changes_nothing(make):
    policy, other = make(TASKS), make(TASKS)
    outcomes = played(policy, 61)
    other.load_state_dict(json.loads(json.dumps(policy.state_dict())))
    for outcome in outcomes:
        other.tell(outcome)
    assert learned(other) == learned(policy)


@pytest.mark.parametrize("delay", [0, 1, 5, 8, 20, 64])
def test_thompson_pulls_once_a_round_at_any_delay(delay):
    environment = Environment.random(4, 240, stream(1, "environment"))
    policy = Thompson(environment.tasks, environment.tasks[0], batches=10)
    simulate(policy, environment, 240, stream(1, "draws"), delay)
    assert sum(policy.diagnostics()["pulls"].values()) == 24


@pytest.mark.parametrize("delay", [1, 5, 7])
def test_a_round_keeps_its_distribution_when_outcomes_come_within_it(delay):
    policy, rng, ahead, draws = Thompson(TASKS, "a", batches=4), stream(1, "round"), [], []
    for _ in range(80):
        ahead.append(policy.ask(rng))
        draws.append(ahead[-1])
        if len(ahead) > delay:
            policy.tell(outcome_of(policy, ahead.pop(0), rng))
    rounds = [draws[first : first + 4] for first in range(0, 80, 4)]
    for of_round in rounds:
        assert len({draw.task for draw in of_round}) == 1
        assert len({draw.probabilities.tobytes() for draw in of_round}) == 1
    assert len({of_round[0].probabilities.tobytes() for of_round in rounds}) > 10


def thompson_after(scores):
    """Rewards of rounds of one draw, told in this order: by round, its score."""
    policy = Thompson(["a"], "a", decay=0.0, batches=1)
    draws = [policy.replay(0) for _ in range(200)]
    successes = []
    for number, score in scores:
        before = policy.diagnostics()["a"]["a"], policy.diagnostics()["pulls"]["a"]
        policy.tell(Outcome(draws[number - 1], score=score))
        after = policy.diagnostics()["a"]["a"], policy.diagnostics()["pulls"]["a"]
        successes.append(None if after[1] == before[1] else after[0] > before[0])
    return successes


def test_a_round_is_judged_by_the_nearest_known_round_before_it():
    # Round 3 by round 1, as 2 is not known yet; then 2 by 1, and 4 by 3.
    found = thompson_after([(1, 0.5), (3, 0.4), (2, 0.9), (4, 0.45)])
    assert found == [True, False, True, True]


def test_a_round_that_was_never_told_is_passed_over():
    assert thompson_after([(1, 0.5), (9, 0.6), (20, 0.55)]) == [True, True, False]


def test_a_round_that_comes_after_sixty_four_later_ones_is_left_out():
    scores = [(number, float(number)) for number in range(2, 66)]
    assert thompson_after([*scores, (1, 0.5)])[-1] is None
    assert thompson_after([*scores[1:], (1, 0.5)])[-1] is True


def test_active_leaves_out_an_estimate_that_is_out_of_date():
    policy, rng = ActivePrioritization(["a", "b"], every=1), stream(1, "active")
    first, second = policy.ask(rng), policy.ask(rng)
    policy.tell(Outcome(second, uncertainty={"a": 0.2, "b": 0.6}))
    policy.tell(Outcome(first, uncertainty={"a": 0.9, "b": 0.1}))
    assert policy.probabilities() == pytest.approx([0.25, 0.75])


def test_progress_leaves_out_a_loss_that_comes_after_a_later_one_of_its_task():
    losses = {1: 2.0, 2: 1.9, 4: 1.5, 5: 1.2}
    one, other = Progress(["a"]), Progress(["a"])
    for policy in (one, other):
        draws = [policy.replay(0) for _ in range(5)]
        for number, loss in losses.items():
            policy.tell(Outcome(draws[number - 1], loss=loss))
            if policy is other and number == 4:
                policy.tell(Outcome(draws[2], loss=9.0))
    assert learned(one) == learned(other)


@pytest.mark.parametrize("divide_by", ["pi", "rho"])
def test_exp3s_divides_by_what_the_draw_was_drawn_from(divide_by):
    """Told in any order, the product of all factors is the same but for the spread of α."""
    weights = []
    for order in (1, -1):
        policy = Exp3S(TASKS, 0.05, 0.2, divide_by, scaler=Halved())
        policy.load_state_dict({**policy.state_dict(), "updates": 10**12})
        rng = stream(1, "order")
        for _ in range(30):
            ahead = [policy.ask(rng) for _ in range(5)]
            for draw in ahead[::order]:
                policy.tell(Outcome(draw, gain=float(draw.index)))
        weights.append(policy.weights - policy.weights[0])
    assert weights[0] == pytest.approx(weights[1], abs=1e-7)
    assert np.all(np.diff(weights[0]) > 0)


class Halved:
    """A scaler that depends on no other gain."""

    def __call__(self, value):
        return value / 2

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def test_a_draw_made_again_from_its_values_serves_as_well():
    one, other = Exp3S(TASKS, eta=0.2), Exp3S(TASKS, eta=0.2)
    for outcome in played(one, 50):
        draw = other.replay(outcome.draw.index)
        saved = json.loads(json.dumps([draw.number, draw.index, draw.probabilities.tolist()]))
        again = Draw(draw.task, saved[1], np.array(saved[2]), saved[0])
        other.tell(Outcome(again, outcome.loss, outcome.gain))
    assert other.state_dict() == one.state_dict()


def test_told_draws_are_those_of_a_set():
    rng, told, seen = stream(1, "told"), ToldDraws(), set()
    for at in range(4000):
        number = max(1, at + int(rng.integers(-300, 300)))
        assert told.first(number) == (number not in seen)
        seen.add(number)
        if at % 500 == 0:
            restored = ToldDraws()
            restored.load_state_dict(json.loads(json.dumps(told.state_dict())))
            told = restored


def test_told_draws_take_what_is_too_late_for_told():
    told = ToldDraws()
    assert told.first(5000)
    assert told.first(5000 - 1023)
    assert not told.first(5000 - 1024)
    assert told.first(10**9)
    assert not told.first(5001)
    assert len(json.dumps(told.state_dict())) < 400
