"""What learns: encoders, heads, and the multi-task model. Importing the room loads no torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bursar.models.encoders import Encoder, Representation
    from bursar.models.multitask import MultiTaskModel

__all__ = ["Encoder", "MultiTaskModel", "Representation", "conditional"]

_PLACES = {
    "Encoder": "bursar.models.encoders",
    "MultiTaskModel": "bursar.models.multitask",
    "Representation": "bursar.models.encoders",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for."""
    if name == "conditional":
        return import_module("bursar.models.conditional")
    if name in _PLACES:
        return getattr(import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'bursar.models' has no attribute {name!r}")
