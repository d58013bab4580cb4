"""How good a point GP-Hedge finds in 20 evaluations, and how long it thinks about each."""

import math
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import optuna
from harness import Result, seconds
from numpy.typing import NDArray
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler

from taskmix.rng import stream
from taskmix.search import GPHedgeSampler

SEEDS, INITIAL, EVALUATIONS = 20, 10, 20

Point = list[float]


@dataclass(frozen=True)
class Problem:
    """A function to be minimised inside a box."""

    name: str
    bounds: list[tuple[float, float]]
    value: Callable[[Point], float]

    def initial(self, seed: int) -> list[Point]:
        """The points that every method starts from."""
        lows, highs = np.array(self.bounds).T
        return stream(seed, "initial").uniform(lows, highs, (INITIAL, len(lows))).tolist()


def branin(point: Point) -> float:
    """Three equal minima of 0.397887."""
    x, y = point
    parabola = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return parabola**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def hartmann6(point: Point) -> float:
    """One global minimum of -3.32237 among six local ones."""
    heights = np.array([1.0, 1.2, 3.0, 3.2])
    widths = np.array(
        [
            [10, 3, 17, 3.5, 1.7, 8],
            [0.05, 10, 17, 0.1, 8, 14],
            [3, 3.5, 1.7, 10, 17, 8],
            [17, 8, 0.05, 10, 0.1, 14],
        ]
    )
    centres: NDArray[np.float64] = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    return float(-heights @ np.exp(-(widths * (np.array(point) - centres) ** 2).sum(axis=1)))


PROBLEMS = [
    Problem("Branin", [(-5.0, 10.0), (0.0, 15.0)], branin),
    Problem("Hartmann-6", [(0.0, 1.0)] * 6, hartmann6),
]


def by_optuna(sampler: Callable[[int], BaseSampler]) -> Callable[[Problem, int], float]:
    """The best value that a sampler of Optuna's kind finds for a problem and a seed."""

    def best(problem: Problem, seed: int) -> float:
        study = _started(problem, seed, sampler(seed))
        study.optimize(lambda trial: _evaluate(problem, trial), EVALUATIONS - INITIAL)
        return study.best_value

    return best


def _started(problem: Problem, seed: int, sampler: BaseSampler) -> optuna.Study:
    """A study that knows the initial points already."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=sampler)
    box = {
        f"x{k}": optuna.distributions.FloatDistribution(low, high)
        for k, (low, high) in enumerate(problem.bounds)
    }
    for point in problem.initial(seed):
        params = dict(zip(box, point, strict=True))
        value = problem.value(point)
        study.add_trial(optuna.create_trial(params=params, distributions=box, value=value))
    return study


def _evaluate(problem: Problem, trial: optuna.Trial) -> float:
    bounds = enumerate(problem.bounds)
    return problem.value([trial.suggest_float(f"x{k}", low, high) for k, (low, high) in bounds])


def by_scikit_optimize(problem: Problem, seed: int) -> float:
    """The best value that gp_hedge of scikit-optimize finds."""
    from skopt import gp_minimize

    points = problem.initial(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = gp_minimize(
            problem.value,
            problem.bounds,
            acq_func="gp_hedge",
            x0=points,
            y0=[problem.value(point) for point in points],
            n_calls=EVALUATIONS - INITIAL,
            n_initial_points=0,
            random_state=seed,
        )
    return float(found.fun)


METHODS: dict[str, Callable[[Problem, int], float]] = {
    "GPHedgeSampler": by_optuna(lambda seed: GPHedgeSampler(seed=seed, initial=INITIAL)),
    "scikit-optimize gp_hedge": by_scikit_optimize,
    "random search": by_optuna(lambda seed: RandomSampler(seed=seed)),
    "Optuna's TPESampler": by_optuna(lambda seed: TPESampler(seed=seed)),
    "Optuna's GPSampler": by_optuna(lambda seed: GPSampler(seed=seed)),
}


def best_values() -> list[Result]:
    results = []
    for problem in PROBLEMS:
        medians = {
            name: statistics.median(best(problem, seed) for seed in range(SEEDS))
            for name, best in METHODS.items()
        }
        ours, *others = medians.items()
        rivals = medians["random search"], medians["scikit-optimize gp_hedge"]
        title = f"{problem.name}, median best value"
        goal = f"< {rivals[0]:.4g} (random), <= {rivals[1]:.4g} (scikit-optimize)"
        met = ours[1] < rivals[0] and ours[1] <= rivals[1]
        results.append(Result(f"{title}, {ours[0]}", ours[1], "", goal, met))
        results += [Result(f"{title}, {name}", value, "", "", True) for name, value in others]
    return results


def seconds_a_suggestion() -> Result:
    problem = PROBLEMS[1]
    study = _started(problem, 0, GPHedgeSampler(seed=0))
    study.optimize(lambda trial: _evaluate(problem, trial), EVALUATIONS - INITIAL)
    taken = [seconds(lambda: _evaluate(problem, study.ask())) for _ in range(7)]
    median = statistics.median(taken)
    return Result("suggestion, 20 observations, 6 parameters", median, "s", "<= 1", median <= 1)


BENCHMARKS: list[Callable[[], Result | list[Result]]] = [best_values, seconds_a_suggestion]
