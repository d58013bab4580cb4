"""How fast a policy is learned from a log, and how close the paper's search comes to it."""

from collections.abc import Callable

import numpy as np
from harness import Result, median_ratio, microseconds

from taskmix.offpolicy import Evolution, Exact, Log, Totals, improve, objective
from taskmix.rng import stream


def random_log(seed: int, tasks: int, steps: int) -> Log:
    """A log whose logger changes at every step."""
    rng = stream(seed, "log")
    shares = rng.dirichlet(np.full(tasks, 10.0), steps)
    actions = (rng.random((steps, 1)) > shares.cumsum(axis=1)).sum(axis=1)
    rewards = rng.random(tasks)[actions] * rng.random(steps)
    return Log([f"task{k}" for k in range(tasks)], actions, shares, rewards)


def totals_of(log: Log) -> Totals:
    inverse = 1 / log.propensities
    return Totals(
        np.bincount(log.actions, inverse, len(log.tasks)),
        np.bincount(log.actions, inverse * log.rewards, len(log.tasks)),
    )


def improve_with_the_defaults() -> Result:
    log = random_log(1, 8, 1000)
    milliseconds = microseconds(lambda: improve(log), 1) / 1000
    return Result("improve, entropy weight chosen, 8 tasks", milliseconds, "ms", "none", True)


def exact_against_cmaes() -> Result:
    totals = totals_of(random_log(1, 8, 1000))
    ratio = median_ratio(lambda: Evolution()(totals, 0.25), lambda: Exact()(totals, 0.25))
    return Result("exact against cmaes, 8 tasks", ratio, "times", ">= 100", ratio >= 100)


def exact_at_ten_thousand_tasks() -> Result:
    rng = stream(2, "log")
    tasks = [f"task{k}" for k in range(10_000)]
    actions = rng.integers(0, 10_000, 200_000)
    log = Log(tasks, actions, np.full(200_000, 1e-4), rng.random(10_000)[actions])
    totals = totals_of(log)
    milliseconds = microseconds(lambda: Exact()(totals, 0.25), 1) / 1000
    name = "exact solver, 10,000 tasks"
    return Result(name, milliseconds, "ms", "<= 50", milliseconds <= 50)


def _shortfalls() -> list[float]:
    """By how much the paper's search falls short of the exact answer, on 200 random logs."""
    shortfalls = []
    for seed in range(200):
        totals = totals_of(random_log(seed, 2 + seed % 9, 500))
        exact, found = (
            objective(totals, solve(totals, 0.25), 0.25) for solve in (Exact(), Evolution())
        )
        shortfalls.append(exact - found)
    return shortfalls


def cmaes_falls_short_by_little_and_never_wins() -> Result:
    shortfalls = _shortfalls()
    ok = min(shortfalls) >= -1e-9 and max(shortfalls) <= 3e-3
    name = "objective, exact minus cmaes, largest of 200 logs"
    return Result(name, max(shortfalls), "", "0 to 3e-3", ok)


BENCHMARKS: list[Callable[[], Result]] = [
    exact_against_cmaes,
    improve_with_the_defaults,
    exact_at_ten_thousand_tasks,
    cmaes_falls_short_by_little_and_never_wins,
]
