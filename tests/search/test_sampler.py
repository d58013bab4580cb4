import logging
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState

import taskmix.search
from taskmix.errors import UserError
from taskmix.search import GPHedgeSampler, RatioSpace
from taskmix.search.history import StudyHistory
from taskmix.search.process import FUNCTIONS, Process
from taskmix.search.space import Space

GRID = {"x": IntDistribution(0, 14), "y": IntDistribution(0, 9)}


def bowl(trial: Trial) -> float:
    x, y = trial.suggest_int("x", 0, 14), trial.suggest_int("y", 0, 9)
    return (x - 11) ** 2 + 2 * (y - 2) ** 2


def studied(trials: int = 14, objective=bowl, **arguments) -> optuna.Study:
    direction = arguments.pop("direction", "minimize")
    sampler = GPHedgeSampler(**{"seed": 1, "initial": 5, **arguments})
    study = optuna.create_study(sampler=sampler, direction=direction)
    study.optimize(objective, n_trials=trials)
    return study


def points(study: optuna.Study) -> list[dict]:
    return [trial.params for trial in study.trials]


def rounds(study: optuna.Study) -> dict[int, dict]:
    written = {trial.number: trial.system_attrs.get("gp_hedge:round") for trial in study.trials}
    return {number: value for number, value in written.items() if value is not None}


@pytest.fixture(scope="module")
def study() -> optuna.Study:
    return studied()


def test_it_finds_the_bottom_of_a_bowl_of_150_points_in_14_trials(study: optuna.Study) -> None:
    assert study.best_params == {"x": 11, "y": 2}


def test_gains_are_the_posterior_means_at_past_nominees_under_the_refitted_process(
    study: optuna.Study,
) -> None:
    gains = dict.fromkeys(FUNCTIONS, 0.0)
    previous: dict | None = None
    for number, written in rounds(study).items():
        known = study.trials[:number]
        inputs = np.array([[t.params["x"] / 14, t.params["y"] / 9] for t in known])
        values = np.array([-t.value for t in known])
        process = Process(inputs, (values - values.mean()) / values.std(), np.empty((0, 2)))
        if previous is not None:
            for name in FUNCTIONS:
                x, y = previous["nominees"][name].values()
                gains[name] += process.mean(np.array([[x / 14, y / 9]]))[0]
        assert written["gains"] == pytest.approx(gains, abs=1e-6)
        assert written["nominees"][written["followed"]] == study.trials[number].params
        previous = written
    assert list(rounds(study)) == list(range(5, 14))


def test_every_nominee_is_the_largest_unseen_point_of_its_function(study: optuna.Study) -> None:
    written = rounds(study)[8]
    space = Space.of(GRID)
    known = study.trials[:8]
    inputs = np.array([[t.params["x"] / 14, t.params["y"] / 9] for t in known])
    values = np.array([-t.value for t in known])
    process = Process(inputs, (values - values.mean()) / values.std(), np.empty((0, 2)))
    rows = np.array([[x, y] for x in range(15) for y in range(10)], dtype=float)
    unseen = rows[[{"x": x, "y": y} not in points(study)[:8] for x, y in rows]]
    mean, deviation = (f(space.inputs(unseen)) for f in (process.mean, process.deviation))
    best = unseen[(mean + 1.96 * deviation).argmax()]
    assert written["nominees"]["ucb"] == {"x": best[0], "y": best[1]}
    z = (mean - process.best - 0.01) / deviation
    assert written["nominees"]["pi"] == dict(zip("xy", unseen[z.argmax()], strict=True))


@pytest.mark.parametrize("seed", [1, 2])
def test_no_point_is_tried_twice_until_all_were_tried(seed: int) -> None:
    def objective(trial: Trial) -> float:
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return trial.suggest_int("x", 0, 5) * (1 if kind == "a" else -1)

    study = studied(trials=13, objective=objective, seed=seed, initial=3)
    tried = [tuple(point.values()) for point in points(study)]
    assert len(set(tried[:12])) == 12
    assert tried[12] in tried[:12]


def test_threads_try_no_point_twice() -> None:
    study = optuna.create_study(
        sampler=GPHedgeSampler(seed=1, initial=4, space={"x": IntDistribution(0, 23)})
    )
    study.optimize(lambda trial: trial.suggest_int("x", 0, 23) % 7, n_trials=24, n_jobs=8)
    assert sorted(point["x"] for point in points(study)) == list(range(24))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_points_that_are_tried_at_the_same_time_keep_a_distance(seed: int) -> None:
    space = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
    study = optuna.create_study(sampler=GPHedgeSampler(seed=seed, initial=8, space=space))
    noise = np.random.default_rng(seed)
    for _ in range(12):  # mostly noise, so that a pending point says little about its neighbours
        trial = study.ask(space)
        study.tell(trial, (trial.params["x"] - 0.6) ** 2 + noise.normal())
    batch = [study.ask(space).params for _ in range(6)]
    at = np.array([[point["x"], point["y"]] for point in batch])
    distances = np.abs(at[:, None] - at[None]).max(axis=2)[np.triu_indices(6, 1)]
    assert distances.min() >= 1 / 24


def test_equal_ratios_are_tried_once_from_the_first_trial_on() -> None:
    space = RatioSpace("rte", ("qqp",), primary_range=(1, 4), auxiliary_range=(0, 3))
    study = optuna.create_study(sampler=space.sampler(seed=3, initial=4), direction="maximize")
    different = len(space.grid(10))

    def objective(trial: Trial) -> float:
        return -abs(space.shares(space.suggest(trial))[0] - 0.4)

    study.optimize(objective, n_trials=different)
    assert len({tuple(space.canonical(point).values()) for point in points(study)}) == different
    assert study.best_params == {"rte": 3, "qqp": 2}


def test_the_best_ratio_of_three_tasks_is_found_among_hundreds() -> None:
    space = RatioSpace("rte", ("qqp", "wnli"))
    study = optuna.create_study(sampler=space.sampler(seed=1), direction="maximize")

    def objective(trial: Trial) -> float:
        qqp, wnli = space.shares(space.suggest(trial))
        return 0.8 - (qqp - 0.45) ** 2 - wnli

    study.optimize(objective, n_trials=20)
    qqp, wnli = space.shares(study.best_params)
    assert wnli == 0
    assert qqp == pytest.approx(0.45, abs=0.06)


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 0.0), (250.0, -7.0)])
def test_the_scale_of_the_objective_does_not_matter(
    study: optuna.Study, scale: float, shift: float
) -> None:
    other = studied(trials=10, objective=lambda trial: scale * bowl(trial) + shift)
    assert points(other) == points(study)[:10]


def test_maximising_the_negative_is_minimising(study: optuna.Study) -> None:
    other = studied(trials=10, objective=lambda trial: -bowl(trial), direction="maximize")
    assert points(other) == points(study)[:10]


def test_the_seed_decides(study: optuna.Study) -> None:
    assert points(studied(trials=8)) == points(study)[:8]
    assert points(studied(trials=8, seed=2)) != points(study)[:8]


def test_a_study_that_was_killed_goes_on_as_if_it_had_not_been(
    study: optuna.Study, tmp_path: Path
) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    optuna.create_study(storage=storage, study_name="s")
    for _ in range(10):
        # Each trial in a process of its own, as far as the sampler can tell.
        sampler = GPHedgeSampler(seed=1, initial=5)
        optuna.load_study(storage=storage, study_name="s", sampler=sampler).optimize(bowl, 1)
    resumed = optuna.load_study(storage=storage, study_name="s")
    assert points(resumed) == points(study)[:10]
    assert rounds(resumed) == {n: r for n, r in rounds(study).items() if n < 10}


def test_workers_that_share_a_storage_try_different_points() -> None:
    storage = optuna.storages.InMemoryStorage()
    optuna.create_study(storage=storage, study_name="s")
    workers = [
        optuna.load_study(
            storage=storage,
            study_name="s",
            sampler=GPHedgeSampler(seed=1, initial=4, space=GRID),
        )
        for _ in range(4)
    ]
    for _ in range(4):
        asked = [worker.ask(GRID) for worker in workers]
        for worker, trial in zip(workers, asked, strict=True):
            worker.tell(trial, bowl(trial))
    tried = [tuple(point.values()) for point in points(workers[0])]
    assert len(set(tried)) == 16
    rewarded = [set(written["rewards"]) for written in rounds(workers[0]).values()]
    assert sum(map(len, rewarded)) == len(set().union(*rewarded)) == 8


class _Late(GPHedgeSampler):
    """Lets another worker publish its point between reading the storage and publishing."""

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        self.first: list[dict] = []

    def _suggest(self, study, trial, space, history, rng):
        row = super()._suggest(study, trial, space, history, rng)
        if not self.first:
            self.first.append(space.params(row))
            study.enqueue_trial(self.first[0])
        return row


def test_a_point_that_another_worker_published_meanwhile_is_given_up() -> None:
    study = studied(trials=6)
    study.sampler = _Late(seed=1, initial=5)
    trial = study.ask(GRID)
    assert trial.params != study.sampler.first[0]


def test_a_failed_point_is_not_tried_again_and_rewards_nobody() -> None:
    study = studied(trials=7)
    trial = study.ask(GRID)
    study.tell(trial, state=TrialState.FAIL)
    study.optimize(bowl, n_trials=2)
    assert trial.params not in points(study)[8:]
    assert all(str(trial.number) not in written["rewards"] for written in rounds(study).values())


def test_an_enqueued_point_is_tried_as_it_is_and_by_nobody_else() -> None:
    study = studied(trials=6)
    study.enqueue_trial({"x": 11, "y": 2})
    study.optimize(bowl, n_trials=4)
    assert points(study)[6] == {"x": 11, "y": 2}
    assert points(study).count({"x": 11, "y": 2}) == 1
    assert 6 not in rounds(study)


def pruned(number_of_reports: int, report: float) -> FrozenTrial:
    return optuna.create_trial(
        state=TrialState.PRUNED,
        params={"x": 0, "y": 0},
        distributions=GRID,
        intermediate_values=dict.fromkeys(range(number_of_reports), report),
    )


@pytest.mark.parametrize(
    ("reports", "report", "counted"), [(2, 1e9, "worst"), (2, -5.0, "best"), (0, 0.0, None)]
)
def test_a_pruned_trial_counts_with_its_last_report_within_the_range_of_finished_ones(
    reports: int, report: float, counted: str | None
) -> None:
    study = studied(trials=5)
    finished = [-trial.value for trial in study.trials]
    study.add_trial(pruned(reports, report))
    history = StudyHistory.read(study, study.ask()._cached_frozen_trial, Space.of(GRID))
    expected = {"worst": [min(finished)], "best": [max(finished)], None: []}[counted]
    assert history.values.tolist() == finished + expected
    assert (0.0, 0.0) in history.taken


def test_parameters_of_some_trials_only_are_random_and_said_to_be(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def objective(trial: Trial) -> float:
        if trial.suggest_categorical("deep", [True, False]):
            return trial.suggest_int("layers", 1, 8)
        return trial.suggest_float("width", 0.1, 1.0, log=True)

    with caplog.at_level(logging.WARNING, logger="taskmix.search"):
        study = studied(trials=10, objective=objective)
    assert all(trial.state is TrialState.COMPLETE for trial in study.trials)
    assert all(set(w["nominees"]["ei"]) == {"deep"} for w in rounds(study).values())
    assert "is drawn at random, because not all finished trials have it" in caplog.text


def test_mixed_parameters_are_searched_together() -> None:
    def objective(trial: Trial) -> float:
        rate = np.log10(trial.suggest_float("rate", 1e-6, 1.0, log=True))
        layers = trial.suggest_int("layers", 1, 100)
        kind = trial.suggest_categorical("kind", ["sgd", "adam"])
        return (rate + 3) ** 2 + abs(layers - 60) / 30 + (kind == "sgd")

    study = studied(trials=18, objective=objective, initial=8)
    # Only 60 layers, adam and a rate within 0.14 decades do: 1/100 x 1/2 x 0.28/6 of all points.
    # Random search finds one of them in fewer than 1 of 200 studies.
    assert study.best_value < 0.02
    assert study.best_params["kind"] == "adam"


def test_a_space_given_beforehand_is_used_from_the_first_trial_on() -> None:
    sampler = GPHedgeSampler(seed=1, space=GRID)
    study = optuna.create_study(sampler=sampler)
    asked = [study.ask(GRID) for _ in range(20)]
    assert len({tuple(trial.params.values()) for trial in asked}) == 20


def test_features_decide_what_the_process_sees() -> None:
    def objective(trial: Trial) -> float:
        return (trial.suggest_float("a", 0, 1) + trial.suggest_float("b", 0, 1) - 0.9) ** 2

    study = studied(trials=12, objective=objective, features=lambda p: [(p["a"] + p["b"]) / 2])
    assert study.best_value < 1e-3


def test_infinite_values_are_no_obstacle() -> None:
    def objective(trial: Trial) -> float:
        value = bowl(trial)
        return float("inf") if value > 100 else value

    assert studied(trials=10, objective=objective).best_value < 100


def test_nothing_is_drawn_from_numpy_s_global_generator() -> None:
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    studied(trials=7)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize(
    "arguments",
    [
        {"initial": 0},
        {"initial": 2.5},
        *({name: value} for name in ("xi", "kappa", "eta") for value in (-1.0, math.nan, math.inf)),
    ],
)
def test_a_bad_setting_is_named(arguments: dict) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        GPHedgeSampler(**arguments)


def test_several_objectives_are_refused_in_a_sentence() -> None:
    study = optuna.create_study(directions=["minimize", "maximize"], sampler=GPHedgeSampler(seed=1))
    with pytest.raises(ValueError, match="expected one objective for GPHedgeSampler, found 2"):
        study.ask({"x": FloatDistribution(0, 1)})


def test_a_missing_extra_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taskmix.search, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'taskmix\[search\]'$"):
        _ = taskmix.search.GPHedgeSampler


def test_the_room_is_light_until_the_sampler_is_used() -> None:
    code = (
        "import sys, taskmix.search; taskmix.search.RatioSpace('a', ['b']).grid(3);"
        "print([m for m in ('torch', 'optuna', 'botorch') if m in sys.modules]);"
        "taskmix.search.GPHedgeSampler(seed=1);"
        "print([m for m in ('torch', 'botorch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
