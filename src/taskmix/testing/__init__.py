"""The conformance kits: what every policy, selector, weighting, kind and source has to do."""

from taskmix.testing.kind import KindConformance
from taskmix.testing.outcomes import garbage, outcome_of
from taskmix.testing.policy import PolicyConformance
from taskmix.testing.selector import SelectorConformance
from taskmix.testing.source import SourceConformance
from taskmix.testing.weighting import PracticeWorker, WeightingConformance

__all__ = [
    "KindConformance",
    "PolicyConformance",
    "PracticeWorker",
    "SelectorConformance",
    "SourceConformance",
    "WeightingConformance",
    "garbage",
    "outcome_of",
]
