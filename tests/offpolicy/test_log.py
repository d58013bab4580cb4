"""Logs: what a run remembers of its decisions."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import taskmix
from taskmix.errors import UserError
from taskmix.journal import Journal, Opening, Step
from taskmix.offpolicy import Course, Log, estimate, improve, prediction_gain, room_left
from taskmix.offpolicy.estimate import mean_shares
from taskmix.policies import Outcome, Policy, Thompson
from taskmix.rng import stream


def journal_of(path: Path, policy: Policy, steps: int, score: bool = False) -> list[Outcome]:
    """A run's journal, and its outcomes in order."""
    rng, outcomes = stream(1, "draws"), []
    opening = Opening("run", list(policy.tasks), {}, 1, {}, {"steps": steps})
    with Journal.create(path, opening) as journal:
        for step in range(steps):
            draw = policy.ask(rng)
            dev = float(rng.random()) if score and policy.due(draw) else None
            outcome = Outcome(draw, loss=float(rng.random()), gain=float(rng.normal()), score=dev)
            policy.tell(outcome)
            journal.draw(step + 1, outcome)
            outcomes.append(outcome)
    return outcomes


def test_actions_are_places_or_names() -> None:
    by_place = Log(["a", "b"], [0, 1, 1], np.full((3, 2), 0.5), [1.0, 2.0, 3.0])
    by_name = Log(["a", "b"], ["a", "b", "b"], np.full((3, 2), 0.5), [1.0, 2.0, 3.0])
    assert by_place.actions.tolist() == by_name.actions.tolist() == [0, 1, 1]
    assert repr(by_name) == "Log(3 steps, 2 tasks, mean 2)"


def test_only_the_propensities_need_be_known() -> None:
    log = Log(["a", "b"], [0, 1], [0.25, 0.5], [1.0, 2.0])
    assert log.course is None
    assert log.propensities.tolist() == [0.25, 0.5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [0, 2]}, "from 0 to 1, found"),
        ({"actions": [0.0, 1.0]}, "expected whole numbers"),
        ({"actions": ["a", "c"]}, "found 'c'"),
        ({"actions": []}, "expected the shape"),
        ({"rewards": [1.0]}, "rewards: expected the shape"),
        ({"rewards": [1.0, float("nan")]}, "rewards, step 1: expected a finite number"),
        ({"measured": {"losses": [1.0, 2.0]}}, "measured: expected some of .* found 'losses'"),
        ({"measured": {"loss": [1.0]}}, "loss: expected the shape"),
        ({"probabilities": [[0.5, 0.6]] * 2}, "sum to 1"),
        ({"probabilities": [[0.5, 0.5]] * 3}, "probabilities: expected the shape"),
        ({"probabilities": [[0.0, 1.0]] * 2}, "step 0: expected a probability above 0"),
    ],
)
def test_what_is_no_log_is_refused(change: dict, message: str) -> None:
    good = {
        "tasks": ["a", "b"],
        "actions": [0, 1],
        "probabilities": [[0.5, 0.5]] * 2,
        "rewards": [1.0, 2.0],
    }
    with pytest.raises(ValueError, match=message):
        Log(**(good | change))


def test_a_course_gives_each_step_its_row() -> None:
    course = Course(np.array([0, 2, 3]), np.array([[0.5, 0.5], [0.9, 0.1], [0.2, 0.8]]))
    assert course.of(np.array([0, 1, 0, 1, 1])).tolist() == [0.5, 0.5, 0.9, 0.8, 0.8]
    assert course.mean(5).tolist() == pytest.approx([0.46, 0.54])
    assert course.always().tolist() == [True, True]


def test_a_journal_gives_back_draws_propensities_and_rewards(tmp_path: Path) -> None:
    policy = taskmix.Exp3S(["a", "b", "c"], eta=0.5)
    outcomes = journal_of(tmp_path / "journal.jsonl", policy, 200)
    log = Log.from_journal(tmp_path, prediction_gain)
    assert [log.tasks[a] for a in log.actions] == [o.draw.task for o in outcomes]
    assert log.propensities.tolist() == [o.draw.probability for o in outcomes]
    assert log.rewards.tolist() == [o.gain for o in outcomes]
    rows = np.array([o.draw.probabilities for o in outcomes])
    assert log.course is not None
    assert np.allclose(log.course.mean(200), rows.mean(axis=0), atol=1e-8)
    assert log.decisions.tolist() == list(range(200))


def test_the_reward_is_equation_16_unless_one_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    outcomes = journal_of(path, taskmix.Random(["a", "b"]), 50)
    last: dict[str, float] = {}
    expected = []
    for outcome in outcomes:
        task, loss = outcome.draw.task, outcome.loss
        improved = task not in last or loss < last[task]
        expected.append(1 - np.exp(-loss) if improved else 0.0)
        last[task] = loss
    assert Log.from_journal(path).rewards == pytest.approx(expected, abs=1e-12)
    own = Log.from_journal(path, lambda steps: np.array([-step.loss for step in steps]))
    assert own.rewards == pytest.approx([-outcome.loss for outcome in outcomes])


def test_a_round_of_thompson_sampling_is_one_decision(tmp_path: Path) -> None:
    policy = Thompson(["a", "b", "c"], primary="a", batches=5)
    journal_of(tmp_path / "journal.jsonl", policy, 100, score=True)
    log = Log.from_journal(tmp_path)
    assert log.decisions.tolist() == [step // 5 for step in range(100)]


def test_ten_thousand_tasks_need_no_dense_array(tmp_path: Path) -> None:
    tasks = [f"t{k}" for k in range(10_000)]
    policy = taskmix.Exp3S(tasks, eta=1.0)
    outcomes = journal_of(tmp_path / "journal.jsonl", policy, 300)
    log = Log.from_journal(tmp_path)
    assert log.course is not None
    assert log.course.rows.size <= 2 * len(tasks)
    assert log.propensities.tolist() == [o.draw.probability for o in outcomes]
    shares = improve(log).probabilities()
    assert shares.sum() == pytest.approx(1)


def test_a_missing_signal_is_named(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", Opening("run", ["a"], {}, 1, {}, {})) as journal:
        draw = taskmix.Random(["a"]).ask(stream(1, "draws"))
        journal.draw(1, Outcome(draw, loss=0.5))
    with pytest.raises(UserError, match=r"j, step 1: expected a measured gain .* found loss"):
        Log.from_journal(tmp_path / "j", prediction_gain)


def rewarded_journal(path: Path, policy: Policy) -> list[Outcome]:
    rng, outcomes = stream(2, "draws"), []
    opening = Opening("run", list(policy.tasks), {}, 1, {}, {})
    with Journal.create(path, opening) as journal:
        for step in range(200):
            draw = policy.ask(rng)
            reward, advantage = 0.5 + 0.1 * draw.index, float(rng.random()) * (1 + draw.index)
            signals = {"reward": reward, "spread": 0.1, "mute": 0.0, "advantage": advantage}
            outcomes.append(Outcome(draw, examples=8, tokens=64, **signals))
            journal.draw(step + 1, outcomes[-1])
    return outcomes


def test_a_journal_of_rewards_is_read_by_its_rewards(tmp_path: Path) -> None:
    outcomes = rewarded_journal(tmp_path / "j", taskmix.Random(["a", "b"]))
    log = Log.from_journal(tmp_path / "j")
    assert log.rewards.tolist() == [outcome.reward for outcome in outcomes]
    assert log.outcome(3, outcomes[3].draw).measured() == outcomes[3].measured()


@pytest.mark.parametrize(
    "policy", [taskmix.DUMP, taskmix.SEC, taskmix.Learnability, taskmix.Climb], ids=lambda c: c.name
)
def test_a_policy_that_learns_from_rewards_is_replayed(
    tmp_path: Path, policy: type[Policy]
) -> None:
    outcomes = rewarded_journal(tmp_path / "j", taskmix.Random(["a", "b"]))
    expected, replayed = [], policy(["a", "b"])
    for outcome in outcomes:
        expected.append(replayed.probabilities().tolist())
        draw = replace(replayed.replay(outcome.draw.index), probabilities=np.array([0.5, 0.5]))
        replayed.tell(Outcome(draw, **outcome.measured()))
    shares = mean_shares(Log.from_journal(tmp_path / "j"), policy(["a", "b"]))
    assert list(shares.values()) == pytest.approx(np.mean(expected, axis=0).tolist())
    assert len(np.unique(expected, axis=0)) > 1


def test_a_journal_without_draws_is_refused(tmp_path: Path) -> None:
    Journal.create(tmp_path / "journal.jsonl", Opening("run", ["a"], {}, 1, {}, {})).close()
    with pytest.raises(UserError, match="expected draws to learn from"):
        Log.from_journal(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        Log.from_journal(tmp_path / "nowhere")


def test_a_loss_below_zero_leaves_no_room() -> None:
    steps = [Step(1, "a", 1.0, loss=0.5), Step(2, "a", 1.0, loss=-0.5)]
    assert room_left(steps).tolist() == [pytest.approx(1 - np.exp(-0.5)), 0.0]


def test_reordering_moves_names_and_nothing_else() -> None:
    rng = stream(3, "log")
    rows = rng.dirichlet(np.full(3, 9.0), 200)
    log = Log(["a", "b", "c"], rng.integers(0, 3, 200), rows, rng.random(200))
    turned = log.reordered(["c", "a", "b"])
    assert [turned.tasks[a] for a in turned.actions] == [log.tasks[a] for a in log.actions]
    policy = {"a": 0.2, "b": 0.3, "c": 0.5}
    assert estimate(turned, policy, pool="own").value == pytest.approx(estimate(log, policy).value)


def forged(path: Path, change, budget: dict[str, int]) -> Path:
    """A run's journal, whose records were changed as JSON."""
    policy = taskmix.Fixed({"a": 0.2, "b": 0.8})
    opening = Opening("run", ["a", "b"], {"a": 9, "b": 9}, 1, {}, budget)
    with Journal.create(path, opening) as journal:
        for step in range(1, 41):
            journal.draw(step, Outcome(policy.ask(stream(step, "forged")), loss=0.5, tokens=7))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    change(records)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def swap_tasks_of_a_draw(records) -> None:
    drawn = next(record for record in records if record.get("task") == "a")
    drawn["task"] = "b"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda records: records.pop(20), "expected step 19 after step 18, found step 20"),
        (lambda records: records.insert(9, records[8]), "expected step 8 after step 7, found"),
        (lambda records: records.pop(1), "expected the distribution before the first draw"),
        (lambda records: records.insert(9, records.pop(1)), "the distribution before the first"),
        (lambda records: records[1].update(shares=[0.2, 0.7]), "line 2: .* the sum 0.9 instead"),
        (lambda records: records[0].update(tasks=["b", "a"]), r"expected the probability 0\.\d of"),
        (swap_tasks_of_a_draw, "expected the probability 0.8 of b, .* found 0.2"),
        (lambda records: records[7].update(p=0.5), "step 6: expected the probability"),
        (lambda records: records[0].update(sizes={"a": -9, "b": 9}), "line 1: .* found -9 for a"),
        (lambda records: records[0].update(sizes={"c": 9}), "line 1: .* sizes or an objective of"),
        (lambda records: records[0].update(tasks=["a", "a"]), "line 1: .* instead of different"),
        (lambda records: records[0].update(budget={"steps": -1}), "line 1: .* found -1 for steps"),
        (lambda records: records[4].update(tokens=-7), "line 5: .* tokens below 0"),
    ],
)
def test_a_forged_journal_is_refused(tmp_path: Path, change, message: str) -> None:
    path = forged(tmp_path / "journal.jsonl", change, {"steps": 40})
    with pytest.raises(UserError, match=message):
        Log.from_journal(path)


def test_a_mixers_draws_may_have_gaps_and_any_order_and_come_once(tmp_path: Path) -> None:
    def shuffled(records) -> None:
        records.append(records.pop(9))
        records.pop(20)

    assert len(Log.from_journal(forged(tmp_path / "late", shuffled, {}))) == 39
    twice = forged(tmp_path / "twice", lambda records: records.append(records[9]), {})
    with pytest.raises(UserError, match="expected each draw once, found draw 8 twice"):
        Log.from_journal(twice)


def test_a_record_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = forged(tmp_path / "journal.jsonl", lambda records: None, {})
    path.write_text(path.read_text() + '{"kind":' + "[" * 100_000 + "\n")
    with pytest.raises(UserError, match="line 43: expected a record, found JSON that is nested"):
        Log.from_journal(path)


def test_a_distribution_that_changes_is_written_for_late_outcomes_too(tmp_path: Path) -> None:
    """The shares in front of a draw are those that it was drawn from, in whatever order."""
    policy, rng = taskmix.Cycle({"a": 1, "b": 1}), stream(1, "draws")
    draws = [policy.ask(rng) for _ in range(6)]
    with Journal.create(tmp_path / "j", Opening("m", ["a", "b"], {}, 1, {}, {})) as journal:
        for place in (1, 0, 3, 2, 5, 4):
            journal.draw(draws[place].number, Outcome(draws[place], loss=0.5))
    log = Log.from_journal(tmp_path / "j")
    assert log.course.of(log.actions).tolist() == [1.0] * 6
