"""The arms learn when pulled, forget all the while, and never leave their range."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import Random
from taskmix.bandit import Environment, simulate
from taskmix.rng import stream


def transcription(environment, actions):
    """The section's text, arm by arm."""
    scores = [0.0] * len(environment.oracle)
    course = []
    for action in actions:
        scores[action] = min(
            scores[action] + environment.learning[action], environment.ceilings[action]
        )
        for k in range(len(scores)):
            scores[k] = max(scores[k] - environment.forgetting[k], 0.0)
        course.append(list(scores))
    return np.array(course)


@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(0, 1000))
def test_a_simulation_is_the_papers_text(arms, seed):
    environment = Environment.random(arms, 100, stream(seed, "environment"))
    rollout = simulate(Random(environment.tasks), environment, 150, stream(seed, "draws"))
    course = transcription(environment, rollout.actions)
    assert np.array_equal(rollout.scores, course)
    before = np.vstack([np.zeros(arms), course[:-1]])[np.arange(150), rollout.actions]
    after = course[np.arange(150), rollout.actions]
    assert rollout.losses == pytest.approx(-np.log(np.maximum(before, 1e-3)))
    assert rollout.gains == pytest.approx(
        np.log(np.maximum(after, 1e-3)) - np.log(np.maximum(before, 1e-3)), abs=1e-12
    )


def test_environments_are_as_the_paper_draws_them():
    environment = Environment.random(8, 1000, stream(1, "environment"))
    assert environment.oracle.sum() == pytest.approx(1)
    assert np.all((environment.ceilings >= 0.5) & (environment.ceilings <= 1))
    assert environment.learning * 1000 * environment.oracle == pytest.approx(environment.ceilings)
    ratio = environment.forgetting / environment.learning
    assert np.all((ratio >= 0) & (ratio <= 0.01))


def test_without_forgetting_the_oracles_counts_reach_every_ceiling():
    oracle = np.array([0.5, 0.3, 0.2])
    ceilings = np.array([0.6, 0.8, 1.0])
    environment = Environment(oracle, ceilings, ceilings / (10 * oracle), np.zeros(3))
    scores = np.zeros(3)
    for arm in [0, 1, 2, 0, 1, 0, 2, 0, 1, 0]:
        scores = environment.after(scores, arm)
    assert scores == pytest.approx(ceilings)


def test_a_policy_over_other_tasks_is_refused():
    environment = Environment.random(3, 10, stream(1, "environment"))
    with pytest.raises(ValueError, match="policy: expected the tasks"):
        simulate(Random(["a", "b", "c"]), environment, 10, stream(1, "draws"))


def test_an_environment_needs_arms():
    with pytest.raises(ValueError, match="expected at least 1, found 0, 10"):
        Environment.random(0, 10, stream(1, "environment"))
