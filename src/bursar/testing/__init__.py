"""The conformance kits: what every policy, selector, weighting, kind and source has to do."""

from bursar.testing.kind import KindConformance
from bursar.testing.outcomes import garbage, outcome_of
from bursar.testing.policy import PolicyConformance
from bursar.testing.selector import SelectorConformance
from bursar.testing.source import SourceConformance
from bursar.testing.weighting import PracticeWorker, WeightingConformance

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
