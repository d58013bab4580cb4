"""Exported folders, used as a user of transformers does: raw texts in, the same logits out."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor
from transformers import AutoTokenizer

from taskmix.errors import TaskmixError, UserError
from taskmix.models import exported, saving
from taskmix.models.build import build
from taskmix.models.conditional import ConditionalEncoder
from taskmix.models.encoders import quiet
from taskmix.models.export import can_export, convert, export
from taskmix.models.multitask import MultiTaskModel
from taskmix.models.spec import ConditionalSpec, ModelSpec
from taskmix.models.tokenizers import Corpus, tokenizer_for
from taskmix.tasks.encoding import encode
from taskmix.tasks.kinds import Choose, Classify, Kind, MultiLabel, Regress, Span, Tag
from taskmix.tasks.rows import ChoiceRow, Mark, QuestionRow, Row, TextRow, WordsRow
from taskmix.tasks.tokenizer import Tokenizer
from tiny_encoders import FAMILIES, LENGTH, LONG, PAIRS, SIZES, TEXTS, family, word_pieces

KINDS: dict[str, Kind] = {
    "classify": Classify(("no", "yes", "maybe")),
    "regress": Regress(mean=2.5, scale=1.5),
    "multilabel": MultiLabel(("joy", "fear")),
    "choose": Choose(),
    "tag": Tag(("O", "B-x", "I-x"), frequent="O"),
    "span": Span(stride=4),
    "wic": Classify(("no", "yes"), marks=2),
}
PIECES = [  # the number of the text, and characters there; one piece is cut off with its text
    [(0, 4, 7), (1, 2, 5)],
    [(0, 0, 3), (1, 2, 7)],
    [(0, 170, 175), (1, 0, 3)],
]
CHOICES = ["ran home.", "a mat?"]
QUESTIONS = ["Who?", "What ran?", "Who sat?"]  # short: taskmix cuts a long one, transformers cannot
SMALL = ModelSpec(
    encoder="small", width=48, attention_heads=4, vocabulary=120, max_length=LENGTH, head_width=24
)
WORDS = Corpus("texts", lambda: TEXTS + PAIRS)


@pytest.fixture(autouse=True, scope="module")
def _registered() -> None:
    exported.register()


def rows(task: str) -> list[Row]:
    """The texts as rows of this kind."""
    pairs = list(zip(TEXTS, PAIRS, strict=True))
    match task:
        case "tag":
            return [WordsRow(1, tuple(text.split())) for text in TEXTS]
        case "span":
            both = zip(QUESTIONS, TEXTS, strict=True)
            return [QuestionRow(1, question, context) for question, context in both]
        case "choose":
            return [ChoiceRow(1, text, tuple(CHOICES)) for text in TEXTS]
        case "wic":
            marks = [tuple(Mark(a, b, bool(text)) for text, a, b in of_row) for of_row in PIECES]
            return [TextRow(1, *pair, marks=of) for pair, of in zip(pairs, marks, strict=True)]
    return [TextRow(1, *pair) for pair in pairs]


@dataclass(frozen=True)
class Given:
    """Rows made up by a test."""

    given: tuple[Row, ...]
    where: str = "test"

    def rows(self) -> Iterator[Row]:
        return iter(self.given)

    def skips(self) -> dict[str, int]:
        return {}

    def fingerprint(self) -> str:
        return repr(self.given)


def pooled(tokens: Tensor, mask: Tensor, second: Tensor, pooling: str) -> Tensor:
    """One vector a sequence, sequence by sequence."""
    vectors = []
    for row, real, other in zip(tokens, mask.bool(), second.bool(), strict=True):
        u, v = row[real & ~other].mean(0), row[other].mean(0)
        vectors.append(
            {
                "mean": row[real].mean(0),
                "first": row[0],
                "last": row[real][-1],
                "pair": torch.cat([u, v, (u - v).abs(), u * v]),
            }[pooling]
        )
    return torch.stack(vectors)


@torch.inference_mode()
def ours(model: MultiTaskModel, tokenizer: Tokenizer, task: str) -> Tensor:
    """What taskmix's encoder and head make of the rows, from taskmix's own columns."""
    kind = model.kinds[task]
    split = encode(kind, Given(tuple(rows(task))), tokenizer)
    inputs, targets = split.batch(np.arange(len(split)))
    columns = {name: torch.as_tensor(column) for name, column in (inputs | targets).items()}
    encoder, mask, types = model.encoder, columns["attention_mask"], columns.get("token_type_ids")
    given = {"input_ids": columns["input_ids"], "attention_mask": mask}
    if (getattr(encoder.model.config, "type_vocab_size", 0) or 0) > 1 and types is not None:
        given["token_type_ids"] = types
    if isinstance(encoder.model, ConditionalEncoder):
        given["task_ids"] = encoder.model.ids([task] * len(mask))
    tokens = encoder.model(**given).last_hidden_state
    if kind.reads == "tokens":
        return model.heads[task](tokens)[mask.bool()]
    features = [pooled(tokens, mask, columns["second_text"], encoder.pooling)]
    for piece in columns["marks"].unbind(1) if "marks" in columns else ():
        means = [row[start:end].mean(0) for row, (start, end) in zip(tokens, piece, strict=True)]
        features.append(torch.stack(means))
    logits: Tensor = model.heads[task](torch.cat(features, -1))
    return logits * kind.scale + kind.mean if isinstance(kind, Regress) else logits


def texts_of(task: str, folder: Path) -> dict[str, Any]:
    """What a user of transformers has for the same rows."""
    return {
        "folder": str(folder),
        "task": task,
        "texts": TEXTS,
        "pairs": QUESTIONS if task == "span" else PAIRS,
        "pieces": PIECES,
        "choices": CHOICES,
    }


def theirs(folder: Path, task: str) -> Tensor:
    """What a user of transformers gets for them, where taskmix has registered its classes."""
    user = runpy.run_path(str(Path(__file__).with_name("plain_user.py")))
    with quiet():
        found: Tensor = user["logits"](**texts_of(task, folder), trust=False)
    return found


def built(spec: ModelSpec, folder: Path, tasks: list[str]) -> tuple[MultiTaskModel, Tokenizer]:
    """A model with these tasks, saved."""
    with quiet():
        tokenizer = tokenizer_for(spec, WORDS)
        model = build(spec, {task: KINDS[task] for task in tasks}, tokenizer, seed=1).eval()
    for head in model.heads.values():  # as if it had been trained: logits of all sizes
        torch.nn.init.normal_(head.linear.bias, std=2.0, generator=torch.Generator().manual_seed(1))
    saving.save(model, tokenizer, spec, folder)
    return model, tokenizer


def agree(folder: Path, task: str, model: MultiTaskModel, tokenizer: Tokenizer) -> None:
    expected = ours(model, tokenizer, task)
    torch.testing.assert_close(theirs(folder, task), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("pooling", "head"),
    [(pooling, "linear") for pooling in ("mean", "first", "last", "pair")]
    + [("pair", "two_layer")],
)
def test_every_kind_gives_the_same_logits_from_raw_texts(
    pooling: str, head: str, tmp_path: Path
) -> None:
    spec = SMALL.model_copy(update={"pooling": pooling, "head": head})
    model, tokenizer = built(spec, tmp_path / "model", list(KINDS))
    for task in KINDS:
        export(tmp_path / "model", task, tmp_path / task)
        agree(tmp_path / task, task, model, tokenizer)


@pytest.mark.parametrize(
    "options", [{}, {"per_head": True, "blocks": 3, "positions": 20}], ids=["", "some positions"]
)
def test_attention_biases_are_exported_and_give_the_same_logits(
    options: dict[str, Any], tmp_path: Path
) -> None:
    conditional = ConditionalSpec(rank=4, start=0.5, embedding_start=1.0, **options)
    spec = SMALL.model_copy(update={"conditional": conditional})
    tasks = ["classify", "tag", "span", "choose"]
    model, tokenizer = built(spec, tmp_path / "model", tasks)
    for task in tasks:
        export(tmp_path / "model", task, tmp_path / task)
        agree(tmp_path / task, task, model, tokenizer)
    biased = convert(model, "classify")
    before = ours(model, tokenizer, "classify")
    biased.biases.data.zero_()
    biased.save_pretrained(tmp_path / "without")
    tokenizer_files = (tmp_path / "classify").glob("token*")
    for file in tokenizer_files:
        shutil.copy(file, tmp_path / "without")
    assert (theirs(tmp_path / "without", "classify") - before).abs().max() > 1e-3


@pytest.mark.parametrize("task", ["tag", "span"])
def test_a_linear_head_on_tokens_is_a_class_of_transformers(task: str, tmp_path: Path) -> None:
    built(SMALL, tmp_path / "model", [task])
    export(tmp_path / "model", task, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == "bert"
    assert "auto_map" not in config
    assert not (tmp_path / "out" / "exported.py").exists()


def test_a_folder_loads_where_taskmix_is_not(tmp_path: Path) -> None:
    tasks = ["classify", "regress", "choose", "span", "wic"]
    spec = SMALL.model_copy(update={"pooling": "pair"})
    model, tokenizer = built(spec, tmp_path / "model", tasks)
    jobs = []
    for task in tasks:
        export(tmp_path / "model", task, tmp_path / task)
        jobs.append({**texts_of(task, tmp_path / task), "trust": task != "span"})
    answer = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("plain_user.py"))],
        input=json.dumps(jobs),
        env={**os.environ, "HF_HOME": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    for task, found in zip(tasks, json.loads(answer.stdout), strict=True):
        expected = ours(model, tokenizer, task)
        torch.testing.assert_close(torch.tensor(found), expected, rtol=1e-5, atol=1e-5)


def test_the_file_in_the_folder_names_no_taskmix_module(tmp_path: Path) -> None:
    built(SMALL, tmp_path / "model", ["classify"])
    export(tmp_path / "model", "classify", tmp_path / "out")
    source = (tmp_path / "out" / "exported.py").read_text()
    assert "import taskmix" not in source
    assert "from taskmix" not in source


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")  # DeBERTa's
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_of_encoders_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    spec = family(name, tmp_path / "encoder")
    second = ["wic", "tag"]  # tags see tokens, whatever the pooling
    for pooling, tasks in {"mean": ["classify", "tag", "span"], "pair": second}.items():
        own = spec.model_copy(update={"pooling": pooling})
        model, tokenizer = built(own, tmp_path / pooling, tasks)
        for task in tasks:
            export(tmp_path / pooling, task, tmp_path / f"{pooling}-{task}")
            agree(tmp_path / f"{pooling}-{task}", task, model, tokenizer)


@pytest.mark.parametrize("name", ["roberta", "xlm-roberta"])
def test_a_pair_has_two_texts_where_the_tokenizer_knows_no_segments(
    name: str, tmp_path: Path
) -> None:
    tokenizer = tokenizer_for(family(name, tmp_path / "encoder"), WORDS)
    split = encode(KINDS["classify"], Given(tuple(rows("classify"))), tokenizer)
    inputs, _ = split.batch(np.arange(len(split)))
    assert "token_type_ids" not in inputs
    for row, encoding in enumerate(tokenizer.encode(TEXTS, PAIRS)):
        texts = encoding.sequence_ids
        second = inputs["second_text"][row][: len(texts)]
        assert set(second[[place for place, text in enumerate(texts) if text == 0]]) == {0}
        assert set(second[[place for place, text in enumerate(texts) if text == 1]]) == {1}


@pytest.mark.parametrize("name", ["gpt2", "qwen2", "llama"])
def test_a_decoder_is_read_at_its_last_token_and_not_at_its_first(
    name: str, tmp_path: Path
) -> None:
    spec = family(name, tmp_path / "encoder")
    with pytest.raises(UserError, match=f"the first token of a {name} sees none .* found 'first'"):
        built(spec.model_copy(update={"pooling": "first"}), tmp_path / "first", ["classify"])
    last = spec.model_copy(update={"pooling": "last"})
    model, tokenizer = built(last, tmp_path / "model", ["classify"])
    export(tmp_path / "model", "classify", tmp_path / "out")
    agree(tmp_path / "out", "classify", model, tokenizer)


def test_an_encoder_of_two_types_gets_none_from_a_tokenizer_without_them(tmp_path: Path) -> None:
    spec = family("roberta", tmp_path / "encoder").model_copy(update={"pooling": "pair"})
    config = transformers.RobertaConfig(**SIZES, vocab_size=320, type_vocab_size=2)
    with quiet():
        transformers.RobertaModel(config).save_pretrained(tmp_path / "encoder")
    model, tokenizer = built(spec, tmp_path / "model", ["classify"])
    export(tmp_path / "model", "classify", tmp_path / "out")
    agree(tmp_path / "out", "classify", model, tokenizer)


def small(tmp_path: Path, *tasks: str, **more: Any) -> MultiTaskModel:
    return built(SMALL.model_copy(update=more), tmp_path / "model", list(tasks))[0]


@pytest.mark.parametrize("task", ["classify", "multilabel", "tag"])
def test_label_names_travel_with_the_model(task: str, tmp_path: Path) -> None:
    plain = convert(small(tmp_path, task), task)
    names = dict(enumerate(KINDS[task].labels))  # type: ignore[attr-defined]
    assert plain.config.id2label == names
    assert plain.config.label2id == {name: number for number, name in names.items()}


def test_what_kind_of_problem_it_is_travels_too(tmp_path: Path) -> None:
    model = small(tmp_path, "classify", "regress", "multilabel")
    assert [convert(model, task).config.problem_type for task in model.kinds] == [
        "single_label_classification",
        "regression",
        "multi_label_classification",
    ]


LABELS = {
    "classify": {"labels": torch.tensor([0, 2])},
    "regress": {"labels": torch.tensor([1.5, 4.0])},
    "multilabel": {"labels": torch.tensor([[1.0, 0.0], [1.0, 1.0]])},
    "choose": {"labels": torch.tensor([1])},
    "tag": {"labels": torch.tensor([[0, 1, 2], [-100, 1, 1]])},
    "span": {"start_positions": torch.tensor([0, 1]), "end_positions": torch.tensor([1, 2])},
}


@pytest.mark.parametrize("task", LABELS)
def test_an_exported_model_can_be_trained_on(task: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    plain = convert(small(tmp_path, task, head="two_layer"), task)
    ids = torch.arange(6).view(2, 3)
    inputs = {"input_ids": ids[None] if task == "choose" else ids, **LABELS[task]}
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.01)
    losses = []
    for _ in range(5):
        loss = plain(**inputs).loss
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses == sorted(losses, reverse=True)
    assert all(parameter.grad is not None for parameter in plain.linear.parameters())


def test_the_last_token_is_the_last_that_is_no_padding() -> None:
    tokens = torch.arange(12.0).view(2, 3, 2)
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    found = exported.pool(tokens, mask, None, "last")
    assert torch.equal(found, torch.stack([tokens[0, 1], tokens[1, 2]]))


def test_a_model_of_marked_pieces_asks_for_them(tmp_path: Path) -> None:
    plain = convert(small(tmp_path, "wic"), "wic")
    ids = torch.ones(3, 4, dtype=torch.long)
    for marks in (None, torch.ones(3, 1, 2)):
        with pytest.raises(ValueError, match=r"marks: expected token spans of shape \(3, 2, 2\)"):
            plain(ids, marks=marks)


def test_the_tokenizer_cuts_where_ours_did(tmp_path: Path) -> None:
    spec = SMALL.model_copy(update={"max_length": 24})
    _, tokenizer = built(spec, tmp_path / "model", ["classify"])
    export(tmp_path / "model", "classify", tmp_path / "out")
    with quiet():
        loaded = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = loaded(LONG, LONG, truncation=True)["input_ids"]
    assert ids == tokenizer.encode([LONG], [LONG])[0].ids
    assert len(ids) == 24


def test_nothing_says_where_the_run_was(tmp_path: Path) -> None:
    built(family("bert", tmp_path / "encoder"), tmp_path / "model", ["classify", "tag"])
    for task in ("classify", "tag"):
        export(tmp_path / "model", task, tmp_path / task)
        texts = [path.read_text() for path in (tmp_path / task).glob("*.json")]
        assert texts
        assert not any(str(tmp_path) in text for text in texts)


def test_a_saved_copy_of_a_loaded_model_is_whole_again(tmp_path: Path) -> None:
    small(tmp_path, "classify")
    export(tmp_path / "model", "classify", tmp_path / "out")
    with quiet():
        auto = transformers.AutoModelForSequenceClassification
        auto.from_pretrained(tmp_path / "out").save_pretrained(tmp_path / "copy")
    written = {path.name for path in (tmp_path / "copy").iterdir()}
    assert written == {"config.json", "exported.py", "model.safetensors"}


class Ranked(Classify):
    """A user's own kind that is a classification too."""


def test_what_cannot_be_exported_is_said_in_one_sentence() -> None:
    bert, t5 = transformers.BertConfig(), transformers.T5Config()
    assert can_export(bert, KINDS["classify"]) is None
    assert can_export(bert, Ranked(("a", "b"))) is None
    assert "a t5 has a decoder too" in str(can_export(t5, KINDS["classify"]))
    assert "only text encoders of transformers" in str(can_export(None, KINDS["tag"]))

    class Own(Kind):
        width = 1

    Own.__abstractmethods__ = frozenset()
    assert "no class of models for a kind such as Own" in str(can_export(bert, Own()))


def test_pictures_own_heads_and_unknown_tasks_are_refused(tmp_path: Path) -> None:
    model = small(tmp_path, "wic")
    with pytest.raises(UserError, match="unknown task 'wix'; did you mean 'wic'"):
        convert(model, "wix")
    model.heads["wic"] = torch.nn.Identity()
    with pytest.raises(UserError, match="task wic: a head such as Identity cannot be exported"):
        convert(model, "wic")
    model = small(tmp_path, "classify")
    model.encoder.model.more = torch.nn.Linear(2, 2)
    with pytest.raises(UserError, match="layers of its own inside a bert cannot be exported"):
        convert(model, "classify")
    pictures = build(ModelSpec(encoder="cnn"), {"d": KINDS["classify"]}, None, seed=1)
    with pytest.raises(UserError, match="task d: only text encoders of transformers"):
        convert(pictures, "d")


def test_a_tokenizer_that_transformers_would_change_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path, "classify")
    other = word_pieces("BertTokenizer")
    monkeypatch.setattr("taskmix.models.export.export_tokenizer", lambda *_: other)
    with pytest.raises(UserError, match="task classify: transformers would read this model's"):
        export(tmp_path / "model", "classify", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small(tmp_path, "classify")

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", full)
    with pytest.raises(TaskmixError, match="No space left"):
        export(tmp_path / "model", "classify", tmp_path / "exports" / "classify")
    assert list((tmp_path / "exports").iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a folder to be made, found one"):
        export(tmp_path, "classify", tmp_path)
