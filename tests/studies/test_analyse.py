"""The analysis of a conditioned run, and what the command line says of one."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModelForSequenceClassification

from taskmix.cli import main
from taskmix.config import load
from taskmix.errors import UserError
from taskmix.models import saving
from taskmix.models.encoders import quiet
from taskmix.models.export import export
from taskmix.models.multitask import MultiTaskModel
from taskmix.report.analysis import write_analysis
from taskmix.studies.analyse import analyse, single_scores, task_sigma
from taskmix.tasks.batches import ready_batch
from taskmix.training.folder import finished as finished_run
from taskmix.training.run import run

WORDS = ["the", "cat", "dog", "sat", "ran", "mat", "tree", "red"]
LABELS = {
    "three": lambda text: f"c{text.count('the') % 3}",
    "two": lambda text: "yes" if "cat" in text else "no",
    "new": lambda text: "c1" if "the" in text else "c0",
}


def taskmix(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["taskmix", *map(str, words)])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run file."""
    folder = tmp_path_factory.mktemp("analyse")
    entries = []
    for name, label in LABELS.items():
        rng = np.random.default_rng(len(name))
        for split, rows in (("train", 30), ("dev", 12)):
            texts = [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(rows)]
            lines = ["text,y", *(f"{text},{label(text)}" for text in texts)]
            (folder / f"{name}-{split}.csv").write_text("\n".join(lines) + "\n")
        files = {split: f"{name}-{split}.csv" for split in ("train", "dev")}
        entries.append({"name": name, "kind": "classify", "text": "text", "label": "y", **files})
    model: dict[str, Any] = {
        "encoder": "small",
        "layers": 2,
        "width": 32,
        "attention_heads": 2,
        "vocabulary": 90,
        "max_length": 16,
        "conditional": {"parts": ["alignment", "norm", "bottleneck"]},
    }
    config = {
        "name": "toys",
        "tasks": entries[:2],
        "model": model,
        "budget": {"steps": 6, "batch": 6},
        "optimizer": {"lr": 3e-3},
        "device": "cpu",
    }
    (folder / "toys.yaml").write_text(yaml.safe_dump(config))
    (folder / "new.yaml").write_text(yaml.safe_dump(entries[2]))
    return folder


@pytest.fixture(scope="module")
def finished(place: Path) -> Path:
    run(place / "toys.yaml", place / "run", cache=place)
    return place / "run"


def test_similarities_are_those_of_the_mean_vectors(finished: Path, place: Path) -> None:
    found = analyse(finished, cache=place)
    assert found.before is not None
    assert found.after is not None
    model, tokenizer = saving.load(finished / "model")
    assert isinstance(model, MultiTaskModel)
    assert tokenizer is not None
    sides: dict[str, list[np.ndarray]] = {"before": [], "after": []}
    encoder: Any = model.encoder.model
    for task in ("three", "two"):
        lines = (place / f"{task}-dev.csv").read_text().splitlines()[1:]
        rows: dict[str, list[torch.Tensor]] = {"before": [], "after": []}
        for line in lines:
            [encoding] = tokenizer.encode([line.split(",")[0]], [None])
            with torch.no_grad():
                x = encoder.encoder.embeddings(input_ids=torch.tensor([encoding.ids]))[0]
                gamma, beta = encoder.alignment.film(encoder.task_embeddings.row(task))
            rows["before"].append(x.mean(0))
            rows["after"].append(((1 + gamma) * x + beta).mean(0))
        for side, vectors in rows.items():
            sides[side].append(torch.stack(vectors).double().detach().numpy())
    for side, inputs in sides.items():
        roots = []
        for x in inputs:
            values, vectors = np.linalg.eigh(x.T @ x)
            order = np.argsort(-values)
            held = np.cumsum(values[order]) / values.sum()
            kept = order[: int(np.argmax(held >= 0.99)) + 1]
            roots.append(vectors[:, kept] * np.sqrt(values[kept]))
        norm = np.linalg.norm
        expected = norm(roots[0].T @ roots[1]) / (norm(roots[0]) * norm(roots[1]))
        assert getattr(found, side)[0, 1] == pytest.approx(expected, rel=1e-4)
    assert not np.allclose(found.before, found.after)


def test_the_spread_and_the_parameters(finished: Path, place: Path) -> None:
    found = analyse(finished, cache=place)
    values = [value for of_task in found.metrics.values() for value in of_task.values()]
    mean = sum(values) / len(values)
    deviations = [(value - mean) ** 2 for value in values]
    assert found.sigma == pytest.approx((sum(deviations) / len(values)) ** 0.5)
    assert found.metrics == {
        task: scores.metrics for task, scores in finished_run(finished).tasks.items()
    }
    assert found.heads == {"three": 3 * 32 + 3, "two": 2 * 32 + 2}
    assert found.parameters is not None
    assert found.parameters.tasks == 2
    assert all(hard is not None and hard.total > 0 for hard in found.difficulty.values())


def test_every_metric_of_a_task_counts_in_the_spread() -> None:
    assert task_sigma({"a": {"accuracy": 1.0}, "b": {"accuracy": 1.0}}) == 0
    two = task_sigma({"cola": {"matthews": 0.2}, "mrpc": {"accuracy": 0.6, "f1": 1.0}})
    assert two == pytest.approx((((0.4) ** 2 + 0 + (0.4) ** 2) / 3) ** 0.5)


def test_the_command_line(
    place: Path,
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TASKMIX_CACHE", str(place))
    monkeypatch.chdir(place)
    code, out, _ = taskmix(monkeypatch, capsys, "parameters", place / "toys.yaml")
    assert code == 0
    assert "task embeddings, 2 tasks" in out
    code, _, err = taskmix(
        monkeypatch,
        capsys,
        "parameters",
        place / "toys.yaml",
        "--set",
        "model.conditional.freeze=9",
    )
    assert code == 2
    assert "model.conditional: freeze: found 9, but the encoder has" in err
    task = (place / "new.yaml").read_text()
    entry = yaml.safe_load(task)
    entry |= {split: str(place / entry[split]) for split in ("train", "dev")}
    words = ["adapt", finished, "--task", yaml.safe_dump(entry, default_flow_style=True)]
    code, out, err = taskmix(
        monkeypatch,
        capsys,
        *words,
        "--from",
        "best",
        "--set",
        "budget.steps=3",
        "--out",
        tmp_path / "new",
    )
    assert code == 0, err
    assert "zero-shot score" in out
    assert (tmp_path / "new" / "scores.json").exists()
    code, _, err = taskmix(
        monkeypatch, capsys, *words, "--from", "tow", "--out", tmp_path / "other"
    )
    assert code == 2
    assert "--from: unknown task 'tow'" in err
    code, _, err = taskmix(monkeypatch, capsys, "adapt", finished, "--task", "5", "--out", "none")
    assert code == 2
    assert "task: expected its name, or a mapping that says where it is, found 5" in err
    code, out, err = taskmix(monkeypatch, capsys, "analyse", finished, "--single", tmp_path / "new")
    assert code == 0, err
    assert "task σ" in out
    assert (finished / "analysis.html").exists()


def test_the_page_shows_what_was_found(finished: Path, place: Path, tmp_path: Path) -> None:
    found = analyse(finished, cache=place)
    text = write_analysis(found, tmp_path, "toys").read_text()
    assert "Covariance similarity" in text
    assert "Compared with single-task training" in text


def test_single_runs_have_one_task(finished: Path) -> None:
    with pytest.raises(UserError, match="expected a run of one task alone, found three, two"):
        single_scores([finished], ["three"])


def test_what_can_be_folded_is_exported_with_the_same_logits(
    finished: Path, tmp_path: Path
) -> None:
    export(finished / "model", "three", tmp_path / "three")
    with quiet():
        plain = AutoModelForSequenceClassification.from_pretrained(
            tmp_path / "three", trust_remote_code=True
        ).eval()
    model, _ = saving.load(finished / "model")
    ids = torch.randint(5, 15, (4, 7), generator=torch.Generator().manual_seed(1))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        ours = model(ready_batch("three", np.arange(4), inputs, {}))["three"]
        theirs = plain(**inputs).logits
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-4)


def test_what_cannot_be_folded_is_one_sentence(place: Path, tmp_path: Path) -> None:
    config = load(place / "toys.yaml", ["model.conditional.alignment=matrix", "budget.steps=1"])
    run(config, tmp_path / "run", cache=place)
    with pytest.raises(UserError, match=r"task two: .* alignment cannot be folded"):
        export(tmp_path / "run/model", "two", tmp_path / "two")
    assert not (tmp_path / "two").exists()
