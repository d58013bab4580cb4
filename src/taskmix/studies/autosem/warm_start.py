"""Where stage 2 begins if it believes stage 1."""

from collections.abc import Mapping, Sequence

from taskmix.policies import Utility
from taskmix.search import RatioSpace
from taskmix.search.ratios import Ratio


def suggested(space: RatioSpace, utilities: Sequence[Utility]) -> list[Ratio]:
    """Return the ratios that stage 1's rounds suggest.

    They are: each auxiliary alone with the primary, in the proportion of the rounds that the bandit
    gave them; all of them together in that proportion; and all in equal parts. Each is the nearest
    ratio within the ranges.

    Args:
        space: the ratios there are.
        utilities: of all its tasks; their pulls are the rounds that the bandit gave them.

    >>> space = RatioSpace("rte", ("qqp", "mnli"))
    >>> pulls = {"rte": 100, "qqp": 80, "mnli": 20}
    >>> found = [Utility(task, 0.5, 0.3, 0.7, n, 1.0, 1.0) for task, n in pulls.items()]
    >>> [tuple(ratio.values()) for ratio in suggested(space, found)]
    [(5, 4, 0), (5, 0, 1), (5, 4, 1), (1, 1, 1)]
    """
    pulls = {u.task: float(max(1, u.pulls)) for u in utilities}
    primary = space.primary
    pairs = [{primary: pulls[primary], task: pulls[task]} for task in space.auxiliaries]
    together = [{task: pulls[task] for task in space.tasks}] if len(pairs) > 1 else []
    equal = dict.fromkeys(space.tasks, 1.0)
    return [nearest(space, shares) for shares in (*pairs, *together, equal)]


def nearest(space: RatioSpace, weights: Mapping[str, float]) -> Ratio:
    """Return the ratio within the ranges whose shares are nearest to those of some weights.

    Args:
        space: the ratios there are.
        weights: by task, what its share is proportional to; a task that is missing has none.

    >>> nearest(RatioSpace("rte", ("qqp",)), {"rte": 3, "qqp": 0.8})
    {'rte': 15, 'qqp': 4}
    """
    wanted = [weights.get(task, 0.0) / sum(weights.values()) for task in space.tasks]
    low, high = space.primary_range
    options = [_with_primary(space, wanted, count) for count in range(low, high + 1)]
    return space.canonical(min(options, key=lambda ratio: _distance(ratio, wanted)))


def _with_primary(space: RatioSpace, wanted: Sequence[float], count: int) -> Ratio:
    """Return the nearest ratio with this many mini-batches of the primary."""
    low, high = space.auxiliary_range
    per_share = count / max(wanted[0], 1e-9)
    others = [min(max(round(share * per_share), low), high) for share in wanted[1:]]
    return dict(zip(space.tasks, [count, *others], strict=True))


def _distance(ratio: Mapping[str, int], wanted: Sequence[float]) -> float:
    total = sum(ratio.values())
    return sum(
        abs(count / total - share) for count, share in zip(ratio.values(), wanted, strict=True)
    )
