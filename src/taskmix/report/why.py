"""Why the shares of a run changed, in words, from what its policy believed."""

from itertools import pairwise

from taskmix.report.history import History

MAX_EVENTS = 50


def why(history: History) -> list[str]:
    """Return sentences on how the policy's beliefs changed from one evaluation to the next.

    Classes outside taskmix are not imported for that, so their beliefs stay without words.
    """
    name = history.opening.decider.get("name")
    known = {member.name: member for member in history.family.members}
    explain = getattr(known.get(str(name)), "explain", None)
    if explain is None:
        return []
    sentences = [
        f"{history.unit.capitalize()} {after.step:,}: {sentence}."
        for before, after in pairwise(history.diagnostics)
        for sentence in explain(before.values, after.values)
    ]
    if len(sentences) <= MAX_EVENTS:
        return sentences
    return [f"The last {MAX_EVENTS} of {len(sentences)} changes:", *sentences[-MAX_EVENTS:]]
