"""What a journal teaches: what another policy would have earned, and a better one."""

from taskmix.offpolicy.course import Course
from taskmix.offpolicy.direct import DirectMethod, RewardModel, task_means
from taskmix.offpolicy.doubly_robust import (
    DoublyRobust,
    SelfNormalisedDoublyRobust,
    SwitchDoublyRobust,
)
from taskmix.offpolicy.estimate import Estimate, SmallSampleWarning, estimate, mean_shares
from taskmix.offpolicy.evidence import Estimator, Evidence
from taskmix.offpolicy.evolution import Evolution
from taskmix.offpolicy.exact import Exact
from taskmix.offpolicy.importance import ClippedImportanceSampling, ImportanceSampling
from taskmix.offpolicy.improve import (
    FarPolicyWarning,
    entropy_weight,
    estimate_improved,
    improve,
    improved_shares,
)
from taskmix.offpolicy.log import Log
from taskmix.offpolicy.objective import Totals, objective
from taskmix.offpolicy.pooling import Sample
from taskmix.offpolicy.rewards import Reward, prediction_gain, room_left, room_left_of
from taskmix.offpolicy.weighted import WeightedImportanceSampling

__all__ = [
    "ClippedImportanceSampling",
    "Course",
    "DirectMethod",
    "DoublyRobust",
    "Estimate",
    "Estimator",
    "Evidence",
    "Evolution",
    "Exact",
    "FarPolicyWarning",
    "ImportanceSampling",
    "Log",
    "Reward",
    "RewardModel",
    "Sample",
    "SelfNormalisedDoublyRobust",
    "SmallSampleWarning",
    "SwitchDoublyRobust",
    "Totals",
    "WeightedImportanceSampling",
    "entropy_weight",
    "estimate",
    "estimate_improved",
    "improve",
    "improved_shares",
    "mean_shares",
    "objective",
    "prediction_gain",
    "room_left",
    "room_left_of",
    "task_means",
]
