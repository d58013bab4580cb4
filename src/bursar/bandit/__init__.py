"""The synthetic MTL bandit: a policy's wind tunnel."""

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
