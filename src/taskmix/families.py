"""The families of deciders, and all that the rest of the house has to know of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from taskmix.policies import POLICIES, Policy
from taskmix.policies.record import Step
from taskmix.records import UnitRecord
from taskmix.selection import SELECTORS, Selector
from taskmix.selection.record import SelectionStep
from taskmix.weighting import WEIGHTINGS, Weighting
from taskmix.weighting.record import Round

Decider = Policy | Selector | Weighting


@dataclass(frozen=True)
class Family:
    """A way to decide. A new one is a row of `FAMILIES`, a room, a driver and a figure.

    The driver and the figure live in rooms below this one and load torch and plotly, so they are
    named here and imported when they are needed.

    Args:
        key: the key of a run file that names a decider of this family.
        base: the base class of its deciders.
        members: the deciders that have names of their own.
        unit: what a budget counts: a key of a run file's `budget`.
        record: what the journal keeps of one unit.
        driver: `module:Class` of the driver that asks it.
        figure: module of its figure: `draw(history)` with a `CAPTION`.
    """

    key: str
    base: type[Any]
    members: tuple[type[Decider], ...]
    unit: str
    record: type[UnitRecord]
    driver: str
    figure: str

    def load_driver(self) -> Any:
        """Return the driver's class."""
        module, _, name = self.driver.partition(":")
        return getattr(import_module(module), name)


FAMILIES: Mapping[str, Family] = {
    family.key: family
    for family in (
        Family(
            key="policy",
            base=Policy,
            members=POLICIES,
            unit="steps",
            record=Step,
            driver="taskmix.training.policy:PolicyDriver",
            figure="taskmix.report.figures.shares",
        ),
        Family(
            key="selection",
            base=Selector,
            members=SELECTORS,
            unit="steps",
            record=SelectionStep,
            driver="taskmix.training.selecting:SelectionDriver",
            figure="taskmix.report.figures.selection",
        ),
        Family(
            key="weighting",
            base=Weighting,
            members=WEIGHTINGS,
            unit="rounds",
            record=Round,
            driver="taskmix.training.weighting:WeightingDriver",
            figure="taskmix.report.figures.weighting",
        ),
    )
}
