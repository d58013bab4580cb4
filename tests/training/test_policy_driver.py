"""What a step does, what it measures, what it writes down, and what a run keeps."""

import copy
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import load_file

from taskmix.config import RunConfig, build_decider
from taskmix.journal import Evaluation, Opening, Shares, Step, read
from taskmix.policies import DevScore, Draw, Gain, Outcome, Policy
from taskmix.rng import seed_for, stream
from taskmix.run_info import RunInfo
from taskmix.schedule import rate_factor
from taskmix.tasks.batches import Batch
from taskmix.tasks.task import Task
from taskmix.training.evaluation import baseline
from taskmix.training.inference import load_run
from taskmix.training.policy import PolicyDriver
from taskmix.training.prepare import read_split, resolve
from taskmix.training.run import run

Toys = Mapping[str, Task]
Toy = Callable[..., RunConfig]
DriverFor = Callable[..., PolicyDriver]


def seen_batches(driver: PolicyDriver) -> list[Batch]:
    """The batches that the driver will have drawn."""
    seen: list[Batch] = []
    original = driver.engine.loader.next

    def watched(task: str) -> Batch:
        seen.append(original(task))
        return seen[-1]

    driver.engine.loader.next = watched  # type: ignore[method-assign]
    return seen


def items_of(batches: list[Batch], task: str) -> list[list[int]]:
    return [batch.parts[0].items.tolist() for batch in batches if batch.tasks == [task]]


def test_a_tasks_data_order_does_not_depend_on_the_policy(toy: Toy, driver_for: DriverFor) -> None:
    orders = []
    for policy in ("random", "task_size", {"name": "cycle", "ratio": {"a": 1, "b": 3, "c": 2}}):
        driver = driver_for(toy(policy=policy, budget={"steps": 40, "batch": 4}))
        seen = seen_batches(driver)
        for _ in range(40):
            driver.advance()
        orders.append(seen)
    for one, other in pairwise(orders):
        for task in ("a", "b", "c"):
            both = list(zip(items_of(one, task), items_of(other, task), strict=False))
            assert both
            assert all(mine == yours for mine, yours in both)


def test_an_epoch_has_each_example_once(toy: Toy, driver_for: DriverFor) -> None:
    cycle = {"name": "cycle", "ratio": {"a": 0, "b": 7, "c": 0}}
    driver = driver_for(toy(policy=cycle))
    seen = seen_batches(driver)
    for _ in range(14):
        driver.advance()
    for epoch in (seen[:7], seen[7:]):
        assert sorted(item for batch in epoch for item in batch.parts[0].items) == list(range(25))
    assert items_of(seen[:7], "b") != items_of(seen[7:], "b")


class Loud(Policy):
    """Wants the gain and a dev score of every draw, the score first."""

    name = "loud"
    needs = frozenset({Gain(), DevScore("a", 10)})

    def __init__(self, tasks: list[str]) -> None:
        super().__init__(tasks)
        self.uniform: NDArray[np.float64] = np.full(3, 1 / 3)
        self.told: list[Outcome] = []

    def probabilities(self) -> NDArray[np.float64]:
        return self.uniform

    def due(self, draw: Draw) -> Any:
        return (DevScore("a", 10), Gain())

    def tell(self, outcome: Outcome) -> None:
        self.told.append(outcome)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_gain_is_the_fall_of_the_loss_under_the_same_dropout(
    accumulate: int, toy: Toy, driver_for: DriverFor
) -> None:
    config = toy(model={"dropout": 0.5}, budget={"steps": 9, "batch": 4, "accumulate": accumulate})
    policy = Loud(["a", "b", "c"])
    driver = driver_for(config, policy)
    seen = seen_batches(driver)
    for step in (1, 2, 3):
        before = copy.deepcopy(driver.engine.model).train()
        driver.advance()
        after = copy.deepcopy(driver.engine.model).train()
        outcome = policy.told[-1]
        same = pytest.approx(loss_of(before, driver, seen[-1], step), rel=1e-6)
        assert outcome.loss == same
        gain = outcome.loss - loss_of(after, driver, seen[-1], step)
        assert outcome.gain == pytest.approx(gain, abs=1e-6)
        without = outcome.loss - loss_of(after.eval(), driver, seen[-1], step)
        assert outcome.gain != pytest.approx(without, abs=1e-6)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_batch_score_is_that_of_the_model_before_the_step_on_new_examples(
    accumulate: int, toy: Toy, driver_for: DriverFor
) -> None:
    config = toy(
        model={"dropout": 0.0},
        budget={"steps": 60, "batch": 5, "accumulate": accumulate},
        evaluate={"batches": True},
    )
    policy = Loud(["a", "b", "c"])
    driver = driver_for(config, policy)
    seen, examples = seen_batches(driver), dict.fromkeys("abc", 0)
    for _ in range(60):
        before = copy.deepcopy(driver.engine.model).eval()
        driver.advance()
        outcome, [part] = policy.told[-1], seen[-1]
        if examples[part.task] >= len(driver.engine.train[part.task]):
            assert outcome.batch_score is None  # the examples are repeated
        else:
            with torch.no_grad():
                right = before(seen[-1])[part.task].argmax(1) == part.columns["labels"]
            assert outcome.batch_score == pytest.approx(float(right.float().mean()))
        examples[part.task] += len(part.items)
    assert min(examples.values()) > 0
    assert examples["c"] > len(driver.engine.train["c"])


def loss_of(model: Any, driver: PolicyDriver, batch: Batch, step: int) -> float:
    [part] = batch
    kind = driver.engine.tasks[part.task].kind
    total = 0.0
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(seed_for(driver.engine.config.seed, "dropout", step))
        for items in np.array_split(part.items, driver.engine.config.budget.accumulate):
            piece = driver.engine.loader.of({part.task: items})
            outputs = model(piece)[part.task]
            loss = float(kind.loss(outputs, piece.parts[0].columns))
            total += loss * (len(items) / len(part.items))
    return total


@pytest.mark.parametrize(
    ("policy", "extra"),
    [
        ("random", 0),
        ({"name": "exp3s"}, None),
        ({"name": "thompson", "primary": "c", "batches": 4}, 3 * 30),
        ({"name": "active", "every": 5, "passes": 3, "examples": 10}, 2 * 3 * 3 * 10),
    ],
    ids=["nothing", "gain", "dev score", "uncertainty"],
)
def test_only_what_is_due_is_measured(
    policy: Any, extra: int | None, toy: Toy, driver_for: DriverFor
) -> None:
    driver = driver_for(toy(policy=policy))
    seen = seen_batches(driver)
    for _ in range(12):
        driver.advance()
    examples = sum(batch.examples for batch in seen)
    assert driver.engine.spent.backward == examples
    # The gain is one more forward pass of each batch.
    assert driver.engine.spent.forward == examples + (examples if extra is None else extra)


def test_an_outcome_has_the_signals_of_its_policy_and_no_others(
    toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    policy = {"name": "thompson", "primary": "c", "batches": 4}
    run(toy(policy=policy), tmp_path / "run", tasks=toys)
    steps = [r for r in read(tmp_path / "run/journal.jsonl") if isinstance(r, Step)]
    assert [step.score is not None for step in steps] == [False, False, False, True] * 3
    assert all(step.gain is None and step.uncertainty is None for step in steps)
    assert all(step.loss is not None for step in steps)


def test_a_journal_replays_to_the_same_policy_and_the_same_propensities(
    any_policy: dict[str, Any], toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    config = toy(policy=any_policy)
    run(config, tmp_path / "run", tasks=toys)
    records = list(read(tmp_path / "run/journal.jsonl"))
    assert isinstance(records[0], Opening)
    sizes = records[0].sizes
    assert sizes == {"a": 60, "b": 25, "c": 10}
    policy = build_decider(config, RunInfo(sizes, config.budget.steps, config.budget.batch))
    assert isinstance(policy, Policy)
    rng = stream(config.seed, "draws")
    shares: list[float] = []
    for record in records:
        if isinstance(record, Shares):
            shares = record.shares
        if not isinstance(record, Step):
            continue
        expected = policy.probabilities()
        draw = policy.ask(rng)
        assert (draw.task, draw.probability) == (record.task, record.p)
        assert shares == pytest.approx(expected, rel=1e-8)
        policy.tell(record.outcome(draw))


def weights_after(driver: PolicyDriver, steps: int) -> dict[str, torch.Tensor]:
    for _ in range(steps):
        driver.advance()
    return {name: tensor.clone() for name, tensor in driver.engine.model.state_dict().items()}


def test_accumulation_changes_nothing_but_the_memory(toy: Toy, driver_for: DriverFor) -> None:
    results = []
    for accumulate in (1, 2, 3, 100):
        config = toy(
            model={"dropout": 0.0},
            optimizer={"name": "sgd", "lr": 0.01},
            budget={"steps": 10, "batch": 4, "accumulate": accumulate},
        )
        results.append(weights_after(driver_for(config), 10))
    for other in results[1:]:
        for name, tensor in results[0].items():
            torch.testing.assert_close(other[name], tensor, rtol=0, atol=1e-6)


def test_a_seed_means_the_same_first_weights_under_every_policy(
    toy: Toy, driver_for: DriverFor
) -> None:
    one, two, other = (
        weights_after(driver_for(toy(policy=policy, seed=seed)), 0)
        for policy, seed in (("random", 1), ("task_size", 1), ("random", 2))
    )
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_gradients_are_clipped_to_the_longest_that_is_allowed(
    toy: Toy, driver_for: DriverFor
) -> None:
    lengths = []
    for clip in (0.0, 1e6, 0.05):
        driver = driver_for(toy(optimizer={"clip": clip}))
        driver.advance()
        gradients = [p.grad for p in driver.engine.model.parameters() if p.grad is not None]
        lengths.append(float(torch.stack([g.square().sum() for g in gradients]).sum().sqrt()))
    free, far, near = lengths
    assert free > 0.05
    assert far == free
    assert near == pytest.approx(0.05, rel=1e-4)


def test_the_learning_rate_rises_and_falls_and_heads_have_their_own(
    toy: Toy, driver_for: DriverFor
) -> None:
    config = toy(optimizer={"lr": 0.01, "head_factor": 3, "warmup": 0.34})
    driver = driver_for(config)
    rates = []
    for _ in range(12):
        driver.advance()
        rates.append({group["lr"] for group in driver.engine.optimizer.param_groups})
    # 4 of the 12 steps rise, the other 8 fall to an eighth.
    factors = [1 / 4, 2 / 4, 3 / 4, 1, *(left / 8 for left in range(8, 0, -1))]
    expected = [{0.01 * factor, 0.03 * factor} for factor in factors]
    for rate, wanted in zip(rates, expected, strict=True):
        assert sorted(rate) == pytest.approx(sorted(wanted), rel=1e-12)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.integers(1, 500), st.floats(0, 1))
def test_every_step_of_any_schedule_learns_something(steps: int, warmup: float) -> None:
    factors = [rate_factor(step, steps, warmup) for step in range(1, steps + 1)]
    assert all(0 < factor <= 1 for factor in factors)
    assert max(factors) == 1
    top = factors.index(1)
    assert all(a < b for a, b in pairwise(factors[: top + 1]))
    assert all(a >= b for a, b in pairwise(factors[top:]))


def test_weight_decay_leaves_biases_alone(toy: Toy, driver_for: DriverFor) -> None:
    driver = driver_for(toy(optimizer={"weight_decay": 0.3}))
    decay = {
        id(parameter): group["weight_decay"]
        for group in driver.engine.optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in driver.engine.model.named_parameters():
        assert decay[id(parameter)] == (0.0 if name.endswith("bias") else 0.3)


def test_a_task_that_is_not_drawn_keeps_its_head(toy: Toy, driver_for: DriverFor) -> None:
    driver = driver_for(toy(policy={"name": "cycle", "ratio": {"a": 1, "b": 0, "c": 1}}))
    before = weights_after(driver, 0)
    after = weights_after(driver, 6)
    moved = {name: not torch.equal(before[name], after[name]) for name in before}
    assert all(moved[name] for name in moved if name.startswith(("heads.a", "heads.c")))
    assert not any(moved[name] for name in moved if name.startswith("heads.b"))


def test_frozen_layers_do_not_change(tmp_path: Path) -> None:
    path = tmp_path / "mood.csv"
    path.write_text(
        "text,y\n" + "".join(f"{['good', 'bad'][i % 2]} {i},{i % 2}\n" for i in range(12))
    )
    model = {"encoder": "small", "layers": 2, "freeze": 1, "width": 16, "attention_heads": 2}
    files = {"train": str(path), "dev": str(path), "text": "text", "label": "y"}
    weights = []
    for steps in (1, 6):
        config = RunConfig.model_validate(
            {
                "tasks": [{"name": "mood", **files}],
                "model": {**model, "vocabulary": 100, "max_length": 16},
                "budget": {"steps": steps, "batch": 4},
                "optimizer": {"lr": 0.01},
            }
        )
        run(config, tmp_path / f"run-{steps}")
        weights.append(load_file(tmp_path / f"run-{steps}/model/model.safetensors"))
    one, six = weights
    moved = {name: not torch.equal(one[name], six[name]) for name in one}
    frozen = {name for name in moved if name.startswith(("embeddings.", "encoder.layer.0."))}
    assert frozen
    assert not any(moved[name] for name in frozen)
    assert all(moved[name] for name in set(moved) - frozen if name.endswith("weight"))


def evaluations(folder: Path) -> list[Evaluation]:
    return [r for r in read(folder / "journal.jsonl") if isinstance(r, Evaluation)]


def test_the_best_model_is_kept_or_the_last(toys: Toys, toy: Toy, tmp_path: Path) -> None:
    # So high a rate that the scores go up and down.
    rough = {"lr": 0.05, "head_factor": 1}
    results = {}
    for keep in ("best", "last"):
        config = toy(
            policy="random",
            optimizer=rough,
            budget={"steps": 24, "batch": 4},
            evaluate={"every": 2, "keep": keep},
            checkpoint={"keep": 50},
        )
        results[keep] = run(config, tmp_path / keep, tasks=toys)
    scores = [evaluation.score for evaluation in evaluations(tmp_path / "best")]
    first_best = 2 * (scores.index(max(scores)) + 1)
    assert first_best < 24
    assert (results["best"].step, results["best"].score) == (first_best, max(scores))
    assert (results["last"].step, results["last"].score) == (24, scores[-1])
    for keep, result in results.items():
        kept = load_file(tmp_path / keep / f"checkpoints/step-{result.step}/model.safetensors")
        heads = load_file(tmp_path / keep / "model/heads.safetensors")
        assert all(torch.equal(kept[f"heads.{name}"], heads[name]) for name in heads)


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_run_that_gets_no_better_stops_early(
    keep: str, toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    config = toy(
        optimizer={"lr": 1e-12},
        budget={"steps": 100, "batch": 4},
        evaluate={"every": 2, "patience": 3, "keep": keep},
    )
    result = run(config, tmp_path / "run", tasks=toys)
    assert [evaluation.step for evaluation in evaluations(tmp_path / "run")] == [2, 4, 6, 8]
    assert result.step == (2 if keep == "best" else 8)


def test_the_run_is_scored_on_as_many_examples_as_it_says(
    toys: Toys, toy: Toy, tmp_path: Path
) -> None:
    config = toy(evaluate={"every": 5, "examples": 7, "batch": 3})
    result = run(config, tmp_path / "run", tasks=toys)
    assert {scores.examples for scores in result.tasks.values()} == {7}
    assert [evaluation.step for evaluation in evaluations(tmp_path / "run")] == [5, 10, 12]
    last = evaluations(tmp_path / "run")[-1]
    assert last.score == pytest.approx(np.mean(list(last.scores.values())))
    assert last.backward == sum(
        r.examples or 0 for r in read(tmp_path / "run/journal.jsonl") if isinstance(r, Step)
    )


def test_the_newest_checkpoints_and_the_best_are_kept(toys: Toys, toy: Toy, tmp_path: Path) -> None:
    config = toy(
        optimizer={"lr": 1e-12},
        evaluate={"every": 3},
        checkpoint={"every": 2, "keep": 2},
    )
    result = run(config, tmp_path / "run", tasks=toys)
    names = sorted(path.name for path in (tmp_path / "run/checkpoints").iterdir())
    assert names == sorted([f"step-{result.step}", "step-10", "step-12"])


def test_digits_are_learned(tmp_path: Path) -> None:
    config = RunConfig.model_validate(
        {
            "tasks": ["digits/left", "digits/right", "digits/larger"],
            "budget": {"steps": 200, "batch": 32},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
            "evaluate": {"every": 100},
        }
    )
    result = run(config, tmp_path / "run")
    steps = [r for r in read(tmp_path / "run/journal.jsonl") if isinstance(r, Step)]
    for task in resolve(config):
        losses = [step.loss for step in steps if step.task == task.name]
        assert np.mean(losses[-10:]) < np.mean(losses[:10])
        train, dev = (read_split(task, split, None) for split in ("train", "dev"))
        blind = baseline(task, train.items, dev)
        assert blind is not None
        # Five standard errors of an accuracy on 400 examples: below 1e-6 for a blind model.
        assert result.tasks[task.name].score > blind + 5 * np.sqrt(blind * (1 - blind) / 400)


def test_a_run_can_hold_out_its_dev_split_from_training(tmp_path: Path) -> None:
    entry = {"name": "digits/left", "held_out": 0.25, "rows": 100}
    (part,) = resolve(RunConfig(tasks=[entry]))
    (whole,) = resolve(RunConfig(tasks=["digits/left"]))
    at = {name: [row.at for row in part.split(name).rows()] for name in ("train", "dev")}
    every = [row.at for row in whole.split("train").rows()]
    assert len(at["dev"]) == len(every) // 4
    assert len(at["train"]) == 100
    assert not set(at["dev"]) & set(at["train"])
    official = [row.at for row in whole.split("dev").rows()]
    assert [row.at for row in part.split("test").rows()] == official
    run(RunConfig(tasks=[entry], budget={"steps": 2}), tmp_path / "run")
    trained = load_run(tmp_path / "run")
    assert trained.evaluate("test").keys() == {"digits/left"}
