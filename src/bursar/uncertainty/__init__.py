"""How unsure a model is: entropy, BALD, BatchBALD, and consistent Monte-Carlo dropout.

Scores take NumPy arrays and torch tensors alike. Importing the room loads no torch.
"""

from bursar.uncertainty.bald import bald
from bursar.uncertainty.batch_bald import JointInformation, batch_bald, joint_mutual_information
from bursar.uncertainty.dropout import consistent_dropout
from bursar.uncertainty.entropy import entropy
from bursar.uncertainty.gaussian import gaussian_bald, gaussian_batch_bald, gaussian_entropy
from bursar.uncertainty.legacy import legacy
from bursar.uncertainty.measure import measure, measure_batches
from bursar.uncertainty.predict import batch_samples, predictive_samples

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
