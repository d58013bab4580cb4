"""CA-MTL: one pretrained encoder that adapts itself to each task (Pilault et al. 2021).

Importing the room loads no torch, so that a run file can be read without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from taskmix.models.conditional.spec import PARTS, ConditionalSpec

if TYPE_CHECKING:
    from taskmix.models.conditional.build import condition
    from taskmix.models.conditional.count import ParameterCount, count_parameters
    from taskmix.models.conditional.encoder import ConditionalEncoder
    from taskmix.models.conditional.similarity import (
        covariance_similarities,
        covariance_similarity,
        mean_similarities,
    )

_HOMES = {
    "ConditionalEncoder": "encoder",
    "ParameterCount": "count",
    "condition": "build",
    "count_parameters": "count",
    "covariance_similarities": "similarity",
    "covariance_similarity": "similarity",
    "mean_similarities": "similarity",
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
    """Import what needs torch when it is first asked for."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
