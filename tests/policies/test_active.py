"""Active prioritization follows Algorithm 1 and never starves a task below its limit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import ActivePrioritization, Outcome
from taskmix.policies import Uncertainty
from taskmix.rng import stream

NAMES = list("abcd")
quick = settings(derandomize=True, deadline=None, max_examples=50)
estimates = st.lists(st.lists(st.floats(0, 3), min_size=4, max_size=4), min_size=1, max_size=10)


def told(policy, history):
    rng = stream(1, "active")
    for values in history:
        outcome = Outcome(policy.ask(rng), uncertainty=dict(zip(NAMES, values, strict=True)))
        policy.tell(outcome)
    return policy.probabilities()


def transcription(history, smoothing):
    v = None
    for u in history:
        v = (
            list(u)
            if v is None
            else [smoothing * old + (1 - smoothing) * new for old, new in zip(v, u, strict=True)]
        )
    total = sum(v)
    return [x / total for x in v] if total > 0 else [1 / len(v)] * len(v)


def test_a_history_of_a_thousand_estimates_is_algorithm_1():
    rng = stream(1, "history")
    history = rng.random((1000, 4)).tolist()
    policy = ActivePrioritization(NAMES, every=1, smoothing=0.375)
    assert told(policy, history) == pytest.approx(transcription(history, 0.375), rel=1e-12)


@quick
@given(estimates, st.floats(0, 0.9))
def test_it_is_algorithm_1_for_any_estimates(history, smoothing):
    found = told(ActivePrioritization(NAMES, every=1, smoothing=smoothing), history)
    assert found == pytest.approx(transcription(history, smoothing), abs=1e-9)


@quick
@given(estimates, st.floats(0, 1))
def test_no_task_falls_below_its_limit_and_the_order_stays(history, limit):
    free = told(ActivePrioritization(NAMES, every=1), history)
    held = told(ActivePrioritization(NAMES, every=1, limit=limit), history)
    assert held.min() >= limit / 4 - 1e-12
    assert np.all(np.diff(held[np.argsort(free)]) >= -1e-12)
    if free.min() >= limit / 4:
        assert held == pytest.approx(free, abs=1e-12)


def test_uniform_while_nothing_is_known_or_all_is_zero():
    policy = ActivePrioritization(NAMES)
    assert policy.probabilities().tolist() == [0.25] * 4
    assert told(policy, [[0.0] * 4]).tolist() == [0.25] * 4


def test_a_task_without_an_estimate_stands_in_the_middle():
    policy = ActivePrioritization(list("abc"), every=1)
    policy.tell(Outcome(policy.ask(stream(1, "x")), uncertainty={"a": 1.0, "c": 3.0}))
    assert policy.probabilities() == pytest.approx([1 / 6, 2 / 6, 3 / 6])


def test_estimates_are_due_once_in_every_so_many_draws():
    policy, rng = ActivePrioritization(NAMES, every=3, passes=5, examples=64), stream(1, "due")
    due = [policy.due(policy.ask(rng)) for _ in range(7)]
    signal = {Uncertainty(5, 64, "bald")}
    assert due == [set(), set(), signal, set(), set(), signal, set()]


@pytest.mark.parametrize(
    "options", [{"every": 0}, {"passes": 0}, {"smoothing": 1.0}, {"limit": 1.5}]
)
def test_a_mistake_is_named(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}.*found"):
        ActivePrioritization(NAMES, **options)
