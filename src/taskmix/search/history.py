"""What the trials of a study tell a sampler, and what a sampler writes into them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.search.axes import Array
from taskmix.search.hedge import Nomination
from taskmix.search.space import Key, Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

_POINT = "gp_hedge:point"
_ROUND = "gp_hedge:round"


@dataclass(frozen=True)
class StudyHistory:
    """The trials of a study other than the one that a point is wanted for.

    Args:
        observed: the points with a value, shape `(observed, axes)`.
        values: theirs, to be maximised, shape `(observed,)`.
        numbers: of their trials.
        pending: the points under evaluation or waiting for it, shape `(pending, axes)`.
        taken: the keys of all points, of failed trials too.
        rounds: what was nominated, by trial number in order.
    """

    observed: Array
    values: Array
    numbers: frozenset[int]
    pending: Array
    taken: frozenset[Key]
    rounds: Mapping[int, Nomination]

    @classmethod
    def read(cls, study: "Study", trial: "FrozenTrial", space: Space) -> "StudyHistory":
        """Return what the storage knows now.

        Args:
            study: whose trials to read.
            trial: the one to leave out.
            space: the points; trials outside it tell nothing.
        """
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
    """Write the point that a trial is going to try, so that other workers leave it alone."""
    study._storage.set_trial_system_attr(trial._trial_id, _POINT, dict(point))


def publish_round(study: "Study", trial: "FrozenTrial", nominated: Nomination) -> None:
    """Write what was nominated for a trial."""
    study._storage.set_trial_system_attr(trial._trial_id, _ROUND, nominated.to_json())


def _point(trial: "FrozenTrial") -> dict[str, Any]:
    """Return a trial's parameters, or the ones it is going to have."""
    attributes = trial.system_attrs
    return {**attributes.get(_POINT, {}), **attributes.get("fixed_params", {}), **trial.params}


def _values(trials: "list[FrozenTrial]", maximise: bool) -> dict[int, float]:
    """Return the values to be maximised by trial number; a pruned trial's is its last report.

    A curve that was cut off early may lie far below all finished ones. Kept inside their range it
    says that the point is bad, and does not flatten all other differences.
    """
    sign = 1.0 if maximise else -1.0
    finished = {t.number: sign * t.values[0] for t in trials if t.state.name == "COMPLETE"}
    if not finished:
        return {}
    low, high = min(finished.values()), max(finished.values())
    pruned = {t.number: _last_report(t) for t in trials if t.state.name == "PRUNED"}
    clipped = {
        number: min(max(sign * report, low), high)
        for number, report in pruned.items()
        if not math.isnan(report)
    }
    return dict(sorted({**finished, **clipped}.items()))


def _last_report(trial: "FrozenTrial") -> float:
    reports = trial.intermediate_values
    return reports[max(reports)] if reports else math.nan


def _stack(rows: list[Array | None], space: Space) -> Array:
    found = [row for row in rows if row is not None]
    return np.stack(found) if found else np.empty((0, len(space.axes)))
