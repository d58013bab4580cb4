import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskmix.errors import UserError
from taskmix.search import RatioSpace, reduced

SPACE = RatioSpace("rte", ("qqp", "mnli"))

ratios = st.fixed_dictionaries(
    {"rte": st.integers(1, 20), "qqp": st.integers(0, 5), "mnli": st.integers(0, 5)}
)


@given(ratios, st.integers(1, 7))
def test_multiples_of_a_ratio_are_the_same_ratio(ratio: dict[str, int], factor: int) -> None:
    multiple = {task: factor * count for task, count in ratio.items()}
    assert reduced(multiple) == reduced(ratio)
    assert SPACE.canonical(multiple) == SPACE.canonical(ratio)
    assert SPACE.shares(multiple) == pytest.approx(SPACE.shares(ratio), abs=1e-15)


@given(ratios, ratios)
def test_ratios_are_one_exactly_when_their_cross_products_agree(
    a: dict[str, int], b: dict[str, int]
) -> None:
    equal = all(a[s] * b[t] == a[t] * b[s] for s in a for t in a)
    assert (SPACE.canonical(a) == SPACE.canonical(b)) == equal
    assert (SPACE.shares(a) == SPACE.shares(b)) == equal


def test_a_canonical_ratio_stays_within_the_ranges() -> None:
    space = RatioSpace("a", ("b",), primary_range=(3, 10), auxiliary_range=(2, 8))
    assert space.canonical({"a": 4, "b": 4}) == {"a": 3, "b": 3}
    assert space.canonical({"b": 4, "a": 8}) == {"a": 4, "b": 2}
    with pytest.raises(UserError, match=r"^ratio: expected one that is equivalent"):
        space.canonical({"a": 10, "b": 1})


@pytest.mark.parametrize("count", [1, 2, 4, 15, 20, 50, 300])
def test_a_grid_has_as_many_different_ratios_as_asked_for(count: int) -> None:
    grid = SPACE.grid(count)
    assert len({tuple(ratio.values()) for ratio in grid}) == count
    assert all(ratio == SPACE.canonical(ratio) for ratio in grid)


def test_a_grid_of_20_reaches_both_ends_of_every_share() -> None:
    shares = [SPACE.shares(ratio) for ratio in SPACE.grid(20)]
    for k in range(2):
        assert min(share[k] for share in shares) == 0
        assert max(share[k] for share in shares) > 0.4


def test_the_largest_grid_is_every_ratio() -> None:
    space = RatioSpace("a", ("b",), primary_range=(1, 4), auxiliary_range=(0, 3))
    every = {(a // math.gcd(a, b), b // math.gcd(a, b)) for a in range(1, 5) for b in range(4)}
    assert {(r["a"], r["b"]) for r in space.grid(len(every))} == every
    with pytest.raises(UserError, match=rf"^grid: expected at most {len(every)} ratios"):
        space.grid(len(every) + 1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"auxiliaries": ()}, r"^auxiliaries: expected at least one task.*found \[\]\.$"),
        ({"auxiliaries": ("rte",)}, r"^auxiliaries: .* primary 'rte', found \['rte'\]\.$"),
        ({"auxiliaries": ("a", "a")}, r"^auxiliaries: .*each named once"),
        ({"primary_range": (0, 5)}, r"^primary_range: .* at least 1, found 0 and 5\.$"),
        ({"auxiliary_range": (3, 2)}, r"^auxiliary_range: .* in order.*found 3 and 2\.$"),
    ],
)
def test_a_bad_space_is_one_sentence(arguments: dict[str, tuple[int, ...]], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        RatioSpace(**{"primary": "rte", "auxiliaries": ("qqp",), **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("ratio", [{"a": 0, "b": 0}, {"a": 2, "b": -1}])
def test_what_is_no_ratio_is_one_sentence(ratio: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"^ratio: expected whole numbers"):
        reduced(ratio)
