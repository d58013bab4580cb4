"""Learning curves: known ones are found again, intervals cover, the allocation is the best."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.journal import Evaluation, Extended, Journal, Opening, Step, read
from taskmix.offpolicy.curves import LearningCurves, RateSchedule, ScoredRun, learn_mixture
from taskmix.offpolicy.curves.allocation import allocate
from taskmix.offpolicy.curves.posterior import HEIGHT_DEVIATION, MEAN_HEIGHTS, NOISES, deviations_of
from taskmix.offpolicy.curves.scored_run import RATE_POWERS, FreeScores
from taskmix.offpolicy.curves.shapes import Shapes
from taskmix.policies import Outcome, Random
from taskmix.rng import stream
from taskmix.schedule import rate_factor

Array = NDArray[np.float64]
SCHEDULE = RateSchedule(steps=100, batch=10, warmup=None)
POWERS = len(RATE_POWERS)
MOST = 1000.0
DEV = 400


def scored_run(
    curves: list[Shapes], levels: Array, heights: Array, shares: Array, seed: int
) -> ScoredRun:
    """A run in name only, whose scores are on given curves, with the noise of their dev sets."""
    rng = stream(seed, "scores")
    parts = np.linspace(0.05, 1.0, 20)
    training = np.outer(parts, shares) * MOST
    values = np.empty_like(training)
    for k, curve in enumerate(curves):
        mean = levels[k] + heights[k] * curve.rise(training[:, k])[0]
        values[:, k] = rng.binomial(DEV, mean) / DEV
    tasks = tuple(f"task{k}" for k in range(len(curves)))
    zeros = np.zeros(len(tasks))
    under_powers = np.broadcast_to(training, (POWERS, *training.shape))
    return ScoredRun(
        tasks, under_powers, values, shares, zeros, np.full(len(tasks), DEV), SCHEDULE, tasks
    )


def points(training: Array) -> Array:
    return np.broadcast_to(training, (POWERS, len(training)))


def exponential(scale: float) -> Shapes:
    return Shapes.grid(np.array([scale]), ["exponential"])


def test_a_shape_is_its_formula() -> None:
    shapes = Shapes.grid(np.array([50.0]))
    points = [0.0, 3.0, 50.0, 400.0]
    for k in range(len(shapes)):
        onset, tail = float(shapes.onset[k]), float(shapes.tail[k])
        for x, rise in zip(points, shapes.rise(np.array(points))[k], strict=True):
            if math.isinf(onset):
                expected = min(x / 50, 1)
            elif math.isinf(tail):
                expected = 1 - math.exp(-x / 50)
            else:
                expected = 1 - 1 / (1 + (x / 50) ** onset) ** (tail / onset)
            assert rise == pytest.approx(expected)


def test_the_prior_over_shapes_is_a_distribution() -> None:
    assert Shapes.grid(np.geomspace(1, 100, 7)).prior().sum() == pytest.approx(1)
    assert Shapes.grid(np.ones(3), ["linear"]).prior().tolist() == pytest.approx([1 / 3] * 3)


@given(
    shares=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=4),
    warmup=st.sampled_from([None, 0.0, 0.1, 0.5]),
    epochs=st.floats(0.0, 40.0),
)
def test_the_training_of_a_plan_is_the_sum_over_its_steps(
    shares: list[float], warmup: float | None, epochs: float
) -> None:
    schedule = RateSchedule(steps=300, batch=8, warmup=warmup)
    planned = schedule.training(np.array(shares), epochs)
    for i, (power, share) in enumerate(product(RATE_POWERS, shares)):
        total = planned.ravel()[i]
        expected = 0.0
        for step in range(1, 301):
            rate = 1.0 if warmup is None else rate_factor(step, 300, warmup) ** power
            repeated = max(0.0, share * epochs * (step - 0.5) / 300 - 1)
            expected += 8 * share * rate * math.exp(-repeated / 15)
        assert total == pytest.approx(expected, rel=0.01)


def write_journal(path: Path, **fields: Any) -> Path:
    policy, rng = Random(["a", "b"]), stream(1, "draws")
    opening = Opening("run", ["a", "b"], {"a": 8, "b": 1000}, 1, {}, {"steps": 20, "batch": 4})
    with Journal.create(path, replace(opening, **fields)) as journal:
        for step in range(1, 21):
            journal.draw(step, Outcome(policy.ask(rng), loss=1.0))
            if step % 5 == 0:
                scores = {"b": step / 40, "a": step / 20}
                losses = {"a": 2.0, "b": 3.0 - step / 20}
                record = Evaluation(
                    step, "dev", 0.5, scores, losses, forward=step, backward=4 * step
                )
                journal.append(record)
    return path


def test_a_journal_gives_scores_beside_effective_training(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j", warmup=0.25, dev={"a": 50, "b": 60}, objective=["b"])
    run = ScoredRun.from_journal(path)
    assert run.tasks == ("a", "b")
    assert run.targets == ("b",)
    assert run.dev.tolist() == [50, 60]
    assert run.values.tolist() == [[0.25, 0.125], [0.5, 0.25], [0.75, 0.375], [1.0, 0.5]]
    assert run.epochs.tolist() == [10.0, 20 / 250]
    rng, policy, training, drawn = stream(1, "draws"), Random(["a", "b"]), np.zeros((3, 2)), [0, 0]
    for step in range(1, 21):
        k = policy.ask(rng).index
        epochs = drawn[k] / (2, 250)[k]
        rate = np.array([rate_factor(step, 20, 0.25) ** power for power in (0.0, 0.5, 1.0)])
        training[:, k] += 4 * rate * math.exp(-max(0.0, epochs - 1) / 15)
        drawn[k] += 1
    assert run.training[:, -1] == pytest.approx(training)
    assert run.shares.tolist() == [0.5, 0.5] != [drawn[0] / 20, drawn[1] / 20]


def test_scores_of_batches_are_averaged_in_windows(tmp_path: Path) -> None:
    opening = Opening("run", ["a", "b"], {}, 1, {}, {"steps": 12, "batch": 16})
    policy, rng = Random(["a"]), stream(1, "draws")
    with Journal.create(tmp_path / "j", opening) as journal:
        for step in range(1, 13):
            draw = policy.ask(rng)
            score = None if step > 10 else step / 10
            journal.append(Step(step, "a", draw.probability, examples=16, batch_score=score))
        journal.append(Evaluation(12, "dev", 0.5, {"a": 0.5, "b": 0.5}, {"a": 1.0, "b": 1.0}))
    run = ScoredRun.from_journal(tmp_path / "j")
    [task] = run.free
    free = run.free[task]
    assert task == "a"
    assert free.values.tolist() == pytest.approx([0.25, 0.65])  # the third window is too short
    assert free.examples.tolist() == [64, 64]
    assert free.training[0].tolist() == pytest.approx([16 * 1.5, 16 * 5.5])


def test_free_scores_sharpen_a_curve_and_their_bias_does_not_move_it() -> None:
    curve = exponential(0.1 * MOST)
    run = scored_run([curve], np.array([0.3]), np.array([0.4]), np.ones(1), 7)
    few = replace(run, training=run.training[:, ::5], values=run.values[::5])
    x = np.linspace(0.005, 0.9, 60) * MOST
    truth = 0.3 + 0.4 * curve.rise(x)[0]
    values = stream(7, "free").binomial(64, truth - 0.05) / 64
    free = FreeScores(points(x), values, np.full(60, 64.0))
    alone, helped = (
        LearningCurves([replace(few, free=f)]).samples[0] for f in ({}, {"task0": free})
    )
    seen = points(np.linspace(0.1, 0.9, 9) * MOST)
    errors = [
        np.abs(sample.at(seen).mean(axis=0) - truth_at(curve, seen)) for sample in (alone, helped)
    ]
    assert helped.at(seen).std(axis=0).mean() < alone.at(seen).std(axis=0).mean()
    # 60 windows of 64 examples and 4 evaluations: the standard error is about 0.015.
    assert errors[1].max() < 0.06


def truth_at(curve: Shapes, training: Array) -> Array:
    truth: Array = 0.3 + 0.4 * curve.rise(training[0])[0]
    return truth


def test_losses_are_learned_from_if_the_objective_is_a_loss(tmp_path: Path) -> None:
    run = ScoredRun.from_journal(write_journal(tmp_path / "j", measure="loss"))
    assert run.values[:, 1].tolist() == pytest.approx([-2.75, -2.5, -2.25, -2.0])


def test_a_journal_of_an_earlier_version_has_a_constant_rate(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j")
    run = ScoredRun.from_journal(path)
    assert run.schedule.warmup is None
    assert np.isnan(run.dev).all()
    drawn = [record.task for record in read(path) if isinstance(record, Step)]
    assert run.training[2, -1, 1] == 4 * drawn.count("b")


@pytest.mark.parametrize("count", ["examples", "compute"])
def test_a_budget_that_counts_examples_places_its_steps_by_them(tmp_path: Path, count: str) -> None:
    steps = ScoredRun.from_journal(write_journal(tmp_path / "a", warmup=0.1))
    other = ScoredRun.from_journal(write_journal(tmp_path / "b", warmup=0.1, count=count))
    same = count == "examples"  # here every step has four examples; in compute they cost less
    assert np.allclose(steps.training, other.training) == same


def test_an_extended_budget_has_a_new_schedule(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "j", warmup=0.1)
    with Journal.resume(path, path.stat().st_size) as journal:
        journal.append(Extended(20, {"steps": 40, "batch": 4}))
    assert ScoredRun.from_journal(path).schedule == RateSchedule(40, 4, 0.1)


def test_a_journal_without_evaluations_is_refused(tmp_path: Path) -> None:
    Journal.create(tmp_path / "j", Opening("run", ["a"], {}, 1, {}, {})).close()
    with pytest.raises(UserError, match="expected evaluations to learn from, found none"):
        ScoredRun.from_journal(tmp_path / "j")


@settings(max_examples=6, deadline=None)
@given(
    scales=st.lists(st.floats(0.02, 0.2), min_size=3, max_size=3),
    heights=st.lists(st.floats(0.2, 0.5), min_size=3, max_size=3),
    seed=st.integers(0, 1000),
)
def test_known_curves_are_found_again(scales: list[float], heights: list[float], seed: int) -> None:
    curves = [exponential(scale * MOST) for scale in scales]
    shares = np.full(3, 1 / 3)
    run = scored_run(curves, np.full(3, 0.3), np.array(heights), shares, seed)
    found = LearningCurves([run])
    seen = np.linspace(0.05, 1 / 3, 10) * MOST
    for k, curve in enumerate(curves):
        truth = 0.3 + heights[k] * curve.rise(seen)[0]
        # Twenty scores with a standard deviation of 0.025: the fit is within 0.06, which is more
        # than four of its standard errors (about 0.012).
        assert np.abs(found.samples[k].at(points(seen)).mean(axis=0) - truth).max() < 0.06


def test_the_posterior_is_that_of_a_plain_grid() -> None:
    """Level, height, noise, shape and the mean of heights, integrated by brute force."""
    run = scored_run([exponential(0.1 * MOST)], np.array([0.3]), np.array([0.4]), np.ones(1), 3)
    found = LearningCurves([run], ["exponential"])
    x, y = run.training[0, :, 0], run.values[:, 0]
    deviations = deviations_of(y, DEV, 1.0)
    levels, heights = np.meshgrid(np.linspace(0, 0.8, 65), np.linspace(0, 1, 81), indexing="ij")
    weight, value = 0.0, np.zeros(2)
    for number, mean in enumerate(MEAN_HEIGHTS):
        prior = (
            -0.5 * ((levels - 0.5) / 0.5) ** 2 - 0.5 * ((heights - mean) / HEIGHT_DEVIATION) ** 2
        )
        shape_prior = found.candidates[number].shape_prior
        for shape, noise in product(range(len(found.shapes)), NOISES):
            rise = found.shapes.rise(x)[shape]
            error = (y - levels[..., None] - heights[..., None] * rise) / (noise * deviations)
            log = prior - 0.5 * (error**2).sum(axis=-1) - len(y) * np.log(noise)
            density = np.exp(log) * shape_prior[shape] * (levels + heights <= 1)
            weight += density.sum()
            value += [(density * levels).sum(), (density * heights).sum()]
    sample = found.samples[0]
    # Means of a thousand draws: five of their standard errors are about 0.005 and 0.01.
    assert sample.level.mean() == pytest.approx(value[0] / weight, abs=0.01)
    assert sample.height.mean() == pytest.approx(value[1] / weight, abs=0.02)


def test_intervals_cover_the_scores_of_another_run() -> None:
    """Of 20 x 4 intervals of 90%, 63 at least cover.

    They allow for runs that differ by more than the noise of the dev set, so the coverage is 0.9 or
    more; with 0.9, fewer than 63 of 80 have a probability of 0.1%.
    """
    covered = 0
    for seed in range(20):
        rng = stream(seed, "truth")
        curves = [exponential(scale * MOST) for scale in rng.uniform(0.02, 0.3, 4)]
        levels, heights = rng.uniform(0.1, 0.4, 4), rng.uniform(0.05, 0.5, 4)
        pilot = scored_run(curves, levels, heights, np.full(4, 0.25), seed)
        mixture = learn_mixture([pilot])
        shares = np.array(list(mixture.shares.values()))
        other = scored_run(curves, levels, heights, shares, seed + 1000)
        covered += sum(
            task.score.covers(score)
            for task, score in zip(mixture.tasks, other.values[-1], strict=True)
        )
    assert covered >= 63


def test_a_task_that_is_learned_gives_its_share_to_one_that_is_not() -> None:
    curves = [exponential(0.01 * MOST), exponential(0.4 * MOST)]
    pilot = scored_run(curves, np.full(2, 0.2), np.array([0.6, 0.6]), np.array([0.5, 0.5]), 1)
    mixture = learn_mixture([pilot])
    assert mixture.changed
    assert mixture.shares["task1"] > 0.7
    assert mixture.gain.mean > 0.02
    assert "the probability of a gain is" in mixture.tables()[0].notes[1]
    assert [task.begun for task in mixture.tasks] == [True, True]


def test_equal_tasks_promise_no_gain() -> None:
    curves = [exponential(0.1 * MOST)] * 3
    shares = np.full(3, 1 / 3)
    pilot = scored_run(curves, np.full(3, 0.2), np.full(3, 0.5), shares, 2)
    mixture = learn_mixture([pilot])
    if mixture.changed:  # by the noise of the scores, but then not far
        assert mixture.gain.mean < 0.02
    else:
        assert list(mixture.shares.values()) == pytest.approx(shares)
        assert "No gain to be expected" in mixture.tables()[0].notes[1]


def test_a_task_that_has_not_begun_is_uncertain() -> None:
    late = Shapes(np.array([2]), np.array([MOST]), np.array([5.0]), np.array([5.0]))
    curves = [exponential(0.05 * MOST), exponential(0.1 * MOST), late]
    pilot = scored_run(curves, np.full(3, 0.2), np.full(3, 0.5), np.full(3, 1 / 3), 4)
    mixture = learn_mixture([pilot])
    assert not mixture.tasks[2].begun
    notes = mixture.tables()[0].notes
    assert "Not begun" in notes[0]
    assert "are guesses from the curves of the other tasks: a longer run with the old" in notes[0]
    assert "the probability of a gain is" not in " ".join(notes)
    seen, everything = LearningCurves([pilot]).samples[2].at(points(np.array([0.3, 1.0]) * MOST)).T
    assert everything.std() > 2 * seen.std()
    assert everything.max() > 0.4


def test_without_a_task_that_has_begun_there_are_no_other_curves() -> None:
    late = Shapes(np.array([2]), np.array([MOST]), np.array([5.0]), np.array([5.0]))
    shares = np.full(2, 0.5)
    pilot = scored_run([late] * 2, np.full(2, 0.2), np.full(2, 0.0), shares, 4)
    mixture = learn_mixture([pilot])
    assert [task.begun for task in mixture.tasks] == [False, False]
    assert "are guesses: a longer run with the old shares is" in mixture.tables()[0].notes[0]


def test_several_runs_are_pooled_whatever_the_order_of_their_tasks() -> None:
    curves = [exponential(0.05 * MOST), exponential(0.3 * MOST)]
    levels, heights = np.full(2, 0.2), np.full(2, 0.6)
    first = scored_run(curves, levels, heights, np.array([0.5, 0.5]), 1)
    second = scored_run(curves, levels, heights, np.array([0.2, 0.8]), 2)
    swapped = second.reordered(["task1", "task0"])
    assert learn_mixture([first, swapped]).shares == learn_mixture([first, second]).shares
    alone, pooled = LearningCurves([first]), LearningCurves([first, second])
    point = points(np.array([0.8 * MOST]))
    assert pooled.samples[1].at(point).std() < alone.samples[1].at(point).std()


def test_runs_of_other_tasks_are_refused() -> None:
    curve = [exponential(100.0)]
    run = scored_run(curve, np.array([0.2]), np.array([0.5]), np.ones(1), 1)
    with pytest.raises(UserError, match="expected the same tasks"):
        run.reordered(["other"])


def test_only_target_tasks_get_more_than_the_floor() -> None:
    curves = [exponential(0.2 * MOST)] * 3
    run = scored_run(curves, np.full(3, 0.2), np.full(3, 0.5), np.array([0.2, 0.4, 0.4]), 5)
    shares = learn_mixture([run], targets=["task0"], floor=0.05).shares
    assert shares["task1"] == shares["task2"] == pytest.approx(0.05)
    assert sum(shares.values()) == pytest.approx(1)


@given(data=st.data(), tasks=st.integers(1, 4), units=st.integers(1, 6))
def test_the_allocation_is_the_best_on_the_grid(
    data: st.DataObject, tasks: int, units: int
) -> None:
    numbers = st.floats(-1, 1, allow_subnormal=False)
    values = np.array(
        data.draw(
            st.lists(
                st.lists(numbers, min_size=units + 1, max_size=units + 1),
                min_size=tasks,
                max_size=tasks,
            )
        )
    )
    parts = allocate(values)
    assert parts.sum() == units
    best = max(
        sum(values[k, n] for k, n in enumerate(counts))
        for counts in product(range(units + 1), repeat=tasks)
        if sum(counts) == units
    )
    assert values[np.arange(tasks), parts].sum() == pytest.approx(best)


def constant_run(values: list[list[float]], baselines: dict[str, float]) -> ScoredRun:
    """A run with given scores of each task, ten evaluations on 150 dev examples."""
    scores = np.array(values).T
    count = scores.shape[1]
    tasks, shares = tuple(f"task{k}" for k in range(count)), np.full(count, 1 / count)
    training = np.outer(np.linspace(0.1, 1.0, len(scores)), shares) * MOST
    return ScoredRun(
        tasks,
        np.broadcast_to(training, (POWERS, *training.shape)),
        scores,
        shares,
        np.zeros(count),
        np.full(count, 150.0),
        SCHEDULE,
        tasks,
        baselines=baselines,
    )


LEARNED = [0.46, 0.59, 0.64, 0.71, 0.69, 0.77, 0.78, 0.74, 0.79, 0.8]


@pytest.mark.parametrize("baselines", [{}, {"task0": 0.5}])
def test_a_constant_score_has_at_least_the_noise_of_its_dev_set(
    baselines: dict[str, float],
) -> None:
    """A model that predicts one class repeats its score; a run that has begun will not."""
    [task] = learn_mixture([constant_run([[0.5] * 10], baselines)]).tasks
    noise = math.sqrt(0.25 / 150)
    assert task.unchanged.high - task.unchanged.low > 2 * 1.64 * math.sqrt(2) * noise
    assert not task.begun


def test_a_score_at_its_baseline_in_some_evaluations_is_recognised() -> None:
    run = constant_run([[0.3, 0.5, 0.4, 0.5, 0.6], [0.2, 0.2, 0.3, 0.2, 0.2]], {"task0": 0.5})
    assert run.idle("task0").tolist() == [False, True, False, True, False]
    assert run.idle("task1").tolist() == [True, True, False, False, False]
    assert not replace(run, measure="loss").idle("task1").any()


def test_two_higher_evaluations_at_the_end_promise_no_leap() -> None:
    """Rises of 1 and 2 standard deviations of the dev set: the prior over the tasks decides."""
    late = [0.5] * 8 + [0.54, 0.58]
    pilot = constant_run([LEARNED, late, [0.5] * 10], {f"task{k}": 0.5 for k in (1, 2)})
    mixture = learn_mixture([pilot])
    assert not mixture.tasks[1].begun
    assert mixture.tasks[1].score.mean < 0.68
    assert mixture.tasks[1].score.low < 0.5


def test_a_rise_to_the_baseline_is_no_beginning() -> None:
    rising = [0.2, 0.24, 0.3, 0.37, 0.41, 0.46, 0.47, 0.5, 0.51, 0.49]
    known = constant_run([rising], {"task0": 0.5})
    assert learn_mixture([replace(known, baselines={})]).tasks[0].begun
    assert not learn_mixture([known]).tasks[0].begun


def test_baselines_are_those_of_the_finished_run(tmp_path: Path) -> None:
    path = write_journal(tmp_path / "journal.jsonl")
    assert ScoredRun.from_journal(path).baselines == {}
    scores = tmp_path / "scores.json"
    scores.write_text('{"tasks": {"a": {"baseline": 0.25}, "b": {"baseline": null}}}')
    assert ScoredRun.from_journal(tmp_path).baselines == {"a": 0.25}
    assert ScoredRun.from_journal(tmp_path, "loss").baselines == {}
    scores.write_text("[]")
    with pytest.raises(UserError, match="expected the scores of a finished run"):
        ScoredRun.from_journal(tmp_path)


def late_run(scales: Array, heights: Array, shares: Array, seed: int) -> ScoredRun:
    """A run of tasks that predict one class until a twentieth of their height is learned."""
    rng = stream(seed, "late")
    training = np.outer(np.linspace(0.1, 1.0, 10), shares) * MOST
    values = np.full(training.shape, 0.4)
    for k, scale in enumerate(scales):
        rise = 1 - 1 / (1 + (training[:, k] / scale) ** 3)
        scores = rng.binomial(150, 0.4 + heights[k] * rise) / 150
        values[:, k] = np.where(rise < 0.05, 0.4, scores)
    run = constant_run(values.T.tolist(), {f"task{k}": 0.4 for k in range(len(scales))})
    return replace(
        run, training=np.broadcast_to(training, (POWERS, *training.shape)), shares=shares
    )


def test_intervals_cover_where_most_tasks_begin_late_or_not_at_all() -> None:
    """Of 15 x 4 intervals of 90%, 46 at least cover.

    With a coverage of 0.9, fewer than 46 of 60 have a probability of 0.1%.
    """
    covered = 0
    for seed in range(15):
        rng = stream(seed, "late truth")
        scales = MOST * np.exp(rng.uniform(np.log(0.05), np.log(2), 4))
        heights = rng.uniform(0.1, 0.5, 4)
        mixture = learn_mixture([late_run(scales, heights, np.full(4, 0.25), seed)])
        shares = np.array(list(mixture.shares.values()))
        other = late_run(scales, heights, shares, seed + 1000)
        covered += sum(
            task.score.covers(score)
            for task, score in zip(mixture.tasks, other.values[-1], strict=True)
        )
    assert covered >= 46
