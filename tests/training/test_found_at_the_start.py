"""What can be found before a training is found before anything is written."""

import json
import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import transformers
from rich.console import Console

from taskmix.cli import terminal
from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Step, read
from taskmix.models.encoders import check_length
from taskmix.policies import ActivePrioritization, Random
from taskmix.studies.plan import Planned, RunPlan, plan
from taskmix.tasks.task import Task
from taskmix.training.run import run

Toys = Mapping[str, Task]
Toy = Callable[..., RunConfig]


def refused(config: Any, folder: Path, words: str, **more: Any) -> None:
    """A run is one sentence, and leaves nothing behind."""
    with pytest.raises(UserError, match=words):
        run(config, folder, **more)
    assert not folder.exists()


def test_a_batch_that_is_larger_than_its_task_is_said(
    toy: Toy, toys: Toys, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run(toy(budget={"steps": 2, "batch": 25}), tmp_path / "run", tasks=toys)
    assert caplog.messages == [
        "c: a batch has all of its 10 training examples, fewer than budget.batch=25"
    ]
    caplog.clear()
    plan(RunConfig(tasks=["digits/left"], budget={"batch": 5000}))
    assert "digits/left: a batch has all of its" in caplog.text


def test_a_batch_of_any_size_has_what_there_is(toy: Toy, toys: Toys, tmp_path: Path) -> None:
    every = run(toy(budget={"steps": 3, "batch": 30}), tmp_path / "all", tasks=toys)
    huge = run(toy(budget={"steps": 3, "batch": 10**20}), tmp_path / "huge", tasks=toys)
    assert huge.tasks == every.tasks


def csv_task(path: Path, rows: list[tuple[str, str]]) -> dict[str, Any]:
    path.write_text("text,y\n" + "".join(f"{text},{label}\n" for text, label in rows))
    return {"name": "t", "train": str(path), "dev": str(path), "text": "text", "label": "y"}


SMALL = {"encoder": "small", "width": 16, "vocabulary": 64, "max_length": 16}


def test_a_plan_counts_the_batches_that_a_task_can_fill(tmp_path: Path) -> None:
    task = csv_task(tmp_path / "t.csv", [(f"a {n}", str(n % 2)) for n in range(20)])
    config = {"tasks": [task], "model": SMALL, "budget": {"steps": 4, "batch": 1000}}
    [planned] = plan(RunConfig(**config)).tasks
    assert planned.epochs == 4
    run(config, tmp_path / "run")
    steps = [record for record in read(tmp_path / "run" / "journal.jsonl") if type(record) is Step]
    assert sum(step.examples or 0 for step in steps) == 4 * 20


def test_rows_that_are_cut_or_empty_are_said_split_by_split(
    taskmix: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("word " * (40 if n < 6 else 2 * (n < 19)), str(n % 2)) for n in range(20)]
    task = csv_task(tmp_path / "t.csv", rows)
    csv_task(tmp_path / "dev.csv", rows[:4])
    config = {
        "tasks": [task | {"dev": str(tmp_path / "dev.csv")}],
        "model": SMALL,
        "optimizer": {"lr": 1e-3},
        "budget": {"steps": 2},
    }
    (tmp_path / "run.yaml").write_text(json.dumps(config))
    said = taskmix("plan", tmp_path / "run.yaml")
    cells = [[cell.strip() for cell in line.split("│")] for line in said.out.splitlines()]
    assert ["t", "20", "6", "4", "4"] in [row[1:6] for row in cells]
    planned = caplog.messages.copy()
    assert planned == [
        "t, train: 6 of 20 rows are cut at model.max_length=16",
        "t, train: 1 of 20 texts are empty",
        "t, dev: 4 of 4 rows are cut at model.max_length=16",
    ]
    caplog.clear()
    run(config, tmp_path / "run")
    assert caplog.messages == planned


def test_answers_that_no_window_holds_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.jsonl"
    long = " ".join(str(n) for n in range(60))
    answers = [long if n < 3 else "Bob" for n in range(8)]
    rows = [{"q": "who?", "c": f"it was Bob {long}", "a": answer} for answer in answers]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = {"name": "t", "kind": "span", "train": str(path), "dev": str(path)}
    config = {
        "tasks": [task | {"text": "q", "pair": "c", "label": "a"}],
        "model": SMALL,
        "optimizer": {"lr": 1e-3},
        "budget": {"steps": 2},
    }
    plan(RunConfig(**config))
    planned = list(caplog.messages)
    assert all(message.endswith(", and 3 answers are lost") for message in planned)
    assert [message.partition(":")[0] for message in planned] == ["t, train", "t, dev"]
    caplog.clear()
    run(config, tmp_path / "run")
    assert caplog.messages == planned


def test_a_plan_says_what_a_step_of_a_selector_scores() -> None:
    tasks = ["digits/left", "digits/right"]
    selection = {"name": "mt_uncertainty", "every": 2}
    config = RunConfig(tasks=tasks, selection=selection, budget={"steps": 4, "batch": 8})
    [table] = plan(config, cost=False).tables()
    assert table.notes[-1] == (
        "A step scores 16 candidates, 8 of each task, and trains on 8 of them."
    )


def test_a_plan_of_many_large_tasks_keeps_its_numbers_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = [
        Planned(f"superglue/task-{k}", 392702 + k, 9815, 128, 1 / 24, 0.00123, 27208, 4848)
        for k in range(24)
    ]
    config = RunConfig(tasks=["digits/left"])
    monkeypatch.setattr(terminal, "out", Console(width=60, force_terminal=True, no_color=True))
    terminal.print_tables(RunPlan(tuple(planned), config, learns=False).tables())
    printed = capsys.readouterr().out
    for number in ("392,702", "392,725", "27,208", "4.2%", "0.0012"):
        assert number in printed


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"objective": "glue/rte"}, "objective: unknown task 'glue/rte'"),
        ({"model": {"freeze": 1}}, "model.freeze: the encoder cnn has no such thing"),
        ({"device": "meta"}, "device: expected auto or a device here, found 'meta'"),
    ],
)
def test_a_plan_refuses_what_a_run_refuses(
    said: dict[str, Any], words: str, tmp_path: Path
) -> None:
    config = RunConfig(tasks=["digits/left"], **said)
    refused(config, tmp_path / "run", words)
    with pytest.raises(UserError, match=words):
        plan(config)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"text": None}, "text: expected the name of a column, found None"),
        ({"label": ["y"]}, r"label: expected the name of a column, found \['y'\]"),
        ({"id": 5}, "id: expected the name of a column, found 5"),
        ({"metrics": ["f1", 3]}, "metrics: expected a list of names, found"),
        ({"kind": "choose", "choices": "c"}, "choices: expected a list of names, found 'c'"),
    ],
)
def test_columns_and_metrics_have_names(said: dict[str, Any], words: str, tmp_path: Path) -> None:
    task = csv_task(tmp_path / "t.csv", [(f"a {n}", str(n % 2)) for n in range(4)])
    refused({"tasks": [task | said], "model": SMALL}, tmp_path / "run", f"tasks: t: {words}")


class NoJson(Random):
    name = "no_json"

    def _state(self) -> dict[str, Any]:
        return {"seen": self.drawn} if self.draws else {}


class NoJsonAtAll(NoJson):
    def _state(self) -> dict[str, Any]:
        return {"seen": self.drawn}


class NoDistribution(Random):
    name = "none"

    def probabilities(self) -> Any:
        return None


def own(cls: type) -> dict[str, Any]:
    return {"tasks": ["a", "b", "c"], "policy": f"{cls.__module__}:{cls.__name__}"}


def test_a_policy_of_ones_own_is_asked_before_anything_is_written(
    toys: Toys, tmp_path: Path
) -> None:
    refused(own(NoDistribution), tmp_path / "run", "policy none, draw 1: .* NoneType", tasks=toys)
    words = r"policy .*:NoJsonAtAll: expected state_dict\(\) to return JSON-able values"
    refused(own(NoJsonAtAll), tmp_path / "run", words, tasks=toys)


def test_a_state_that_json_cannot_hold_is_one_sentence(toys: Toys, tmp_path: Path) -> None:
    config = own(NoJson) | {"budget": {"steps": 4}, "evaluate": {"every": 2}}
    with pytest.raises(UserError, match=r"step 2: no checkpoint can be written: .* ndarray"):
        run(config, tmp_path / "run", tasks=toys)


def test_weightings_of_parts_are_refused_before_anything_is_written(
    toy: Toy, toys: Toys, tmp_path: Path
) -> None:
    weighting = {"name": "alpha_vil", "target": "a"}
    config = toy(weighting=weighting, budget={"rounds": 1, "accumulate": 2})
    refused(config, tmp_path / "run", r"budget.accumulate: expected 1", tasks=toys)


def test_a_dev_split_that_cannot_be_halved_is_refused(toy: Toy, toys: Toys, tmp_path: Path) -> None:
    config = toy(
        weighting={"name": "alpha_vil", "target": "a"},
        budget={"rounds": 1},
        evaluate={"examples": 1},
    )
    refused(config, tmp_path / "run", "cannot be halved", tasks=toys)


def test_a_score_that_a_task_has_not_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "n.csv"
    path.write_text("text,y\n" + "".join(f"number {row},{row}\n" for row in range(8)))
    task = {"name": "n", "kind": "regress", "train": str(path), "dev": str(path)}
    config = {
        "tasks": [task | {"text": "text", "label": "y"}],
        "model": {"encoder": "small", "width": 16, "vocabulary": 64},
        "policy": {"name": "active", "score": "legacy"},
    }
    refused(config, tmp_path / "run", "'legacy' is not defined for a regression such as n")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"policy": {"name": "active", "examples": 0}}, "examples: expected at least 1"),
        ({"policy": {"name": "active", "examples": "abc"}}, "examples: .* found 'abc'"),
        ({"policy": {"name": "active", "score": "foo"}}, "score: .* found 'foo'"),
        ({"policy": {"name": "active", "passes": 1.5}}, "passes: .* found 1.5"),
        ({"policy": {"name": "active", "every": float("nan")}}, "every: .* found nan"),
        ({"policy": {"name": "exp3s", "eta": float("inf")}}, "eta: .* finite number, found inf"),
        (
            {"policy": {"name": "thompson", "primary": "a", "prior": ["x", 1]}},
            "prior.0: .* found 'x'",
        ),
        ({"policy": {"name": "schedule", "phases": 3}}, "phases: .* found 3"),
        ({"policy": "cycle"}, "policy cycle: ratio: expected a value, found none"),
        ({"weighting": {"name": "diw", "target": "a", "rate": float("nan")}}, "rate: .* found nan"),
        ({"weighting": {"name": "diw", "target": "a", "fraction": 7}}, "fraction: .* found 7"),
        ({"weighting": {"name": "joint", "target": "a", "fraction": 0}}, "fraction: .* found 0"),
        ({"weighting": {"name": "alpha_vil", "target": "a", "start": "foo"}}, "start: .* 'foo'"),
        (
            {
                "weighting": {
                    "name": "alpha_vil",
                    "target": "a",
                    "tuner": {"name": "descent", "steps": -1},
                }
            },
            "steps: expected a whole number from 0 on, found -1",
        ),
        (
            {
                "weighting": {
                    "name": "alpha_vil",
                    "target": "a",
                    "tuner": {"name": "descent", "lr": -1},
                }
            },
            "lr: expected a number not below 0, found -1",
        ),
        (
            {
                "weighting": {
                    "name": "alpha_vil",
                    "target": "a",
                    "tuner": {"name": "closed_form", "halvings": "x"},
                }
            },
            "halvings: expected a whole number from 0 on, found 'x'",
        ),
        ({"model": {"freeze": 1}}, "model.freeze: the encoder cnn has no such thing"),
        ({"model": {"pooling": "pair"}}, "model.pooling: the encoder cnn has no such thing"),
        ({"model": {"vocabulary": 99}}, "model.vocabulary: the encoder cnn has no such thing"),
        ({"model": {"options": {"a": 1}}}, "model.options: the encoder cnn has no such thing"),
        ({"model": {"encoder": "lenet"}}, "task a: the model cannot read it: "),
        ({"optimizer": {"momentum": 0.5}}, "momentum: expected sgd with it, found adamw"),
        ({"budget": {"tokens": 64, "count": "compute"}}, "count: expected steps beside tokens"),
        ({"device": "meta"}, "device: expected auto or a device here, found 'meta'"),
    ],
)
def test_what_was_asked_can_be_had_or_is_refused(
    said: dict[str, Any], words: str, toys: Toys, tmp_path: Path
) -> None:
    refused({"tasks": ["a", "b", "c"], **said}, tmp_path / "run", words, tasks=toys)


def test_active_refuses_its_options_in_any_loop() -> None:
    for options in ({"examples": 0}, {"score": "foo"}):
        with pytest.raises(ValueError, match=f"{next(iter(options))}: expected"):
            ActivePrioritization(["a"], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_an_encoder_with_a_decoder_is_refused_before_data_are_read(
    family: str, tmp_path: Path
) -> None:
    config = {"t5": transformers.T5Config, "bart": transformers.BartConfig}[family]
    config(vocab_size=32, d_model=16).save_pretrained(tmp_path / family)
    task = {"name": "n", "train": "none.csv", "dev": "none.csv", "text": "text", "label": "y"}
    said = {"tasks": [task], "model": {"encoder": str(tmp_path / family)}}
    words = f"is a {family}, which has a decoder beside its encoder"
    refused(said, tmp_path / "run", words)


def test_a_number_of_any_positions_is_no_limit() -> None:
    check_length(transformers.XLNetConfig(), 4096)


def test_metrics_that_need_a_package_are_asked_for_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"w": ["a", "b"], "t": ["B-x", "O"]}\n' * 4)
    task = {"name": "n", "kind": "tag", "train": str(path), "dev": str(path)}
    config = {"tasks": [task | {"text": "w", "label": "t"}], "model": {"encoder": "small"}}
    monkeypatch.setitem(sys.modules, "seqeval", None)
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    refused(config, tmp_path / "run", r"task n: .* needs seqeval; pip install 'taskmix\[tagging\]'")


def test_a_cache_that_cannot_be_written_says_how_to_name_another(
    toy: Toy, toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path / "file"))
    words = "the cache cannot be written .* name another folder in .* TASKMIX_CACHE"
    refused(toy(), tmp_path / "run", words, tasks=toys)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setenv("TASKMIX_CACHE", str(tmp_path / "folder"))
    refused(toy(), tmp_path / "run", "cannot be written .permission denied", tasks=toys)
