"""The conformance kit that every policy, ours or a user's, has to pass."""

from bursar.testing.outcomes import garbage, outcome_of
from bursar.testing.policy import PolicyConformance

__all__ = ["PolicyConformance", "garbage", "outcome_of"]
