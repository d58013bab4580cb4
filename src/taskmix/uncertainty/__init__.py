"""How unsure a model is: entropy, BALD, BatchBALD, and consistent Monte-Carlo dropout.

Scores take NumPy arrays and torch tensors alike. Importing the room loads no torch.
"""

from taskmix.uncertainty.bald import bald
from taskmix.uncertainty.batch_bald import JointInformation, batch_bald, joint_mutual_information
from taskmix.uncertainty.dropout import consistent_dropout
from taskmix.uncertainty.entropy import entropy
from taskmix.uncertainty.gaussian import gaussian_bald, gaussian_batch_bald, gaussian_entropy
from taskmix.uncertainty.legacy import legacy
from taskmix.uncertainty.measure import measure, measure_batches
from taskmix.uncertainty.predict import batch_samples, predictive_samples

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
