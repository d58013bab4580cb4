"""Selectors choose the examples of a batch, across tasks."""

from taskmix.selection.base import Selection, Selector, Usage
from taskmix.selection.mt_uncertainty import (
    MTUncertainty,
    Rule,
    code_rule,
    example_scores,
    paper_rule,
)

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
