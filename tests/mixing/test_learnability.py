"""Prompts by their learnability: the equation in plain loops, and what theory says."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from taskmix.mixing import ItemOrder, LearnabilityOrder, PromptLearnability

PROMPTS = 6
rewards = st.lists(st.tuples(st.integers(0, PROMPTS - 1), st.floats(-2, 5)), max_size=30)


@settings(derandomize=True, deadline=None)
@given(rewards)
def test_the_probabilities_are_those_of_the_equation(history: list[tuple[int, float]]) -> None:
    pass_rates = [0.5] * PROMPTS
    for prompt, reward in history:
        passed = (reward - -1.0) / (3.0 - -1.0)
        if passed < 0:
            passed = 0.0
        if passed > 1:
            passed = 1.0
        pass_rates[prompt] = pass_rates[prompt] + 0.3 * (passed - pass_rates[prompt])
    scores = [p * (1 - p) for p in pass_rates]
    expected = [0.9 * score / sum(scores) + 0.1 / PROMPTS for score in scores]
    options = PromptLearnability(rate=0.3, epsilon=0.1, lowest=-1.0, highest=3.0)
    order = LearnabilityOrder("a", PROMPTS, 2, seed=1, settings=options)
    for prompt, reward in history:
        order.tell(prompt, reward)
    assert order.probabilities() == pytest.approx(expected)


def test_prompts_are_drawn_with_their_probabilities() -> None:
    pass_rates = np.array([0.0, 0.1, 0.3, 0.5, 0.9, 1.0])
    order = LearnabilityOrder("a", PROMPTS, 1, seed=1, settings=PromptLearnability(rate=1.0))
    for prompt, pass_rate in enumerate(pass_rates):
        order.tell(prompt, pass_rate)
    expected = order.probabilities()
    counts = np.zeros(PROMPTS)
    for _ in range(3000):
        [prompt] = order.next()
        counts[prompt] += 1
        order.tell(prompt, pass_rates[prompt])
    # A false alarm has the probability 1e-4.
    assert stats.chisquare(counts, 3000 * expected).pvalue > 1e-4


def test_success_and_failure_count_alike_and_one_half_most() -> None:
    order = LearnabilityOrder("a", 11, 1, seed=1, settings=PromptLearnability(rate=1.0))
    for prompt in range(11):
        order.tell(prompt, prompt / 10)
    shares = order.probabilities()
    assert shares.argmax() == 5
    assert shares == pytest.approx(shares[::-1])
    assert shares[0] == shares[-1] == shares.min() > 0


def test_without_rewards_or_without_anything_to_learn_all_prompts_are_alike() -> None:
    order = LearnabilityOrder("a", 4, 2, seed=1, settings=PromptLearnability(rate=1.0))
    assert order.probabilities() == pytest.approx([0.25] * 4)
    for prompt in range(4):
        order.tell(prompt, float(prompt % 2))
    assert order.probabilities() == pytest.approx([0.25] * 4)


def test_a_prompt_waits_for_its_rewards_before_it_comes_again() -> None:
    order = LearnabilityOrder("a", 6, 2, seed=1)
    drawn = [prompt for _ in range(3) for prompt in order.next()]
    assert sorted(drawn) == [0, 1, 2, 3, 4, 5]
    order.tell(4, None)  # no completion had a reward
    order.tell(1, 0.5)
    assert sorted(order.next()) == [1, 4]
    assert len(set(order.next())) == 2  # too few are left, so some come again


def test_fewer_draws_have_no_gradient_than_in_shuffled_order() -> None:
    """Of 90 prompts with groups of 8 completions, 30 are solved and 30 cannot be solved."""
    truth = np.repeat([0.0, 0.5, 1.0], 30)

    def mute(order: Any) -> float:
        rng, equal = np.random.default_rng(1), []
        for _ in range(60):
            for prompt in order.next():
                passed = rng.binomial(8, truth[prompt])
                equal.append(passed in (0, 8))
                order.tell(prompt, passed / 8)
        return float(np.mean(equal[300:]))

    assert mute(ItemOrder("a", 90, 10, seed=1)) > 0.6
    assert mute(LearnabilityOrder("a", 90, 10, seed=1)) < 0.3


@pytest.mark.parametrize("cut", range(8))
def test_a_restored_order_continues_with_the_same_batches(cut: int) -> None:
    def told(order: LearnabilityOrder, batches: int) -> list[list[int]]:
        drawn = []
        for number in range(batches):
            drawn.append(order.next())
            if number % 2:  # two batches are open at a time
                for prompt in (*drawn[-2], *drawn[-1]):
                    order.tell(prompt, prompt % 4 / 3)
        return drawn

    order = LearnabilityOrder("a", 15, 3, seed=1)
    told(order, cut)
    again = LearnabilityOrder("a", 15, 3, seed=1)
    again.load_state_dict(json.loads(json.dumps(order.state_dict())))
    assert again.state_dict() == order.state_dict()
    assert told(again, 9) == told(order, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "rate, epsilon"),
        ({"epsilon": 1.5}, "rate, epsilon"),
        ({"lowest": 1.0}, "lowest < highest"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PromptLearnability(**options)
