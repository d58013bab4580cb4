import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.rng import restore, seed_for, state_of, stream

words = st.one_of(st.text(max_size=8), st.integers(-5, 1000))


def test_a_stream_depends_on_its_name_alone() -> None:
    first = stream(1, "order", "rte", 0).random(8)
    stream(1, "order", "cola", 0).random(1000)
    np.testing.assert_array_equal(stream(1, "order", "rte", 0).random(8), first)


def test_a_stream_leaves_the_global_generator_alone() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    stream(1, "order").random(10)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_word_and_a_number_that_look_alike_are_different_names() -> None:
    assert stream(1, 2).random() != stream(1, "2").random()
    assert stream(12, "a").random() != stream(1, "2", "a").random()


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.tuples(words, words), min_size=2, max_size=2, unique_by=repr))
def test_different_names_have_different_streams(names: list[tuple[str | int, str | int]]) -> None:
    one, other = (stream(1, *name).random(4) for name in names)
    assert not np.array_equal(one, other)


def test_streams_of_neighbouring_names_are_uncorrelated() -> None:
    numbers = np.stack([stream(1, "order", epoch).random(4000) for epoch in range(20)])
    correlations = np.corrcoef(numbers)[np.triu_indices(20, 1)]
    # 190 correlations of standard error 1/63; beyond 5 of them: false alarm 1e-4 in all.
    assert np.abs(correlations).max() < 5 / np.sqrt(4000)


@settings(max_examples=50, derandomize=True, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.booleans())
def test_a_restored_generator_goes_on_where_it_was(floats: int, integers: int, half: bool) -> None:
    rng = stream(7, "draws")
    rng.random(floats)
    rng.integers(0, 1 << 60, size=integers)
    if half:
        rng.integers(0, 9, dtype=np.uint32)  # leaves half a number in the buffer
    again = restore(json.loads(json.dumps(state_of(rng))))
    np.testing.assert_array_equal(
        again.integers(0, 99, 5, np.uint32), rng.integers(0, 99, 5, np.uint32)
    )
    np.testing.assert_array_equal(again.normal(size=5), rng.normal(size=5))


def test_a_generator_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a Philox generator, found PCG64"):
        state_of(np.random.default_rng(1))


def test_seeds_for_others_fit_in_63_bits_and_differ_by_name() -> None:
    seeds = {seed_for(seed, "dropout", step) for seed in range(5) for step in range(200)}
    assert len(seeds) == 1000
    assert all(0 <= seed < 1 << 63 for seed in seeds)
