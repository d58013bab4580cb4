"""Progress follows its rule, finds what still rises, and does not take noise for progress."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar import Outcome, Progress, Random, Stratified
from bursar.bandit import Environment, simulate
from bursar.rng import stream


class Transcription:
    """The docstring's rule, task by task and rate by rate."""

    RATES = (0.0, 0.5, 0.8, 0.95)

    def __init__(self, tasks, explore):
        self.tasks, self.explore = tasks, explore
        self.seen = [[] for _ in range(tasks)]
        self.fits = [[[0.0, 0.0, 0.0] for _ in self.RATES] for _ in range(tasks)]
        self.product = [0.0] * tasks

    def tell(self, k, loss):
        s = math.exp(-max(loss, 0))
        history = self.seen[k]
        history.append(s)
        n = len(history)
        for fit, d in zip(self.fits[k], self.RATES, strict=True):
            if n == 1:
                fit[:] = [s, 0.0, 0.0]
            elif n == 2:
                fit[:] = [s, s - history[0], 0.0]
            else:
                e = s - (fit[0] + fit[1])
                fit[2] += max(0.1, 1 / (n - 2)) * (e**2 - fit[2])
                fit[0] += fit[1] + (1 - d**2) * e
                fit[1] += (1 - d) ** 2 * e
        if n > 2:
            a, b, c = history[-3:]
            weight = max(0.1, 1 / (n - 2))
            self.product[k] += weight * ((c - b) * (b - a) - self.product[k])

    def probabilities(self):
        N = self.tasks
        fresh = [k for k in range(N) if len(self.seen[k]) < 2]
        if fresh:
            w, trust = [(k in fresh) / len(fresh) for k in range(N)], 1.0
        else:
            b, v = [], []
            for k in range(N):
                i = min(range(4), key=lambda i: self.fits[k][i][2])
                d = self.RATES[i]
                b.append(self.fits[k][i][1])
                v.append(max(0, -self.product[k]) * 2 * (1 - d) ** 3 / (1 + d) ** 3)
            total = sum(max(x, 0) for x in b)
            trust = max(0, 1 - sum(v) / sum(x * x for x in b)) if total > 0 else 0
            w = [max(x, 0) / total if total > 0 else 0 for x in b]
        kept = (1 - self.explore) * trust
        return [kept * x + (1 - kept) / N for x in w]


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_a_history_of_a_thousand_steps_is_the_rule(noise):
    policy, rule = Progress(list("abcd"), explore=0.1), Transcription(4, 0.1)
    rng = stream(1, "history")
    for step in range(1000):
        draw = policy.ask(rng)
        loss = 2 * math.exp(-step / (200 * (1 + draw.index))) + noise * rng.normal()
        policy.tell(Outcome(draw, loss=loss))
        rule.tell(draw.index, loss)
        assert policy.probabilities() == pytest.approx(rule.probabilities(), abs=1e-12)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.floats(0.001, 0.01), st.floats(0.001, 0.01))
def test_without_noise_shares_are_in_proportion_to_the_slopes(one, other):
    policy, rng = Progress(list("ab"), explore=0.1), stream(1, "slopes")
    slopes = np.array([one, other])
    for _ in range(60):
        draw = policy.ask(rng)
        likelihood = 0.1 + slopes[draw.index] * policy.drawn[draw.index]
        policy.tell(Outcome(draw, loss=-math.log(likelihood)))
    assert policy.probabilities() == pytest.approx(0.9 * slopes / slopes.sum() + 0.05, abs=1e-6)


def test_every_task_keeps_its_share_of_the_exploration():
    policy, rng = Progress(list("abc"), explore=0.3), stream(1, "floor")
    for _ in range(200):
        draw = policy.ask(rng)
        assert policy.probabilities().min() >= 0.3 / 3 - 1e-12 or policy.draws <= 20
        policy.tell(Outcome(draw, loss=float(rng.exponential())))


def test_pure_noise_is_drawn_nearly_uniformly():
    policy, rng = Progress(list("abcd")), stream(1, "noise")
    shares = []
    for _ in range(3000):
        draw = policy.ask(rng)
        shares.append(draw.probabilities)
        policy.tell(Outcome(draw, loss=max(0.0, 0.7 + 0.2 * rng.normal())))
    assert np.mean(shares, axis=0) == pytest.approx([0.25] * 4, abs=0.06)


def test_a_task_that_converges_gives_way_at_once():
    policy, rng = Progress(list("ab"), explore=0.05), stream(1, "converges")
    for _ in range(200):
        draw = policy.ask(rng)
        pulls = int(policy.drawn[draw.index])
        likelihood = min(0.5, 0.02 * pulls) if draw.task == "a" else 0.001 * pulls
        policy.tell(Outcome(draw, loss=-math.log(likelihood)))
    assert policy.probabilities()[1] > 0.9
    assert policy.drawn[0] < 60


@pytest.mark.parametrize("stratified", [False, True])
def test_it_passes_the_oracle(stratified):
    closed = []
    for place in range(4):
        environment = Environment.random(8, 1000, stream(0, "environment", place))

        def final(policy, environment=environment, place=place):
            rng = stream(0, "draws", place)
            return simulate(policy, environment, 1000, rng).final

        policy = Progress(environment.tasks)
        ours = final(Stratified(policy) if stratified else policy)
        chance, oracle = final(Random(environment.tasks)), final(environment.oracle_policy())
        closed.append((ours - chance) / (oracle - chance))
    assert np.median(closed) > 1.2


def test_a_mistake_is_named():
    with pytest.raises(ValueError, match="explore: expected a number above 0 and up to 1, found 0"):
        Progress(["a"], explore=0)
