"""The synthetic MTL bandit: tries policies where the truth is known."""

from bursar.bandit.comparison import BanditComparison, BanditStanding, compare
from bursar.bandit.contenders import CONTENDERS
from bursar.bandit.environment import Environment
from bursar.bandit.rollout import Rollout, simulate

__all__ = [
    "CONTENDERS",
    "BanditComparison",
    "BanditStanding",
    "Environment",
    "Rollout",
    "compare",
    "simulate",
]
