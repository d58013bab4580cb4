"""The helpers of all kits: names, states through JSON, and outcomes without a training."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from taskmix.policies.base import Policy
from taskmix.policies.signals import (
    Alignment,
    DevLosses,
    DevScore,
    Draw,
    Gain,
    Measured,
    Outcome,
    Rewards,
    Signal,
    Uncertainty,
)

_Values = Callable[[Sequence[str], np.random.Generator], dict[str, Any]]
_PLAUSIBLE: Mapping[type[Signal], _Values] = {
    Gain: lambda tasks, rng: {"gain": float(rng.normal(0.02, 0.1))},
    DevScore: lambda tasks, rng: {"score": float(rng.random())},
    Uncertainty: lambda tasks, rng: {"uncertainty": {task: float(rng.random()) for task in tasks}},
    DevLosses: lambda tasks, rng: {
        "dev_losses": {task: float(rng.exponential()) for task in tasks}
    },
    Alignment: lambda tasks, rng: {
        "alignment": float(rng.normal(0.1, 0.2)),
        "gradient": float(rng.exponential()),
    },
    Rewards: lambda tasks, rng: {
        name: float(rng.random()) for name in ("reward", "spread", "mute", "advantage")
    },
}
_IMPLAUSIBLE = (None, float("nan"), float("inf"), float("-inf"), 1.7e308, -1.7e308, -1.0, 0.0)
NOT_RESTORED = "the restored copy goes on otherwise: its state_dict leaves something out"


def names(count: int) -> list[str]:
    return [f"task{number}" for number in range(count)]


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    """Write a state as JSON and read it back; raise if it is not JSON."""
    restored: dict[str, Any] = json.loads(json.dumps(state, allow_nan=False))
    return restored


def assert_refused(what: str, function: Callable[..., object], *arguments: object) -> None:
    """Raise `AssertionError` unless the function raises a `ValueError` for these arguments."""
    try:
        function(*arguments)
    except ValueError:
        return
    raise AssertionError(f"expected a ValueError for {what}")


def outcome_of(policy: Policy, draw: Draw, rng: np.random.Generator) -> Outcome:
    """Return a plausible outcome of a draw, with the signals that are due for it.

    >>> import taskmix
    >>> rng = np.random.default_rng(1)
    >>> policy = taskmix.Random(["a", "b"])
    >>> outcome_of(policy, policy.ask(rng), rng).gain is None
    True
    """
    due = {type(signal) for signal in policy.due(draw)}
    measured: dict[str, Any] = {"loss": float(rng.exponential())}
    for signal, values in _PLAUSIBLE.items():
        if signal in due:
            measured |= values(policy.tasks, rng)
    return Outcome(draw, **measured)


def garbage(policy: Policy, draw: Draw, rng: np.random.Generator) -> Outcome:
    """Return an outcome whose measurements are missing, infinite, NaN or out of range."""
    measured = {field.name: _garbage(field.type, policy.tasks, rng) for field in fields(Measured)}
    return Outcome(draw, **measured)


def _garbage(kind: Any, tasks: Sequence[str], rng: np.random.Generator) -> Any:
    if kind == int | None:
        return int(rng.choice([-5, 0, 2**62]))
    value = _IMPLAUSIBLE[rng.integers(len(_IMPLAUSIBLE))]
    if kind == float | None:
        return value
    if value is None:
        return {} if rng.random() < 0.8 else None
    task = str(rng.choice([*tasks, "no such task"]))
    return dict.fromkeys(tasks, value) if rng.random() < 0.4 else {task: value}
