"""The families of deciders: policies, selectors and weightings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from taskmix.policies import POLICIES, Policy
from taskmix.policies.base import Step
from taskmix.records import UnitRecord
from taskmix.selection import SELECTORS, Selector
from taskmix.selection.base import SelectionStep
from taskmix.weighting import WEIGHTINGS, Weighting
from taskmix.weighting.base import Round

Decider = Policy | Selector | Weighting


@dataclass(frozen=True)
class Family:
    """A kind of decider.

    A new one is a row of `FAMILIES`, a package, a driver and a figure in
    `taskmix.report.figures.deciders`.
    """

    key: str  # of a run file, under which it names the decider
    base: type[Any]  # of its deciders
    members: tuple[type[Decider], ...]
    unit: str  # of the budget: a key of a run file's `budget`
    record: type[UnitRecord]  # of one unit in the journal
    driver: str  # `module:Class`; imported when it is needed, because it loads torch
    removed: Mapping[str, str] = field(default_factory=dict)  # by name, since when and what to use

    def load_driver(self) -> Any:
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
            removed={
                "worth": "after version 0.2.0, which can finish its runs; use aimed, or shares "
                "learned by `taskmix improve`"
            },
        ),
        Family(
            key="selection",
            base=Selector,
            members=SELECTORS,
            unit="steps",
            record=SelectionStep,
            driver="taskmix.training.selecting:SelectionDriver",
        ),
        Family(
            key="weighting",
            base=Weighting,
            members=WEIGHTINGS,
            unit="rounds",
            record=Round,
            driver="taskmix.training.weighting:WeightingDriver",
        ),
    )
}
