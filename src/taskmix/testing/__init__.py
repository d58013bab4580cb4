"""Conformance tests for the authors of policies, selectors, weightings, kinds and sources.

Subclass a kit in a test module, implement its abstract methods, and run pytest.
"""

from taskmix.testing.common import garbage, outcome_of
from taskmix.testing.kind import KindConformance
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
