"""`taskmix.run` and `taskmix.resume`, whose results print what the commands print."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from inspect import signature
from pathlib import Path
from typing import ParamSpec

from taskmix.report.run_body import run_table, run_verdict
from taskmix.report.run_data import read_run
from taskmix.tables import Table, duration
from taskmix.training.folder import Finished
from taskmix.training.run import resume_run
from taskmix.training.run import run as run_config

P = ParamSpec("P")


@dataclass(frozen=True, repr=False, eq=False)
class Trained(Finished):
    """The result of a run, and its folder, from whose journal its table is made."""

    folder: Path = field(kw_only=True)

    def tables(self) -> list[Table]:
        return [result_table(self.folder)]


def result_table(folder: Path) -> Table:
    """Return the scores of a run with what each task got of the budget, and the verdict below."""
    run = read_run(folder)
    title = f"{run.policy}, {duration(run.history.seconds)}"
    return replace(run_table(run), title=title, notes=(run_verdict(run),))


def _with_table(train: Callable[P, Finished]) -> Callable[P, Trained]:
    @wraps(train)
    def trained(*args: P.args, **kwargs: P.kwargs) -> Trained:
        result = train(*args, **kwargs)
        folder = signature(train).bind(*args, **kwargs).arguments["folder"]
        return Trained(**vars(result), folder=Path(folder))

    return trained


run, resume = _with_table(run_config), _with_table(resume_run)
