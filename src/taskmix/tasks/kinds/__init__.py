"""The kinds of task: how rows are encoded, and how outputs become predictions."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from taskmix.errors import unknown
from taskmix.tasks.kinds.base import Kind
from taskmix.tasks.kinds.choose import Choose
from taskmix.tasks.kinds.classify import Classify
from taskmix.tasks.kinds.generate import Generate
from taskmix.tasks.kinds.multilabel import MultiLabel
from taskmix.tasks.kinds.regress import Regress
from taskmix.tasks.kinds.span import Span
from taskmix.tasks.kinds.tag import Tag

KINDS: tuple[type[Kind], ...] = (Classify, MultiLabel, Regress, Tag, Span, Choose, Generate)

__all__ = [
    "KINDS",
    "Choose",
    "Classify",
    "Generate",
    "Kind",
    "MultiLabel",
    "Regress",
    "Span",
    "Tag",
    "from_spec",
    "kind_class",
]


def kind_class(kind: str | type[Kind], where: str) -> type[Kind]:
    """Return the class of a kind, given by its name or itself."""
    if isinstance(kind, type) and issubclass(kind, Kind):
        return kind
    kinds = {cls.name: cls for cls in KINDS}
    if kind not in kinds:
        raise unknown("kind", str(kind), kinds, where)
    return kinds[str(kind)]


def from_spec(spec: Mapping[str, Any], own: Callable[[str], type[Kind]] | None = None) -> Kind:
    """Make a kind from the output of `Kind.spec`; `own` finds a user's class by `module:Class`."""
    name = spec["kind"]
    cls = own(name) if own is not None and ":" in name else kind_class(name, "model")
    names = [column.name for column in fields(cls)]  # type: ignore[arg-type]
    values = {name: spec[name] for name in names if name in spec}
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
