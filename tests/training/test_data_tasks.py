"""Tasks made in Python, under every family of deciders, from data sets and from loaders."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import taskmix
from taskmix.errors import RunInterruptedError, UserError
from taskmix.tasks.batches import Batch, Cut
from taskmix.tasks.data import LoaderStream, ReadyBatches, batch_size, part_of_ready
from taskmix.tasks.task import Task

Everything = Callable[[Path], dict[str, Any]]


def data(seed: int, count: int, opposite: bool = False) -> TensorDataset:
    x = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, 6))).float()
    return TensorDataset(x, (x[:, 0] > 0).long() ^ int(opposite))


def accuracy(outputs: Any, batch: Any) -> float:
    return float((outputs.argmax(1) == batch[1]).mean())


def task(name: str, loader: bool = False, **more: Any) -> Task:
    train, dev = data(1, 50, name == "far"), data(2, 30, name == "far")
    return taskmix.from_data(
        name,
        train=DataLoader(train, batch_size=8, shuffle=True) if loader else train,
        dev=DataLoader(dev, batch_size=7) if loader else dev,
        loss=lambda outputs, batch: cross_entropy(outputs, batch[1]),
        score=accuracy,
        **more,
    )


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.body = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Dropout(0.2))
        self.heads = nn.ModuleDict({"near": nn.Linear(8, 2), "far": nn.Linear(8, 2)})

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {part.task: self.heads[part.task](self.body(part.columns[0])) for part in batch}


def softmax(outputs: torch.Tensor, batch: Any) -> torch.Tensor:
    return outputs.softmax(-1)


def run(folder: Path, decider: dict[str, Any], *, loader: bool = False, **more: Any) -> Any:
    settings = {
        "budget": {"steps": 12, "rounds": 3, "batch": 8},
        "optimizer": {"lr": 0.02},
        "evaluate": {"every": 3},
        "checkpoint": {"every": 2},
        **decider,
    }
    tasks = [task(name, loader, distribution=softmax) for name in ("near", "far")]
    return taskmix.run(settings, folder, model=Net(), tasks=tasks, resume=True, **more)


@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize(
    "decider",
    [
        {"policy": "exp3s"},
        {"policy": {"name": "active", "every": 2, "passes": 2}},
        {"selection": "mt_uncertainty"},
        {"weighting": {"name": "alpha_vil", "target": "near", "split_dev": False}},
    ],
    ids=["exp3s", "active", "mt_uncertainty", "alpha_vil"],
)
def test_every_family_trains_on_them_and_goes_on_bit_for_bit(
    decider: dict[str, Any],
    loader: bool,
    everything: Everything,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    if loader and "selection" in decider:
        with pytest.raises(UserError, match="expected tasks with a data set, found a loader"):
            run(tmp_path / "run", decider, loader=True)
        return
    run(tmp_path / "alone", decider, loader=loader)
    stop = 2 if "weighting" in decider else 7
    with pytest.raises(interruption):
        run(tmp_path / "stopped", decider, loader=loader, watchers=[interrupter(step=stop)])
    run(tmp_path / "stopped", decider, loader=loader)
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")


@pytest.mark.parametrize("loader", [False, True])
def test_a_plan_counts_their_examples(loader: bool, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"budget": {"steps": 25, "batch": 8}, "policy": "random"}
    made = taskmix.plan(settings, tasks=[task(name, loader) for name in ("near", "far")])
    rows = [(p.task, p.rows, p.dev, p.cut, p.share, p.epochs) for p in made.tasks]
    assert rows == [("near", 50, 30, 0, 0.5, 2.0), ("far", 50, 30, 0, 0.5, 2.0)]
    assert made.cost is None
    assert "random weights" not in caplog.text  # the model is the user's


@pytest.mark.parametrize("size", [{"accumulate": 2}, {"tokens": 8}])
def test_ready_batches_are_not_made_smaller(size: dict[str, int], tmp_path: Path) -> None:
    [key] = size
    with pytest.raises(UserError, match=f"budget.{key}: expected a data set .* batches for near"):
        run(tmp_path / "run", {"policy": "random", "budget": {"steps": 2, **size}}, loader=True)


def test_a_loader_that_shuffles_gives_the_same_order_again_and_another_each_epoch() -> None:
    batches = ReadyBatches(DataLoader(data(1, 20), batch_size=6, shuffle=True))
    one, other = (LoaderStream("a", batches, seed=1) for _ in range(2))
    first = [one.next().parts[0].columns[0] for _ in range(8)]
    torch.rand(3)  # what happens to torch's random state in between does not matter
    for _ in range(3):
        other.next()
    resumed = LoaderStream("a", batches, seed=1)
    resumed.load_state_dict(other.state_dict())
    for expected in first[3:]:
        assert torch.equal(resumed.next().parts[0].columns[0], expected)
    assert not torch.equal(torch.cat(first[:4]), torch.cat(first[4:]))


def test_a_finished_run_is_scored_and_predicts_with_the_model_given_again(tmp_path: Path) -> None:
    result = run(tmp_path / "run", {"policy": "random"})
    tasks = [task("near"), task("far")]
    trained = taskmix.load(tmp_path / "run", model=Net(), tasks=tasks)
    for name, scores in trained.evaluate().items():
        assert scores.score == pytest.approx(result.tasks[name].score)
    assert np.shape(trained.predict("near", "dev")) == (30, 2)
    with pytest.raises(UserError, match="made in Python"):
        taskmix.load(tmp_path / "run", tasks=tasks)


class OnPictures(nn.Module):
    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.left = nn.Sequential(nn.Flatten(), nn.Linear(144, classes))

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        return {part.task: self.left(batch.inputs["pixels"].float()) for part in batch}


def test_a_model_of_ones_own_is_loaded_with_the_tasks_of_its_run_file(tmp_path: Path) -> None:
    settings = {"tasks": ["digits/left"], "policy": "random", "budget": {"steps": 2}}
    result = taskmix.run(settings, tmp_path / "run", model=OnPictures())
    trained = taskmix.load(tmp_path / "run", model=OnPictures())
    assert trained.evaluate()["digits/left"].score == result.tasks["digits/left"].score
    assert set(trained.predict("digits/left", "test")) <= set("0123456789")


def test_a_model_that_does_not_fit_the_weights_of_a_finished_run_is_one_sentence(
    tmp_path: Path,
) -> None:
    settings = {"tasks": ["digits/left"], "policy": "random", "budget": {"steps": 2}}
    taskmix.run(settings, tmp_path / "run", model=OnPictures())
    weights = tmp_path / "run/model/model.safetensors"
    expected = r"model\.safetensors: expected the weights of this model, found: "
    with pytest.raises(UserError, match=f"{expected}size mismatch for left.1.bias"):
        taskmix.load(tmp_path / "run", model=OnPictures(classes=3))
    weights.write_bytes(weights.read_bytes()[:40])
    with pytest.raises(UserError, match=expected):
        taskmix.load(tmp_path / "run", model=OnPictures())
    weights.unlink()
    with pytest.raises(UserError, match=f"{expected}.*No such file"):
        taskmix.load(tmp_path / "run", model=OnPictures())


def test_another_model_than_the_runs_is_one_sentence(
    tmp_path: Path, interrupter: Callable[..., Any], interruption: type[Exception]
) -> None:
    with pytest.raises(interruption):
        run(tmp_path / "run", {"policy": "random"}, watchers=[interrupter(step=5)])
    other = Net()
    other.heads["near"] = nn.Linear(8, 3)
    with pytest.raises(UserError, match="its checkpoint is of another model"):
        taskmix.resume(tmp_path / "run", model=other, tasks=[task("near"), task("far")])


def test_what_a_task_lacks_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="train: expected a data set with a length"):
        taskmix.from_data("a", train=iter([]), dev=[1], loss=max, score=max)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="dev: expected at least one example, found none"):
        taskmix.from_data("a", train=[1], dev=[], loss=max, score=max)
    plain = [task("near"), task("far")]
    settings = {"policy": {"name": "active", "every": 1}, "budget": {"steps": 2}}
    with pytest.raises(UserError, match="uncertainties need from_data"):
        taskmix.run(settings, tmp_path / "run", model=Net(), tasks=plain)
    with pytest.raises(UserError, match="brings no head; give the run a model"):
        taskmix.run({"policy": "random"}, tmp_path / "other", tasks=plain)


def test_a_batch_may_hold_texts_and_lists_of_numbers_beside_its_tensors() -> None:
    kind = task("near").kind
    batch = {"text": ["good", "bad"], "length": [4, 3], "label": torch.tensor([1, 0])}
    scored = kind.scored(kind.predictions(torch.eye(2), batch), None, iter(()))
    assert scored.predicted.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert {name: column.tolist() for name, column in scored.expected.items()} == {
        "text": ["good", "bad"],
        "length": [4, 3],
        "label": [1, 0],
    }


def test_a_batch_of_inputs_by_name_beside_labels_is_counted_by_examples() -> None:
    columns = [{"x": torch.zeros(5, 6), "text": ["a"] * 5}, torch.arange(5)]
    part = part_of_ready("near", columns, Cut(1, 2)).parts[0]
    assert part.items.tolist() == part.columns[1].tolist() == [1, 3]
    assert (len(part.columns[0]["x"]), part.columns[0]["text"]) == (2, ["a", "a"])
    assert batch_size([{"text": "a"}, {"text": "b"}]) == 2  # examples that were not collated


WRONG_DISTRIBUTIONS: dict[str, tuple[Callable[[torch.Tensor], Any], type[Exception], str]] = {
    "nan": (lambda p: p * math.nan, RunInterruptedError, "is nan, no number to go on from"),
    "negative": (lambda p: -p, UserError, "expected probabilities, none below 0, that sum to 1"),
    "too large": (lambda p: 2 * p, UserError, "expected probabilities, none below 0, that sum"),
    "one example": (
        lambda p: p[:1],
        UserError,
        r"expected the shape \(\d+, classes\), found \(1, ",
    ),
    "no tensor": (lambda p: 3, UserError, r"expected the shape \(\d+, classes\), found int"),
}


@pytest.mark.parametrize("decider", [{"policy": {"name": "active", "every": 1, "passes": 2}}, None])
@pytest.mark.parametrize("wrong", WRONG_DISTRIBUTIONS)
def test_a_wrong_distribution_is_one_sentence(
    wrong: str, decider: dict[str, Any] | None, tmp_path: Path
) -> None:
    change, error, words = WRONG_DISTRIBUTIONS[wrong]
    tasks = [
        task(name, distribution=lambda outputs, batch: change(outputs.softmax(-1)))
        for name in ("near", "far")
    ]
    settings = {"budget": {"steps": 2, "batch": 4}} | (decider or {"selection": "mt_uncertainty"})
    with pytest.raises(error, match=f"the predictive distribution:? {words}"):
        taskmix.run(settings, tmp_path / "run", model=Net(), tasks=tasks)
