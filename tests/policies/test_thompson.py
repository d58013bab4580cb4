"""Thompson sampling follows Algorithm 1, and its propensities are those of its draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from taskmix import Outcome, Thompson
from taskmix.policies import DevScore
from taskmix.policies.thompson import probability_largest
from taskmix.rng import stream

quick = settings(derandomize=True, deadline=None, max_examples=25)
betas = st.lists(st.tuples(st.floats(1, 60), st.floats(1, 60)), min_size=1, max_size=6).map(
    np.array
)


def transcription(history, tasks, decay, prior, primary_prior):
    """Algorithm 1 of 001 for (arm, score) pairs, arm by arm."""
    a = [primary_prior[0]] + [prior[0]] * (tasks - 1)
    b = [primary_prior[1]] + [prior[1]] * (tasks - 1)
    reference = 0.0
    for arm, score in history:
        reward = 1 if score >= reference else 0
        reference = score
        for k in range(tasks):
            a[k] = (1 - decay) * a[k] + decay * prior[0]
            b[k] = (1 - decay) * b[k] + decay * prior[1]
        a[arm] += reward
        b[arm] += 1 - reward
    return a, b


@pytest.mark.parametrize("decay", [0.0, 0.05, 0.3])
def test_a_history_of_a_thousand_rounds_is_algorithm_1(decay):
    names = ["p", "x", "y", "z"]
    policy = Thompson(names, "p", decay, (1.5, 1.0), (3.0, 1.0), batches=2, propensity=uniform)
    rng, history = stream(1, "history"), []
    for _ in range(1000):
        for _ in range(2):
            draw = policy.ask(rng)
            score = float(rng.random()) if policy.due(draw) else None
            policy.tell(Outcome(draw, score=score))
        history.append((draw.index, score))
    a, b = transcription(history, 4, decay, (1.5, 1.0), (3.0, 1.0))
    assert list(policy.diagnostics()["a"].values()) == pytest.approx(a, rel=1e-12)
    assert list(policy.diagnostics()["b"].values()) == pytest.approx(b, rel=1e-12)


def uniform(a, b):
    return np.full(len(a), 1 / len(a))


@quick
@given(betas)
def test_propensities_are_the_integral(parameters):
    a, b = parameters.T
    found = probability_largest(a, b)
    nodes, w = np.polynomial.legendre.leggauss(400)
    x = (nodes + 1) / 2
    for k in range(len(a)):
        density = stats.beta.pdf(x, a[k], b[k])
        others = [stats.beta.cdf(x, a[j], b[j]) for j in range(len(a)) if j != k]
        integral = np.sum(w / 2 * density * np.prod(others, axis=0))
        assert found[k] == pytest.approx(integral, abs=1e-4)


def test_propensities_are_those_of_a_million_draws():
    a = np.array([1.0, 2.0, 8.0, 40.0, 1.0, 0.5])
    b = np.array([1.0, 1.0, 5.0, 30.0, 1.0, 0.7])
    draws = stream(1, "draws").beta(a, b, size=(1_000_000, 6))
    shares = np.bincount(draws.argmax(axis=1), minlength=6) / 1_000_000
    # Five standard errors of a share and the quadrature's 1e-4: a false alarm in 10^5 seeds.
    bound = 5 * np.sqrt(shares * (1 - shares) / 1_000_000) + 1e-4
    assert np.all(np.abs(probability_largest(a, b) - shares) < bound)


@pytest.mark.parametrize("strength", [1e2, 1e4, 1e6])
def test_narrow_posteriors_are_resolved(strength):
    found = probability_largest(
        np.array([0.5, 0.5, 0.4]) * strength + 1, np.array([0.5, 0.5, 0.6]) * strength + 1
    )
    worse = stats.norm.sf(0.1 * np.sqrt(strength / 0.49)) if strength > 100 else found[2]
    assert found == pytest.approx([(1 - worse) / 2, (1 - worse) / 2, worse], abs=1e-4)


def test_propensities_of_ten_thousand_alike_are_uniform():
    found = probability_largest(np.ones(10_000), np.ones(10_000))
    assert found == pytest.approx(np.full(10_000, 1e-4), rel=1e-9)


def test_a_decision_holds_for_a_round_and_keeps_its_propensities():
    policy, rng = Thompson(list("abc"), "a", batches=4), stream(1, "round")
    for _ in range(10):
        draws = []
        for batch in range(4):
            draw = policy.ask(rng)
            draws.append(draw)
            last = batch == 3
            assert policy.due(draw) == ({DevScore("a")} if last else set())
            policy.tell(Outcome(draw, score=float(rng.random()) if last else None))
        assert len({draw.task for draw in draws}) == 1
        assert all(draw.probabilities is draws[0].probabilities for draw in draws)


def test_the_first_reward_is_a_success():
    policy = Thompson(["a"], "a", decay=0, batches=1)
    policy.tell(Outcome(policy.ask(stream(1, "first")), score=0.0))
    assert policy.diagnostics() == {
        "a": {"a": 3.0},
        "b": {"a": 1.0},
        "pulls": {"a": 1},
        "utilities": {"a": 0.75},
    }


def play(policy, success, rounds, seed):
    """Pull arms whose rounds succeed with these probabilities; returns the arms pulled."""
    rng, score, pulled = stream(seed, "play"), 1.0, []
    for _ in range(rounds):
        draw = policy.ask(rng)
        score += 1 if rng.random() < success[draw.index] else -0.001
        policy.tell(Outcome(draw, score=score))
        pulled.append(draw.index)
    return np.array(pulled)


def bandit(decay):
    return Thompson(list("abc"), "a", decay, primary_prior=(1, 1), batches=1, propensity=uniform)


def test_without_decay_the_best_arm_gets_most_pulls():
    shares = [np.mean(play(bandit(0.0), [0.2, 0.9, 0.3], 200, s) == 1) for s in range(20)]
    assert np.mean(shares) > 0.8


def test_after_a_switch_only_the_decaying_one_finds_the_new_best_arm():
    found = {0.0: [], 0.05: []}
    for decay, shares in found.items():
        for seed in range(20):
            policy = bandit(decay)
            play(policy, [0.1, 0.95, 0.1], 100, seed)
            later = play(policy, [0.95, 0.7, 0.1], 100, seed + 100)
            shares.append(np.mean(later[-30:] == 0))
    assert np.mean(found[0.05]) > 0.7
    assert np.mean(found[0.0]) < 0.2


def test_an_arm_that_drifts_back_to_its_prior_is_no_evidence():
    policy, rng = bandit(0.3), stream(1, "drift")
    score = 1.0
    while policy.diagnostics()["pulls"]["b"] < 2:
        draw = policy.ask(rng)
        score += {"a": 1, "b": -0.5, "c": 1}[draw.task]
        policy.tell(Outcome(draw, score=score))
    before = {u.task: u for u in policy.utilities()}["b"]
    for _ in range(500):
        draw = policy.ask(rng)
        if draw.task != "b":
            score += 1
            policy.tell(Outcome(draw, score=score))
    after = {u.task: u for u in policy.utilities()}["b"]
    assert policy.diagnostics()["a"]["b"] == pytest.approx(1.0)
    assert after == before
    assert after.mean < 0.5
    assert after.low < after.mean < after.high
    assert policy.select(top=1) == ["a", "c"]


def test_an_arm_never_pulled_is_not_selected():
    assert Thompson(list("abc"), "b").select() == ["b"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"primary": "x"}, "primary: expected one of"),
        ({"primary": "a", "decay": 1.0}, "decay"),
        ({"primary": "a", "batches": 0}, "batches"),
        ({"primary": "a", "prior": (0, 1)}, "prior"),
    ],
)
def test_a_mistake_is_named(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        Thompson(["a", "b"], **options)
