"""DIW and the baselines, against a worker with made-up scores."""

import json

import numpy as np
import pytest

from taskmix.weighting import DIW, DIWEveryTry, Joint, Single
from taskmix.weighting.base import JointResult, Separated

TASKS = ["target", "helper"]


class Scripted:
    """Answers with scores from a list; remembers what it was asked."""

    def __init__(self, alone, joint):
        self.alone, self.joint = alone, list(joint)
        self.separated, self.shares, self.kept = [], [], []

    def separate(self, scales, fraction=1.0, *, fresh=True, scored=False):
        self.separated.append((list(scales), scored))
        return Separated(np.ones(2), np.ones(2), np.array(self.alone), dev=10)

    def together(self, weights, fraction=1.0, *, fresh=False):
        self.shares.append(list(weights))
        self.last = self.joint.pop(0)
        return JointResult(np.ones(2), self.last, dev_loss=1 - self.last)

    def keep(self):
        self.kept.append(self.last)


def test_single_tasks_are_trained_unweighted_and_scored():
    worker = Scripted([0.6, 0.4], [0.5])
    DIW(TASKS, "target").round(worker)
    assert worker.separated == [([1.0, 1.0], True)]


def test_the_first_round_takes_the_first_try():
    worker = Scripted([0.6, 0.4], [0.5])
    report = DIW(TASKS, "target").round(worker)
    assert (report.tries, worker.kept, report.dev_loss) == (1, [0.5], 0.5)


def test_weights_follow_the_rule_until_the_target_improves():
    diw = DIW(TASKS, "target", rate=0.1)
    diw.round(Scripted([0.6, 0.4], [0.55]))
    worker = Scripted([0.56, 0.50], [0.53, 0.54, 0.56])
    report = diw.round(worker)
    weights, expected = [1.0, 1.0], []
    for score in (0.53, 0.54, 0.56):
        total = sum(weights)
        expected.append([w / total for w in weights])
        if score <= 0.55:
            gains = [0.56 - score, 0.50 - score]
            weights = [max(1e-6, w + 0.1 * 100 * g) for w, g in zip(weights, gains, strict=True)]
    np.testing.assert_allclose(worker.shares, expected)
    np.testing.assert_allclose(diw.weights(), weights)
    assert report.tries == 3
    assert worker.kept[-1] == 0.56


def test_a_try_that_succeeds_moves_the_weights_by_the_other_reading_alone():
    """The first round always succeeds; then a failed and a successful try, in plain loops."""
    first, every = DIW(TASKS, "target", rate=0.1), DIWEveryTry(TASKS, "target", rate=0.1)
    for diw in (first, every):
        diw.round(Scripted([0.6, 0.4], [0.55]))
    assert first.weights().tolist() == [1.0, 1.0]
    weights = [1 + 0.1 * 100 * (0.6 - 0.55), max(1e-6, 1 + 0.1 * 100 * (0.4 - 0.55))]
    np.testing.assert_allclose(every.weights(), weights)
    worker = Scripted([0.56, 0.50], [0.53, 0.57])
    report = every.round(worker)
    shares = []
    for score in (0.53, 0.57):
        shares.append([w / sum(weights) for w in weights])
        gains = [0.56 - score, 0.50 - score]
        weights = [max(1e-6, w + 0.1 * 100 * g) for w, g in zip(weights, gains, strict=True)]
    np.testing.assert_allclose(worker.shares, shares)
    np.testing.assert_allclose(every.weights(), weights)
    assert list(report.weights.values()) == every.weights().tolist()


def test_after_ten_failures_the_best_try_is_kept():
    diw = DIW(TASKS, "target")
    diw.round(Scripted([0.6, 0.4], [0.9]))
    scores = [0.5, 0.7, 0.6, 0.65, 0.7, 0.5, 0.5, 0.5, 0.5, 0.5, 0.99]
    worker = Scripted([0.6, 0.4], scores)
    assert diw.round(worker).tries == 10
    assert worker.kept[-1] == 0.7
    assert worker.joint == [0.99]


def test_the_next_round_has_to_beat_what_was_kept():
    diw = DIW(TASKS, "target", tries=2)
    diw.round(Scripted([0.6, 0.4], [0.9]))
    diw.round(Scripted([0.6, 0.4], [0.5, 0.4]))
    assert diw.round(Scripted([0.6, 0.4], [0.55])).tries == 1


def test_weights_stop_at_the_floor():
    diw = DIW(TASKS, "target", rate=10.0, tries=3, floor=1e-6)
    diw.round(Scripted([0.6, 0.4], [0.9]))
    diw.round(Scripted([0.9, 0.0], [0.5, 0.5, 0.5]))
    assert diw.weights()[1] == 1e-6


def test_state_goes_through_json():
    first = DIW(TASKS, "target")
    second = DIW(TASKS, "target")
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    for scores in ([0.5], [0.4, 0.6]):
        first.round(Scripted([0.6, 0.4], scores))
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    script = [0.55, 0.58, 0.61]
    workers = Scripted([0.6, 0.4], script), Scripted([0.6, 0.4], script)
    assert first.round(workers[0]) == second.round(workers[1])
    assert workers[0].shares == workers[1].shares


@pytest.mark.parametrize(("weighting", "shares"), [(Joint, [0.5, 0.5]), (Single, [0.0, 1.0])])
def test_baselines_train_once_and_keep_it(weighting, shares):
    worker = Scripted([], [0.5, 0.6])
    decides = weighting(TASKS, "helper")
    decides.round(worker)
    decides.round(worker)
    assert worker.shares == [shares, shares]
    assert worker.kept == [0.5, 0.6]
    assert worker.separated == []


def test_no_tries_are_refused():
    with pytest.raises(ValueError, match="tries: expected at least 1, found 0"):
        DIW(TASKS, "target", tries=0)
