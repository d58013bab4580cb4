"""Which examples are trained on: a selector picks examples across tasks inside one batch."""

from bursar.selection.base import Selection, Selector
from bursar.selection.mt_uncertainty import MTUncertainty
from bursar.selection.rules import Rule, code_rule, paper_rule
from bursar.selection.scores import example_scores
from bursar.selection.usage import Usage

SELECTORS: tuple[type[Selector], ...] = (MTUncertainty,)

__all__ = [
    "SELECTORS",
    "MTUncertainty",
    "Rule",
    "Selection",
    "Selector",
    "Usage",
    "code_rule",
    "example_scores",
    "paper_rule",
]
