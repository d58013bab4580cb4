import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taskmix.errors import UserError
from taskmix.run_info import RunInfo
from taskmix.selection import MTUncertainty, example_scores

TASKS = ["cola", "mnli", "stsb", "rte"]


def random_scores(seed, each=5, tasks=TASKS):
    rng = np.random.default_rng(seed)
    return {task: rng.random(each) * rng.random() for task in tasks}


def places(selection):
    return {task: sorted(chosen.tolist()) for task, chosen in selection.chosen.items()}


def algorithm_1(probabilities, b):
    """Algorithm 1 of the paper, line by line, on probabilities (b, classes) of each task."""
    entropies, uncertainty = {}, []
    for task, candidates in probabilities.items():
        entropies[task] = [-sum(p * math.log(p) for p in row if p > 0) for row in candidates]
    highest = max(sum(h) / b for h in entropies.values())
    for task, candidates in probabilities.items():
        classes = len(candidates[0])
        most = -sum(1 / classes * math.log(1 / classes) for _ in range(classes))
        for i, h in enumerate(entropies[task]):
            uncertainty.append((h / most / highest, task, i))
    uncertainty.sort(reverse=True)
    chosen = {task: [] for task in probabilities}
    for _, task, i in uncertainty[:b]:
        chosen[task].append(i)
    return {task: sorted(found) for task, found in chosen.items()}


def code(probabilities, b):
    """What the authors' code does, by loops."""
    normalised = {
        task: [
            -sum(p * math.log(p) for p in row if p > 0) / math.log(len(row)) for row in candidates
        ]
        for task, candidates in probabilities.items()
    }
    mean = {task: sum(h) / b for task, h in normalised.items()}
    most = max(mean.values())
    uncertainty = [
        (h * mean[task] / most, task, i)
        for task, hs in normalised.items()
        for i, h in enumerate(hs)
    ]
    uncertainty.sort(reverse=True)
    chosen = {task: [] for task in probabilities}
    for _, task, i in uncertainty[:b]:
        chosen[task].append(i)
    return {task: sorted(found) for task, found in chosen.items()}


@pytest.mark.parametrize(("rule", "transcribed"), [("paper", algorithm_1), ("code", code)])
def test_it_chooses_as_the_rule_is_written(rule, transcribed):
    classes = {"cola": 2, "mnli": 3, "stsb": 5, "rte": 2}
    selector = MTUncertainty(TASKS, batch=6, rule=rule)
    for seed in range(100):
        rng = np.random.default_rng(seed)
        probabilities = {
            task: rng.dirichlet(np.full(count, 10 ** rng.uniform(-1, 1)), 6)
            for task, count in classes.items()
        }
        scores = {task: example_scores(p[None]) for task, p in probabilities.items()}
        [selection] = selector.choose(scores)
        assert places(selection) == transcribed(probabilities, 6)


def test_a_task_may_get_the_scores_of_another_by_position_as_in_the_code():
    scores = random_scores(1, each=6) | {"stsb": np.full(4, 0.9)}
    selector = MTUncertainty(TASKS, batch=6, scores_from={"stsb": "rte"})
    [selection] = selector.choose(scores)
    [expected] = MTUncertainty(TASKS, batch=6).choose(scores | {"stsb": scores["rte"][:4]})
    assert places(selection) == places(expected)
    assert selection.candidates["stsb"] == 4
    with pytest.raises(UserError, match="scores_from: unknown task 'mrpc'"):
        MTUncertainty(TASKS, batch=6, scores_from={"stsb": "mrpc"})


def test_the_code_favours_the_task_that_is_uncertain_on_the_whole():
    scores = {"calm": np.array([0.9, 0.1, 0.1]), "torn": np.array([0.8, 0.8, 0.8])}
    [paper] = MTUncertainty(["calm", "torn"], batch=1, rule="paper").choose(scores)
    [code] = MTUncertainty(["calm", "torn"], batch=1, rule="code").choose(scores)
    assert paper.counts == {"calm": 1, "torn": 0}
    assert code.counts == {"calm": 0, "torn": 1}


def test_equal_scores_give_equal_shares():
    [selection] = MTUncertainty(TASKS, batch=8).choose(dict.fromkeys(TASKS, np.full(8, 0.5)))
    assert selection.counts == dict.fromkeys(TASKS, 2)
    [selection] = MTUncertainty(TASKS, batch=8).choose(dict.fromkeys(TASKS, np.zeros(8)))
    assert selection.counts == dict.fromkeys(TASKS, 2)


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["code", "paper"]), st.integers(1, 4))
def test_a_pool_for_several_steps_is_the_best_of_it_dealt_out(seed, rule, every):
    scores = random_scores(seed, each=5 * every)
    steps = MTUncertainty(TASKS, 5, rule, every=every).choose(scores)
    [whole] = MTUncertainty(TASKS, 5 * every, rule).choose(scores)
    assert len(steps) == every
    assert all(sum(step.counts.values()) == 5 for step in steps)
    for task in TASKS:
        together = np.concatenate([step.chosen[task] for step in steps])
        assert sorted(together.tolist()) == sorted(whole.chosen[task].tolist())


@settings(derandomize=True, deadline=None)
@given(st.integers(0, 1000))
def test_nothing_left_out_beats_anything_chosen(seed):
    scores = random_scores(seed)
    [selection] = MTUncertainty(TASKS, 5, "paper").choose(scores)
    chosen = np.concatenate([scores[task][selection.chosen[task]] for task in TASKS])
    left = np.concatenate([np.delete(scores[task], selection.chosen[task]) for task in TASKS])
    assert chosen.min() >= left.max()


def test_chosen_ones_come_most_wanted_first():
    scores = {"a": np.array([0.1, 0.9, 0.5, 0.7]), "b": np.zeros(4)}
    [selection] = MTUncertainty(["a", "b"], 3).choose(scores)
    assert selection.chosen["a"].tolist() == [1, 3, 2]


def test_candidates_are_counted_once_for_a_pool():
    selector = MTUncertainty(TASKS, 5, every=3)
    assert selector.candidates() == dict.fromkeys(TASKS, 15)
    steps = selector.choose(random_scores(1, each=15))
    assert [sum(step.candidates.values()) for step in steps] == [60, 0, 0]


def test_a_smaller_pool_is_scored_for_as_many_steps():
    selector = MTUncertainty(TASKS, 5, every=3, pool=5)
    assert selector.candidates() == dict.fromkeys(TASKS, 5)
    steps = selector.choose(random_scores(2, each=5))
    assert [sum(step.counts.values()) for step in steps] == [5, 5, 5]


def test_fewer_candidates_than_wanted_are_all_taken():
    scores = {"a": np.array([0.5]), "b": np.array([0.1])}
    [selection] = MTUncertainty(["a", "b"], 4).choose(scores)
    assert selection.counts == {"a": 1, "b": 1}


def test_it_goes_on_from_its_state_as_json():
    selector, other = MTUncertainty(TASKS, 5), MTUncertainty(TASKS, 5)
    for seed in range(3):
        selector.choose(random_scores(seed))
    other.load_state_dict(json.loads(json.dumps(selector.state_dict())))
    assert other.diagnostics() == selector.diagnostics()
    assert sum(other.diagnostics()["chosen_share"].values()) == pytest.approx(1)
    assert other.diagnostics()["candidate_share"] == dict.fromkeys(TASKS, 0.25)


def test_a_run_file_can_ask_for_it():
    selector = MTUncertainty.for_run(RunInfo(dict.fromkeys(TASKS, 100), 10, 16), rule="paper")
    assert selector.candidates() == dict.fromkeys(TASKS, 16)


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"rule": "papr"}, UserError, "unknown rule 'papr'; did you mean 'paper'"),
        ({"score": "variance"}, UserError, "unknown score 'variance'"),
        ({"every": 0}, ValueError, "every: expected at least 1, found 0"),
        ({"every": 5, "pool": 5}, ValueError, "pool: expected enough for 5 x 5 examples, found 5"),
        ({"passes": 1}, ValueError, "passes: expected at least 2, found 1"),
    ],
)
def test_mistakes_are_named(options, error, sentence):
    with pytest.raises(error, match=sentence):
        MTUncertainty(TASKS, 5, **options)


def test_scores_that_are_none_are_refused():
    selector = MTUncertainty(["a", "b"], 2)
    with pytest.raises(ValueError, match="expected those of b, found a"):
        selector.choose({"a": np.zeros(2)})
    with pytest.raises(ValueError, match="scores of b: expected a finite number"):
        selector.choose({"a": np.zeros(2), "b": np.array([0.1, math.nan])})
    with pytest.raises(ValueError, match=r"state: expected the tasks \['a', 'b'\]"):
        selector.load_state_dict(MTUncertainty(["a"], 2).state_dict())
    with pytest.raises(ValueError, match="tasks: expected different names"):
        MTUncertainty(["a", "a"], 2)
    with pytest.raises(ValueError, match="batch: expected at least 1"):
        MTUncertainty(["a"], 0)
