"""Bursar spends a training budget across tasks."""

from bursar.policies import Draw, Outcome, Policy, Random

__all__ = ["Draw", "Outcome", "Policy", "Random"]
