"""Every block of code in README.md, CONTRIBUTING.md and docs/ runs; commands have their options."""

import ast
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.exceptions import UsageError
from numpy.typing import NDArray
from sybil import Document, Example, Region
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser
from torch.utils.data import TensorDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
)
from typer.main import get_command

import taskmix
from taskmix.cli import app
from taskmix.config import parse as parse_config
from taskmix.config import read_value
from taskmix.testing import PolicyConformance

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]

# What a page shows at full length, and the length that a test has time for.
SHORTER = {
    "README": {"max_steps=2000": "max_steps=2"},
    "autosem": {"trials=15": "trials=3", "seeds=[2, 3, 4]": "seeds=[2, 3]"},
    "comparing": {"10_000": "20"},
    "policies": {"environments=24, seeds=10": "environments=2, seeds=2"},
    "own": {'"steps": 200': '"steps": 2'},
    "run-files": {'"steps": 200': '"steps": 2'},
}


def check_run_file(example: Example) -> None:
    """Validate a block of a run file; a part of one is completed with tasks."""
    text = str(example.parsed)
    said = read_value(text, "a block")
    said = {"tasks": said} if isinstance(said, list) else {"tasks": ["digits/left"], **said}
    parse_config(said, "a block")


def begin(script: Path, names: dict[str, Any]) -> None:
    """Run what a script does before it uses taskmix, so that its names are there."""
    lines = script.read_text().splitlines()
    statements = ast.parse(script.read_text()).body
    own = [s.lineno for s in statements if lines[s.lineno - 1].endswith("# taskmix")]
    sys.argv = [str(script), script.stem, "--steps", "2"]
    Path(script.stem).mkdir()
    exec("\n".join(lines[: own[0] - 1]), names)


def begin_example(example: Example) -> None:
    begin(DOCS / example.parsed, example.namespace)


def scripts(document: Document) -> Iterable[Region]:
    """A link to an example, alone in its line: the block below uses names of the script."""
    for link in re.finditer(r"^\[(examples/\w+\.py)\]\(\1\)$", document.text, re.M):
        yield Region(link.start(), link.end(), link[1], begin_example)


PARSERS = [
    PythonCodeBlockParser(),
    CodeBlockParser("yaml", check_run_file),
    scripts,
]


def write_table(name: str, *rows: str) -> None:
    Path(name).write_text("\n".join(rows) + "\n")


def digits(folder: str) -> None:
    tasks = ["digits/left", "digits/right"]
    settings = {"tasks": tasks, "policy": "exp3s", "budget": {"steps": 40, "batch": 4}}
    taskmix.run({**settings, "evaluate": {"examples": 10}}, folder)


def small_bert(folder: str) -> BertConfig:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "he", "sleeps", "it"]
    BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}).save_pretrained(folder)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    config = BertConfig(vocab_size=len(words), num_attention_heads=2, **sizes)
    BertModel(config).save_pretrained(folder)
    return config


def readme() -> dict[str, Any]:
    from datasets import Dataset

    config = small_bert("model")
    rows = {"input_ids": [[2, 5, 6, 3]] * 20, "labels": [0, 1] * 10}
    return {
        "model": BertForSequenceClassification(config),
        "reviews": Dataset.from_dict(rows),
        "tickets": Dataset.from_dict(rows),
        "budget": 5,
        "batches": {task: iter(range(9)) for task in ("cola", "rte", "sst2")},
        "my_train_step": lambda batch: (1 / (1 + batch), 0.1),
    }


def contributing() -> dict[str, Any]:
    kit = {"PolicyConformance": PolicyConformance, "Sequence": Sequence, "np": np}
    return {**kit, "NDArray": NDArray, **{name: getattr(taskmix, name) for name in taskmix.__all__}}


def autosem() -> dict[str, Any]:
    write_table("pairs.csv", "a,b,y", *(f"{w} rains,he {w},{w}" for w in ["it", "so"] * 10))
    columns = "{train: pairs.csv, dev: pairs.csv, text: a, pair: b, label: y, name: glue/%s}"
    tasks = ", ".join(columns % name for name in ("rte", "mrpc", "qqp"))
    model = "{encoder: small, layers: 1, width: 8, attention_heads: 2, vocabulary: 80}"
    budget = "{steps: 2, batch: 4}"
    Path("glue.yaml").write_text(f"tasks: [{tasks}]\nmodel: {model}\nbudget: {budget}\n")
    return {}


def conditional() -> dict[str, Any]:
    small_bert("bert-base-uncased")
    return {}


def export() -> dict[str, Any]:
    from taskmix.models.build import build
    from taskmix.models.export import export
    from taskmix.models.saving import save
    from taskmix.models.spec import ModelSpec
    from taskmix.models.tokenizers import Corpus, tokenizer_for
    from taskmix.tasks.kinds import Classify

    spec = ModelSpec(encoder="small", width=8, attention_heads=2, vocabulary=80, max_length=32)
    tokenizer = tokenizer_for(spec, Corpus("texts", lambda: ["He caught a cold.", "A cold day."]))
    kinds = {"rte": Classify(("no", "yes")), "wic": Classify(("no", "yes"), marks=2)}
    save(build(spec, kinds, tokenizer, seed=1), tokenizer, spec, Path("saved"))
    for task in kinds:
        export(Path("saved"), task, Path(f"{task}-model"))
    return {"texts": ["He sleeps."], "hypotheses": ["It rains."]}


def grpo() -> dict[str, Any]:
    names: dict[str, Any] = {}
    begin(DOCS / "examples" / "trl_grpo.py", names)
    names["model"].save_pretrained("model")
    names["tokenizer"].save_pretrained("model")
    names |= {"math": names["even"], "code": names["long"], "correct": names["is_even"]}
    return {**names, "model": "model", "passes": names["is_long"], "short": names["is_even"]}


def integrations() -> dict[str, Any]:
    def score(examples: int | None) -> float:
        return 0.5

    names = {"accuracy": lambda model, rows: 0.5, "model": None, "rte_dev": [1, 2]}
    return {**names, "score_sst2": score}


def journal() -> dict[str, Any]:
    digits("runs/digits")
    return {}


def language_models() -> dict[str, Any]:
    questions = [f"who is {name},it is {name}" for name in "abcdefgh"]
    for name in ("support.csv", "support-dev.csv", "new.csv"):
        write_table(name, "question,reply", *questions)
    for name in ("manuals.jsonl", "manuals-dev.jsonl", "beginnings.jsonl"):
        write_table(name, *(f'{{"body": "turn {part} to the left"}}' for part in "abcdefgh"))
    shown = re.search(r"```yaml\n(.*?)```", (DOCS / "language-models.md").read_text(), re.DOTALL)
    assert shown
    said = read_value(shown[1], "the page")
    said["model"] = {"encoder": "small", "layers": 1, "width": 16, "attention_heads": 2}
    said["model"] |= {"vocabulary": 300, "max_length": 16, "lora": {"rank": 2}}
    said["budget"] = {"steps": 2, "tokens": 64}
    taskmix.run(parse_config(said, "the page"), "runs/mine")
    return {}


def off_policy() -> dict[str, Any]:
    write_table("pairs.csv", "a,y", *(f"{word} rains,{word}" for word in ["it", "so"] * 10))
    columns = {"train": "pairs.csv", "dev": "pairs.csv", "text": "a", "label": "y"}
    model = {"encoder": "small", "layers": 1, "width": 8, "attention_heads": 2, "vocabulary": 80}
    for seed, folder in enumerate(("runs/first", "runs/second")):
        tasks = [{"name": name, **columns} for name in ("cola", "rte")]
        settings = {"tasks": tasks, "model": model, "policy": "exp3s", "seed": seed}
        taskmix.run({**settings, "budget": {"steps": 60, "batch": 2}}, folder)
    return {}


def own() -> dict[str, Any]:
    table, labels = torch.randn(20, 13), torch.arange(20) % 2
    data = TensorDataset(table, labels)

    def loss(outputs: torch.Tensor, batch: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs, batch[1])

    def score(outputs: Any, batch: Any) -> float:
        return float((outputs.argmax(1) == batch[1]).mean())

    tasks = [
        taskmix.from_data(name, train=data, dev=data, loss=loss, score=score)
        for name in ("wine", "origin")
    ]
    names = {"table": table, "labels": labels, "dev_table": table, "dev_labels": labels}
    return {**names, "tasks": tasks}


def tasks() -> dict[str, Any]:
    for name in ("reviews.csv", "reviews-dev.csv"):
        write_table(name, "body,stars", *(f"good,{stars}" for stars in range(1, 6)))
    return {}


# The files in the folder of a page's reader, and the names of his script.
SURROUNDINGS: dict[str, Callable[[], dict[str, Any]]] = {
    "README": readme,
    "CONTRIBUTING": contributing,
    "autosem": autosem,
    "conditional": conditional,
    "export": export,
    "grpo": grpo,
    "integrations": integrations,
    "journal": journal,
    "language-models": language_models,
    "off-policy": off_policy,
    "own": own,
    "tasks": tasks,
}


def shortened(page: Path) -> str:
    text = page.read_text()
    for shown, short in SHORTER.get(page.stem, {}).items():
        assert shown in text, f"{page.name} has no {shown} any more"
        text = text.replace(shown, short)
    return text


def parsed(page: Path, text: str) -> Document:
    document = Document(text, str(page))
    for parser in PARSERS:
        for region in parser(document):
            document.add(region)
    return document


HAVE_BLOCKS = [page for page in PAGES if list(parsed(page, page.read_text()))]


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("page", HAVE_BLOCKS, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [""])
    document = parsed(page, shortened(page))
    document.namespace.update(SURROUNDINGS.get(page.stem, dict)())
    for example in document:
        example.evaluate()


def commands(page: Path) -> list[str]:
    text = page.read_text().replace("\\\n", " ")
    return re.findall(r"^    (?:torchrun .*? -m )?(taskmix .*)", text, re.M)


@pytest.mark.parametrize(
    ("page", "line"),
    [(page.stem, line) for page in PAGES for line in commands(page)],
)
def test_the_commands_of_a_page_have_the_options_that_it_uses(page: str, line: str) -> None:
    _, name, *words = shlex.split(line, comments=True)
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    try:
        command.make_context(name, words)
    except UsageError as error:
        pytest.fail(f"{page}: {error.format_message()}")
