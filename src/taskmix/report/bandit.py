"""Figure 1 of Glover and Hokamp (2019): policies in the MTL bandit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from taskmix.bandit import CONTENDERS, BanditComparison, Environment, compare, simulate
from taskmix.errors import UserError, unknown
from taskmix.report.document import (
    Caption,
    Plot,
    check_page,
    document,
    table,
    with_legend,
    write_page,
)
from taskmix.report.style import band, contestant_looks, curve, panels, plotly
from taskmix.report.timeline import Floats, thinned
from taskmix.rng import stream
from taskmix.studies.counterfactual_bandit import counterfactual_curves
from taskmix.tables import Table
from taskmix.training.folder import REPORT

COUNTERFACTUAL = "counterfactual"
"""A policy that is learned from two runs before its own."""
POLICIES = (*CONTENDERS, COUNTERFACTUAL)
_CAPTION = Caption(
    "Score over the steps",
    "The mean score over arms and environments: a line for the median seed, a band for all seeds.",
)


@dataclass(frozen=True, eq=False)
class BanditReport:
    """A comparison in the bandit, with sentences on policies that its table does not describe."""

    comparison: BanditComparison
    notes: tuple[str, ...]

    def verdict(self) -> str:
        """Return in a sentence which policy is best, the oracle apart."""
        lines = {line.policy: line for line in self.comparison.standings()}
        others = [line for name, line in lines.items() if "oracle" not in name]
        best = max(others, key=lambda line: line.score)
        if best.policy == "random":
            return "No policy is above random."
        environments = self.comparison.curves.shape[1]
        above = f"above random in {best.over_random} of {environments} environments"
        if 2 * lines["oracle"].over_random <= environments:
            return (
                f"{best.policy} is best: it is {above}. The gap from random to the oracle says "
                "nothing here: with so few steps the oracle is not above random."
            )
        return (
            f"{best.policy} is best: it closes {best.closed:.0%} of the gap from random to the "
            f"oracle and is {above}."
        )

    def tables(self) -> list[Table]:
        [standings] = self.comparison.tables()
        return [replace(standings, notes=self.notes)]


def bandit_report(
    out: Path,
    policies: Sequence[str] = POLICIES,
    *,
    arms: int = 8,
    steps: int = 1000,
    environments: int = 8,
    seeds: int = 10,
    seed: int = 0,
    noise: float = 0.0,
    workers: int = 1,
) -> BanditReport:
    """Compare policies in the bandit and write `report.html` with the table and Figure 1 to `out`.

    Args:
        out: the folder of the report.
        policies: names among `POLICIES`.
        arms: tasks in an environment.
        steps: draws in a run.
        environments: how many to draw.
        seeds: runs of each policy in each environment.
        seed: everything follows from it.
        noise: the standard deviation of the noise in the loss of a batch.
        workers: processes.
    """
    plotly()
    for name in policies:
        if name not in POLICIES:
            raise unknown("policy", name, POLICIES, "bandit")
    sizes = {"arms": arms, "steps": steps, "environments": environments, "seeds": seeds}
    for what, size in sizes.items():
        if size < 1:
            raise UserError(f"{what}: expected at least 1, found {size}")
    if not 0 <= noise < math.inf:
        raise UserError(f"noise: expected a number, none below 0, found {noise}")
    check_page(out / REPORT)
    makers = {name: CONTENDERS[name] for name in policies if name != COUNTERFACTUAL}
    comparison = compare(makers, **sizes, seed=seed, noise=noise, workers=workers)
    notes = []
    if COUNTERFACTUAL in policies:
        curves = counterfactual_curves(seed=seed, noise=noise, **sizes)
        comparison = _joined(comparison, COUNTERFACTUAL, curves)
        notes.append(
            "counterfactual is learned from two runs before its own, the first of them random."
        )
    if "thompson" in policies:
        notes.append(primary_note(**sizes, seed=seed, noise=noise))
    if noise:
        notes.append(f"The noise in each loss has a standard deviation of {noise:g}.")
    report = BanditReport(comparison, tuple(notes))
    lead = ", ".join(f"{size} {what}" for what, size in sizes.items())
    body: list[str | Plot] = [
        *map(table, report.tables()),
        *with_legend(
            contestant_looks(comparison.policies), Plot(_CAPTION, bandit_curves(comparison))
        ),
    ]
    write_page(out / REPORT, document("The MTL bandit", lead, report.verdict(), body))
    return report


def _joined(comparison: BanditComparison, name: str, curves: Floats) -> BanditComparison:
    return BanditComparison(
        (*comparison.policies, name), np.concatenate([comparison.curves, curves[None]])
    )


def primary_note(
    arms: int, steps: int, environments: int, seeds: int, seed: int, noise: float = 0.0
) -> str:
    """Return a sentence on the score of the primary arm, which Thompson sampling is for."""
    scores = {name: np.empty((environments, seeds)) for name in ("random", "thompson")}
    for place in range(environments):
        environment = Environment.random(arms, steps, stream(seed, "environment", place))
        for name, finals in scores.items():
            for run in range(seeds):
                rng = stream(seed, "draws", place, run)
                policy = CONTENDERS[name](environment)
                rollout = simulate(policy, environment, steps, rng, noise=noise)
                finals[place, run] = rollout.scores[-1, 0]
    own, chance = (np.median(scores[name], axis=1) for name in ("thompson", "random"))
    return (
        f"thompson serves one primary arm, the first, and no other: that arm ends at "
        f"{own.mean():.4f} (random: {chance.mean():.4f}), above random in {(own > chance).sum()} "
        f"of {environments}."
    )


def bandit_curves(comparison: BanditComparison) -> Any:
    """Figure 1 as a plotly figure: a line for the median seed, a band for all seeds."""
    figure = panels(tasks=len(comparison.policies))
    for name, look in contestant_looks(comparison.policies).items():
        scores = comparison.curves[comparison.policies.index(name)].mean(axis=0)
        places = thinned(scores.shape[1], most=250)
        shown, steps = scores[:, places], places + 1
        figure.add_traces(band(name, look, steps, shown.min(axis=0), shown.max(axis=0)))
        figure.add_trace(curve(name, look, steps, np.median(shown, axis=0), line=look.line(2.5)))
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text="mean score", rangemode="tozero")
    figure.update_layout(height=520)
    return figure
