"""Exp3.S follows equation 5, does not overflow, and finds the task that gains."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import Exp3S, Outcome, Random
from taskmix.policies import QuantileScaler
from taskmix.policies.signals import Draw
from taskmix.rng import stream


class AsItIs:
    """A scaler for gains that are rewards already."""

    def __call__(self, value):
        return value

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


class Transcription:
    """Equation 5 with its letters, weight by weight, in logarithms."""

    def __init__(self, N, eta, eps, divide_by):
        self.N, self.eta, self.eps, self.divide_by = N, eta, eps, divide_by
        self.w = [0.0] * N
        self.t = 1

    def rho(self):
        top = max(self.w)
        total = sum(math.exp(w - top) for w in self.w)
        return [math.exp(w - top) / total for w in self.w]

    def pi(self):
        return [(1 - self.eps) * r + self.eps / self.N for r in self.rho()]

    def update(self, k, r):
        divisor = self.pi()[k] if self.divide_by == "pi" else self.rho()[k]
        self.t += 1
        alpha = 1 / self.t
        v = [w + (self.eta * r / divisor if j == k else 0) for j, w in enumerate(self.w)]
        top = max(v)
        self.w = [
            top
            + math.log(
                (1 - alpha) * math.exp(v[i] - top)
                + alpha / (self.N - 1) * sum(math.exp(v[j] - top) for j in range(self.N) if j != i)
            )
            for i in range(self.N)
        ]


@pytest.mark.parametrize("divide_by", ["pi", "rho"])
@pytest.mark.parametrize(("tasks", "eta"), [(2, 0.001), (5, 0.1), (8, 0.05)])
def test_a_history_of_a_thousand_steps_is_equation_5(tasks, eta, divide_by):
    names = [f"task{k}" for k in range(tasks)]
    policy = Exp3S(names, eta=eta, epsilon=0.1, divide_by=divide_by, scaler=AsItIs())
    paper = Transcription(tasks, eta, 0.1, divide_by)
    rng = stream(tasks, "history")
    for _ in range(1000):
        draw = policy.ask(rng)
        reward = float(rng.uniform(-1, 1)) + 0.3 * (draw.index == 1)
        policy.tell(Outcome(draw, gain=reward))
        paper.update(draw.index, reward)
        assert policy.probabilities() == pytest.approx(paper.pi(), abs=1e-12)
    differences = policy.weights - policy.weights[0]
    assert differences == pytest.approx(np.subtract(paper.w, paper.w[0]), abs=1e-11)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-1e9, 1e9)), max_size=60))
def test_every_task_keeps_its_uniform_share(history):
    policy = Exp3S(list("abcd"), eta=1.0, epsilon=0.2)
    for number, (index, gain) in enumerate(history, 1):
        draw = Draw("abcd"[index], index, policy.probabilities(), number)
        policy.tell(Outcome(draw, gain=gain))
        assert policy.probabilities().min() >= 0.2 / 4 - 1e-15


def test_a_million_updates_do_not_overflow():
    policy = Exp3S(list("ab"), eta=0.1, epsilon=0.0, divide_by="rho", scaler=AsItIs())
    # The last 60,000 of them; the second half rewards the task that the first has all but buried.
    policy.load_state_dict({**policy.state_dict(), "updates": 940_000})
    for index in range(2):
        for _ in range(30_000):
            policy.tell(Outcome(policy.replay(index), gain=1.0))
    assert np.all(np.isfinite(policy.probabilities()))
    assert np.all(policy.probabilities() > 0)
    assert policy.probabilities()[1] > 0.999


ADVERSARIES = {
    "against the favourite": lambda policy, draw, rng: -float(draw.probability > 1 / 4),
    "all bad": lambda policy, draw, rng: -1.0,
    "all good": lambda policy, draw, rng: 1.0,
    "the rare one pays": lambda policy, draw, rng: float(draw.probability < 1 / 4),
    "noise": lambda policy, draw, rng: float(rng.choice([-1.0, 1.0])),
    "a new best task every 50 draws": lambda policy, draw, rng: (
        1.0 if draw.index == draw.number // 50 % 4 else -1.0
    ),
}


@pytest.mark.parametrize("scaler", [AsItIs, QuantileScaler])
@pytest.mark.parametrize("adversary", ADVERSARIES.values(), ids=ADVERSARIES)
@pytest.mark.parametrize("divide_by", ["pi", "rho"])
@pytest.mark.parametrize("eta", [0.1, 1.0, 10.0, 100.0])
def test_it_stays_on_the_simplex(eta, divide_by, adversary, scaler):
    policy, rng = Exp3S(list("abcd"), eta, 0.01, divide_by, scaler()), stream(1, "simplex")
    worst = 0.0
    for _ in range(1500):
        draw = policy.ask(rng)
        worst = max(worst, abs(float(draw.probabilities.sum()) - 1))
        assert draw.probabilities.min() >= 0.01 / 4 - 1e-15
        policy.tell(Outcome(draw, gain=adversary(policy, draw, rng)))
    assert worst < 1e-11


def test_five_thousand_steps_at_a_large_eta_do_not_drift():
    for seed in range(3):
        policy, rng = Exp3S(list("abcdefgh"), eta=1.0 + 2 * seed), stream(seed, "drift")
        for _ in range(5000):
            draw = policy.ask(rng)
            policy.tell(Outcome(draw, gain=float(rng.normal())))
        assert policy.probabilities().sum() == pytest.approx(1, abs=1e-11)


def test_ten_thousand_tasks():
    names = [f"task{k}" for k in range(10_000)]
    policy, rng = Exp3S(names, eta=0.01), stream(1, "many")
    for _ in range(200):
        draw = policy.ask(rng)
        policy.tell(Outcome(draw, gain=float(rng.normal())))
    assert policy.probabilities().sum() == pytest.approx(1)
    assert np.all(policy.probabilities() > 0)


def test_equal_gains_leave_it_uniform():
    policy, rng = Exp3S(list("abc")), stream(1, "equal")
    for _ in range(100):
        policy.tell(Outcome(policy.ask(rng), gain=0.25))
    assert policy.probabilities() == pytest.approx(Random(list("abc")).probabilities())


def test_it_follows_the_task_that_gains_when_that_changes():
    policy, rng = Exp3S(list("abc"), eta=0.05), stream(1, "follows")
    for best in range(2):
        for _ in range(1500):
            draw = policy.ask(rng)
            policy.tell(Outcome(draw, gain=float(draw.index == best) + rng.normal(0, 0.1)))
        assert policy.probabilities().argmax() == best
        assert policy.probabilities()[best] > 0.6


@pytest.mark.parametrize(
    "options", [{"eta": 0}, {"epsilon": 1.0}, {"epsilon": -0.1}, {"divide_by": "p"}]
)
def test_a_mistake_is_named(options):
    with pytest.raises(ValueError, match=f"{next(iter(options))}.*found"):
        Exp3S(["a"], **options)
