"""Off-policy learning from logs: the estimated reward of a policy, and a better policy."""

from taskmix.offpolicy.estimate import Estimate, SmallSampleWarning, estimate, mean_shares
from taskmix.offpolicy.estimators import (
    ClippedImportanceSampling,
    DirectMethod,
    DoublyRobust,
    Estimator,
    Evidence,
    ImportanceSampling,
    RewardModel,
    SelfNormalisedDoublyRobust,
    SwitchDoublyRobust,
    WeightedImportanceSampling,
    task_means,
)
from taskmix.offpolicy.improve import (
    FarPolicyWarning,
    entropy_weight,
    estimate_improved,
    improve,
    improved_shares,
)
from taskmix.offpolicy.log import (
    Course,
    Log,
    Reward,
    absolute_advantage,
    mean_reward,
    prediction_gain,
    room_left,
    room_left_of,
)
from taskmix.offpolicy.sample import Sample
from taskmix.offpolicy.solvers import Evolution, Exact, Totals, objective

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
    "absolute_advantage",
    "entropy_weight",
    "estimate",
    "estimate_improved",
    "improve",
    "improved_shares",
    "mean_reward",
    "mean_shares",
    "objective",
    "prediction_gain",
    "room_left",
    "room_left_of",
    "task_means",
]
