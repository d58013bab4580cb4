"""What a journal teaches: what another policy would have earned, and a better one."""

from bursar.offpolicy.course import Course
from bursar.offpolicy.direct import DirectMethod, RewardModel, task_means
from bursar.offpolicy.doubly_robust import (
    DoublyRobust,
    SelfNormalisedDoublyRobust,
    SwitchDoublyRobust,
)
from bursar.offpolicy.estimate import Estimate, SmallSampleWarning, estimate, mean_shares
from bursar.offpolicy.evidence import Estimator, Evidence
from bursar.offpolicy.evolution import Evolution
from bursar.offpolicy.exact import Exact
from bursar.offpolicy.importance import ClippedImportanceSampling, ImportanceSampling
from bursar.offpolicy.improve import (
    FarPolicyWarning,
    entropy_weight,
    estimate_improved,
    improve,
    improved_shares,
)
from bursar.offpolicy.log import Log
from bursar.offpolicy.objective import Totals, objective
from bursar.offpolicy.pooling import Sample
from bursar.offpolicy.rewards import Reward, prediction_gain, room_left, room_left_of
from bursar.offpolicy.weighted import WeightedImportanceSampling

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
