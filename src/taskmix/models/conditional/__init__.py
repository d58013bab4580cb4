"""CA-MTL: one pretrained encoder that is conditioned on the task (Pilault et al. 2021).

Importing the package loads no torch, so that a run file can be read without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from taskmix.models.spec import PARTS, ConditionalSpec

if TYPE_CHECKING:
    from taskmix.models.conditional.build import condition
    from taskmix.models.conditional.encoder import ConditionalEncoder
    from taskmix.models.conditional.similarity import (
        covariance_similarities,
        covariance_similarity,
        mean_similarities,
    )
    from taskmix.models.parameters import ParameterCount, count_parameters

_MODULES = {
    "ConditionalEncoder": "conditional.encoder",
    "ParameterCount": "parameters",
    "condition": "conditional.build",
    "count_parameters": "parameters",
    "covariance_similarities": "conditional.similarity",
    "covariance_similarity": "conditional.similarity",
    "mean_similarities": "conditional.similarity",
}

__all__ = [
    "PARTS",
    "ConditionalEncoder",
    "ConditionalSpec",
    "ParameterCount",
    "condition",
    "count_parameters",
    "covariance_similarities",
    "covariance_similarity",
    "mean_similarities",
]


def __getattr__(name: str) -> Any:
    """Import a name that needs torch when it is first used."""
    if name in _MODULES:
        return getattr(import_module(f"taskmix.models.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
