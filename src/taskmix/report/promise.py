"""What learned shares promised, beside what their run reached."""

import numpy as np
from pydantic import TypeAdapter, ValidationError

from taskmix.errors import UserError, explain
from taskmix.offpolicy.curves import Promise
from taskmix.report.run_data import RunData
from taskmix.tables import Table
from taskmix.training.folder import JOURNAL


def promise_table(run: RunData) -> Table | None:
    """Return the forecast of a finished run's shares; None if they have none."""
    opening, evaluations = run.history.opening, run.history.evaluations
    stored = opening.decider.get("forecast")
    if stored is None or not run.finished or not evaluations:
        return None
    try:
        promise = TypeAdapter(Promise).validate_python(stored)
    except ValidationError as error:
        sentence = explain(error, where="forecast")
        raise UserError(f"{run.path / JOURNAL}: {sentence}") from None
    last = evaluations[-1]
    values = last.scores if promise.measure == "score" else last.losses
    targets = opening.objective or opening.tasks
    return promise.table(values, float(np.mean([values[task] for task in targets])))
