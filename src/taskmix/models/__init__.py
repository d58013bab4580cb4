"""Encoders and the multi-task model. Importing the package loads no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskmix.models.encoders import Encoder, Representation
    from taskmix.models.multitask import MultiTaskModel
    from taskmix.models.smollm import smollm2

__all__ = ["Encoder", "MultiTaskModel", "Representation", "conditional", "smollm2"]

_MODULES = {
    "Encoder": "taskmix.models.encoders",
    "MultiTaskModel": "taskmix.models.multitask",
    "Representation": "taskmix.models.encoders",
    "smollm2": "taskmix.models.smollm",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "conditional":
        return import_module("taskmix.models.conditional")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'taskmix.models' has no attribute {name!r}")
