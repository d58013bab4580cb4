"""The policies whose distribution is known before the run starts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix import Aimed, Annealed, Cycle, Fixed, Random, Schedule, TaskSize, Temperature
from taskmix.policies import RunInfo
from taskmix.rng import stream

SIZES = {"mnli": 393_000, "rte": 2_500, "wnli": 634}
FACTS = RunInfo(sizes=SIZES, steps=1000, batch=16)
sizes = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.integers(1, 10**7), min_size=1, max_size=8
)
quick = settings(derandomize=True, deadline=None, max_examples=50)


def drawn(policy, steps, seed=1):
    rng = stream(seed, "draws")
    return [policy.ask(rng).task for _ in range(steps)]


@quick
@given(sizes, st.floats(0.2, 20), st.none() | st.integers(1, 10**7))
def test_temperature_is_the_formula(sizes, temperature, cap):
    weights = [min(n, cap if cap is not None else n) ** (1 / temperature) for n in sizes.values()]
    expected = [w / sum(weights) for w in weights]
    policy = Temperature(sizes, temperature, cap)
    assert policy.probabilities() == pytest.approx(expected, rel=1e-9)


@quick
@given(sizes)
def test_temperature_lies_between_task_size_and_random(sizes):
    size = TaskSize(sizes).probabilities()
    assert Temperature(sizes, 1).probabilities() == pytest.approx(size)
    uniform = Random(list(sizes)).probabilities()
    assert Temperature(sizes, 1e9).probabilities() == pytest.approx(uniform)


@quick
@given(st.integers(1, 6), st.integers(1, 6), st.floats(0, 0.9))
def test_aimed_divides_the_draws_among_what_is_scored(targets, others, rest):
    tasks = [str(k) for k in range(targets + others)]
    shares = Aimed(tasks, tasks[:targets], rest).probabilities()
    assert shares[:targets] == pytest.approx((1 - rest) / targets)
    assert shares[targets:] == pytest.approx(rest / others)


def test_aimed_takes_its_targets_from_the_run():
    scored = RunInfo(SIZES, steps=100, batch=16, objective=("rte",))
    assert Aimed.for_run(scored, rest=0.2).probabilities() == pytest.approx([0.1, 0.8, 0.1])
    assert Aimed.for_run(scored, targets=["wnli"], rest=0).probabilities().tolist() == [0, 0, 1]
    assert Aimed.for_run(RunInfo(SIZES, 100, 16)).probabilities() == pytest.approx([1 / 3] * 3)
    with pytest.raises(ValueError, match=r"targets: expected some of .* found"):
        Aimed.for_run(FACTS, targets=["cola"])
    with pytest.raises(ValueError, match="rest: expected a number from 0 up to 1, found 1"):
        Aimed(["a"], rest=1)


def by_halving(weights, epochs, repeats):
    """The shares of Aimed's docstring: one search for the level, one inside it for each share."""

    def share(weight, count, level):
        low, high = 0.0, 1.0
        for _ in range(100):
            middle = (low + high) / 2
            log_worth = math.log(weight) - level - max(0.0, middle * count - 1) / repeats
            low, high = (middle, high) if log_worth > math.log(middle) else (low, middle)
        return high

    low, high = -1e4, 0.0
    for _ in range(100):
        level = (low + high) / 2
        total = sum(share(w, e, level) for w, e in zip(weights, epochs, strict=True))
        low, high = (level, high) if total > 1 else (low, level)
    return [share(w, e, high) for w, e in zip(weights, epochs, strict=True)]


@settings(derandomize=True, deadline=None, max_examples=15)
@given(st.lists(st.floats(0, 2000), min_size=2, max_size=4), st.floats(0.01, 0.5), st.floats(1, 50))
def test_aimed_gives_each_task_what_its_last_epoch_is_worth(epochs, rest, repeats):
    tasks = [str(k) for k in range(len(epochs))]
    weights = [1 - rest] + [rest / (len(tasks) - 1)] * (len(tasks) - 1)
    counts = dict(zip(tasks, epochs, strict=True))
    policy = Aimed(tasks, tasks[:1], rest, counts, repeats)
    expected = by_halving(weights, epochs, repeats)
    assert policy.probabilities() == pytest.approx(expected, rel=1e-6, abs=1e-9)


@quick
@given(st.floats(1, 1e9), st.floats(1.01, 100), st.floats(0.5, 100))
def test_aimed_draws_a_task_less_the_more_often_it_would_be_seen(epochs, times, repeats):
    def share(count):
        found = Aimed(["tiny", "large"], ["tiny"], 0.05, {"tiny": count}, repeats)
        return found.probabilities()[0]

    assert share(epochs * times) <= share(epochs) <= 0.95


def test_aimed_without_repetitions_goes_by_its_weights():
    once = {"cb": 1.0, "mnli": 0.01}
    for options in ({"epochs": once}, {"epochs": {"cb": 500.0}, "repeats": None}):
        shares = Aimed(["cb", "mnli"], ["cb"], **options).probabilities()
        assert shares == pytest.approx([0.95, 0.05])


def test_aimed_goes_by_size_where_everything_is_seen_without_end():
    shares = Aimed(["a", "b"], ["a"], epochs={"a": 3e9, "b": 1e9}).probabilities()
    assert shares == pytest.approx([1 / 4, 3 / 4], rel=1e-3)


def test_aimed_draws_one_task_however_often_it_is_seen():
    assert Aimed(["a"], epochs={"a": 40.0}).probabilities().tolist() == [1.0]


def test_aimed_counts_the_epochs_of_the_run():
    info = RunInfo({"cb": 160, "mnli": 160_000}, steps=400, batch=16, objective=("cb",))
    same = Aimed(["cb", "mnli"], ["cb"], epochs={"cb": 40, "mnli": 0.04})
    assert Aimed.for_run(info).probabilities().tolist() == same.probabilities().tolist()
    # Batches that are counted in tokens say themselves how many an epoch has.
    few = replace(info, batches={"cb": 1000.0, "mnli": 1000.0})
    assert Aimed.for_run(few).probabilities() == pytest.approx([0.95, 0.05])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"repeats": 0}, "repeats: expected a number above 0, found 0"),
        ({"epochs": {"b": 1.0}}, r"epochs, b: expected a number from 0 for a task of \['a'\]"),
        ({"epochs": {"a": -1.0}}, "epochs, a: expected a number from 0"),
        ({"epochs": {"a": math.inf}}, "epochs, a: expected a number from 0"),
    ],
)
def test_aimed_refuses_what_is_no_number_of_epochs(options, said):
    with pytest.raises(ValueError, match=said):
        Aimed(["a"], **options)


def test_task_size_is_the_share_of_the_examples():
    total = 393_000 + 2_500 + 634
    assert TaskSize(SIZES).probabilities() == pytest.approx(
        [393_000 / total, 2_500 / total, 634 / total]
    )


def test_annealed_follows_the_exponent_of_its_epoch():
    policy, rng = Annealed(SIZES, epochs=5, steps_per_epoch=3), stream(1, "draws")
    for step in range(20):
        epoch = min(step // 3 + 1, 5)
        weights = [n ** (1 - 0.8 * (epoch - 1) / 4) for n in SIZES.values()]
        assert policy.probabilities() == pytest.approx([w / sum(weights) for w in weights])
        policy.ask(rng)


def test_one_epoch_is_task_size():
    policy = Annealed(SIZES, epochs=1, steps_per_epoch=2)
    drawn(policy, 5)
    assert policy.probabilities() == pytest.approx(TaskSize(SIZES).probabilities())


def test_annealed_spreads_its_epochs_over_the_run():
    policy = Annealed.for_run(FACTS, epochs=4)
    drawn(policy, 999)
    assert policy.epoch == 4
    assert Annealed.for_run(FACTS, epochs=4, steps_per_epoch=9999).epoch == 1


def test_cycle_gives_each_task_its_batches_in_turn():
    assert drawn(Cycle({"a": 2, "b": 0, "c": 3}), 12) == list("aacccaacccaa")
    assert drawn(Cycle({"a": 0, "b": 1}), 3) == ["b", "b", "b"]


def test_cycle_tells_which_task_is_next():
    policy = Cycle({"a": 1, "b": 1})
    assert policy.probabilities().tolist() == [1.0, 0.0]
    drawn(policy, 1)
    assert policy.probabilities().tolist() == [0.0, 1.0]


def test_schedule_interpolates_between_the_centres_of_its_phases():
    first, second, third = [0.8, 0.2], [0.5, 0.5], [0.0, 1.0]
    phases = [dict(zip("ab", p, strict=True)) for p in (first, second, third)]
    policy, rng = Schedule(phases, steps=60), stream(1, "draws")
    course = np.array([policy.ask(rng).probabilities for _ in range(70)])
    assert course[:11] == pytest.approx(np.tile(first, (11, 1)))
    assert course[20] == pytest.approx([0.65, 0.35])
    assert course[30] == pytest.approx(second)
    assert course[35] == pytest.approx([0.375, 0.625])
    assert course[50:] == pytest.approx(np.tile(third, (20, 1)))


def test_a_schedule_of_one_phase_is_fixed():
    policy = Schedule([{"a": 0.3, "b": 0.7}], steps=10)
    drawn(policy, 20)
    assert policy.probabilities() == pytest.approx([0.3, 0.7])


def test_a_constant_policy_returns_the_same_array():
    for policy in (Random(["a", "b"]), TaskSize(SIZES), Fixed({"a": 0.5, "b": 0.5})):
        before = policy.probabilities()
        drawn(policy, 5)
        assert policy.probabilities() is before
        assert not before.flags.writeable


def test_a_run_gives_what_a_policy_has_to_know():
    shares = {"wnli": 0.5, "mnli": 0.25, "rte": 0.25}
    assert Fixed.for_run(FACTS, probabilities=shares).probabilities().tolist() == [0.25, 0.25, 0.5]
    assert Cycle.for_run(FACTS, ratio={"wnli": 1, "rte": 0, "mnli": 0}).tasks == tuple(SIZES)
    assert TaskSize.for_run(FACTS).tasks == tuple(SIZES)
    assert Temperature.for_run(FACTS, temperature=2, cap=3).tasks == tuple(SIZES)
    assert Schedule.for_run(FACTS, phases=[shares]).probabilities()[2] == 0.5


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Random([]), "tasks: expected at least one name"),
        (lambda: Random(["a", "a"]), "found twice: a"),
        (lambda: Random("ab"), "the string 'ab'"),
        (lambda: TaskSize({"a": 0}), "sizes, a: expected a number above 0, found 0"),
        (lambda: Temperature({"a": 1}, 0), "temperature: expected a number above 0, found 0"),
        (lambda: Temperature({"a": 1}, 1, cap=0), "cap: expected a number above 0"),
        (lambda: Annealed({"a": 1}, 0), "epochs, steps_per_epoch"),
        (lambda: Fixed({"a": 0.5, "b": 0.4}), "probabilities: expected a sum of 1, found 0.9"),
        (lambda: Fixed({"a": 1.5, "b": -0.5}), "none below 0"),
        (lambda: Fixed({"a": float("nan")}), "expected a sum of 1, found nan"),
        (lambda: Fixed.for_run(FACTS, probabilities={"mnli": 1.0}), "expected a value for each of"),
        (lambda: Cycle({"a": 0}), "ratio: expected whole numbers"),
        (lambda: Cycle({"a": 1.5}), "ratio: expected whole numbers"),
        (lambda: Cycle({"a": -1, "b": 2}), "ratio: expected whole numbers"),
        (lambda: Schedule([], 5), "phases: expected at least one"),
        (lambda: Schedule([{"a": 1.0}, {"b": 1.0}], 5), r"phases\[1\]: expected a value for each"),
        (lambda: Schedule([{"a": 0.4}], 5), r"phases\[0\]: expected a sum of 1"),
        (lambda: Schedule([{"a": 1.0}], 0), "steps: expected at least 1"),
    ],
)
def test_a_mistake_is_named(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()
