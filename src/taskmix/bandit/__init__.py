"""The synthetic MTL bandit: tries policies where the truth is known."""

from taskmix.bandit.comparison import BanditComparison, BanditStanding, compare
from taskmix.bandit.contenders import CONTENDERS
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
