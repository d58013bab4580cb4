"""Encoders and the multi-task model. Importing the package loads no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taskmix.models.encoders import Encoder, Representation
    from taskmix.models.multitask import MultiTaskModel

__all__ = ["Encoder", "MultiTaskModel", "Representation", "conditional"]

_MODULES = {
    "Encoder": "taskmix.models.encoders",
    "MultiTaskModel": "taskmix.models.multitask",
    "Representation": "taskmix.models.encoders",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name == "conditional":
        return import_module("taskmix.models.conditional")
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'taskmix.models' has no attribute {name!r}")
