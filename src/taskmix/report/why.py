"""Why the shares of a run changed, in words, from what its policy believed."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from taskmix.families import FAMILIES
from taskmix.report.history import History

MAX_EVENTS = 50


def why(history: History) -> list[str]:
    """Return sentences on how the policy's beliefs changed from one evaluation to the next."""
    opening = history.opening
    name = str(opening.decider.get("name"))
    sentences = [
        f"{history.unit.capitalize()} {after.step:,}: {sentence}."
        for before, after in pairwise(history.diagnostics)
        for sentence in changes(opening.family, name, before.values, after.values)
    ]
    if len(sentences) <= MAX_EVENTS:
        return sentences
    return [f"The last {MAX_EVENTS} of {len(sentences)} changes:", *sentences[-MAX_EVENTS:]]


def changes(
    family: str, name: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Sequence[str]:
    """Return in words how the beliefs of a decider changed.

    Classes outside taskmix are not imported for that, so their beliefs stay without words.
    """
    members = {member.name: member for member in FAMILIES[family].members}
    explain = getattr(members.get(name), "explain", None)
    return [] if explain is None else list(explain(before, after))
