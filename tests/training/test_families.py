"""Every family of encoders that the docs name: trains, resumes to the same bits, and predicts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from taskmix.journal import read, without_times
from taskmix.training.inference import load_run
from taskmix.training.run import resume_run, run
from tiny_encoders import FAMILIES, family

DOCS = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
CALLED = {  # as the docs have it
    "bert": "BERT",
    "bert, generic tokenizer": "BERT",
    "distilbert": "DistilBERT",
    "electra": "ELECTRA",
    "mpnet": "MPNet",
    "roberta": "RoBERTa",
    "xlm-roberta": "XLM-RoBERTa",
    "albert": "ALBERT",
    "deberta-v2": "DeBERTa-v2",
    "modernbert": "ModernBERT",
    "eurobert": "EuroBERT",
    "funnel": "Funnel",
    "gpt2": "GPT-2",
    "qwen2": "Qwen2",
    "llama": "Llama",
}


def test_the_docs_name_the_families_that_are_tried() -> None:
    assert set(FAMILIES) == set(CALLED)
    assert all(name in DOCS for name in CALLED.values())


def config_of(name: str, folder: Path) -> dict[str, Any]:
    """A run of two tasks on a tiny encoder of a family: pairs of texts, and tags."""
    spec = family(name, folder / "encoder")
    words = ("far", "home")
    pairs = [f"a cat ran {words[row % 2]},who sat?,{words[row % 2]}" for row in range(8)]
    (folder / "pairs.csv").write_text("\n".join(["a,b,y", *pairs]) + "\n")
    tags = [{"w": ["a", words[row % 2]], "t": ["O", f"B-{words[row % 2]}"]} for row in range(8)]
    (folder / "tags.jsonl").write_text("".join(json.dumps(each) + "\n" for each in tags))
    files = {"train": str(folder / "pairs.csv"), "dev": str(folder / "pairs.csv")}
    tagged = {"train": str(folder / "tags.jsonl"), "dev": str(folder / "tags.jsonl")}
    return {
        "tasks": [
            {"name": "pairs", **files, "text": "a", "pair": "b", "label": "y"},
            {"name": "tags", "kind": "tag", **tagged, "text": "w", "label": "t"},
        ],
        "model": {"encoder": spec.encoder, "max_length": 16, "pooling": "pair"},
        "budget": {"steps": 4, "batch": 4},
        "evaluate": {"every": 2},
    }


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # DeBERTa's
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_family_trains_resumes_and_predicts(
    name: str,
    tmp_path: Path,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
) -> None:
    config = config_of(name, tmp_path)
    done = run(config, tmp_path / "whole")
    with pytest.raises(interruption):
        run(config, tmp_path / "killed", watchers=[interrupter(step=3)])
    assert resume_run(tmp_path / "killed") == done
    journals = [
        [without_times(record) for record in read(tmp_path / folder / "journal.jsonl")]
        for folder in ("whole", "killed")
    ]
    assert journals[0] == journals[1]
    opened = load_run(tmp_path / "killed")
    assert opened.evaluate()["pairs"].score == done.tasks["pairs"].score
    opened.export("pairs", tmp_path / "exported")
    assert (tmp_path / "exported" / "model.safetensors").exists()
