import math

import numpy as np
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from taskmix.rng import stream
from taskmix.search.space import Space, make_axis

DISTRIBUTIONS: list[BaseDistribution] = [
    FloatDistribution(-3.0, 7.0),
    FloatDistribution(1e-7, 10.0, log=True),
    FloatDistribution(-1e308, 1e308),
    FloatDistribution(-10.2, 10.2, step=0.1),
    IntDistribution(1, 20),
    IntDistribution(-9, 9, step=3),
    IntDistribution(1, 1000, log=True),
    IntDistribution(0, 10**12),
    CategoricalDistribution(["adam", None, 3, 0.5, True]),
]


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=str)
class TestEveryDistribution:
    def test_random_values_are_allowed_and_find_their_way_back(
        self, distribution: BaseDistribution
    ) -> None:
        one = make_axis("x", distribution)
        for coordinate in one.draw(stream(1, "axis"), 200):
            value = one.value(coordinate)
            assert distribution._contains(distribution.to_internal_repr(value))
            assert one.coordinate(value) == pytest.approx(coordinate, abs=1e-9)

    def test_the_process_sees_the_unit_cube(self, distribution: BaseDistribution) -> None:
        one = make_axis("x", distribution)
        seen = one.columns(one.draw(stream(2, "axis"), 500))
        assert seen.min() >= 0
        assert seen.max() <= 1

    def test_neighbours_are_allowed(self, distribution: BaseDistribution) -> None:
        one = make_axis("x", distribution)
        for coordinate in one.draw(stream(3, "axis"), 20):
            for near in one.neighbours(coordinate):
                value = one.value(near)
                assert distribution._contains(distribution.to_internal_repr(value))


def test_the_ends_of_an_axis_are_the_bounds() -> None:
    rate = make_axis("rate", FloatDistribution(1e-5, 1e-1, log=True))
    assert (rate.value(0.0), rate.value(1.0)) == (1e-5, pytest.approx(1e-1))
    assert rate.value(0.5) == pytest.approx(1e-3)
    count = make_axis("count", IntDistribution(1, 20))
    assert (count.value(0.0), count.value(19.0)) == (1, 20)
    assert count.columns(np.array([0.0, 19.0])).tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize(
    ("distribution", "value"),
    [
        (IntDistribution(1, 20), 21),
        (IntDistribution(1, 20), 0),
        (IntDistribution(0, 10, step=2), 3),
        (FloatDistribution(0, 1), 1.5),
        (FloatDistribution(0, 1, step=0.25), 0.3),
        (CategoricalDistribution(["a"]), "b"),
    ],
)
def test_a_value_off_the_axis_has_no_coordinate(
    distribution: BaseDistribution, value: object
) -> None:
    assert make_axis("x", distribution).coordinate(value) is None


def test_levels_on_a_log_scale_are_drawn_as_wide_as_they_are() -> None:
    # P(1) = log(1.5 / 0.5) / log(100.5 / 0.5). The bound of 4.4 standard errors fails once in
    # 100,000 runs of different seeds.
    drawn = make_axis("x", IntDistribution(1, 100, log=True)).draw(stream(1, "levels"), 20_000)
    share = math.log(3) / math.log(201)
    error = math.sqrt(share * (1 - share) / 20_000)
    assert (drawn == 0).mean() == pytest.approx(share, abs=4.4 * error)


def test_a_choice_is_one_column_each_and_a_single_value_none() -> None:
    space = Space.of(
        {
            "optimizer": CategoricalDistribution(["sgd", "adam"]),
            "fixed": IntDistribution(3, 3),
            "also": FloatDistribution(2.0, 2.0),
            "only": CategoricalDistribution(["one"]),
            "steps": IntDistribution(0, 4),
        }
    )
    row = space.row({"optimizer": "adam", "fixed": 3, "also": 2.0, "only": "one", "steps": 1})
    assert row is not None
    assert space.inputs(row[None]).tolist() == [[0.0, 1.0, 0.25]]
    assert space.size == 10
    assert space.params(row)["also"] == 2.0


def test_a_small_space_is_enumerated_without_gaps() -> None:
    space = Space.of({"a": IntDistribution(1, 3), "b": CategoricalDistribution(["x", "y"])})
    points = [tuple(space.params(row).values()) for row in space.rows()]
    assert sorted(points) == [(a, b) for a in (1, 2, 3) for b in ("x", "y")]


def test_points_outside_the_space_have_no_row() -> None:
    space = Space.of({"a": IntDistribution(1, 3), "b": FloatDistribution(0, 1)})
    assert space.row({"a": 1}) is None
    assert space.row({"a": 4, "b": 0.5}) is None


def test_a_canonical_point_outside_the_space_is_refused() -> None:
    space = Space.of({"a": IntDistribution(1, 3)}, canonical=lambda point: {"a": 0})
    with pytest.raises(ValueError, match=r"canonical: expected a point .* found \{'a': 0\}"):
        space.key(np.zeros(1))
