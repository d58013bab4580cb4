"""Stratified draws keep each count within one of its share, and stay a policy's own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import Cycle, Exp3S, Fixed, Outcome, Random, Schedule, Stratified, Thompson
from taskmix.rng import stream

quick = settings(derandomize=True, deadline=None, max_examples=25)
weights = st.lists(st.integers(1, 1000), min_size=1, max_size=12)


def fixed(weights):
    total = sum(weights)
    return Fixed({f"task{k}": w / total for k, w in enumerate(weights)})


def deviations(policy, steps, seed, outcome=lambda draw, rng: Outcome(draw)):
    """Count less the sum of probabilities, after every step; shape (steps, tasks)."""
    rng, asked, course = stream(seed, "draws"), np.zeros(len(policy.tasks)), []
    for _ in range(steps):
        draw = policy.ask(rng)
        asked = asked + draw.probabilities
        policy.tell(outcome(draw, rng))
        course.append(policy.drawn - asked)
    return np.array(course)


@quick
@given(weights, st.integers(0, 1000))
def test_every_count_stays_strictly_within_one(weights, seed):
    assert np.abs(deviations(Stratified(fixed(weights)), 200, seed)).max() < 1 - 1e-10


@pytest.mark.parametrize("tasks", [30, 300])
@pytest.mark.parametrize("concentration", [0.1, 1.0, 10.0])
def test_also_of_very_many_and_very_uneven_tasks(tasks, concentration):
    shares = stream(tasks, "shares").dirichlet(np.full(tasks, concentration)) + 1e-9
    policy = Stratified(fixed(shares.tolist()))
    assert np.abs(deviations(policy, 1500, 1)).max() < 1 - 1e-10


def test_shares_of_a_common_denominator_are_met_exactly():
    policy = Stratified(fixed([1, 2, 5]))
    assert deviations(policy, 800, 1)[7::8] == pytest.approx(np.zeros((100, 3)), abs=1e-9)


def test_independent_draws_stray_further():
    policy = fixed([1, 2, 5])
    assert np.abs(deviations(policy, 800, 1)).max() > 3


def test_equal_shares_are_a_random_order_of_all():
    orders = set()
    for seed in range(60):
        policy, rng = Stratified(Random(list("abc"))), stream(seed, "order")
        order = "".join(policy.ask(rng).task for _ in range(3))
        assert set(order) == set("abc")
        orders.add(order)
    # One of six orders is missed by 60 fair ones with probability 6 (5/6)^60 < 2e-4.
    assert len(orders) == 6


def test_the_first_draw_follows_the_distribution():
    counts = np.zeros(3)
    for seed in range(1500):
        counts[Stratified(fixed([1, 3, 6])).ask(stream(seed, "first")).index] += 1
    expected = 1500 * np.array([0.1, 0.3, 0.6])
    # Chi-square with 2 degrees of freedom: exceeded by one seed in 10^5.
    assert ((counts - expected) ** 2 / expected).sum() < 23.0


@quick
@given(st.integers(0, 1000), st.floats(0.01, 2.0))
def test_a_distribution_that_changes_is_kept_within_the_harmonic_number(seed, eta):
    policy = Stratified(Exp3S([f"task{k}" for k in range(6)], eta=eta, epsilon=0.1))
    course = deviations(
        policy, 200, seed, lambda draw, rng: Outcome(draw, gain=float(rng.normal()))
    )
    assert course.max() < 1
    assert course.min() > -sum(1 / k for k in range(1, 7))


def test_a_schedule_is_followed_closely():
    phases = [{"a": 0.8, "b": 0.15, "c": 0.05}, {"a": 0.1, "b": 0.2, "c": 0.7}]
    assert np.abs(deviations(Stratified(Schedule(phases, 400)), 400, 1)).max() < 11 / 6


def test_propensities_and_learning_are_the_policys_own():
    inner = Exp3S(list("ab"), eta=0.5)
    policy, rng = Stratified(inner), stream(1, "own")
    assert policy.needs == inner.needs
    for _ in range(20):
        draw = policy.ask(rng)
        assert draw.probabilities is inner.probabilities()
        policy.tell(Outcome(draw, gain=float(rng.normal())))
    assert inner.draws == 20
    assert policy.diagnostics() == inner.diagnostics() != Exp3S(list("ab")).diagnostics()


@pytest.mark.parametrize("policy", [Cycle({"a": 1}), Thompson(["a"], "a")])
def test_a_policy_with_a_rule_of_its_own_is_refused(policy):
    with pytest.raises(ValueError, match=f"found {policy.name}, which draws by its own rule"):
        Stratified(policy)
