"""The kinds of task: what rows become, and what outputs mean."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from bursar.tasks.kinds.base import Kind
from bursar.tasks.kinds.choose import Choose
from bursar.tasks.kinds.classify import Classify
from bursar.tasks.kinds.multilabel import MultiLabel
from bursar.tasks.kinds.regress import Regress
from bursar.tasks.kinds.span import Span
from bursar.tasks.kinds.tag import Tag

KINDS: tuple[type[Kind], ...] = (Classify, MultiLabel, Regress, Tag, Span, Choose)

__all__ = [
    "KINDS",
    "Choose",
    "Classify",
    "Kind",
    "MultiLabel",
    "Regress",
    "Span",
    "Tag",
    "from_spec",
]


def from_spec(spec: Mapping[str, Any]) -> Kind:
    """The kind that `Kind.spec` described.

    >>> from_spec(Classify(("no", "yes")).spec())
    Classify(labels=('no', 'yes'), marks=0)
    """
    kinds = {kind.name: kind for kind in KINDS}
    cls = kinds[spec["kind"]]
    names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    values = {name: spec[name] for name in names if name in spec}
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
