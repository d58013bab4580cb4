"""A synthetic multi-task bandit with a known good distribution."""

from taskmix.bandit.comparison import CONTENDERS, BanditComparison, BanditStanding, compare
from taskmix.bandit.environment import Environment
from taskmix.bandit.rollout import Rollout, simulate

__all__ = [
    "CONTENDERS",
    "BanditComparison",
    "BanditStanding",
    "Environment",
    "Rollout",
    "compare",
    "simulate",
]
