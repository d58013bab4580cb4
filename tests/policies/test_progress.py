"""Progress follows its rule, finds what still rises, and does not take noise for progress."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import Outcome, Progress, Random, Stratified
from taskmix.bandit import CONTENDERS, Environment, compare, simulate
from taskmix.rng import stream

RATES = (0.99, 0.975, 0.95, 0.9, 0.8, 0.5, 0.0)


def line(values, kept):
    """Level and slope at the last of some values, by least squares with the weights kept^age."""
    ages = np.arange(len(values))[::-1]
    if kept == 0:
        return values[-1], values[-1] - values[-2]
    roots = kept ** (ages / 2)
    columns = np.stack([np.ones(len(values)), -ages], axis=1)
    solved, *_ = np.linalg.lstsq(columns * roots[:, None], np.array(values) * roots, rcond=None)
    return solved


class Transcription:
    """The docstring's rule, by fitting every line anew."""

    def __init__(self, tasks, floor):
        self.tasks, self.floor = tasks, min(floor, 0.5 / tasks)
        self.seen = [[] for _ in range(tasks)]
        self.errors = np.zeros((tasks, len(RATES)))

    def tell(self, k, loss):
        values, s = self.seen[k], math.exp(-max(loss, 0))
        if len(values) > 1:
            forecasts = np.array([sum(line(values, kept)) for kept in RATES])
            weight = max(0.2, 1 / (len(values) - 1))
            self.errors[k] += weight * ((s - forecasts) ** 2 - self.errors[k])
        values.append(s)

    def probabilities(self):
        fresh = [len(values) < 2 for values in self.seen]
        if any(fresh):
            shares = np.array(fresh) / sum(fresh)
        else:
            # After two values all lines forecast the same, but for rounding.
            best = [
                RATES[int((errors <= errors.min() * (1 + 1e-9)).argmax())] for errors in self.errors
            ]
            slopes = [line(v, kept)[1] for v, kept in zip(self.seen, best, strict=True)]
            shares = np.sqrt(np.maximum(slopes, 0))
            if shares.sum() == 0:
                return np.full(self.tasks, 1 / self.tasks)
            shares = shares / shares.sum()
        return self.floor + (1 - self.tasks * self.floor) * shares


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.5])
def test_a_history_of_several_hundred_steps_is_the_rule(noise):
    policy, rule = Progress(list("abcd"), floor=0.02), Transcription(4, 0.02)
    rng = stream(1, "history")
    for step in range(400):
        draw = policy.ask(rng)
        loss = 3 + 2 * math.exp(-step / (200 * (1 + draw.index))) + noise * rng.normal()
        policy.tell(Outcome(draw, loss=loss))
        rule.tell(draw.index, loss)
        assert policy.probabilities() == pytest.approx(rule.probabilities(), abs=1e-6)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.floats(0.001, 0.01), st.floats(0.001, 0.01))
def test_without_noise_shares_go_by_the_roots_of_the_slopes(one, other):
    policy, rng = Progress(list("ab"), floor=0.05), stream(1, "slopes")
    slopes = np.array([one, other])
    for _ in range(60):
        draw = policy.ask(rng)
        likelihood = 0.1 + slopes[draw.index] * policy.drawn[draw.index]
        policy.tell(Outcome(draw, loss=-math.log(likelihood)))
    roots = np.sqrt(slopes)
    assert policy.probabilities() == pytest.approx(0.9 * roots / roots.sum() + 0.05, abs=1e-6)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.lists(st.floats(0.1, 6), min_size=12, max_size=12), st.floats(-3, 3))
def test_of_loss_it_does_not_matter_where_losses_start(losses, more):
    one, other = (Progress(list("ab"), of="loss") for _ in range(2))
    for step, loss in enumerate(losses):
        one.tell(Outcome(one.replay(step % 2), loss=loss))
        other.tell(Outcome(other.replay(step % 2), loss=loss + more))
    assert one.probabilities() == pytest.approx(other.probabilities(), abs=1e-5)


def test_of_loss_a_language_model_with_a_large_loss_makes_progress_too():
    policy = Progress(list("ab"), of="loss")
    for step in range(40):  # a falls from 8 nats as b does from 2
        start = (8.0, 2.0)[step % 2]
        policy.tell(Outcome(policy.replay(step % 2), loss=start - 0.01 * (step // 2)))
    assert policy.probabilities() == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize(("tasks", "floor"), [(3, 0.01), (3, 0.1), (100, 0.01)])
def test_every_task_keeps_its_floor(tasks, floor):
    policy, rng = Progress([str(k) for k in range(tasks)], floor=floor), stream(1, "floor")
    for _ in range(200):
        draw = policy.ask(rng)
        assert policy.probabilities().min() >= min(floor, 0.5 / tasks) - 1e-12
        policy.tell(Outcome(draw, loss=float(rng.exponential())))


def test_a_task_that_does_not_learn_loses_its_share_in_noise():
    """Fails by chance less than once in a thousand: four deviations of the mean over 8 runs."""
    shares = []
    for place in range(8):
        environment = Environment.random(8, 1000, stream(3, "environment", place))
        environment.learning[0] = 0.0
        rng = stream(3, "draws", place)
        rollout = simulate(Progress(environment.tasks), environment, 1000, rng, noise=0.3)
        shares.append(rollout.probabilities[500:, 0].mean())
    assert np.mean(shares) < 1 / 8 / 2


@pytest.mark.parametrize(("noise", "least"), [(0.1, 0.03), (0.4, 0.005)])
def test_noise_leaves_it_above_random(noise, least):
    """What is asked is three standard errors below what is seen: false alarms in 0.2% of seeds."""
    makers = {"progress": CONTENDERS["progress"]}
    found = compare(makers, environments=16, seeds=4, seed=40, noise=noise)
    over = found.medians("progress") - found.medians("random")
    assert over.mean() > least


def test_pure_noise_is_drawn_nearly_uniformly():
    policy, rng = Progress(list("abcd")), stream(1, "noise")
    shares = []
    for _ in range(3000):
        draw = policy.ask(rng)
        shares.append(draw.probabilities)
        policy.tell(Outcome(draw, loss=max(0.0, 0.7 + 0.2 * rng.normal())))
    assert np.mean(shares, axis=0) == pytest.approx([0.25] * 4, abs=0.06)


def test_a_task_that_converges_gives_way_at_once():
    policy, rng = Progress(list("ab")), stream(1, "converges")
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
    with pytest.raises(ValueError, match="floor: expected a number above 0 and up to 1, found 0"):
        Progress(["a"], floor=0)
    with pytest.raises(ValueError, match="of: expected likelihood, loss or reward, found 'score'"):
        Progress(["a"], of="score")  # type: ignore[arg-type]
