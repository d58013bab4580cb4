"""The conformance kit that every policy, ours or a user's, has to pass."""

from bursar.testing.conformance import PolicyConformance
from bursar.testing.outcomes import garbage, outcome_of

__all__ = ["PolicyConformance", "garbage", "outcome_of"]
