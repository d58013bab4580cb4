"""The exact solver: where V + λH is largest."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.offpolicy import Evolution, Exact, FarPolicyWarning, Log, Totals, improve, objective
from taskmix.rng import stream


def made(seed: int, tasks: int, spread: float) -> Totals:
    rng = stream(seed, "totals")
    weights = 1000 * np.exp(rng.normal(0, spread, tasks))
    return Totals(weights, weights * rng.random(tasks))


def stationary_point(totals: Totals, p: np.ndarray, weight: float) -> np.ndarray:
    """The right side of p_k ∝ exp((s_k - V c_k) / (λ p·c)), in a plain loop."""
    b = sum(pk * ck for pk, ck in zip(p, totals.weights, strict=True))
    v = sum(pk * sk for pk, sk in zip(p, totals.rewards, strict=True)) / b
    z = np.array(
        [(s - v * c) / (weight * b) for s, c in zip(totals.rewards, totals.weights, strict=True)]
    )
    tilted = np.exp(z - z.max())
    return tilted / tilted.sum()


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    seed=st.integers(0, 10_000),
    tasks=st.integers(2, 40),
    spread=st.sampled_from([0.02, 0.2, 1.0, 2.0]),
    weight=st.sampled_from([1e-3, 0.01, 0.1, 0.25, 1.0, 30.0]),
)
def test_the_answer_is_stationary_and_nothing_around_it_is_better(
    seed: int, tasks: int, spread: float, weight: float
) -> None:
    totals = made(seed, tasks, spread)
    p = Exact()(totals, weight)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert np.abs(p - stationary_point(totals, p, weight)).max() < 1e-8
    best = objective(totals, p, weight)
    rng = stream(seed, "others")
    for other in rng.dirichlet(np.ones(tasks), 20):
        for near in (0.001, 0.1, 1.0):
            assert objective(totals, (1 - near) * p + near * other, weight) <= best + 1e-9


@pytest.mark.parametrize("weight", [0.02, 0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize("ratio", [3.0, 30.0, 300.0])
def test_the_highest_of_several_maxima_is_found(ratio: float, weight: float) -> None:
    """With two tasks the objective is a curve: look at all of it."""
    totals = Totals(np.array([1.0, ratio]), np.array([0.9, 0.2 * ratio]))
    shares = np.concatenate([np.linspace(0, 1, 4001), 1 - np.geomspace(1e-9, 1, 4001)])
    best = max(objective(totals, np.array([x, 1 - x]), weight) for x in shares)
    assert objective(totals, Exact()(totals, weight), weight) >= best - 1e-9


def test_a_maximum_narrower_than_a_grid_is_found() -> None:
    """Three tasks drawn 3, 200 and 98 times: all on the first is a maximum, but not the highest."""
    counts = np.array([3.0, 200.0, 98.0])
    totals = Totals(3 * counts, 3 * counts * [0.98, 0.02, 0.96])
    assert objective(totals, Exact()(totals, 0.05), 0.05) == pytest.approx(0.99526, abs=1e-5)


def simplex(steps: int) -> np.ndarray:
    """A fine grid of distributions over three tasks, finer towards the edges."""
    levels = np.linspace(0, 1, steps) ** 2
    first, second = np.meshgrid(levels, levels)
    points = np.stack([first, (1 - first) * second, (1 - first) * (1 - second)], axis=-1)
    return points.reshape(-1, 3)


def objectives(totals: Totals, points: np.ndarray, weight: float) -> np.ndarray:
    logs = np.log(np.maximum(points, 1e-300))
    return (points @ totals.rewards) / (points @ totals.weights) - weight * (points * logs).sum(1)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    seed=st.integers(0, 100_000),
    spread=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
    weight=st.sampled_from([0.005, 0.02, 0.05, 0.1, 0.3]),
)
def test_no_distribution_over_three_tasks_is_better(seed: int, spread: float, weight: float):
    totals = made(seed, 3, spread)
    best = objective(totals, Exact()(totals, weight), weight)
    for order in ([0, 1, 2], [1, 2, 0], [2, 0, 1]):
        assert objectives(totals, GRID[:, order], weight).max() <= best + 1e-9


GRID = simplex(80)


def test_a_uniform_log_with_equal_counts_gives_the_softmax_of_the_means() -> None:
    means = np.array([0.1, 0.5, 0.3])
    p = Exact()(Totals(np.full(3, 300.0), 300 * means), 0.2)
    assert p == pytest.approx(np.exp(means / 0.2) / np.exp(means / 0.2).sum(), abs=1e-12)


def test_table_3_of_the_paper_comes_back_from_the_rewards_it_implies() -> None:
    table = np.array([0.089, 0.255, 0.086, 0.134, 0.154, 0.086, 0.094, 0.102])
    rewards = 0.5 + 0.15 * np.log(table)
    log = Log(
        ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb"],
        np.tile(np.arange(8), 125),
        np.full((1000, 8), 1 / 8),
        np.tile(rewards, 125),
    )
    with pytest.warns(FarPolicyWarning):
        policy = improve(log, 0.15)
    assert np.abs(policy.probabilities() - table).max() < 1e-3


@pytest.mark.parametrize("seed", range(6))
def test_the_papers_search_comes_close_and_never_beyond(seed: int) -> None:
    totals, weight = made(seed, 8, 0.15), [0.15, 0.2, 0.25][seed % 3]
    exact = objective(totals, Exact()(totals, weight), weight)
    found = objective(totals, Evolution(seed=seed)(totals, weight), weight)
    assert exact - 3e-3 <= found <= exact + 1e-12


def test_the_search_is_deterministic_by_its_seed() -> None:
    totals = made(1, 4, 0.1)
    search = Evolution(generations=5, population=16)
    assert search(totals, 0.2).tolist() == search(totals, 0.2).tolist()


@pytest.mark.parametrize("solve", [Exact(), Evolution(generations=20)])
def test_one_task_gets_everything(solve) -> None:
    assert solve(Totals(np.array([5.0]), np.array([2.0])), 0.25).tolist() == [1.0]


def test_rewards_that_are_all_alike_give_the_uniform_distribution() -> None:
    weights = np.array([1.0, 2.0, 3.0])
    for reward in (0.0, 0.7, -2.0):
        assert Exact()(Totals(weights, reward * weights), 0.25) == pytest.approx(np.full(3, 1 / 3))


def test_without_entropy_the_best_tasks_share_everything() -> None:
    weights = np.array([1.0, 4.0, 2.0])
    p = Exact()(Totals(weights, weights * [0.2, 0.6, 0.6]), 0.0)
    assert p.tolist() == [0.0, 0.5, 0.5]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(seed=st.integers(0, 1000), shift=st.floats(-3, 3), scale=st.floats(0.01, 100))
def test_entropy_weight_is_in_units_of_the_reward(seed: int, shift: float, scale: float) -> None:
    totals = made(seed, 6, 0.3)
    moved = Totals(totals.weights * 7, 7 * (scale * totals.rewards + shift * totals.weights))
    assert Exact()(moved, 0.2 * scale) == pytest.approx(Exact()(totals, 0.2), abs=1e-7)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(seed=st.integers(0, 1000))
def test_more_entropy_weight_gives_more_entropy_and_less_value(seed: int) -> None:
    totals = made(seed, 6, 0.3)
    values = [totals.value(Exact()(totals, weight)) for weight in (0.05, 0.1, 0.3, 1.0, 5.0)]
    assert values == sorted(values, reverse=True)


def test_ten_thousand_tasks_are_stationary_too() -> None:
    totals = made(5, 10_000, 0.3)
    p = Exact()(totals, 0.25)
    assert np.abs(p - stationary_point(totals, p, 0.25)).max() < 1e-12
