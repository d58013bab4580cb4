import json

import numpy as np
import pytest

from taskmix.errors import UserError
from taskmix.journal import Diagnostics, Evaluation, Round, SelectionStep, Step
from taskmix.report import read_history
from taskmix.report.history import exposures
from taskmix.report.run_data import read_run
from taskmix.report.timeline import asked, influence, training_losses, uncertainties
from taskmix.training.run import run

SCORES = {
    "step": 2,
    "score": 0.5,
    "tasks": {
        "easy": {"score": 0.6, "metrics": {"accuracy": 0.6}, "loss": 0.5, "examples": 50},
        "hard": {
            "score": 0.4,
            "metrics": {"f1": 0.4},
            "loss": 0.9,
            "examples": 50,
            "baseline": 0.3,
        },
    },
    "forward": 120,
    "backward": 38,
}


def history_of(folder):
    return read_history(folder / "journal.jsonl")


def test_records_are_sorted_by_kind(make_run, short):
    history = history_of(make_run(*short))
    assert [len(kind) for kind in (history.shares, history.units, history.evaluations)] == [2, 4, 2]
    assert history.tasks == ["easy", "hard"]
    assert history.end == 4
    assert history.seconds == 4.0


def test_evaluations_on_other_splits_are_left_out(make_run, short):
    test = Evaluation(4, "test", 0.9, {"easy": 0.9, "hard": 0.9}, {"easy": 0.1, "hard": 0.1})
    assert len(history_of(make_run(*short, test)).evaluations) == 2


def test_a_file_that_opens_with_no_run_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text("")
    with pytest.raises(UserError, match="opens with its run"):
        read_history(path)


def test_a_finished_run_stands_as_its_scores_say(make_run, short):
    folder = make_run(*short, scores=json.dumps(SCORES))
    run = read_run(folder)
    assert run.finished
    result = run.result
    assert (result.step, result.score, result.forward, result.backward) == (2, 0.5, 120, 38)
    assert {task: scores.score for task, scores in result.tasks.items()} == {
        "easy": 0.6,
        "hard": 0.4,
    }
    assert result.tasks["hard"].metrics == {"f1": 0.4}
    assert [scores.baseline for scores in result.tasks.values()] == [None, 0.3]


def test_an_unfinished_run_stands_at_its_best_and_has_spent_what_it_has_spent(make_run, short):
    run = read_run(make_run(*short, config="seed: 1\n"))
    assert not run.finished
    assert (run.result.step, run.result.score, run.result.forward) == (2, 0.5, 100)


def evaluation(step, score, objective):
    by_task = {"easy": score, "hard": score}
    return Evaluation(step, "dev", score, by_task, by_task, objective=objective)


def test_the_kept_step_of_an_unfinished_run_is_that_of_its_objective(make_run):
    records = [evaluation(1, 0.9, -2.0), evaluation(2, 0.1, -1.0), evaluation(3, 0.5, -1.0)]
    assert read_run(make_run(*records)).result.step == 2
    last = make_run(*records, name="last", config="evaluate: {keep: last}\n")
    assert read_run(last).result.step == 3
    silent = [evaluation(1, 0.1, None), evaluation(2, 0.9, None)]
    assert read_run(make_run(*silent, name="silent")).result.step == 2


def test_a_run_that_was_never_scored_has_no_standing(make_run, short):
    assert read_run(make_run(*short[:3])).result is None


def test_exposure_counts_draws_examples_and_epochs(make_run, short):
    given = exposures(history_of(make_run(*short)))
    assert (given["easy"].share, given["easy"].examples, given["easy"].epochs) == (0.75, 30, 0.3)
    assert (given["hard"].share, given["hard"].examples, given["hard"].epochs) == (0.25, 8, 0.04)


def test_exposure_under_a_selector_counts_the_chosen_examples(make_run):
    records = [
        SelectionStep(k, {"easy": 8, "hard": 8}, {"easy": 2, "hard": 6}, used=0.5) for k in (1, 2)
    ]
    given = exposures(history_of(make_run(*records)))
    assert (given["hard"].share, given["hard"].examples, given["hard"].epochs) == (0.75, 12, 0.06)


def test_examples_that_nobody_wrote_down_are_unknown(make_run):
    given = exposures(history_of(make_run(Step(1, "easy", 0.5))))
    assert given["easy"].examples is None
    assert given["easy"].epochs is None


def test_shares_asked_hold_until_they_change(make_run, short):
    timeline = asked(history_of(make_run(*short)))
    steps, values = timeline.corners()
    assert steps.tolist() == [1, 3, 5]
    assert values.tolist() == [[0.5, 0.5], [0.8, 0.2], [0.8, 0.2]]
    np.testing.assert_allclose(timeline.mean(), [0.65, 0.35])


def test_a_long_timeline_is_thinned_to_means(make_run, short):
    timeline = asked(history_of(make_run(*short)))
    steps, values = timeline.corners(most=2)
    assert steps.tolist() == [1, 5]
    np.testing.assert_allclose(values, [[0.65, 0.35]] * 2)


def test_weights_and_choices_are_an_influence_that_sums_to_one(make_run):
    rounds = [Round(5, {}, {}, {"easy": 3.0, "hard": 1.0}, dev_loss=1.0)]
    assert influence(history_of(make_run(*rounds))).values.tolist() == [[0.75, 0.25]]
    chosen = [SelectionStep(5, {}, {"hard": 4}, used=1.0)]
    assert influence(history_of(make_run(*chosen, name="other"))).values.tolist() == [[0.0, 1.0]]


def test_uncertainties_are_those_that_the_policy_wrote_down(make_run, short):
    inner = [
        Diagnostics(2, {"uncertainties": {}}),
        Diagnostics(3, {"uncertainties": {"easy": 0.1, "hard": 0.3}}),
    ]
    timeline = uncertainties(history_of(make_run(*short, *inner)))
    assert timeline.steps.tolist() == [3]
    assert timeline.values.tolist() == [[0.1, 0.3]]
    assert uncertainties(history_of(make_run(*short, name="other"))) is None


def test_training_losses_come_from_steps_selections_and_rounds(make_run, short):
    selected = SelectionStep(5, {}, {}, used=1.0, losses={"hard": 2.0})
    weighed = Round(6, {}, {}, {}, dev_loss=1.0, losses={"easy": 0.5})
    losses = training_losses(history_of(make_run(*short, selected, weighed)))
    assert losses["easy"].steps.tolist() == [1, 3, 4, 6]
    assert losses["easy"].values.tolist() == [1.0, 3.0, 2.0, 0.5]
    assert losses["hard"].values.tolist() == [4.0, 2.0]


@pytest.mark.parametrize(
    "settings",
    [
        {"objective": {"loss": "digits/left"}},
        {"objective": "digits/left"},
        {"evaluate": {"every": 2, "examples": 40, "keep": "last"}},
    ],
    ids=str,
)
def test_a_run_and_its_report_keep_the_same_step(tmp_path, settings):
    config = {
        "tasks": ["digits/left", "digits/larger"],
        "policy": "random",
        "budget": {"steps": 12, "batch": 8},
        "evaluate": {"every": 2, "examples": 40},
        "optimizer": {"lr": 3e-3},
        "seed": 3,
    }
    kept = run(config | settings, tmp_path / "run").step
    (tmp_path / "run" / "scores.json").unlink()  # as if the last step were to come
    so_far = read_run(tmp_path / "run")
    assert so_far.result.step == kept
    best = max(so_far.history.evaluations, key=lambda evaluation: evaluation.score)
    assert best.step != kept  # or the test would not tell an objective from the score
