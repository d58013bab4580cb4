"""ODM, ADO, Aioli and DoGE against transcriptions of their rules that share no code with them."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from taskmix import ADO, ODM, Aioli, DoGE, Outcome
from taskmix.policies.ado import Law, _kept_of, fit, smoothed
from taskmix.policies.signals import Alignment, DevLosses
from taskmix.rng import stream
from taskmix.run_info import RunInfo

NAMES = ["a", "b", "c"]
INFO = RunInfo({"a": 100, "b": 50, "c": 10}, steps=1000, batch=16)


def course(policy, steps, make):
    """Draws and tells; returns draws with what they brought, and the distribution behind each."""
    rng, seen, shares = stream(4, "draws"), [], []
    for step in range(1, steps + 1):
        draw = policy.ask(rng)
        outcome = make(step, draw, rng)
        policy.tell(outcome)
        seen.append(outcome)
        shares.append(policy.probabilities().tolist())
    return seen, shares


# Online Data Mixing


def noisy(step, draw, rng):
    return Outcome(draw, loss=[2.0, 1.0, 3.0][draw.index] + 0.3 * float(rng.normal()), tokens=100)


def odm_by_hand(outcomes, rule, gamma, warmup):
    k = len(NAMES)
    rewards = [0.0] * k
    shares = [[1 / k] * k]
    for t, outcome in enumerate(outcomes, 1):
        if t <= warmup:
            shares.append(shares[-1])
            continue
        i, p, loss = (
            outcome.draw.index,
            outcome.draw.probabilities[outcome.draw.index],
            outcome.loss,
        )
        rates = [
            1 / k if u == 0 else min(1 / k, math.sqrt(math.log(k) / (k * u))) for u in (t, t - 1)
        ]
        if rule == "paper":
            rewards[i] = gamma * rewards[i] + (1 - gamma) * loss / p
        elif rule == "exp3":
            rewards[i] += loss / 10 / p
        else:
            rewards[i] = gamma * rewards[i] + (1 - gamma) * math.exp(loss)
        if rule == "perplexity":
            weights = [r / sum(rewards) for r in rewards]
        else:
            powers = [math.exp(rates[1] * r) for r in rewards]
            weights = [x / sum(powers) for x in powers]
        shares.append([(1 - k * rates[0]) * w + rates[0] for w in weights])
    return shares[1:]


@pytest.mark.parametrize("rule", ["paper", "exp3", "perplexity"])
def test_odm_is_its_rule(rule):
    outcomes, shares = course(ODM(NAMES, rule, smoothing=0.8, warmup=5), 200, noisy)
    expected = odm_by_hand(outcomes, rule, 0.8, 5)
    assert np.abs(np.array(shares) - expected).max() < 1e-12
    assert np.abs(np.array(shares[:5]) - 1 / 3).max() < 1e-12


def test_odm_is_uniform_while_its_rate_is_the_largest():
    """Until t > K ln K, the exploration rate is 1/K."""
    policy = ODM([str(k) for k in range(8)])
    _, shares = course(policy, 30, lambda _s, draw, _r: Outcome(draw, loss=float(draw.index)))
    last = math.floor(8 * math.log(8))
    assert np.allclose(shares[last - 1], 1 / 8)
    assert not np.allclose(shares[last + 1], 1 / 8)


def test_odm_in_a_run_warms_up_for_a_twentieth_of_it():
    assert ODM.for_run(INFO)._warmup == 50
    assert ODM.for_run(INFO, warmup=7)._warmup == 7


# ADO


def falling(step, draw, rng):
    floor, scale, power = [(2.0, 3.0, 0.5), (2.5, 1.0, 0.2), (3.0, 0.5, 0.7)][draw.index]
    noise = 0.02 * float(rng.normal())
    return Outcome(draw, loss=floor + scale * step**-power + noise, tokens=100 + step % 7)


def ado_by_hand(outcomes, laws_at, prior, every):
    k = len(NAMES)
    h, mean, laws, n, shares = list(prior), list(prior), None, 0.0, []
    for t, outcome in enumerate(outcomes, 1):
        n += outcome.tokens / 1024
        h = [0.9 * x + 0.1 * p for x, p in zip(h, outcome.draw.probabilities, strict=True)]
        if t % every == 0:
            laws = laws_at[t]
        if laws is None:
            shares.append(list(prior))
            continue
        slopes = [max(al, 0.05) * math.exp(a) * n**-al / n for a, _, al in laws]
        rho = [prior[i] * math.sqrt(h[i]) * slopes[i] for i in range(k)]
        rho = [max(r / sum(rho), 0.01) for r in rho]
        rho = [r / sum(rho) for r in rho]
        shares.append([0.9 * m + 0.1 * r for m, r in zip(mean, rho, strict=True)])
        mean = [m + (r - m) / (t + 1) for m, r in zip(mean, rho, strict=True)]
    return shares


def test_ado_follows_its_laws():
    prior = [0.5, 0.3, 0.2]
    policy = ADO(NAMES, every=100, ignored=10, prior=dict(zip(NAMES, prior, strict=True)))
    laws_at = {}

    def make(step, draw, rng):
        outcome = falling(step, draw, rng)
        if step % 100 == 1 and step > 1:
            laws_at[step - 1] = list(policy.diagnostics()["laws"].values())
        return outcome

    outcomes, shares = course(policy, 301, make)
    assert len(laws_at) == 3
    expected = ado_by_hand(outcomes, laws_at, prior, 100)
    assert np.abs(np.array(shares) - expected).max() < 1e-12
    assert np.allclose(shares[98], prior)


def objective(point, ns, losses, least):
    """The fit's loss, in loops."""
    a, floor, alpha = point
    total = 0.0
    for n, loss in zip(ns, losses, strict=True):
        error = abs(math.log(math.exp(floor) + math.exp(a) * n**-alpha) - math.log(loss))
        total += error**2 / 2 if error <= 1e-3 else 1e-3 * (error - 1e-3 / 2)
    penalties = max(alpha - 0.8, 0) + -min(alpha, 0.001) + max(a - 6.5, 0) + max(least - floor, 0)
    return total + penalties


@pytest.mark.parametrize(
    "law", [Law(1.0, 0.8, 0.4), Law(2.0, 1.2, 0.6), Law(0.0, 0.7, 0.15), Law(3.0, 0.6, 0.5)]
)
def test_a_law_is_found_again(law):
    ns = np.arange(5.0, 400.0, 5.0)
    losses = np.exp(law.irreducible) + np.exp(law.scale) * ns**-law.exponent
    found = fit(ns, losses, 0.5)
    point = [found.scale, found.irreducible, found.exponent]
    near = np.exp(found.irreducible) + np.exp(found.scale) * ns**-found.exponent
    assert np.abs(near - losses).max() < 0.02
    truth = [law.scale, law.irreducible, law.exponent]
    assert objective(point, ns, losses, 0.5) <= objective(truth, ns, losses, 0.5) + 2e-3


def test_a_fit_is_no_worse_than_one_from_every_corner_of_the_grid():
    rng = np.random.default_rng(3)
    ns = np.arange(3.0, 200.0, 9.0)
    losses = 2 + 2 * ns**-0.4 + 0.05 * rng.normal(size=len(ns))
    found = fit(ns, losses, 0.5)
    ours = objective([found.scale, found.irreducible, found.exponent], ns, losses, 0.5)
    others = [
        minimize(objective, (a, e, al), (ns, losses, 0.5), method="Nelder-Mead").fun
        for a in (-2, 1, 5)
        for e in (-2, 0.5, 1.5)
        for al in (0.0, 0.3, 0.7)
    ]
    assert ours < min(others) + 1e-3


def test_smoothing_keeps_a_cubic_and_takes_most_of_the_noise():
    steps = np.linspace(-1, 1, 250)
    cubic = 3 + steps - 2 * steps**3
    noise = np.random.default_rng(1).normal(size=250)
    assert np.abs(smoothed(cubic) - cubic).max() < 1e-9
    assert smoothed(noise).std() < 0.3 * noise.std()


def test_ado_counts_sequences_of_tokens_and_draws_without_them():
    told = ADO(["a"])
    told.tell(Outcome(told.ask(stream(1, "x")), loss=1.0, tokens=2048))
    told.tell(Outcome(told.ask(stream(1, "x")), loss=1.0))
    assert told.state_dict()["examples"] == 3.0


def test_a_task_that_is_not_drawn_repeats_its_loss():
    policy = ADO(["a", "b"], every=1000)
    for index, loss in ((0, 5.0), (0, 4.0), (1, 9.0), (0, 3.0), (1, 8.0)):
        policy.tell(Outcome(policy.replay(index), loss=loss))
    _, curves = policy._curves()
    assert curves[:, 0].tolist() == [5, 4, 4, 3, 3]
    assert curves[:, 1].tolist() == [5, 5, 9, 9, 8]


def test_ado_ignores_the_first_outcomes_and_no_others_in_a_long_run(monkeypatch):
    monkeypatch.setattr("taskmix.policies.ado._MAX_LOG", 100)
    policy, rng = ADO(["falls", "done"], every=400, ignored=120), stream(1, "draws")
    for step in range(1, 401):
        draw = policy.ask(rng)
        loss = 2 + 4 * step**-0.3 if draw.task == "falls" else 3.0
        policy.tell(Outcome(draw, loss=loss))
        ignored = sum(number <= 120 for _, _, number in policy._log)
        assert _kept_of(120, step) == ignored
    assert policy.diagnostics()["laws"]


def test_the_log_of_ado_stays_bounded(monkeypatch):
    monkeypatch.setattr("taskmix.policies.ado._MAX_LOG", 100)
    policy = ADO(NAMES, every=10_000)
    course(policy, 1000, falling)
    assert len(policy.state_dict()["log"]) <= 100


# Aioli


def aioli_by_hand(outcomes, f, repeats, stretch, eta, ema, length):
    k = len(NAMES)
    weights, mean, distribution = [1 / k] * k, None, None
    by_round = {}
    for outcome in outcomes:
        by_round.setdefault((outcome.draw.number - 1) // length, []).append(outcome)
    after = []
    for rounds in by_round.values():
        before = rounds[0].dev_losses
        gains = np.zeros((k, k))
        for burst in range(repeats * k):
            last = rounds[(burst + 1) * stretch]
            task = int(np.argmax(last.draw.probabilities))
            for i, name in enumerate(NAMES):
                gains[i, task] += (before[name] - last.dev_losses[name]) / repeats
            before = last.dev_losses
        mix = np.full((k, k), (1 - f) / (k - 1))
        np.fill_diagonal(mix, f)
        effects = np.array([np.linalg.solve(mix, gains[i]) for i in range(k)])
        if effects.min() < 0:
            effects = effects - effects.min()
        effects = effects / effects.sum()
        if ema is None:
            weights = [w * math.exp(eta * effects[:, j].sum()) for j, w in enumerate(weights)]
        else:
            mean = effects if mean is None else (1 - ema) * effects + ema * mean
            weights = [math.exp(eta * mean[:, j].sum()) for j in range(k)]
        distribution = [w / sum(weights) for w in weights]
        weights = distribution
        after.append(distribution)
    return after


@pytest.mark.parametrize("ema", [0.1, 0.5, None])
def test_aioli_is_its_rule(ema):
    repeats, stretch, length, f, eta = 2, 3, 25, 0.625, 0.7
    policy = Aioli(NAMES, length, repeats, stretch, f, eta, ema)
    losses = dict.fromkeys(NAMES, 5.0)

    def make(step, draw, rng):
        for i, name in enumerate(NAMES):  # b helps all, c harms a
            effect = [0.01, 0.03, -0.02 if i == 0 else 0.02] @ draw.probabilities
            losses[name] -= float(effect) * (1 + 0.1 * float(rng.normal()))
        due = policy.due(draw)
        return Outcome(draw, loss=1.0, dev_losses=dict(losses) if due else None)

    outcomes, shares = course(policy, 4 * length, make)
    expected = aioli_by_hand(outcomes, f, repeats, stretch, eta, ema, length)
    assert np.abs(np.array(shares[length - 1 :: length]) - expected).max() < 1e-9
    assert int(np.argmax(shares[-1])) == 1


def test_aioli_measures_behind_its_first_draw_and_every_stretch():
    policy, rng = Aioli(NAMES, every=30, repeats=2, stretch=4, examples=9), stream(1, "due")
    due = [n for n in range(1, 61) if policy.due(policy.ask(rng))]
    assert due == [1, 5, 9, 13, 17, 21, 25, 31, 35, 39, 43, 47, 51, 55]
    assert policy.needs == {DevLosses(("a", "b", "c"), 9)}


def test_every_task_has_as_many_stretches():
    policy, rng = Aioli(NAMES, every=30, repeats=2, stretch=4, share=0.9), stream(1, "due")
    mixes = [policy.ask(rng).probabilities for _ in range(30)]
    largest = [int(np.argmax(mix)) for mix in mixes[1:25]]
    assert np.bincount(largest).tolist() == [8, 8, 8]
    assert all(mix.max() == pytest.approx(0.9) for mix in mixes[1:25])
    assert np.allclose(mixes[0], 1 / 3)
    assert np.allclose(mixes[25:], 1 / 3)


def test_a_round_with_a_loss_missing_changes_nothing():
    policy = Aioli(NAMES, every=10, repeats=1, stretch=1)
    rng, weights = stream(1, "missing"), {}
    for number in range(1, 31):
        draw = policy.ask(rng)
        losses = dict.fromkeys(NAMES, 5 - number * float(draw.probabilities[number // 11]))
        policy.tell(Outcome(draw, dev_losses={"a": 1.0} if number == 12 else losses))
        weights[number] = policy.diagnostics()["weights"]
    assert weights[10] != weights[1]
    assert weights[20] == weights[10]
    assert weights[30] != weights[20]


def test_aioli_refuses_stretches_that_tell_nothing():
    with pytest.raises(ValueError, match="share: expected"):
        Aioli(["a", "b"], share=0.5)
    with pytest.raises(ValueError, match="targets: expected some of"):
        Aioli(["a", "b"], targets=["x"])
    assert Aioli.for_run(INFO)._round == 200
    scored = RunInfo(INFO.sizes, 1000, 16, objective=("b",))
    for policy in (Aioli, DoGE):
        [signal] = policy.for_run(scored).needs
        assert signal.tasks == ("b",)
        [signal] = policy.for_run(scored, targets=["a", "c"]).needs
        assert signal.tasks == ("a", "c")
    many = RunInfo(dict.fromkeys(map(str, range(14)), 5), 1000, 16)
    assert Aioli.for_run(many)._round == 400


# DoGE


def test_doge_is_its_rule():
    policy = DoGE(NAMES, every=1, rate=0.2, clip=2.0, epsilon=0.03, explore=0.2, targets=["a", "b"])

    def make(step, draw, rng):
        product = [0.4, -0.3, 0.1][draw.index] + 0.2 * float(rng.normal())
        return Outcome(draw, alignment=product, gradient=float(rng.uniform(0.2, 1.0)))

    outcomes, shares = course(policy, 120, make)
    weights, latest, total, updates = [1 / 3] * 3, {}, np.zeros(3), 0
    for outcome, found in zip(outcomes, shares, strict=True):
        latest[outcome.draw.index] = (outcome.alignment, outcome.gradient)
        if len(latest) == 3:
            mean = sum(length for _, length in latest.values()) / 3
            scores = [2 * latest[i][0] / (mean + 1e-6) for i in range(3)]
            moved = [
                w * math.exp(0.2 * min(max(s, 0.0), 2.0))
                for w, s in zip(weights, scores, strict=True)
            ]
            weights = [0.97 * m / sum(moved) + 0.01 for m in moved]
            total, updates = total + weights, updates + 1
        assert found == pytest.approx([0.8 * w + 0.2 / 3 for w in weights], abs=1e-12)
    assert list(policy.diagnostics()["mean"].values()) == pytest.approx(list(total / updates))
    assert shares[-1][0] == max(shares[-1])


def test_doge_measures_every_so_many_draws():
    policy, rng = DoGE(NAMES, every=4, examples=7), stream(1, "due")
    assert [n for n in range(1, 13) if policy.due(policy.ask(rng))] == [4, 8, 12]
    assert policy.needs == {Alignment(("a", "b", "c"), 7)}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: ODM(NAMES, rule="none"), "rule: expected one of"),
        (lambda: ODM(NAMES, smoothing=1.0), "smoothing, warmup"),
        (lambda: ODM(NAMES, start={"a": 1.0}), "start: expected a value for each"),
        (lambda: ADO(NAMES, every=0), "every, ignored"),
        (lambda: ADO(NAMES, step=0), "step, memory"),
        (lambda: Aioli(NAMES, stretch=0), "every, repeats, stretch"),
        (lambda: Aioli(NAMES, eta=0), "eta, ema"),
        (lambda: DoGE(NAMES, every=0), "every, examples"),
        (lambda: DoGE(NAMES, rate=0), "rate, clip"),
        (lambda: DoGE(NAMES, explore=2), "epsilon, explore"),
        (lambda: DoGE(NAMES, targets="a"), "targets: expected some of"),
    ],
)
def test_options_that_cannot_be(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()
