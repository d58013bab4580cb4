"""Policies that learn from rewards: their equations in plain loops, and what theory says."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import DUMP, SEC, Climb, Learnability, Outcome, Progress
from taskmix.integrations.rollouts import signals_of
from taskmix.policies import POLICIES, Rewards
from taskmix.rng import stream

TASKS = ["a", "b", "c"]
unit = st.floats(0, 1)
histories = st.lists(st.tuples(st.integers(0, 2), unit), max_size=40)


def told(policy, history, signal):
    """Tell values of arms that somebody else chose."""
    for number, (arm, value) in enumerate(history, 1):
        draw = policy.replay(arm)
        policy.tell(Outcome(draw, **{signal: value}, examples=number % 5 + 1))
    return policy.probabilities()


@settings(derandomize=True, deadline=None)
@given(histories)
def test_learnability_is_the_variance_of_the_running_pass_rate(history):
    rates = [0.5] * 3
    for arm, reward in history:
        rates[arm] = rates[arm] + 0.3 * (reward - rates[arm])
    scores = [p * (1 - p) for p in rates]
    expected = [0.9 * score / sum(scores) + 0.1 / 3 for score in scores]
    policy = Learnability(TASKS, rate=0.3, epsilon=0.1)
    assert told(policy, history, "reward") == pytest.approx(expected)


def test_learnability_prefers_a_pass_rate_of_one_half():
    rewards = np.linspace(0, 1, 11)
    policy = Learnability([f"{r:.1f}" for r in rewards], rate=1.0)
    shares = told(policy, list(enumerate(rewards)), "reward")
    assert shares.argmax() == 5
    assert shares == pytest.approx(shares[::-1])  # success and failure count alike
    assert shares[0] == shares[-1] == shares.min() > 0


def test_learnability_is_uniform_where_nothing_can_be_learned():
    policy = Learnability(TASKS, rate=1.0)
    assert told(policy, [(0, 1.0), (1, 0.0), (2, 1.0)], "reward") == pytest.approx([1 / 3] * 3)


def test_learnability_scales_rewards():
    scaled, plain = Learnability(TASKS, lowest=-1.0, highest=3.0), Learnability(TASKS)
    history = [(0, 0.25), (1, 0.5), (0, 1.0), (2, 0.0)]
    stretched = [(arm, 4 * reward - 1) for arm, reward in history]
    assert told(scaled, stretched, "reward") == pytest.approx(told(plain, history, "reward"))


@settings(derandomize=True, deadline=None)
@given(histories)
def test_sec_is_a_boltzmann_bandit_with_td_values(history):
    values = [0.0] * 3
    for arm, advantage in history:
        values[arm] = 0.25 * advantage + 0.75 * values[arm]
    weights = [math.exp(value / 0.4) for value in values]
    expected = [weight / sum(weights) for weight in weights]
    policy = SEC(TASKS, rate=0.25, temperature=0.4)
    assert told(policy, history, "advantage") == pytest.approx(expected)


advantages = st.lists(st.floats(-2, 2), min_size=1, max_size=4)


@settings(derandomize=True, deadline=None)
@given(st.lists(st.tuples(advantages, advantages, advantages), max_size=8))
def test_sec_agrees_with_its_code_where_every_batch_has_all_arms(batches):
    """One update of all values for each batch, from the mean absolute advantage of each arm."""
    policy, values = SEC(TASKS, rate=0.5, temperature=1.0), np.zeros(3)
    for batch in batches:
        rewards = np.zeros(3)
        for arm, completions in enumerate(batch):
            rewards[arm] = np.mean(np.abs(completions))
            signals = signals_of([0.0] * len(completions), completions, len(completions))
            policy.tell(Outcome(policy.replay(arm), advantage=signals["advantage"]))
        values = (1 - 0.5) * values + 0.5 * rewards
    expected = np.exp(values / 1.0) / np.sum(np.exp(values / 1.0))
    assert policy.probabilities() == pytest.approx(expected)


@settings(derandomize=True, deadline=None)
@given(histories)
def test_dump_is_a_softmax_of_upper_confidence_bounds(history):
    completions, counts = [[], [], []], [0, 0, 0]
    for number, (arm, advantage) in enumerate(history, 1):
        examples = number % 5 + 1
        completions[arm].append((advantage, examples))
        counts[arm] += examples
    bounds = []
    for arm in range(3):
        window, size = [], 0
        for advantage, examples in reversed(completions[arm]):
            if size >= 6:
                break
            window += [advantage] * examples
            size += examples
        mean = sum(window) / len(window) if window else 0.0
        bounds.append(mean + math.sqrt(2 * math.log(sum(counts) + 1) / (counts[arm] + 1)))
    weights = [math.exp((bound - max(bounds)) / 0.5) for bound in bounds]
    expected = [weight / sum(weights) for weight in weights]
    policy = DUMP(TASKS, window=6, temperature=0.5)
    assert told(policy, history, "advantage") == pytest.approx(expected)


def test_dump_returns_to_an_environment_that_it_left():
    policy = DUMP(TASKS, temperature=0.05)
    before = told(policy, [(0, 0.0), *[(1, 0.3), (2, 0.3)] * 3], "advantage")[0]
    after = told(policy, [(1, 0.3), (2, 0.3)] * 200, "advantage")[0]
    assert after > before


@settings(derandomize=True, deadline=None, max_examples=25)
@given(histories)
def test_climb_counts_rises_above_the_previous_reward(history):
    a, b, latest = [1.0] * 3, [1.0] * 3, [None] * 3
    for arm, reward in history:
        before, latest[arm] = latest[arm], reward
        if before is None:
            continue
        for beliefs in (a, b):
            for k in range(3):
                beliefs[k] = 0.9 * beliefs[k] + 0.1
        (a if reward > before else b)[arm] += 1
    policy = Climb(TASKS, decay=0.1, epsilon=0.1)
    shares = told(policy, history, "reward")
    # The chance to have the largest sample, by 20,000 samples: an error beyond 0.02 is over five
    # standard errors, a false alarm in less than one of a million examples.
    samples = np.random.default_rng(1).beta(a, b, (20_000, 3)).argmax(axis=1)
    expected = 0.9 * np.bincount(samples, minlength=3) / 20_000 + 0.1 / 3
    assert shares == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("policy", "signal"),
    [
        (Learnability(TASKS), "reward"),
        (SEC(TASKS), "advantage"),
        (DUMP(TASKS), "advantage"),
        (Climb(TASKS), "reward"),
        (Progress(TASKS, of="reward"), "reward"),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else value,
)
def test_solved_and_hopeless_environments_lose_their_share(policy, signal):
    """Environment a rises from 0.3, b is solved, c is never solved."""
    rng = stream(1, "draws")
    seen = 0
    for _ in range(60):
        draw = policy.ask(rng)
        seen += draw.task == "a"
        reward = {"a": 0.3 + 0.005 * seen, "b": 1.0, "c": 0.0}[draw.task]
        value = reward if signal == "reward" else 2 * reward * (1 - reward)
        policy.tell(Outcome(draw, **{signal: value}, examples=16))
    assert policy.drawn[0] > 30
    assert policy.probabilities()[0] > 0.6


def test_climb_leaves_an_environment_that_has_just_been_solved():
    policy = Climb(TASKS, decay=0.0)
    shares = told(policy, [(0, 0.5), *[(0, 1.0)] * 20, (1, 0.5), (2, 0.5)], "reward")
    assert shares[0] < 0.1


def test_each_of_them_asks_for_the_rewards():
    learners = [policy for policy in POLICIES if policy.needs == {Rewards()}]
    assert {policy.name for policy in learners} == {"learnability", "sec", "dump", "climb"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Learnability(TASKS, rate=0.0), "rate, epsilon"),
        (lambda: Learnability(TASKS, lowest=1.0), "lowest < highest"),
        (lambda: SEC(TASKS, rate=2.0), "rate"),
        (lambda: SEC(TASKS, temperature=0.0), "temperature"),
        (lambda: DUMP(TASKS, window=0), "window"),
        (lambda: DUMP(TASKS, temperature=-1.0), "temperature"),
        (lambda: Climb(TASKS, decay=1.0), "decay"),
        (lambda: Progress(TASKS, of="rewards"), "of: expected likelihood, loss or reward"),
    ],
)
def test_bad_settings_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
