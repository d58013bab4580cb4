"""The synthetic MTL bandit: a policy's wind tunnel."""

from bursar.bandit.environment import Environment
from bursar.bandit.rollout import Rollout, simulate

__all__ = ["Environment", "Rollout", "simulate"]
