"""Every kind of task goes the whole way: files, training, predictions, plain transformers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.models import exported
from taskmix.models.encoders import quiet
from taskmix.models.export import convert, export
from taskmix.rng import stream
from taskmix.tasks.batches import make_batch
from taskmix.training.evaluation import evaluate
from taskmix.training.inference import load_run
from taskmix.training.loading import to_device
from taskmix.training.prepare import read_split
from taskmix.training.run import run

WORDS = ["red", "blue", "green", "apple", "car", "house", "tree", "river"]


def rows(kind: str, count: int, seed: int) -> list[dict[str, Any]]:
    """Rows whose label can be read off the text."""
    rng = stream(seed, "rows", kind)
    found = []
    for _ in range(count):
        words = [str(word) for word in rng.choice(WORDS, size=int(rng.integers(3, 9)))]
        text, first = " ".join(words), words[0]
        match kind:
            case "classify":
                found.append({"text": text, "label": "yes" if "red" in words else "no"})
            case "regress":
                found.append({"text": text, "label": float(words.count("car"))})
            case "multilabel":
                found.append({"text": text, "label": [w for w in WORDS[:3] if w in words]})
            case "tag":
                tags = ["B-thing" if w in WORDS[3:6] else "O" for w in words]
                found.append({"text": words, "label": tags})
            case "span":
                answers = [{"text": first, "answer_start": 0}]
                found.append({"text": "first?", "context": text, "label": answers})
            case "choose":
                choices = [
                    first,
                    *(str(w) for w in rng.choice(WORDS, size=int(rng.integers(1, 4)))),
                ]
                found.append({"text": text, "choices": choices, "label": 0})
    return found


KINDS = ["classify", "regress", "multilabel", "tag", "span", "choose"]


def entries(folder: Path) -> list[dict[str, Any]]:
    """The tasks as a run file says them."""
    more = {"span": {"pair": "context"}, "choose": {"choices": ["choices"]}}
    tasks = []
    for kind in KINDS:
        for split, count in (("train", 60), ("dev", 20)):
            lines = [json.dumps(row) for row in rows(kind, count, len(split))]
            (folder / f"{kind}-{split}.jsonl").write_text("\n".join(lines) + "\n")
        files = {split: str(folder / f"{kind}-{split}.jsonl") for split in ("train", "dev")}
        columns = {"text": "text", "label": "label"} | more.get(kind, {})
        tasks.append({"name": kind, "kind": kind, **files, **columns})
    return tasks


def config(folder: Path, steps: int, **decides: Any) -> RunConfig:
    return RunConfig(
        tasks=entries(folder),
        model={
            "encoder": "small",
            "layers": 1,
            "width": 32,
            "attention_heads": 2,
            "vocabulary": 90,
        },
        budget={"steps": steps, "batch": 8},
        optimizer={"lr": 3e-3, "head_factor": 1},
        evaluate={"every": steps},
        **decides,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 50 steps over all kinds."""
    folder = tmp_path_factory.mktemp("kinds")
    run(config(folder, 50), folder / "run")
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_task_predicts_every_row_and_scores(folder: Path, kind: str) -> None:
    trained = load_run(folder / "run")
    assert len(trained.predict(kind, "dev")) == 20
    assert len(trained.predict(kind, folder / f"{kind}-dev.jsonl")) == 20
    scores = trained.evaluate()[kind]
    assert scores.loss == pytest.approx(scores.loss)  # a number


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_task_has_the_same_logits_in_plain_transformers(folder: Path, kind: str) -> None:
    trained = load_run(folder / "run")
    ours, plain = trained.model, convert(trained.model, kind).eval()
    split = read_split(trained.task(kind), "dev", trained.tokenizer).items
    batch = to_device(make_batch({kind: split}, {kind: np.arange(8)}), torch.device("cpu"))
    inputs = {name: x for name, x in batch.inputs.items() if name != "second_text"}
    with torch.inference_mode():
        expected = ours(batch)[kind]
        if kind == "regress":
            expected = expected * ours.kinds[kind].scale + ours.kinds[kind].mean
        if kind == "choose":
            found = plain(**{k: v[:, None] for k, v in inputs.items()}).logits
        elif kind == "span":
            found = torch.stack(list(plain(**inputs).values()), dim=-1)
        else:
            found = plain(**inputs).logits
    assert torch.allclose(found, expected, atol=1e-6 * float(expected.abs().max().clamp(min=1)))


def test_an_exported_folder_opens_by_its_auto_class_with_label_names(
    folder: Path, tmp_path: Path
) -> None:
    export(folder / "run" / "model", "classify", tmp_path / "out")
    exported.register()
    with quiet():
        plain = AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert plain.config.id2label == {0: "no", 1: "yes"}
    with pytest.raises(UserError, match="there already"):
        export(folder / "run" / "model", "classify", tmp_path / "out")


@pytest.mark.parametrize(
    "decides",
    [
        {"policy": {"name": "active", "every": 2, "passes": 2, "examples": 4}},
        {"selection": "mt_uncertainty"},
        {"weighting": {"name": "alpha_vil", "target": "classify"}},
    ],
    ids=["active", "mt_uncertainty", "alpha_vil"],
)
def test_whoever_decides_can_read_every_kind(
    folder: Path, tmp_path: Path, decides: dict[str, Any]
) -> None:
    own = config(folder, 4, **decides)
    own = own.model_copy(update={"budget": own.budget.model_copy(update={"rounds": 1})})
    assert set(run(own, tmp_path / "run").tasks) == set(KINDS)


def test_a_run_in_bfloat16_scores_every_kind_as_evaluate_does_later(
    folder: Path, tmp_path: Path
) -> None:
    done = run(config(folder, 12, precision="bfloat16"), tmp_path / "run")
    trained = load_run(tmp_path / "run")
    later = trained.evaluate()
    assert {kind: scores.loss for kind, scores in later.items()} == {
        kind: scores.loss for kind, scores in done.tasks.items()
    }
    task = trained.task("classify")
    split = read_split(task, "dev", trained.tokenizer)
    in_full = evaluate(trained.model, task, split, 64, torch.device("cpu"))
    assert in_full.loss != later["classify"].loss
    assert in_full.loss == pytest.approx(later["classify"].loss, abs=0.02)


def test_scores_of_a_span_task_count_questions_and_not_windows(tmp_path: Path) -> None:
    long = " ".join(WORDS * 6)
    answers = [{"text": "red", "answer_start": 0}]
    lines = [json.dumps({"text": "first?", "context": long, "label": answers})] * 8
    (tmp_path / "q.jsonl").write_text("\n".join(lines) + "\n")
    files = dict.fromkeys(("train", "dev"), str(tmp_path / "q.jsonl"))
    columns = {"text": "text", "pair": "context", "label": "label"}
    said = RunConfig(
        tasks=[{"name": "q", "kind": "span", **files, **columns}],
        model={"encoder": "small", "layers": 1, "width": 16, "max_length": 24},
        budget={"steps": 1, "batch": 4},
        device="cpu",
    )
    done = run(said, tmp_path / "run", cache=tmp_path / "cache")
    loaded = load_run(tmp_path / "run")
    [(name, task)] = loaded.tasks.items()
    split = read_split(task, "dev", loaded.tokenizer, tmp_path / "cache")
    assert len(split) > split.rows == 8
    assert done.tasks[name].examples == 8
