from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from taskmix.tasks.batches import (
    FROZEN_STATES,
    WINDOW,
    Batch,
    ItemStream,
    Stream,
    bucketed,
    bucketed_by_tokens,
    in_order,
    make_batch,
    ready_batch,
)
from taskmix.tasks.encoding import Encoded


def split_of(lengths: NDArray[np.int64]) -> Encoded:
    """A split whose items have these lengths; token ids are the item's number."""
    return Encoded(
        items=len(lengths),
        rows=len(lengths),
        dense={"labels": np.arange(len(lengths))},
        per_sequence={},
        ragged={"input_ids": np.repeat(np.arange(len(lengths)), lengths)},
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sequences=None,
        pads={"input_ids": -1},
        held=frozenset(),
        skipped={},
        targets=frozenset({"labels", "item"}),
    )


def skewed(count: int, seed: int = 1) -> NDArray[np.int64]:
    """Lengths as texts have them: most short, a few long."""
    drawn = np.random.default_rng(seed).lognormal(3, 0.8, count)
    return np.clip(drawn, 3, 256).astype(np.int64)


def epoch(stream: Stream) -> list[Batch]:
    return [stream.next() for _ in range(stream.per_epoch)]


def items(batches: list[Batch]) -> list[list[int]]:
    return [batch.parts[0].items.tolist() for batch in batches]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=300), st.integers(1, 40))
def test_every_epoch_has_each_item_exactly_once(lengths: list[int], size: int) -> None:
    stream = ItemStream("a", split_of(np.array(lengths)), size, seed=1)
    for _ in range(3):
        seen = sorted(item for batch in epoch(stream) for item in batch.parts[0].items.tolist())
        assert seen == list(range(len(lengths)))


def test_all_batches_but_one_are_full() -> None:
    stream = ItemStream("a", split_of(skewed(103)), 16, seed=1)
    assert sorted(len(batch.parts[0].items) for batch in epoch(stream)) == [7] + [16] * 6


def test_a_batch_is_padded_to_its_own_longest_item() -> None:
    lengths = skewed(200)
    for batch in epoch(ItemStream("a", split_of(lengths), 8, seed=1)):
        assert batch.inputs["input_ids"].shape == (8, lengths[batch.parts[0].items].max())
        assert batch.tokens == lengths[batch.parts[0].items].sum()
        assert (batch.inputs["input_ids"][:, 0] == batch.parts[0].items).all()
        assert (batch.parts[0].columns["labels"] == batch.parts[0].items).all()


def test_the_order_depends_on_seed_task_and_epoch_and_on_nothing_else() -> None:
    split = split_of(skewed(100))
    first = ItemStream("a", split, 8, seed=1)
    one, two = items(epoch(first)), items(epoch(first))
    again, between = ItemStream("a", split, 8, seed=1), ItemStream("b", split, 8, seed=1)
    mixed = []
    for _ in range(again.per_epoch):
        between.next()
        mixed.append(again.next().parts[0].items.tolist())
        np.random.random()  # noqa: NPY002
    assert mixed == one
    assert two != one
    assert items(epoch(ItemStream("b", split, 8, seed=1))) != one
    assert items(epoch(ItemStream("a", split, 8, seed=2))) != one


@settings(max_examples=30, derandomize=True, deadline=None)
@given(st.integers(0, 40))
def test_a_stream_goes_on_where_its_state_was_taken(done: int) -> None:
    split = split_of(skewed(100))
    stream = ItemStream("a", split, 8, seed=1)
    for _ in range(done):
        stream.next()
    resumed = ItemStream("a", split, 8, seed=1)
    resumed.load_state_dict(stream.state_dict())
    assert [resumed.next().parts[0].items.tolist() for _ in range(20)] == [
        stream.next().parts[0].items.tolist() for _ in range(20)
    ]


def waste(lengths: NDArray[np.int64], batches: list[NDArray[np.int64]]) -> float:
    """The share of padding in what the model has to read."""
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - int(lengths.sum()) / padded


def test_like_lengths_together_waste_far_less_than_random_batches() -> None:
    lengths, size = skewed(8000), 16
    order = bucketed(lengths, size, np.random.default_rng(1))
    ours = waste(lengths, [order.batch(place) for place in range(len(order.starts))])
    shuffled = np.random.default_rng(1).permutation(len(lengths))
    random = waste(lengths, np.array_split(shuffled, len(lengths) // size))
    assert random > 0.5
    assert ours < 0.1


def test_batches_of_short_and_long_items_come_in_random_order() -> None:
    lengths = skewed(16 * WINDOW)
    order = bucketed(lengths, 16, np.random.default_rng(1))
    means = [lengths[order.batch(place)].mean() for place in range(WINDOW)]
    correlation = np.corrcoef(means, np.arange(WINDOW))[0, 1]
    # Standard error 1/8 under chance; false alarm 1e-4. Sorted batches have a correlation near 1.
    assert abs(correlation) < 4 / np.sqrt(WINDOW)


def test_every_item_is_equally_likely_to_come_early() -> None:
    lengths = skewed(64)
    firsts = np.zeros(64)
    for seed in range(2000):
        order = bucketed(lengths, 8, np.random.default_rng(seed))
        firsts[order.batch(0)] += 1
    # Each count is binomial (2000, 1/8), standard error 14.8; 64 of them beyond 5: 4e-5.
    assert np.abs(firsts - 250).max() < 5 * 14.8


def test_evaluation_reads_each_item_once_longest_first() -> None:
    lengths = skewed(50)
    batches = list(in_order("a", split_of(lengths), 8))
    seen = np.concatenate([batch.parts[0].items for batch in batches])
    assert sorted(seen.tolist()) == list(range(50))
    assert (np.diff(lengths[seen]) <= 0).all()


def test_a_batch_without_text_has_no_tokens() -> None:
    assert ready_batch("a", np.arange(2), {"pixels": np.zeros((2, 4, 4))}, {}).tokens == 0


def test_items_of_several_tasks_stand_one_below_the_other() -> None:
    long, short = split_of(np.array([5, 9, 2])), split_of(np.array([3, 1]))
    batch = make_batch(
        {"long": long, "empty": short, "short": short},
        {"long": np.array([2, 0]), "empty": np.array([], dtype=int), "short": np.array([1, 0])},
    )
    assert batch.tasks == ["long", "short"]
    assert [(part.rows, part.length) for part in batch] == [(slice(0, 2), 5), (slice(2, 4), 3)]
    ids = batch.inputs["input_ids"]
    assert ids.tolist() == [
        [2, 2, -1, -1, -1],
        [0, 0, 0, 0, 0],
        [1, -1, -1, -1, -1],
        [0, 0, 0, -1, -1],
    ]
    assert batch.inputs["attention_mask"].tolist() == (ids >= 0).astype(int).tolist()
    assert [part.columns["labels"].tolist() for part in batch] == [[2, 0], [1, 0]]
    assert (batch.examples, batch.tokens) == (4, 11)


def test_an_input_that_some_tasks_lack_is_zero_there_and_frozen_states_are_left_out() -> None:
    plain = split_of(np.array([2, 2]))
    states = np.ones((4, 3), dtype=np.float32)
    more = replace(
        plain,
        ragged=plain.ragged | {FROZEN_STATES: states},
        per_sequence={"second": np.array([1, 1])},
    )
    chosen = {"plain": np.array([0]), "more": np.array([1])}
    mixed = make_batch({"plain": plain, "more": more}, chosen).inputs
    assert mixed["second_text"].tolist() == [[0, 0], [0, 1]]
    assert FROZEN_STATES not in mixed
    both = make_batch({"plain": more, "more": more}, chosen).inputs
    assert both[FROZEN_STATES].shape == (2, 2, 3)


@pytest.mark.parametrize("seed", range(5))
def test_batches_of_about_so_many_tokens_have_every_item_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 60, size=500)
    order = bucketed_by_tokens(lengths, 400, rng)
    batches = [order.batch(place) for place in range(len(order.starts))]
    assert len(batches) == round(lengths.sum() / 400)
    assert sorted(np.concatenate(batches).tolist()) == list(range(500))
    sizes = [int(lengths[items].sum()) for items in batches]
    assert max(abs(size - np.mean(sizes)) for size in sizes) <= 60
    spread = np.mean([np.ptp(lengths[items]) for items in batches])
    assert spread < 20  # like lengths go together


def test_no_batch_is_empty_where_an_item_is_longer_than_a_batch() -> None:
    for lengths in ([500, 1, 1, 1], [1, 1, 1, 500], [7], [300, 300, 300], [1, 900, 1, 900, 1]):
        order = bucketed_by_tokens(np.array(lengths), 100, np.random.default_rng(1))
        batches = [order.batch(place) for place in range(len(order.starts))]
        assert all(len(items) for items in batches)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
