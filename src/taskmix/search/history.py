"""The history of GP-Hedge, stored in the trials: resumed and shared studies see the same."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.search.space import Array, Key, Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_POINT = "gp_hedge:point"
_ROUND = "gp_hedge:round"


def probabilities(gains: Array, eta: float) -> Array:
    """Return the probability of following each acquisition function: softmax(η g)."""
    scaled = np.exp(eta * (gains - gains.max()))
    return np.asarray(scaled / scaled.sum())


@dataclass(frozen=True)
class Nomination:
    """The nominees of one trial, and the rewards of earlier nominees."""

    nominees: Mapping[str, Mapping[str, Any]]  # the point of each acquisition function
    followed: str  # the acquisition function whose nominee is tried
    # By number of some earlier trials, the posterior mean at each of their nominees, in standard
    # deviations of the observed values.
    rewards: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    gains: Mapping[str, float] = field(default_factory=dict)  # the sums of all rewards so far

    def to_json(self) -> dict[str, Any]:
        rewards = {str(number): dict(means) for number, means in self.rewards.items()}
        return asdict(self) | {"rewards": rewards}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Nomination":
        rewards = {int(number): means for number, means in value["rewards"].items()}
        return cls(value["nominees"], value["followed"], rewards, value["gains"])


def known_rewards(rounds: Iterable[Nomination]) -> dict[int, Mapping[str, float]]:
    """Return the rewards of each trial's nominees by its number, from rounds in trial order."""
    # If two workers have rewarded a trial at the same time, the earlier round counts.
    known: dict[int, Mapping[str, float]] = {}
    for nomination in rounds:
        for number, means in nomination.rewards.items():
            known.setdefault(number, means)
    return known


def total(rewards: Iterable[Mapping[str, float]], functions: Iterable[str]) -> dict[str, float]:
    """Return the gain of each acquisition function: g_i = Σ μ(x_i) over the rewarded trials."""
    trials = list(rewards)
    return {name: float(sum(means[name] for means in trials)) for name in functions}


@dataclass(frozen=True)
class StudyHistory:
    """The trials of a study, without the one that needs a point."""

    observed: Array  # the points with a value, shape (observed, axes)
    values: Array  # to be maximised, shape (observed,)
    numbers: frozenset[int]  # of the trials with a value
    pending: Array  # the points under evaluation or waiting for it, shape (pending, axes)
    taken: frozenset[Key]  # the keys of all points, also of failed trials
    rounds: Mapping[int, Nomination]  # by trial number, in order

    @classmethod
    def read(cls, study: "Study", trial: "FrozenTrial", space: Space) -> "StudyHistory":
        """Read the storage without `trial`; trials outside the space have no point."""
        others = [t for t in study.get_trials(deepcopy=False) if t.number != trial.number]
        rows = {t.number: space.row(_point(t)) for t in others}
        inside = [t for t in others if rows[t.number] is not None]
        values = _values(inside, maximise=study.direction.name == "MAXIMIZE")
        unfinished = [t.number for t in inside if not t.state.is_finished()]
        rounds = {t.number: t.system_attrs[_ROUND] for t in others if _ROUND in t.system_attrs}
        return cls(
            observed=_stack([rows[number] for number in values], space),
            values=np.array(list(values.values()), dtype=np.float64),
            numbers=frozenset(values),
            pending=_stack([rows[number] for number in unfinished], space),
            taken=frozenset(space.key(row) for row in rows.values() if row is not None),
            rounds={number: Nomination.from_json(rounds[number]) for number in sorted(rounds)},
        )


def publish(study: "Study", trial: "FrozenTrial", point: Mapping[str, Any]) -> None:
    """Write the point of a trial into it, so that other workers do not try it."""
    study._storage.set_trial_system_attr(trial._trial_id, _POINT, dict(point))


def publish_round(study: "Study", trial: "FrozenTrial", nominated: Nomination) -> None:
    study._storage.set_trial_system_attr(trial._trial_id, _ROUND, nominated.to_json())


def _point(trial: "FrozenTrial") -> dict[str, Any]:
    attributes = trial.system_attrs
    return {**attributes.get(_POINT, {}), **attributes.get("fixed_params", {}), **trial.params}


def _values(trials: "list[FrozenTrial]", maximise: bool) -> dict[int, float]:
    """Return the values to be maximised by trial number; a pruned trial's is its last report."""
    # An early report may be far below all finished trials. Clipped to their range, it marks the
    # point as bad without hiding the other differences.
    sign = 1.0 if maximise else -1.0
    finished = {t.number: sign * t.values[0] for t in trials if t.state.name == "COMPLETE"}
    if not finished:
        return {}
    low, high = min(finished.values()), max(finished.values())
    for trial in trials:
        reports = trial.intermediate_values
        report = reports[max(reports)] if reports else math.nan
        if trial.state.name == "PRUNED" and not math.isnan(report):
            finished[trial.number] = min(max(sign * report, low), high)
    return dict(sorted(finished.items()))


def _stack(rows: list[Array | None], space: Space) -> Array:
    inside = [row for row in rows if row is not None]
    return np.stack(inside) if inside else np.empty((0, len(space.axes)))
