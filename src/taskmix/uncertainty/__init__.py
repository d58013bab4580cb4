"""Uncertainty of a model: entropy, BALD, BatchBALD, and consistent Monte-Carlo dropout."""

from taskmix.uncertainty.batch_bald import (
    JointInformation,
    batch_bald,
    joint_mutual_information,
    legacy,
)
from taskmix.uncertainty.dropout import batch_samples, consistent_dropout, predictive_samples
from taskmix.uncertainty.information import (
    bald,
    entropy,
    gaussian_bald,
    gaussian_batch_bald,
    gaussian_entropy,
)
from taskmix.uncertainty.measure import measure, measure_batches

__all__ = [
    "JointInformation",
    "bald",
    "batch_bald",
    "batch_samples",
    "consistent_dropout",
    "entropy",
    "gaussian_bald",
    "gaussian_batch_bald",
    "gaussian_entropy",
    "joint_mutual_information",
    "legacy",
    "measure",
    "measure_batches",
    "predictive_samples",
]
