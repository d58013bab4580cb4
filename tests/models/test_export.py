from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    BertTokenizerFast,
    DistilBertConfig,
    DistilBertModel,
    ElectraConfig,
    ElectraModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
)

from bursar.errors import UserError
from bursar.models import store
from bursar.models.encoders import packaged_minilm, quiet
from bursar.models.export import convert, export
from bursar.models.multitask import MultiTaskModel
from bursar.models.spec import ModelSpec
from bursar.tasks.kinds import Choose, Classify, Kind, MultiLabel, Regress, Span, Tag

KINDS: dict[str, Kind] = {
    "classify": Classify(("no", "yes", "maybe")),
    "regress": Regress(mean=2.5, scale=1.5),
    "multilabel": MultiLabel(("joy", "fear")),
    "choose": Choose(),
    "tag": Tag(("O", "B-x", "I-x"), usual="O"),
    "span": Span(),
}
AUTO = {
    "tag": AutoModelForTokenClassification,
    "span": AutoModelForQuestionAnswering,
    "choose": AutoModelForMultipleChoice,
}
TEXTS = ["The cat sat on a mat.", "Who?", "A small brown dog ran far, far away from home " * 5]
POOLED = ["classify", "regress", "multilabel", "choose"]


def build(spec: ModelSpec, kinds: dict[str, Kind] = KINDS) -> MultiTaskModel:
    tokenizer = store.tokenizer_for(spec, store.Texts("texts", lambda: TEXTS))
    model = store.build(spec, kinds, tokenizer, seed=1).eval()
    for head in model.heads.values():  # as if it had been trained: logits of all sizes
        torch.nn.init.normal_(head.linear.bias, std=2.0, generator=torch.Generator().manual_seed(1))
    return model


def logits_of(plain: PreTrainedModel, kind: Kind, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """What plain transformers gives, in our form."""
    if isinstance(kind, Choose):
        return plain(**{name: column[None] for name, column in inputs.items()}).logits.T
    output = plain(**inputs)
    if isinstance(kind, Span):
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    return output.logits


def expected(model: MultiTaskModel, task: str, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    kind, logits = model.kinds[task], model(task, inputs)
    if isinstance(kind, Regress):
        return torch.tensor(kind.predictions(logits, {}))[:, None].float()
    return logits


def read(folder: str | Path) -> dict[str, torch.Tensor]:
    with quiet():
        words = AutoTokenizer.from_pretrained(folder)
    return dict(
        words(
            TEXTS,
            ["on a mat"] * 3,
            padding=True,
            truncation=True,
            max_length=32,
            return_tensors="pt",
        )
    )


@torch.inference_mode()
def agree(model: MultiTaskModel, task: str, plain: PreTrainedModel, inputs: Any) -> None:
    ours = expected(model, task, inputs)
    theirs = logits_of(plain.eval(), model.kinds[task], inputs)
    torch.testing.assert_close(theirs, ours, rtol=1e-6, atol=1e-6)


SMALL = ModelSpec(
    encoder="small", width=48, attention_heads=4, vocabulary=120, max_length=32, head_width=24
)
MINILM = ModelSpec(encoder="minilm", layers=2, max_length=32)
CASES = [
    *(
        (SMALL.model_copy(update={"pooling": pooling}), task)
        for pooling in ("mean", "first")
        for task in KINDS
    ),
    *((SMALL.model_copy(update={"head": "two_layer"}), task) for task in POOLED),
    (MINILM, "classify"),
    (MINILM, "span"),
]


@pytest.mark.parametrize(
    ("spec", "task"),
    CASES,
    ids=[f"{spec.encoder}-{spec.pooling}-{spec.head}-{task}" for spec, task in CASES],
)
def test_saved_loaded_and_exported_a_task_gives_the_same_logits_in_plain_transformers(
    spec: ModelSpec, task: str, tmp_path: Path
) -> None:
    kinds = {task: KINDS[task]}
    model = build(spec, kinds)
    tokenizer = store.tokenizer_for(spec, store.Texts("texts", lambda: TEXTS))
    store.save(model, tokenizer, spec, tmp_path / "model")
    loaded, _ = store.load(tmp_path / "model")
    export(tmp_path / "model", task, tmp_path / "out")
    with quiet():
        auto = AUTO.get(task, AutoModelForSequenceClassification)
        plain = auto.from_pretrained(tmp_path / "out")
    inputs = read(tmp_path / "out")
    agree(model, task, plain, inputs)
    agree(loaded, task, plain, inputs)


@pytest.mark.parametrize("task", ["classify", "multilabel", "tag"])
def test_label_names_travel_with_the_model(task: str, tmp_path: Path) -> None:
    kind = KINDS[task]
    plain = convert(build(ModelSpec(encoder="small", width=32, vocabulary=64)), task)
    names = dict(enumerate(kind.labels))  # type: ignore[attr-defined]
    assert plain.config.id2label == names
    assert plain.config.label2id == {name: number for number, name in names.items()}


def test_what_kind_of_problem_it_is_travels_too() -> None:
    model = build(ModelSpec(encoder="small", width=32, vocabulary=64))
    problems = [convert(model, task).config.problem_type for task in POOLED[:3]]
    assert problems == [
        "single_label_classification",
        "regression",
        "multi_label_classification",
    ]


def test_the_tokenizer_cuts_where_ours_did(tmp_path: Path) -> None:
    spec = SMALL.model_copy(update={"max_length": 24})
    tokenizer = store.tokenizer_for(spec, store.Texts("texts", lambda: TEXTS))
    store.save(build(spec), tokenizer, spec, tmp_path / "model")
    export(tmp_path / "model", "classify", tmp_path / "out")
    with quiet():
        words = AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = words(TEXTS[2], TEXTS[2], truncation=True)["input_ids"]
    assert ids == tokenizer.encode([TEXTS[2]], [TEXTS[2]])[0].ids
    assert len(ids) == 24


def test_logits_of_any_size_are_the_same() -> None:
    model = build(ModelSpec(encoder="minilm", layers=1, max_length=32))
    inputs = read(packaged_minilm())
    for scale in (1e-4, 1.0, 1e3):
        with torch.no_grad():
            model.heads["classify"].linear.weight.normal_(
                std=scale, generator=torch.Generator().manual_seed(1)
            )
            model.heads["classify"].linear.bias.zero_()
        plain = convert(model, "classify")
        with torch.inference_mode():
            ours, theirs = model("classify", inputs), plain(**inputs).logits
        largest = max(1.0, float(ours.abs().max()))
        assert float((ours - theirs).abs().max()) < 1e-6 * largest


def test_bfloat16_keeps_its_own_precision() -> None:
    model = build(ModelSpec(encoder="minilm", layers=1, max_length=32))
    inputs = read(packaged_minilm())
    plain = convert(model, "classify").bfloat16()
    with torch.inference_mode():
        difference = plain(**inputs).logits.float() - model("classify", inputs)
    assert float(difference.abs().max()) < 0.05


def tiny(config: type, model: type, folder: Path, **more: Any) -> ModelSpec:
    """A folder with a tiny encoder of another architecture."""
    sizes = {"vocab_size": 30522, "max_position_embeddings": 64, **more}
    torch.manual_seed(1)
    model(config(**sizes)).save_pretrained(folder)
    BertTokenizerFast.from_pretrained(packaged_minilm()).save_pretrained(folder)
    return ModelSpec(encoder=str(folder), max_length=32)


BERT_LIKE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


@pytest.mark.parametrize("task", KINDS)
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_roberta_can_be_exported_too(task: str, pooling: str, tmp_path: Path) -> None:
    with quiet():
        spec = tiny(RobertaConfig, RobertaModel, tmp_path, **BERT_LIKE, pad_token_id=0)
        model = build(spec.model_copy(update={"pooling": pooling}))
    inputs = read(packaged_minilm())
    inputs.pop("token_type_ids")
    agree(model, task, convert(model, task), inputs)


def test_what_cannot_be_the_same_is_refused(tmp_path: Path) -> None:
    with quiet():
        electra = build(tiny(ElectraConfig, ElectraModel, tmp_path / "e", **BERT_LIKE))
        distil = build(
            tiny(
                DistilBertConfig,
                DistilBertModel,
                tmp_path / "d",
                dim=32,
                n_layers=2,
                n_heads=2,
                hidden_dim=64,
            )
        )
    with pytest.raises(UserError, match="no way is known to give our logits to a Electra"):
        convert(electra, "classify")
    with pytest.raises(UserError, match="can be exported with `pooling: first`"):
        convert(distil, "classify")
    assert isinstance(convert(distil, "tag"), PreTrainedModel)
    assert isinstance(convert(electra, "span"), PreTrainedModel)


def test_a_two_layer_head_on_single_tokens_is_refused() -> None:
    spec = ModelSpec(encoder="small", width=32, vocabulary=64, head="two_layer", head_width=8)
    with pytest.raises(UserError, match="task tag: transformers has no two-layer head on single"):
        convert(build(spec), "tag")
    first = build(spec.model_copy(update={"pooling": "first"}))
    with pytest.raises(UserError, match="task classify: transformers has no two-layer head"):
        convert(first, "classify")


def test_a_head_wider_than_the_encoder_is_refused() -> None:
    spec = ModelSpec(encoder="small", width=32, vocabulary=64, head="two_layer", head_width=30)
    with pytest.raises(UserError, match="its head needs 37 places, but the encoder is 32 wide"):
        convert(build(spec), "classify")


def test_a_head_that_compares_two_texts_is_refused() -> None:
    spec = ModelSpec(encoder="small", width=32, vocabulary=64, pooling="pair")
    with pytest.raises(UserError, match="task classify: no head of transformers compares two"):
        convert(build(spec), "classify")
    convert(build(spec), "tag")


def test_marks_pictures_and_unknown_tasks_are_refused() -> None:
    spec = ModelSpec(encoder="small", width=32, vocabulary=64)
    marked = build(spec, {"wic": Classify(("no", "yes"), marks=2)})
    with pytest.raises(UserError, match="task wic: no head of transformers reads marked pieces"):
        convert(marked, "wic")
    with pytest.raises(UserError, match="unknown task 'wix'; did you mean 'wic'"):
        convert(marked, "wix")
    pictures = store.build(ModelSpec(encoder="cnn"), {"d": KINDS["classify"]}, None, seed=1)
    with pytest.raises(UserError, match="task d: expected a text model, found one of images"):
        convert(pictures, "d")


def test_a_full_disk_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = store.tokenizer_for(SMALL, store.Texts("texts", lambda: TEXTS))
    store.save(build(SMALL), tokenizer, SMALL, tmp_path / "model")

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("transformers.PreTrainedTokenizerBase.save_pretrained", full)
    with pytest.raises(OSError, match="No space left"):
        export(tmp_path / "model", "classify", tmp_path / "exports" / "classify")
    assert list((tmp_path / "exports").iterdir()) == []


def test_nothing_is_written_over(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="expected a folder to be made, found one"):
        export(tmp_path, "classify", tmp_path)
