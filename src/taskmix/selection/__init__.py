"""Which examples are trained on: a selector picks examples across tasks inside one batch."""

from taskmix.selection.base import Selection, Selector
from taskmix.selection.mt_uncertainty import MTUncertainty
from taskmix.selection.rules import Rule, code_rule, paper_rule
from taskmix.selection.scores import example_scores
from taskmix.selection.usage import Usage

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
