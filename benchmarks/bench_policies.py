"""What a policy costs: ask and tell together, at ten tasks and at ten thousand; and the bandit."""

from collections.abc import Callable
from functools import partial

import numpy as np
from harness import Result, microseconds, seconds
from numpy.typing import NDArray

from taskmix import (
    ActivePrioritization,
    Annealed,
    Cycle,
    Exp3S,
    Fixed,
    Outcome,
    Policy,
    Progress,
    Random,
    Schedule,
    Stratified,
    TaskSize,
    Temperature,
    Thompson,
)
from taskmix.bandit import compare
from taskmix.rng import stream

Tasks = list[str]


def sizes(tasks: Tasks) -> dict[str, int]:
    return {task: 100 + i for i, task in enumerate(tasks)}


def shares(tasks: Tasks) -> dict[str, float]:
    return dict.fromkeys(tasks, 1 / len(tasks))


def uniform(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.full(len(a), 1 / len(a))


FIXED: dict[str, Callable[[Tasks], Policy]] = {
    "random": Random,
    "task_size": lambda tasks: TaskSize(sizes(tasks)),
    "temperature": lambda tasks: Temperature(sizes(tasks), 2.0),
    "annealed": lambda tasks: Annealed(sizes(tasks), epochs=10, steps_per_epoch=100),
    "fixed": lambda tasks: Fixed(shares(tasks)),
    "cycle": lambda tasks: Cycle(dict.fromkeys(tasks, 1)),
    "schedule": lambda tasks: Schedule([shares(tasks), shares(tasks)], steps=2000),
}
LEARNING: dict[str, Callable[[Tasks], Policy]] = {
    "exp3s": Exp3S,
    "thompson without propensities": lambda tasks: Thompson(tasks, tasks[0], propensity=uniform),
}
#: No goal was set for these; their figures are shown all the same.
OTHERS: dict[str, Callable[[Tasks], Policy]] = {
    "thompson": lambda tasks: Thompson(tasks, tasks[0]),
    "active": ActivePrioritization,
    "progress": Progress,
    "stratified random": lambda tasks: Stratified(Random(tasks)),
}


def cost(make: Callable[[Tasks], Policy], tasks: int, calls: int) -> float:
    """Microseconds of one ask and one tell."""
    policy, rng = make([f"task{k}" for k in range(tasks)]), stream(1, "draws")
    noise = rng.normal(size=calls).tolist()

    def work() -> None:
        for x in noise:
            policy.tell(Outcome(policy.ask(rng), loss=1.0 + x, gain=x, score=x))

    return microseconds(work, calls)


def result(name: str, make: Callable[[Tasks], Policy], tasks: int, goal: float | None) -> Result:
    found = cost(make, tasks, calls=1000 if tasks == 10 else 200)
    said = "none set" if goal is None else f"<= {goal:g}"
    ok = goal is None or found <= goal
    return Result(f"ask+tell of {name}, {tasks:,} tasks", found, "us", said, ok)


def bandit() -> Result:
    found = seconds(lambda: compare(workers=2))
    name = "bandit, 8 policies x 8 environments x 10 seeds x 1,000 steps, 2 workers"
    return Result(name, found, "s", "<= 20", found <= 20)


BENCHMARKS: list[Callable[[], Result]] = [
    partial(result, name, make, tasks, goal)
    for kind, goals in ((FIXED, (20, 60)), (LEARNING, (30, 300)), (OTHERS, (None, None)))
    for name, make in kind.items()
    for tasks, goal in zip((10, 10_000), goals, strict=True)
] + [bandit]
