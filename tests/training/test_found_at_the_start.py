"""What can be found before a training is found before anything is written."""

import logging
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import transformers

from bursar.config import RunConfig
from bursar.errors import UserError
from bursar.models.encoders import long_enough
from bursar.policies import ActivePrioritization
from bursar.tasks.task import Task
from bursar.training.plan import plan
from bursar.training.run import run

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
        ({"policy": {"name": "exp3s", "eta": float("inf")}}, "eta: expected finite numbers"),
        ({"policy": {"name": "thompson", "primary": "a", "prior": ["x", 1]}}, "prior: .* found"),
        ({"policy": {"name": "schedule", "phases": 3}}, "phases: .* found 3"),
        ({"policy": "cycle"}, "expected the option ratio, found none"),
        ({"weighting": {"name": "diw", "target": "a", "rate": float("nan")}}, "rate: .* found nan"),
        ({"weighting": {"name": "diw", "target": "a", "fraction": 7}}, "fraction: .* found 7"),
        ({"weighting": {"name": "joint", "target": "a", "fraction": 0}}, "fraction: .* found 0"),
        ({"weighting": {"name": "alpha_vil", "target": "a", "start": "foo"}}, "start: .* 'foo'"),
        (
            {
                "weighting": {
                    "name": "alpha_vil",
                    "target": "a",
                    "tuner": {"name": "descent", "steps": 0},
                }
            },
            "steps: expected a whole number above 0, found 0",
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
            "halvings: expected 0 or more, found 'x'",
        ),
        ({"model": {"freeze": 1}}, "model.freeze: the encoder cnn has no such thing"),
        ({"model": {"pooling": "pair"}}, "model.pooling: the encoder cnn has no such thing"),
        ({"model": {"vocabulary": 99}}, "model.vocabulary: the encoder cnn has no such thing"),
        ({"model": {"options": {"a": 1}}}, "model.options: the encoder cnn has no such thing"),
        ({"model": {"encoder": "lenet"}}, "task a: the model cannot read it: "),
        ({"optimizer": {"momentum": 0.5}}, "momentum: expected sgd with it, found adamw"),
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


def test_an_encoder_with_a_decoder_is_refused_before_data_are_read(tmp_path: Path) -> None:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    transformers.T5Config(vocab_size=32, **sizes).save_pretrained(tmp_path / "t5")
    task = {"name": "n", "train": "none.csv", "dev": "none.csv", "text": "text", "label": "y"}
    config = {"tasks": [task], "model": {"encoder": str(tmp_path / "t5")}}
    refused(config, tmp_path / "run", "is a t5, which has a decoder beside its encoder")


def test_a_number_of_any_positions_is_no_limit() -> None:
    long_enough(transformers.XLNetConfig(), 4096)


def test_metrics_that_need_a_package_are_asked_for_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"w": ["a", "b"], "t": ["B-x", "O"]}\n' * 4)
    task = {"name": "n", "kind": "tag", "train": str(path), "dev": str(path)}
    config = {"tasks": [task | {"text": "w", "label": "t"}], "model": {"encoder": "small"}}
    monkeypatch.setitem(sys.modules, "seqeval", None)
    monkeypatch.setitem(sys.modules, "seqeval.metrics", None)
    refused(config, tmp_path / "run", r"task n: .* needs seqeval; pip install 'bursar\[tagging\]'")


def test_a_cache_that_cannot_be_written_says_how_to_name_another(
    toy: Toy, toys: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("BURSAR_CACHE", str(tmp_path / "file"))
    words = "the cache cannot be written .* name another folder by .* BURSAR_CACHE"
    refused(toy(), tmp_path / "run", words, tasks=toys)
    monkeypatch.setattr("os.access", lambda *_: False)
    monkeypatch.setenv("BURSAR_CACHE", str(tmp_path / "folder"))
    refused(toy(), tmp_path / "run", "cannot be written .permission denied", tasks=toys)


def test_a_damaged_cache_is_one_sentence(toy: Toy, toys: Toys, tmp_path: Path) -> None:
    run(toy(), tmp_path / "first", tasks=toys, cache=tmp_path / "cache")
    for meta in (tmp_path / "cache").rglob("meta.json"):
        meta.write_text("{}")
    words = "expected an encoded split, found a damaged one .* delete it"
    refused(toy(), tmp_path / "run", words, tasks=toys, cache=tmp_path / "cache")
