"""Joint mutual information: its cost, its truth, and the `baal` package on the same inputs.

baal (pip install baal) is a dependency of this benchmark only; without it its lines are left out.
It has no exact joint entropy: it draws 500 configurations a pass and averages joint entropies,
whose spread grows with the number of labels. Its values differ from ours by that noise alone.
"""

import importlib.util
import itertools
import math
from collections.abc import Callable

import numpy as np
from harness import Result, median_ratio, microseconds

from taskmix.rng import stream
from taskmix.uncertainty import bald, joint_mutual_information

PASSES = 20
Benchmark = Callable[[], Result]


def samples(examples: int, classes: int, seed: int = 1, concentration: float = 1.0) -> np.ndarray:
    rng = stream(seed, "benchmark")
    return rng.dirichlet(np.full(classes, concentration), (PASSES, examples))


def enumerated(p: np.ndarray) -> float:
    """Every configuration in turn, in plain Python."""
    joint = 0.0
    for labels in itertools.product(range(p.shape[2]), repeat=p.shape[1]):
        q = sum(math.prod(p[k, i, y] for i, y in enumerate(labels)) for k in range(PASSES)) / PASSES
        joint -= q * math.log(q)
    return joint + float((p * np.log(p)).sum()) / PASSES


def exact_cost(examples: int, classes: int) -> Benchmark:
    def run() -> Result:
        p = samples(examples, classes)
        took = microseconds(lambda: joint_mutual_information(p), calls=1, repeats=21) / 1e3
        name = f"exact joint information, {examples} examples of {classes} classes"
        return Result(name, took, "ms", "<= 5 ms", took <= 5)

    return run


def exact_truth(examples: int, classes: int) -> Benchmark:
    def run() -> Result:
        p = samples(examples, classes)
        off = float(abs(joint_mutual_information(p).value - enumerated(p)))
        name = f"its distance from enumeration, {examples} examples of {classes} classes"
        return Result(name, off, "nats", "<= 1e-12", off <= 1e-12)

    return run


def sampled_coverage() -> Result:
    """How often the drawn value is within two of its standard errors of the enumerated one."""
    hits, cases = 0, 0
    for seed, concentration in itertools.product(range(50), (0.3, 1.0, 5.0, 50.0)):
        p = samples(8, 2, seed, concentration)
        drawn = joint_mutual_information(p, limit=1, rng=stream(seed, "draws"))
        truth = joint_mutual_information(p).value
        hits += abs(drawn.value - truth) <= 2 * drawn.standard_error
        cases += 1
    share = hits / cases
    # 200 estimates, 95.4% expected: below 91% with probability 0.2%.
    return Result("drawn within two standard errors", share, "share", ">= 0.91", share >= 0.91)


def sampled_cost() -> Result:
    p = samples(64, 2)
    took = microseconds(lambda: joint_mutual_information(p), calls=1) / 1e3
    return Result("drawn joint information, 64 examples of 2 classes", took, "ms", "", True)


def bald_cost() -> Result:
    p = samples(1000, 3)
    took = microseconds(lambda: bald(p), calls=1) / 1e3
    return Result("BALD of 1,000 examples of 3 classes", took, "ms", "", True)


def baal_joint(p: np.ndarray) -> float:
    """The joint information as baal's own functions give it."""
    from baal.active.heuristics.heuristics import BatchBALD

    by_example = np.ascontiguousarray(p.transpose(1, 2, 0))
    heuristic = BatchBALD(num_samples=len(by_example), num_draw=500)
    drawn = heuristic._sample_from_history(by_example[:-1], 500)
    [joint] = heuristic._joint_entropy(by_example[-1:], drawn)
    return float(joint[0] - heuristic._conditional_entropy(by_example).sum())


def faster_than_baal(examples: int, classes: int) -> Benchmark:
    def run() -> Result:
        p = samples(examples, classes)
        ratio = median_ratio(lambda: baal_joint(p), lambda: joint_mutual_information(p))
        name = f"joint information beside baal, {examples} examples of {classes} classes"
        return Result(name, ratio, "times faster", "> 1", ratio > 1)

    return run


def same_as_baal(examples: int, classes: int) -> Benchmark:
    """The mean of 20 values of baal's against ours, in standard errors of their difference."""

    def run() -> Result:
        p = samples(examples, classes)
        ours = joint_mutual_information(p)
        theirs = np.array([baal_joint(p) for _ in range(20)])
        spread = theirs.std(ddof=1)
        apart = abs(theirs.mean() - ours.value) / math.hypot(spread / 20**0.5, ours.standard_error)
        errors = f"one of its values is off by {spread:.2g} nats, ours by {ours.standard_error:.2g}"
        name = f"baal's mean off ours, {examples} examples of {classes} classes ({errors})"
        return Result(name, float(apart), "s.e.", "<= 4", bool(apart <= 4))

    return run


CASES = [(10, 2), (6, 3), (64, 2)]
BENCHMARKS: list[Benchmark] = [
    *(exact_cost(*case) for case in CASES[:2]),
    *(exact_truth(*case) for case in CASES[:2]),
    sampled_coverage,
    sampled_cost,
    bald_cost,
]
if importlib.util.find_spec("baal"):
    BENCHMARKS += [faster_than_baal(*case) for case in CASES]
    BENCHMARKS += [same_as_baal(*case) for case in CASES]
