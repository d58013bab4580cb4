"""Two ranks with half of each batch are one process with all of it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertConfig

from processes import on_ranks
from taskmix.config import RunConfig
from taskmix.errors import TaskmixError, UserError
from taskmix.journal import read
from taskmix.models import encoders
from taskmix.models.spec import ModelSpec
from taskmix.policies import POLICIES, Random, Rewards
from taskmix.records import UnitRecord
from taskmix.rng import stream
from taskmix.selection import SELECTORS
from taskmix.tasks.batches import Batch, Cut, in_order, make_batch, make_part
from taskmix.tasks.data import ReadyBatches, from_data, part_of_ready
from taskmix.tasks.task import Task
from taskmix.training import session
from taskmix.training.inference import load_run
from taskmix.training.ranks import BUCKET_BYTES, Group, Ranks, _buckets
from taskmix.training.run import resume_run, run
from taskmix.training.stopping import listening
from taskmix.weighting import WEIGHTINGS

Toys = Mapping[str, Task]
NEAR = 1e-5
SPECS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 2},
    "annealed": {"epochs": 3},
    "fixed": {"probabilities": {"a": 0.2, "b": 0.3, "c": 0.5}},
    "cycle": {"ratio": {"a": 2, "b": 1, "c": 1}},
    "schedule": {"phases": [{"a": 0.2, "b": 0.3, "c": 0.5}, {"a": 0.5, "b": 0.5, "c": 0.0}]},
    "exp3s": {"eta": 0.1},
    "thompson": {"primary": "c", "batches": 2},
    "active": {"every": 3, "passes": 2, "score": "batch_bald"},
}
DECIDERS = (
    {
        cls.name: {"policy": {"name": cls.name, **SPECS.get(cls.name, {})}}
        for cls in POLICIES
        if Rewards() not in getattr(cls, "needs", ())  # of reinforcement learning
    }
    | {cls.name: {"selection": {"name": cls.name}} for cls in SELECTORS}
    | {cls.name: {"weighting": {"name": cls.name, "target": "c"}} for cls in WEIGHTINGS}
)
TEXTS = ["texts", "texts in pieces", "selected texts", "weighted texts"]
SHARDED = ["sharded texts", "sharded selected texts", "sharded conditioned texts"]
OWN = ["own model and loaders"]


def toy_config(name: str) -> RunConfig:
    return RunConfig.model_validate(
        {
            "tasks": ["a", "b", "c"],
            "model": {"dropout": 0.0},
            # Task c has ten examples: its batches are smaller, and some parts are uneven.
            # The search for alphas takes hundreds of steps a round, which blow up rounding.
            "budget": {"steps": 50, "rounds": 2 if name == "alpha_vil" else 4, "batch": 16},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
            "evaluate": {"every": 25, "batch": 7},
            **DECIDERS[name],
        }
    )


def text_rows(kind: str, count: int) -> list[dict[str, Any]]:
    rng, found = stream(3, "rows", kind), []
    for _ in range(count):
        words = [str(w) for w in rng.choice(["red", "blue", "car", "tree"], rng.integers(2, 12))]
        match kind:
            case "classify":
                found.append({"text": " ".join(words), "label": str("red" in words)})
            case "regress":
                found.append({"text": " ".join(words), "label": float(words.count("car"))})
            case "tag":
                tags = ["B-thing" if word == "car" else "O" for word in words]
                found.append({"text": words, "label": tags})
    return found


def text_config(name: str, folder: Path) -> RunConfig:
    """Texts of different lengths; words are counted, where the loss is a mean over words."""
    tasks = []
    for kind in ("classify", "regress", "tag"):
        for split, count in {"train": 40, "dev": 20}.items():
            path = folder / f"{kind}-{split}.jsonl"
            if not path.exists():
                path.write_text("\n".join(map(json.dumps, text_rows(kind, count))) + "\n")
        files = {split: str(folder / f"{kind}-{split}.jsonl") for split in ("train", "dev")}
        tasks.append({"name": kind, "kind": kind, **files, "text": "text", "label": "label"})
    decider: dict[str, Any] = {
        "selected texts": {"selection": {"name": "mt_uncertainty"}, "loss": "mean"},
        "weighted texts": {"weighting": {"name": "alpha_vil", "target": "tag"}},
    }.get(name.removeprefix("sharded "), {"policy": {"name": "exp3s", "eta": 0.1}})
    small = {"encoder": "small", "layers": 2, "width": 32, "attention_heads": 2, "vocabulary": 90}
    frozen = {"freeze": 1 if "selected" in name or "weighted" in name else 0}
    if "conditioned" in name:
        frozen = {"conditional": {"rank": 4, "freeze": 1, "start": 0.1}}
    return RunConfig.model_validate(
        {
            "tasks": tasks,
            "model": {**small, "max_length": 16, "dropout": 0.0, **frozen},
            "budget": {
                "steps": 16 if name in SHARDED else 50,  # sharding is slow on CPUs
                "rounds": 2,
                "batch": 9,
                "accumulate": 3 if name in ("texts in pieces", "sharded texts") else 1,
            },
            "ranks": {"shard": name in SHARDED},
            # Not Adam: some biases of attention have no gradient but for rounding, and Adam would
            # blow that up to steps of full length.
            "optimizer": {
                "name": "sgd",
                "lr": 0.05,
                "head_factor": 1,
                "conditional_factor": 1,
                "momentum": 0,
            },
            "evaluate": {"every": 25, "batch": 6},
            **decider,
        }
    )


SMALL = encoders.small_config


def undropped(spec: ModelSpec, vocabulary: int) -> BertConfig:
    """The small encoder without dropout, which differs by rank."""
    found = SMALL(spec, vocabulary)
    found.hidden_dropout_prob = found.attention_probs_dropout_prob = 0.0
    return found


class Net(nn.Module):
    """One body, with weights that nobody has set a seed for, and a head for each task."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh())
        self.heads = nn.ModuleDict({task: nn.Linear(8, 2) for task in ("x", "y", "z")})

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        found = {}
        for part in batch:
            found[part.task] = self.heads[part.task](self.body(part.columns[0]))
        return found


def cross_entropy(outputs: torch.Tensor, batch: Sequence[torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs, batch[1])


def accuracy(outputs: Any, batch: Any) -> float:
    return float((outputs.argmax(1) == batch[1]).mean())


def own_tasks() -> list[Task]:
    """Two tasks with data sets, and one with a loader whose last batch has a single example."""
    generator, tasks = torch.Generator().manual_seed(0), []
    for name, size in {"x": 64, "y": 30, "z": 17}.items():
        x = torch.randn(size, 5, generator=generator)
        data = TensorDataset(x, (x @ torch.randn(5, generator=generator) > 0).long())
        train: Any = data if name != "z" else DataLoader(data, batch_size=8, shuffle=True)
        dev: Any = data if name != "z" else DataLoader(data, batch_size=4)
        tasks.append(from_data(name, train=train, dev=dev, loss=cross_entropy, score=accuracy))
    return tasks


def play(name: str, toys: Toys, folder: Path, data: Path) -> None:
    """One training, by as many ranks as there are."""
    to = folder / name.replace(" ", "-")
    if name in DECIDERS:
        run(toy_config(name), to, tasks=toys)
    elif name in TEXTS + SHARDED:
        with patch.object(encoders, "small_config", undropped):
            run(text_config(name, data), to, cache=folder / "cache")
    else:
        # Each rank has weights of its own before the run; those of the first one count.
        torch.manual_seed(int(os.environ.get("RANK", "0")))
        config = {
            "policy": {"name": "exp3s", "eta": 0.1},
            "budget": {"steps": 50, "batch": 8},
            "optimizer": {"name": "sgd", "lr": 0.1},
            "evaluate": {"every": 25, "batch": 8},
        }
        run(config, to, model=Net(), tasks=own_tasks())


@pytest.fixture(scope="module")
def folder(toys: Toys, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every training twice: by two ranks and by one process."""
    folder = tmp_path_factory.mktemp("ranks")
    names = [*DECIDERS, *TEXTS, *SHARDED, *OWN]
    for name in TEXTS + SHARDED:
        text_config(name, folder)

    def all_to(place: str) -> None:
        for name in names:
            play(name, toys, folder / place, folder)

    on_ranks(lambda: all_to("two"), meanwhile=lambda: all_to("one"))
    return folder


def units(folder: Path) -> list[UnitRecord]:
    return [each for each in read(folder / "journal.jsonl") if isinstance(each, UnitRecord)]


@pytest.mark.parametrize("name", [*DECIDERS, *TEXTS, *SHARDED, *OWN])
def test_two_ranks_of_half_a_batch_equal_one_process(folder: Path, name: str) -> None:
    one, two = folder / "one" / name.replace(" ", "-"), folder / "two" / name.replace(" ", "-")
    alone, together = units(one), units(two)
    assert len(together) == len(alone)
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.shares() == pytest.approx(theirs.shares(), abs=NEAR)
        assert ours.examples_of() == theirs.examples_of()
        assert ours.training_losses() == pytest.approx(theirs.training_losses(), abs=NEAR)
    for ours, theirs in zip(together, alone, strict=True):
        if hasattr(ours, "task"):
            assert ours.task == theirs.task
            assert ours.tokens == theirs.tokens
            assert ours.gain == pytest.approx(theirs.gain, abs=NEAR)
            assert ours.score == theirs.score
            assert ours.uncertainty == pytest.approx(theirs.uncertainty, abs=NEAR)
    for file in (
        "checkpoints/step-{}/model.safetensors",
        "checkpoints/step-{}/optimizer.safetensors",
    ):
        path = file.format(len(alone))
        ours, theirs = load_file(two / path), load_file(one / path)
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            assert torch.allclose(tensor, theirs[key], rtol=0, atol=NEAR), key
    scores = [json.loads((place / "scores.json").read_text()) for place in (one, two)]
    assert scores[0]["tasks"].keys() == scores[1]["tasks"].keys()
    for figure in ("step", "forward", "backward"):
        assert scores[0][figure] == scores[1][figure]
    assert scores[0]["score"] == pytest.approx(scores[1]["score"], abs=NEAR)


def test_parts_of_a_batch_are_even_and_no_item_is_in_two() -> None:
    chosen = {"a": np.arange(5), "b": np.array([7]), "c": np.arange(10, 14)}
    for ranks in (1, 2, 3, 7):
        parts = [Cut(rank, ranks).of(chosen) for rank in range(ranks)]
        for task, items in chosen.items():
            held = np.concatenate([part.get(task, items[:0]) for part in parts])
            assert sorted(held) == sorted(items)
        sizes = [sum(map(len, part.values())) for part in parts]
        assert max(sizes) - min(sizes) <= 1


class Numbers:
    """Items whose only column is their number."""

    pads: Mapping[str, int] = {}

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def lengths(self) -> Any:
        return np.ones(self.count, dtype=np.int64)

    def batch(self, items: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"number": items}, {"labels": items}


def test_a_rank_without_an_item_passes_one_along_that_does_not_count() -> None:
    items, chosen = {"a": Numbers(9)}, {"a": np.array([4, 2])}
    made = [make_part(items, chosen, Cut(rank, 3)) for rank in range(3)]
    assert [part.items.tolist() for [part] in made] == [[4], [2], [2]]
    assert [part.share for [part] in made] == [0.5, 0.5, 0.0]
    assert [(batch.examples, batch.sizes, batch.counts) for batch in made] == [
        (2, {"a": 2}, True),
        (2, {"a": 2}, True),
        (2, {"a": 2}, False),
    ]


def test_a_mixed_batch_says_on_every_rank_what_all_of_it_is() -> None:
    items = {"a": Numbers(9), "b": Numbers(9)}
    chosen = {"a": np.array([4, 2, 8]), "b": np.array([5])}
    first, second = (make_part(items, chosen, Cut(rank, 2)) for rank in range(2))
    assert [(part.task, part.items.tolist(), part.share) for part in first] == [
        ("a", [4, 8], 2 / 3)
    ]
    assert [(part.task, part.items.tolist(), part.share) for part in second] == [
        ("a", [2], 1 / 3),
        ("b", [5], 1.0),
    ]
    assert first.tasks == second.tasks == ["a", "b"]
    assert first.sizes == make_batch(items, chosen).sizes


def test_ranks_take_turns_with_dev_batches_and_all_have_equally_many() -> None:
    items, loader = Numbers(11), DataLoader(TensorDataset(torch.arange(11)), batch_size=3)
    for ranks in (1, 2, 3, 5):
        for batches in (
            [list(in_order("a", items, 3, Cut(rank, ranks))) for rank in range(ranks)],
            [list(ReadyBatches(loader).in_order("a", Cut(rank, ranks))) for rank in range(ranks)],
        ):
            assert len({len(own) for own in batches}) == 1
            seen = [i for own in batches for b in own if b.counts for i in b.parts[0].items]
            assert sorted(seen) == list(range(11))


def test_a_ready_batch_is_cut_whatever_its_nesting() -> None:
    columns = {"x": torch.arange(6).view(3, 2), "more": [torch.arange(3)], "scale": torch.ones(())}
    part = part_of_ready("a", columns, Cut(1, 2)).parts[0]
    assert part.columns["x"].tolist() == [[2, 3]]
    assert part.columns["more"][0].tolist() == [1]
    assert part.columns["scale"] == 1
    assert part_of_ready("a", ["p", "q", "r"], Cut(0, 2)).parts[0].columns == ["p", "r"]
    assert [part_of_ready("a", [1], Cut(1, 2)).parts[0].share] == [0.0]


def test_buckets_have_one_type_and_about_one_size() -> None:
    small = [torch.zeros(3), torch.zeros(2, dtype=torch.bfloat16), torch.zeros(4)]
    assert [len(bucket) for bucket in _buckets(small)] == [1, 1, 1]
    large = [torch.empty(BUCKET_BYTES // 8, device="meta") for _ in range(5)]
    assert [len(bucket) for bucket in _buckets(large)] == [2, 2, 1]
    assert _buckets([]) == []


def test_a_process_that_is_alone_agrees_with_itself() -> None:
    alone = Ranks()
    assert alone.in_batch_order([3, None, 4]) == [3, 4]
    assert alone.together(lambda: 5) == alone.in_turn(lambda: 5) == alone.agreed(lambda: 5) == 5
    assert (alone.stop(None), alone.stop(15), alone.name, alone.writes) == (None, 15, (), True)


class Seen:
    """What each of two ranks has to say, by way of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def say(self, value: Any) -> None:
        (self.folder / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(value))

    def error_of(self, work: Callable[[], object]) -> None:
        """Say what a work raises: its class, exit code and sentence."""
        try:
            work()
        except TaskmixError as error:
            self.say([type(error).__name__, error.exit_code, str(error)])
        else:
            self.say(None)

    def said(self) -> list[Any]:
        return [json.loads((self.folder / f"rank-{rank}.json").read_text()) for rank in (0, 1)]


@pytest.fixture
def seen(tmp_path: Path) -> Seen:
    return Seen(tmp_path)


def group() -> Group:
    torch.distributed.init_process_group("gloo")
    return Group(int(os.environ["LOCAL_RANK"]))


def test_gradients_are_summed_and_an_unused_head_has_none(seen: Seen) -> None:
    def work() -> None:
        ranks = group()
        both, one, none = (torch.zeros(3, requires_grad=True) for _ in range(3))
        both.grad = torch.full((3,), 1.0 + ranks.rank)
        if ranks.rank == 1:
            one.grad = torch.ones(3)
        ranks.add_gradients([both, one, none])
        assert both.grad is not None
        assert one.grad is not None
        seen.say([both.grad.tolist(), one.grad.tolist(), none.grad is None])

    on_ranks(work)
    assert seen.said() == [[[3.0] * 3, [1.0] * 3, True]] * 2


def test_what_fails_on_one_rank_is_said_on_all(seen: Seen) -> None:
    def fail(rank: int) -> None:
        if rank == 1:
            raise UserError("task a: expected data, found none")

    def full() -> None:
        raise OSError(28, "No space left on device")

    def work() -> None:
        ranks, found = group(), []
        for attempt in (
            lambda: ranks.together(lambda: fail(ranks.rank)),
            lambda: ranks.in_turn(lambda: fail(ranks.rank)),
            lambda: ranks.agreed(full),
        ):
            try:
                attempt()
            except (TaskmixError, OSError) as error:
                found.append(str(error))
        order = ranks.in_batch_order([ranks.rank, None if ranks.rank else 2])
        seen.say([found, ranks.agreed(lambda: 7), ranks.stop(10 if ranks.rank else None), order])

    on_ranks(work)
    same = ["task a: expected data, found none"] * 2
    first, second = seen.said()
    assert first == [[*same, "[Errno 28] No space left on device"], 7, 10, [0, 1, 2]]
    said = "rank 0: OSError: [Errno 28] No space left on device"
    assert second == [[*same, said], 7, 10, [0, 1, 2]]


def stopped_at(step: int, rank: int) -> Any:
    """Within it, one rank gets SIGUSR1 in a step."""
    after = session.Session._after

    def asked(self: Any, driver: Any, before: int, stop: Any) -> None:
        if driver.step == step and self.ranks.rank == rank:
            signal.raise_signal(signal.SIGUSR1)
        after(self, driver, before, stop)

    return patch.object(session.Session, "_after", asked)


def stopped_sentence(step: int, steps: int, folder: Path) -> str:
    return (
        f"stopped after step {step} of {steps}, with a checkpoint; continue it with "
        f"`taskmix resume {folder}`"
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_rank_stops_all_at_the_same_step(
    rank: int, toys: Toys, everything: Callable[[Path], Any], seen: Seen, tmp_path: Path
) -> None:
    """And a resumed run of two ranks, with dropout, ends as one that was not stopped."""
    values = {"tasks": ["a", "b", "c"], "budget": {"steps": 12, "batch": 4}}
    config = RunConfig.model_validate(
        values | {"evaluate": {"every": 4}, "policy": {"name": "exp3s", "eta": 0.1}}
    )

    def work() -> None:
        run(config, tmp_path / "alone", tasks=toys)
        with stopped_at(7, rank):
            seen.error_of(lambda: run(config, tmp_path / "stopped", tasks=toys))
        resume_run(tmp_path / "stopped", tasks=toys)

    on_ranks(work)
    sentence = stopped_sentence(7, 12, tmp_path / "stopped")
    assert seen.said() == [["StoppedError", 75, sentence]] * 2
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")


def test_a_divided_encoder_is_saved_whole_and_divided_again(
    everything: Callable[[Path], Any], seen: Seen, tmp_path: Path
) -> None:
    values = text_config("sharded texts", tmp_path).model_dump(exclude_none=True)
    adam = {"lr": 3e-3, "head_factor": 1}
    budget = {"steps": 6, "batch": 9}
    config = RunConfig(**values | {"optimizer": adam, "budget": budget, "evaluate": {"every": 3}})

    def work() -> None:
        run(config, tmp_path / "alone", cache=tmp_path / "cache")
        with stopped_at(4, 1):
            to = tmp_path / "stopped"
            seen.error_of(lambda: run(config, to, cache=tmp_path / "cache"))
        resume_run(tmp_path / "stopped", cache=tmp_path / "cache")

    on_ranks(work)
    assert seen.said()[0][2] == stopped_sentence(4, 6, tmp_path / "stopped")
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")
    kept = json.loads((tmp_path / "alone" / "scores.json").read_text())["tasks"]
    for name, scores in load_run(tmp_path / "alone").evaluate().items():
        assert scores.loss == pytest.approx(kept[name]["loss"], abs=NEAR)


def test_a_decider_that_differs_between_ranks_stops_the_run(
    toys: Toys, toy: Callable[..., RunConfig], seen: Seen, tmp_path: Path
) -> None:
    original = Random.state_dict

    def differing(self: Random) -> dict[str, Any]:
        late = self.draws > 20
        return original(self) | {"mood": os.environ["RANK"] if late else "0"}

    budget = {"steps": 200, "batch": 4}
    every = {"evaluate": {"every": 200}, "checkpoint": {"every": 10}}
    config = toy(policy="random", budget=budget, **every)

    def work() -> None:
        with patch.object(Random, "state_dict", differing):
            seen.error_of(lambda: run(config, tmp_path / "run", tasks=toys))

    on_ranks(work)
    first, second = seen.said()
    assert first == second
    kind, code, sentence = first
    assert (kind, code) == ("RunInterruptedError", 1)
    assert sentence.startswith(
        "the decider's state after step 30 is not the same on rank 1 as on rank 0; "
    )
    assert sentence.endswith(
        f"the checkpoint of step 20 is whole, go on from it by `taskmix resume {tmp_path / 'run'}`"
    )


def test_mistakes_are_one_sentence_on_every_rank(
    toys: Toys, toy: Callable[..., RunConfig], tmp_path: Path
) -> None:
    cases: dict[str, tuple[RunConfig, str]] = {
        "small": (
            toy(budget={"batch": 1}),
            "budget.batch: expected at least one example for each of the 2 ranks, found 1",
        ),
        "device": (
            toy(device="cuda:1"),
            "device: expected auto, cpu or cuda with 2 ranks, found 'cuda:1'",
        ),
        "weighting": (
            toy(weighting={"name": "diw", "target": "a"}, ranks={"shard": True}),
            "ranks.shard: expected a policy or a selection, found a weighting",
        ),
        "images": (
            toy(ranks={"shard": True}),
            "ranks.shard: expected a text encoder of transformers, found ImageEncoder",
        ),
        "taken": (toy(), f"{tmp_path / 'taken'}: there is a run of another configuration here: "),
    }
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "run.yaml").write_text("tasks: [a]")

    def work() -> None:
        for name, (config, sentence) in cases.items():
            with pytest.raises(UserError) as caught:
                run(config, tmp_path / name, tasks=toys)
            assert str(caught.value).startswith(sentence)

    on_ranks(work)
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_data_that_differ_between_ranks_stop_the_run_at_its_start(
    toys: Toys, toy: Callable[..., RunConfig], seen: Seen, tmp_path: Path
) -> None:
    def work() -> None:
        own = dict(toys)
        if os.environ["RANK"] == "1":
            own["a"] = Task("a", toys["b"].kind, toys["b"].splits, toys["b"].metrics)
        seen.error_of(lambda: run(toy(), tmp_path / "run", tasks=own))

    on_ranks(work)
    assert [said[0] for said in seen.said()] == ["RunInterruptedError"] * 2
    assert "the data of task a is not the same on rank 1" in seen.said()[0][2]


def test_a_restarted_launch_goes_on_and_a_first_one_does_not(
    toys: Toys,
    toy: Callable[..., RunConfig],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """With one rank, so that nobody has to be started."""
    first = run(toy(), tmp_path / "run", tasks=toys)
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "x", "MASTER_PORT": 1}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(UserError, match="this run is finished already"):
        run(toy(), tmp_path / "run", tasks=toys)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert run(toy(), tmp_path / "run", tasks=toys) == first
    with pytest.raises(UserError, match="a run of another configuration"):
        run(toy(seed=2), tmp_path / "run", tasks=toys)


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK", "LOCAL_RANK"])
def test_a_launch_without_numbers_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, toys: Toys, toy: Callable[..., Any], tmp_path: Path
) -> None:
    monkeypatch.setenv(name, "abc")
    with pytest.raises(UserError, match=f"^{name}: expected a number in the environment, found"):
        run(toy(), tmp_path / "run", tasks=toys)
    assert not (tmp_path / "run").exists()


KILLER = '''
import os, signal
from taskmix.policies import Exp3S

class Killer(Exp3S):
    """Exp3.S that ends its rank at the 8th draw, if the environment says which one."""

    name = "killer"

    def ask(self, rng):
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
        if self.draws == 7 and first and os.environ.get("KILLED") == os.environ["RANK"]:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().ask(rng)
'''
RUN_FILE = """
tasks: [digits/left, digits/right, digits/larger]
policy: {name: "killing:Killer", eta: 0.1}
budget: {steps: 12, batch: 8}
optimizer: {lr: 3.0e-3, head_factor: 1}
evaluate: {every: 5, examples: 40}
checkpoint: {every: 3}
"""


def test_a_killed_rank_is_started_again_and_the_run_ends_with_the_same_bytes(
    everything: Callable[[Path], Any], tmp_path: Path
) -> None:
    """By two launches of torchrun that meet, as two machines do; each counts its own restarts."""
    (tmp_path / "killing.py").write_text(KILLER)
    (tmp_path / "run.yaml").write_text(RUN_FILE)
    on_ranks(lambda: run(tmp_path / "run.yaml", tmp_path / "alone"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--max-restarts=1"]
    job = ["-m", "taskmix", "run", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "killed")]
    machines = [
        subprocess.Popen(
            [*torchrun, *meeting, *job, "--quiet"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"KILLED": "1"},
        )
        for _ in range(2)
    ]
    said = [machine.communicate(timeout=300) for machine in machines]
    assert [machine.returncode for machine in machines] == [0, 0], said
    assert sum("exitcode: -9" in err for _, err in said) == 1
    assert sum(len(out.splitlines()) for out, _ in said) == 1  # one rank says the score, once
    assert everything(tmp_path / "killed") == everything(tmp_path / "alone")


def test_a_second_ctrl_c_does_not_wait_unless_torchrun_sends_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with listening() as stop:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID")
    for name in names:
        monkeypatch.setenv(name, "1")
    with listening() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert stop.by == signal.SIGINT


def test_a_batch_in_pieces_has_the_losses_of_a_whole_one(folder: Path) -> None:
    """Also where the loss is a mean over words, of which pieces have different numbers."""
    whole, pieces = units(folder / "one" / "texts"), units(folder / "one" / "texts-in-pieces")
    assert any("tag" in each.training_losses() for each in whole)
    for one, other in zip(whole, pieces, strict=True):
        assert one.training_losses() == pytest.approx(other.training_losses(), abs=NEAR)
