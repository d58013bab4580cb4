import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import taskmix
from taskmix.errors import UserError
from taskmix.models import saving
from taskmix.models.build import build
from taskmix.models.encoders import quiet
from taskmix.models.multitask import MultiTaskModel
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import Corpus, tokenizer_for
from taskmix.tasks.batches import ready_batch
from taskmix.tasks.kinds import Choose, Classify, Kind, MultiLabel, Regress, Span, Tag
from taskmix.tasks.tokenizer import Tokenizer

SENTENCES = ["the cat sat on a mat", "who saw one small brown dog?", "far, far away"] * 4
TEXTS = Corpus("sentences", lambda: SENTENCES)
KINDS: dict[str, Kind] = {
    "glue/rte": Classify(("no", "yes")),
    "v1.0": Regress(2.5, 1.5),
    "emotions": MultiLabel(("joy", "fear")),
    "wnut": Tag(("O", "B-x"), frequent="O"),
    "squad": Span(stride=8),
    "copa": Choose(),
}
SMALL = ModelSpec(encoder="small", width=32, attention_heads=2, vocabulary=100, max_length=24)
MINILM = ModelSpec(encoder="minilm", layers=1)


def built(spec: ModelSpec, seed: int = 1) -> tuple[MultiTaskModel, Tokenizer]:
    tokenizer = tokenizer_for(spec, TEXTS)
    return build(spec, KINDS, tokenizer, seed).eval(), tokenizer


def columns(tokenizer: Tokenizer, texts: list[str]) -> dict[str, torch.Tensor]:
    encodings = tokenizer.encode(texts, ["the mat"] * len(texts))
    longest = max(len(encoding.ids) for encoding in encodings)
    table = torch.zeros(3, len(texts), longest, dtype=torch.long)
    for row, encoding in enumerate(encodings):
        table[:, row, : len(encoding.ids)] = torch.tensor(
            [encoding.ids, encoding.attention_mask, encoding.type_ids]
        )
    return dict(zip(("input_ids", "attention_mask", "token_type_ids"), table, strict=True))


@pytest.mark.parametrize(
    "spec",
    [
        SMALL,
        SMALL.model_copy(update={"pooling": "first", "head": "two_layer", "head_width": 16}),
        MINILM,
    ],
    ids=["small", "two-layer", "minilm"],
)
def test_what_was_saved_gives_the_same_logits(spec: ModelSpec, tmp_path: Path) -> None:
    model, tokenizer = built(spec)
    saving.save(model, tokenizer, spec, tmp_path)
    again, words = saving.load(tmp_path)
    assert words is not None
    assert words.max_length == spec.max_length
    assert words.fingerprint() == tokenizer.fingerprint()
    assert again.kinds == KINDS
    inputs = columns(words, SENTENCES[:3])
    with torch.inference_mode():
        for task in KINDS:
            batch = ready_batch(task, np.arange(3), inputs, {})
            found, expected = again(batch)[task], model(batch)[task]
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("encoder", ["cnn", "lenet"])
def test_a_saved_model_of_pictures_gives_the_same_logits(encoder: str, tmp_path: Path) -> None:
    kinds: dict[str, Kind] = {"digits/left": Classify(tuple("0123456789"))}
    spec = ModelSpec(encoder=encoder)
    model = build(spec, kinds, None, seed=1).eval()
    saving.save(model, None, spec, tmp_path)
    again, tokenizer = saving.load(tmp_path)
    assert tokenizer is None
    pixels = torch.randint(0, 255, (4, 28, 28), generator=torch.Generator().manual_seed(1))
    inputs = {"pixels": pixels.to(torch.uint8)}
    with torch.inference_mode():
        batch = ready_batch("digits/left", np.arange(4), inputs, {})
        found, expected = again(batch)["digits/left"], model(batch)["digits/left"]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("spec", [SMALL, MINILM], ids=["small", "minilm"])
def test_the_encoder_opens_with_plain_transformers(spec: ModelSpec, tmp_path: Path) -> None:
    model, tokenizer = built(spec)
    saving.save(model, tokenizer, spec, tmp_path)
    with quiet():
        plain = AutoModel.from_pretrained(tmp_path).eval()
        words = AutoTokenizer.from_pretrained(tmp_path)
    theirs = words(SENTENCES[:3], ["the mat"] * 3, padding=True, return_tensors="pt")
    ours = columns(tokenizer, SENTENCES[:3])
    assert torch.equal(theirs["input_ids"], ours["input_ids"])
    with torch.inference_mode():
        tokens = model.encoder(ours).tokens
        torch.testing.assert_close(plain(**ours).last_hidden_state, tokens, rtol=0, atol=1e-6)


def test_no_pickle_is_written(tmp_path: Path) -> None:
    model, tokenizer = built(SMALL)
    saving.save(model, tokenizer, SMALL, tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} <= {".json", ".safetensors"}


def test_the_first_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(5)
    one, _ = built(SMALL)
    before = torch.get_rng_state()
    torch.manual_seed(6)
    two, other = built(SMALL)[0], built(SMALL, seed=2)[0]
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, two.state_dict()[name])
    assert not torch.equal(one.heads["copa"].linear.weight, other.heads["copa"].linear.weight)
    torch.manual_seed(5)
    built(SMALL)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_vocabulary_is_learned_once(tmp_path: Path) -> None:
    first = tokenizer_for(SMALL, TEXTS, tmp_path)

    def again() -> list[str]:
        raise AssertionError("the texts were read again")

    second = tokenizer_for(SMALL, Corpus("sentences", again), tmp_path)
    assert first.fingerprint() == second.fingerprint()
    tokenizer_for(SMALL.model_copy(update={"vocabulary": 64}), TEXTS, tmp_path)
    tokenizer_for(SMALL, Corpus("other sentences", TEXTS.read), tmp_path)
    assert len(list((tmp_path / "vocabularies").iterdir())) == 3


def test_two_who_learn_the_same_vocabulary_at_once_both_get_it(tmp_path: Path) -> None:
    def slowly() -> list[str]:
        tokenizer_for(SMALL, TEXTS, tmp_path)
        return SENTENCES

    late = tokenizer_for(SMALL, Corpus("sentences", slowly), tmp_path)
    assert late.fingerprint() == tokenizer_for(SMALL, TEXTS, tmp_path).fingerprint()
    assert len(list((tmp_path / "vocabularies").iterdir())) == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"encoder": "no/such/folder"}, "model.encoder: found no .* 'no/such/folder'"),
        ({"encoder": "cnn"}, "'cnn' reads images, but the tasks are texts"),
        ({"encoder": "minilm", "layers": 7}, "model.layers: found 7, but the encoder has 6"),
        ({"encoder": "minilm", "max_length": 600}, "max_length: found 600, .* reads 512 tokens"),
        ({"encoder": "minilm", "layers": 2, "freeze": 3}, "freeze: found 3, .* has 2 layers"),
        ({"encoder": "small", "width": 30, "attention_heads": 4}, "width: expected a multiple of"),
    ],
)
def test_a_model_that_cannot_be_is_one_sentence(change: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        built(ModelSpec(**{"vocabulary": 100, **change}))  # type: ignore[arg-type]


def test_a_text_encoder_for_pictures_is_one_sentence() -> None:
    with pytest.raises(UserError, match="'minilm' reads texts, but the tasks are images"):
        build(MINILM, {"a": KINDS["glue/rte"]}, None, seed=1)


def test_a_folder_without_a_model_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected a taskmix model, found no taskmix\.json"):
        saving.load(tmp_path)


def test_a_model_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    model, tokenizer = built(SMALL)
    saving.save(model, tokenizer, SMALL, tmp_path)
    about = json.loads((tmp_path / saving.ABOUT).read_text())
    (tmp_path / saving.ABOUT).write_text(json.dumps(about | {"format": saving.FORMAT + 1}))
    with pytest.raises(UserError, match=f"found format {saving.FORMAT + 1}"):
        saving.load(tmp_path)


def test_a_task_may_have_the_name_of_a_method(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,y\n" + "a good one,1\na bad one,0\n" * 4)
    names = ["train", "keys", "forward", "training", "_modules", "%74rain"]
    columns = {"train": str(path), "dev": str(path), "text": "t", "label": "y"}
    size = {"layers": 1, "width": 8, "attention_heads": 1, "vocabulary": 64, "max_length": 8}
    config = {
        "tasks": [{"name": name, **columns} for name in names],
        "model": {"encoder": "small", **size},
        "budget": {"steps": 6, "batch": 2},
    }
    scores = taskmix.run(config, tmp_path / "run")
    assert list(scores.tasks) == names
    loaded = taskmix.load(tmp_path / "run")
    assert {loaded.predict(name, path)[0] for name in names} <= {"0", "1"}
