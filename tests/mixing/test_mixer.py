"""The mixer: draws, batches, outcomes that come late, and the state."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import taskmix
from taskmix.errors import UserError
from taskmix.journal import Evaluation, Opening, Step, read, read_only
from taskmix.mixing import Decisions, ItemOrder, Key, Mixer, Shard, Tally

SIZES = {"a": 20, "b": 50, "c": 7}
LOSSES = {"a": 1.0, "b": 2.0, "c": 0.5}


def make(**options: object) -> Mixer:
    policy = options.pop("policy", None) or taskmix.Progress(list(SIZES))
    return Mixer(policy, SIZES, 4, seed=3, **options)  # type: ignore[arg-type]


def loss_of(key: Key) -> float:
    return LOSSES[key.task] / (1 + 0.05 * key.draw)


def train(mixer: Mixer, draws: int, ahead: int = 0) -> list[tuple[int, str, tuple[int, ...]]]:
    """Train as a loader does that always holds `ahead` batches; the last ones stay open."""
    batches, held, seen = iter(mixer), [], []
    for _ in range(draws):
        while len(held) <= ahead:
            held.append(next(batches))
        batch = held.pop(0)
        seen.append((batch[0].draw, batch[0].task, tuple(key.item for key in batch)))
        loss = loss_of(batch[0])
        mixer.settle(batch[0].draw, loss=loss, gain=loss / 10)
    return seen


def test_a_batch_has_one_task_and_full_size_unless_its_data_set_is_smaller() -> None:
    mixer = Mixer(taskmix.Random(["a", "b"]), {"a": 3, "b": 9}, 4, seed=1)
    batches = iter(mixer)
    for _ in range(20):
        batch = next(batches)
        assert len({(key.draw, key.task) for key in batch}) == 1
        assert len(batch) == (3 if batch[0].task == "a" else 4)


def test_the_draws_are_those_of_the_policy_alone() -> None:
    policy, mixer = taskmix.Random(list(SIZES)), make(policy=taskmix.Random(list(SIZES)))
    rng = Decisions(policy, seed=3).rng
    assert [task for _, task, _ in train(mixer, 30)] == [policy.ask(rng).task for _ in range(30)]


def test_items_come_in_an_order_that_does_not_depend_on_the_other_tasks() -> None:
    orders = []
    for policy in (taskmix.Random(list(SIZES)), taskmix.TaskSize(SIZES)):
        seen = train(make(policy=policy), 60)
        orders.append([items for _, task, items in seen if task == "b"])
    shorter = min(map(len, orders))
    assert shorter > 5
    assert orders[0][:shorter] == orders[1][:shorter]


def test_items_that_do_not_fill_a_batch_are_left_out_by_chance_and_not_by_length() -> None:
    # Were they cut off after sorting, the longest of all would never come.
    order = ItemOrder("a", 11, 4, seed=1, lengths=np.arange(11))
    per_epoch = [[*order.next(), *order.next()] for _ in range(60)]
    assert all(len(set(epoch)) == 8 for epoch in per_epoch)
    # Each of 60 epochs has an item with probability 8/11: below 30 for one of 11 in 1 of 2,000.
    counts = Counter(item for epoch in per_epoch for item in epoch)
    assert min(counts[item] for item in range(11)) >= 30


def test_like_lengths_come_together() -> None:
    lengths = np.random.default_rng(0).integers(1, 100, 640)
    order = ItemOrder("a", 640, 8, seed=1, lengths=lengths)
    spread = [np.ptp(lengths[order.next()]) for _ in range(80)]
    assert np.mean(spread) < 5  # about 78 without


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize("lag", [None, 5])
@pytest.mark.parametrize("name", ["random", "exp3s", "progress"])
def test_a_resumed_mixer_goes_on_as_if_nothing_had_happened(
    name: str, ahead: int, lag: int | None, tmp_path: Path
) -> None:
    def fresh(folder: str) -> Mixer:
        policies = {"random": taskmix.Random, "exp3s": taskmix.Exp3S, "progress": taskmix.Progress}
        policy = policies[name](list(SIZES))
        return make(policy=policy, lag=lag, journal=tmp_path / folder / "journal.jsonl")

    whole = train(fresh("whole"), 60, ahead)
    first = fresh("parts")
    before = train(first, 25, ahead)
    state = json.loads(json.dumps(first.state_dict()))
    train(first, 5, ahead)  # goes on after its checkpoint and is killed
    second = fresh("parts")
    second.load_state_dict(state)
    assert before + train(second, 35, ahead) == whole
    journals = [(tmp_path / f / "journal.jsonl").read_bytes() for f in ("whole", "parts")]
    assert journals[0] == journals[1]
    assert json.dumps(second.state_dict()) != json.dumps(state)


def test_draws_with_a_lag_do_not_depend_on_how_far_a_loader_looks_ahead() -> None:
    runs = [train(make(lag=6), 80, ahead) for ahead in (0, 2, 5)]
    assert runs[0] == runs[1] == runs[2]
    assert runs[0] != train(make(lag=1), 80)
    assert train(make(lag=1), 80) == train(make(), 80)
    assert train(make(), 80, 5) != train(make(), 80)


def test_a_lag_that_is_too_short_is_said() -> None:
    with pytest.raises(UserError, match=r"^lag: expected .* found 3: draw 1 was not settled when"):
        train(make(lag=3), 10, ahead=4)


def test_the_journal_with_a_lag_has_every_draw_that_was_settled(tmp_path: Path) -> None:
    train(make(lag=6, journal=tmp_path / "journal.jsonl"), 20, ahead=2)
    steps = [r for r in read(tmp_path / "journal.jsonl") if isinstance(r, Step)]
    assert [step.step for step in steps] == list(range(1, 21))


def test_outcomes_may_come_in_any_order() -> None:
    mixer = make(policy=taskmix.Exp3S(list(SIZES), eta=0.1))
    batches = iter(mixer)
    draws = [next(batches)[0].draw for _ in range(3)]
    told = []
    mixer.policy.tell = lambda outcome: told.append((outcome.draw.number, outcome.gain))  # type: ignore[method-assign]
    for number in (2, 3, 1):
        mixer.settle(number, loss=1.0, gain=0.1 * number)
    assert draws == [1, 2, 3]
    assert told == [(2, 0.2), (3, pytest.approx(0.3)), (1, 0.1)]


def test_a_draw_may_be_for_several_batches() -> None:
    mixer = make(batches=3)
    batches = iter(mixer)
    draws = [next(batches)[0].draw for _ in range(6)]
    assert draws == [1, 1, 1, 2, 2, 2]
    mixer.settle(1, loss=1.0)
    assert sum(mixer.spent.values()) == 12


def test_skipped_batches_are_blank_and_ask_nobody() -> None:
    mixer = make()
    mixer.skip(4)
    batches = iter(mixer)
    assert [next(batches) for _ in range(4)] == [[]] * 4
    assert mixer.policy.draws == 0
    assert next(batches)[0].draw == 1
    assert next(iter(mixer))[0].draw == 1  # open, and no blanks any more


def test_ranks_share_the_batches() -> None:
    whole = iter(make(batches=2))
    shards = [iter(Shard(make(batches=2), rank, 2)) for rank in (0, 1)]
    for _ in range(5):
        assert [next(shard) for shard in shards] == [next(whole), next(whole)]


def test_the_journal_says_what_a_run_says(tmp_path: Path) -> None:
    mixer = make(policy=taskmix.Random(list(SIZES)), journal=tmp_path / "journal.jsonl")
    train(mixer, 3)
    opening, _, *steps = read(tmp_path / "journal.jsonl")
    assert opening == Opening(
        "mixture", list(SIZES), SIZES, 3, {"name": "random"}, {"batch": 4}, "policy"
    )
    assert all(isinstance(s, Step) and s.examples == 4 and s.loss is not None for s in steps)
    assert len(taskmix.Log.from_journal(tmp_path)) == 3


def test_the_journal_has_the_options_of_a_policy_that_is_named(tmp_path: Path) -> None:
    spec = {"name": "aimed", "targets": ["a"], "rest": 0.5}
    train(make(policy=spec, journal=tmp_path / "journal.jsonl"), 1)
    assert next(iter(read(tmp_path / "journal.jsonl"))).decider == spec


def test_a_loop_writes_its_evaluations_to_the_journal(tmp_path: Path) -> None:
    mixer = make(journal=tmp_path / "journal.jsonl")
    train(mixer, 3, ahead=2)
    scores = {"c": 0.9, "a": 0.3, "b": 0.6}
    mixer.evaluated(scores, LOSSES)
    [evaluation] = read_only(tmp_path / "journal.jsonl", Evaluation)
    assert (evaluation.step, evaluation.score) == (3, pytest.approx(0.6))
    assert (evaluation.scores, evaluation.losses) == (scores, LOSSES)
    with pytest.raises(UserError, match=r"^losses: expected one for each task .*; missing: b, c$"):
        mixer.evaluated(scores, {"a": 1.0})


def test_reports_and_better_policies_can_be_made_of_the_journal(tmp_path: Path) -> None:
    from taskmix.report import write_run_report

    train(make(policy=taskmix.Random(list(SIZES)), journal=tmp_path / "journal.jsonl"), 200)
    taskmix.improve(tmp_path, tmp_path / "policy.yaml", evidence="rewards")
    assert taskmix.estimate(tmp_path, tmp_path / "policy.yaml").steps == 200
    assert write_run_report(tmp_path).exists()


def test_a_loss_that_is_no_number_is_left_out(tmp_path: Path, caplog: object) -> None:
    mixer = make(journal=tmp_path / "journal.jsonl")
    batches = iter(mixer)
    next(batches), next(batches)
    mixer.settle(1, loss=float("nan"))
    mixer.settle(2, loss=1.0, gain=float("inf"))
    steps = [r for r in read(tmp_path / "journal.jsonl") if isinstance(r, Step)]
    assert [(step.step, step.gain) for step in steps] == [(2, None)]
    assert not mixer.open


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    tasks = taskmix.Random(["a", "b"])
    with pytest.raises(UserError) as error:
        Mixer(tasks, {"a": 3, "v": 1}, 4, seed=1)
    expected = "sizes: expected one for each task of the policy; missing: b; unknown: v"
    assert str(error.value) == expected
    with pytest.raises(UserError, match=r"^sizes, b: expected at least 1 example, found 0$"):
        Mixer(tasks, {"a": 3, "b": 0}, 4, seed=1)
    with pytest.raises(UserError, match=r"^batch: expected at least 1, found 0$"):
        Mixer(tasks, {"a": 3, "b": 1}, 0, seed=1)
    with pytest.raises(UserError, match=r"^lengths: unknown task 'd'"):
        Mixer(tasks, {"a": 3, "b": 1}, 2, seed=1, lengths={"d": [1]})
    with pytest.raises(UserError, match=r"^lengths, a: expected 3, one for each example, found"):
        Mixer(tasks, {"a": 3, "b": 1}, 2, seed=1, lengths={"a": [1]})
    with pytest.raises(UserError, match=r"^lag: expected at least 1 draw, found 0$"):
        make(lag=0)
    with pytest.raises(UserError, match=r"^rank: expected a number from 0 to 1, found 2$"):
        Shard(make(), 2, 2)


def test_a_measurement_that_nobody_knows_is_said_and_leaves_the_draw_open() -> None:
    mixer = make()
    next(iter(mixer))
    with pytest.raises(
        UserError, match=r"^draw 1: unknown measurement 'lose'; did you mean 'loss'"
    ):
        mixer.settle(1, lose=1.0)
    mixer.settle(1, loss=1.0)


@pytest.mark.parametrize(
    ("policy", "signal"),
    [
        (taskmix.Exp3S(list(SIZES)), "gain"),
        (taskmix.ActivePrioritization(list(SIZES), every=1), "uncertainty"),
        (taskmix.Thompson(list(SIZES), primary="a", batches=1), "score"),
        (taskmix.SEC(list(SIZES)), "reward"),
    ],
)
def test_a_signal_that_the_policy_learns_from_is_asked_for(
    policy: taskmix.Policy, signal: str
) -> None:
    mixer = make(policy=policy)
    batches = iter(mixer)
    next(batches), next(batches)
    with pytest.raises(UserError) as error:
        mixer.settle(1, loss=1.0)
    assert str(error.value) == (
        f"draw 1: expected settle(..., {signal}=...), as policy {policy.name} learns from it, found"
        " loss"
    )
    mixer.settle(1, loss=1.0, **{signal: None})  # could not be measured
    mixer.settle(2)  # not trained on


def test_a_tally_asks_for_the_loss_once_more_if_the_policy_learns_from_gains() -> None:
    mixer = make(policy=taskmix.Exp3S(list(SIZES)))
    number = next(iter(mixer))[0].draw
    with pytest.raises(
        UserError, match=r"^draw 1: expected Tally.add\(..., again=...\), as policy"
    ):
        Tally(mixer).add(number, 1.0, 4)


def test_places_that_version_0_1_called_taken_are_understood() -> None:
    mixer = make()
    train(mixer, 5)
    state = mixer.state_dict()
    for place in state["orders"].values():
        place["taken"] = place.pop("place")
    resumed = make()
    resumed.load_state_dict(state)
    assert train(resumed, 9) == train(mixer, 9)


def test_a_batch_is_settled_once() -> None:
    mixer = make()
    train(mixer, 2)
    with pytest.raises(UserError, match=r"^draw 2: expected an open one, found one that was settl"):
        mixer.settle(2, loss=1.0)
    with pytest.raises(UserError, match=r"^draw 9: expected an open one, found one that was never"):
        mixer.settle(9, loss=1.0)


def test_a_state_of_other_data_sets_is_refused() -> None:
    state = make().state_dict()
    sizes = SIZES | {"b": 51}
    for other, what in (
        (Mixer(taskmix.Progress(list(sizes)), sizes, 4, seed=3), "data set b"),
        (Mixer(taskmix.Progress(list(SIZES)), SIZES, 5, seed=3), "data set a"),
        (Mixer(taskmix.Progress(list(SIZES)), SIZES, 4, seed=4), "seed"),
        (Mixer(taskmix.Progress(["a", "b"]), {"a": 20, "b": 50}, 4, seed=3), "tasks"),
        (make(lengths={"a": np.arange(20)}), "data set a"),
        (make(batches=2), "batches"),
        (make(lag=2), "lag"),
    ):
        with pytest.raises(UserError, match=rf"^state, {what}: checkpoint: .*; this training: "):
            other.load_state_dict(state)
    with pytest.raises(UserError) as error:
        Mixer(taskmix.Progress(list(SIZES)), SIZES | {"b": 51}, 4, seed=3).load_state_dict(state)
    assert str(error.value).startswith("state, data set b: checkpoint: {'size': 50, ")
    assert "batch" not in str(error.value)
    with pytest.raises(UserError, match=r"^state: expected the result of state_dict"):
        make().load_state_dict({})


def test_a_journal_that_is_there_already_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    train(make(journal=path), 3)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"expected no journal before the first draw, found one of"):
        train(make(journal=path), 1)
    assert path.read_bytes() == before
    mixer = make(journal=tmp_path / "new.jsonl")
    train(mixer, 3)
    state = mixer.state_dict()
    with pytest.raises(UserError, match=r"expected the journal of the state, found no such file"):
        make(journal=tmp_path / "gone.jsonl").load_state_dict(state)


def test_a_training_with_another_number_of_steps_is_refused_in_a_sentence() -> None:
    sizes = {"small": 10, "large": 1000}
    mixer = Mixer("aimed", sizes, 4, seed=1, steps=200)
    next(iter(mixer))
    state = mixer.state_dict()
    with pytest.raises(
        UserError, match=r"aimed: its shares depend on .* expected 200, .* found 400"
    ):
        Mixer("aimed", sizes, 4, seed=1, steps=400).load_state_dict(state)
    Mixer("aimed", sizes, 4, seed=1, steps=200).load_state_dict(state)
    uniform = Mixer("random", sizes, 4, seed=1, steps=200)
    next(iter(uniform))
    Mixer("random", sizes, 4, seed=1, steps=400).load_state_dict(uniform.state_dict())
