"""Language models go the whole way: training, resume, predictions, plain transformers and peft."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from taskmix.config import RunConfig
from taskmix.errors import UserError
from taskmix.journal import Step, read
from taskmix.models.causal import CausalEncoder, write_on
from taskmix.models.encoders import quiet
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import save_tokenizer
from taskmix.offpolicy import Log
from taskmix.studies.analyse import analyse
from taskmix.studies.improve import read_policy
from taskmix.studies.plan import plan
from taskmix.tasks.batches import make_batch
from taskmix.tasks.tokenizer import Tokenizer
from taskmix.training import checkpoints
from taskmix.training.inference import load_run
from taskmix.training.loading import to_device
from taskmix.training.prepare import read_split
from taskmix.training.run import resume_run as resume
from taskmix.training.run import run

ANIMALS = {"cat": "meow", "dog": "woof", "cow": "moo", "hen": "cluck", "fox": "yip", "owl": "hoot"}
Everything = Callable[[Path], dict[str, Any]]


def lines(rows: list[dict[str, str]]) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions with one answer each, and texts, some longer than the model reads."""
    folder = tmp_path_factory.mktemp("data")
    asked = [
        {"q": f"{n} {animal} says", "a": sound}
        for n in ("one", "a", "the", "this")
        for animal, sound in ANIMALS.items()
    ]
    texts = [{"t": f"the {a} says {s}, " * n} for n in (1, 2, 6) for a, s in ANIMALS.items()]
    labelled = [{"t": f"the {a}", "y": str(len(a) + len(s) > 7)} for a, s in ANIMALS.items()]
    (folder / "asked.jsonl").write_text(lines(asked))
    (folder / "texts.jsonl").write_text(lines(texts))
    (folder / "labelled.jsonl").write_text(lines(labelled))
    return folder


def entry(data: Path, name: str, **more: str) -> dict[str, str]:
    file = str(data / f"{name}.jsonl")
    return {"name": name, "train": file, "dev": file, **more}


def config(data: Path, **more: Any) -> RunConfig:
    said: dict[str, Any] = {
        "tasks": [
            entry(data, "asked", kind="generate", prompt="q", answer="a"),
            entry(data, "texts", kind="generate", text="t"),
        ],
        "model": SMALL,
        "budget": {"steps": 8, "batch": 6},
        "optimizer": {"lr": 1e-2},
        "evaluate": {"every": 4},
    }
    return RunConfig(**(said | more))


SMALL = {
    "encoder": "small",
    "layers": 1,
    "width": 32,
    "attention_heads": 2,
    "vocabulary": 320,
    "max_length": 24,
}
LORA = {"rank": 4, "alpha": 8, "dropout": 0.1}


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learns the answers by heart."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    made = config(data, budget={"steps": 150, "batch": 12}, evaluate={"every": 150})
    run(made.model_copy(update={"model": ModelSpec(**SMALL, dropout=0.0)}), folder)
    return folder


def test_tasks_that_generate_have_no_head_of_their_own_to_analyse(trained: Path) -> None:
    assert analyse(trained).heads == {"asked": 0, "texts": 0}


def batch_of(folder: Path, task: str) -> Any:
    opened = load_run(folder)
    split = read_split(opened.task(task), "dev", opened.tokenizer).items
    chosen = {task: np.arange(len(split))}
    return opened, to_device(make_batch({task: split}, chosen), torch.device("cpu"))


@pytest.mark.parametrize("task", ["asked", "texts"])
def test_the_loss_is_that_of_plain_transformers(trained: Path, tmp_path: Path, task: str) -> None:
    opened, batch = batch_of(trained, task)
    opened.export(task, tmp_path / "out")
    with quiet():
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    labels = batch.parts[0].columns["labels"]
    with torch.inference_mode():
        ours = opened.task(task).kind.loss(opened.model(batch)[task], batch.parts[0].columns)
        theirs = plain(
            input_ids=batch.inputs["input_ids"],
            attention_mask=batch.inputs["attention_mask"],
            labels=labels,
        ).loss
    assert float(ours) == pytest.approx(float(theirs), abs=1e-5)


def test_the_dev_loss_is_the_mean_over_all_tokens(trained: Path) -> None:
    opened, batch = batch_of(trained, "texts")
    scores = opened.evaluate()["texts"]
    with torch.inference_mode():
        logits = opened.model(batch)["texts"].double().log_softmax(-1)
    total, count = 0.0, 0
    for row, labels in zip(logits, batch.parts[0].columns["labels"], strict=True):
        for place in range(1, len(labels)):
            if labels[place] >= 0:
                total -= float(row[place - 1, labels[place]])
                count += 1
    assert scores.loss == pytest.approx(total / count, rel=1e-5)
    assert scores.metrics["perplexity"] == pytest.approx(np.exp(total / count), rel=1e-5)
    assert scores.score == pytest.approx(np.exp(-total / count), rel=1e-5)


def test_answers_are_those_of_transformers_own_greedy_decoding(
    trained: Path, data: Path, tmp_path: Path
) -> None:
    opened = load_run(trained)
    opened.export("asked", tmp_path / "out")
    with quiet():
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
        words = AutoTokenizer.from_pretrained(tmp_path / "out")
    rows = [json.loads(line) for line in (data / "asked.jsonl").read_text().splitlines()]
    expected = []
    for row in rows:
        ids = words(row["q"], return_tensors="pt")
        said = plain.generate(**ids, max_new_tokens=8, do_sample=False)[
            0, ids["input_ids"].shape[1] :
        ]
        expected.append(words.decode(said, skip_special_tokens=True).strip())
    found = opened.predict("asked", data / "asked.jsonl")
    assert found == expected
    right = np.mean([text == row["a"] for text, row in zip(expected, rows, strict=True)])
    assert opened.evaluate()["asked"].metrics["exact_match"] == pytest.approx(right)
    assert right > 0.9  # it did learn
    assert opened.result.tasks["asked"].baseline < 0.1


def test_a_text_is_gone_on_with(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "more.jsonl").write_text(lines([{"t": "the cat says"}, {"t": "the owl"}]))
    [first, second] = load_run(trained).predict("texts", tmp_path / "more.jsonl")
    assert first.startswith("meow")
    assert second.startswith("says hoot")


def test_what_is_said_does_not_depend_on_the_company(trained: Path) -> None:
    opened = load_run(trained)
    words, encoder = opened.tokenizer, opened.model.encoder
    assert isinstance(encoder, CausalEncoder)
    prompts = [words.backend.encode(f"the {animal}").ids for animal in ANIMALS]
    most = [3, 1, 7, 0, 5, 6]
    together = write_on(encoder, prompts, most, words.end, 4)
    alone = [
        write_on(encoder, [p], [m], words.end, 1)[0] for p, m in zip(prompts, most, strict=True)
    ]
    assert together == alone
    assert [len(ids) <= limit for ids, limit in zip(together, most, strict=True)] == [True] * 6


@pytest.mark.parametrize("lora", [None, LORA], ids=["all", "lora"])
def test_a_stopped_run_goes_on_bit_for_bit(
    data: Path,
    lora: dict[str, Any] | None,
    everything: Everything,
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    made = config(data, model=SMALL | {"lora": lora}, checkpoint={"every": 3}, policy="exp3s")
    run(made, tmp_path / "alone")
    with pytest.raises(interruption):
        run(made, tmp_path / "stopped", watchers=[interrupter(step=5)])
    resume(tmp_path / "stopped")
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama with random weights and a tokenizer, as a folder of transformers."""
    folder = tmp_path_factory.mktemp("llama")
    texts = [f"the {animal} says {sound}" for animal, sound in ANIMALS.items()]
    words = Tokenizer.train_generator(texts, 300, 64)
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words.vocabulary,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
        )
    )
    with quiet():
        model.save_pretrained(folder)
        save_tokenizer(words, ModelSpec(encoder="small", causal=True, max_length=64), folder)
    return folder


def test_adapters_alone_are_trained_kept_and_loaded_by_plain_peft(
    data: Path, pretrained: Path, tmp_path: Path
) -> None:
    from peft import PeftModel

    model = {"encoder": str(pretrained), "lora": LORA, "max_length": 24}
    run(config(data, model=model), tmp_path / "run")
    kept = checkpoints.load(tmp_path / "run" / "checkpoints" / "step-8").model
    assert kept
    assert all("lora_" in name for name in kept)

    opened, batch = batch_of(tmp_path / "run", "asked")
    opened.export("asked", tmp_path / "adapters", adapters=True)
    opened.export("asked", tmp_path / "merged")
    inputs = {name: batch.inputs[name] for name in ("input_ids", "attention_mask")}
    with quiet():
        base = AutoModelForCausalLM.from_pretrained(pretrained).eval()
        merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged").eval()
    with torch.inference_mode():
        before = base(**inputs).logits
        adapted = PeftModel.from_pretrained(base, tmp_path / "adapters").eval()(**inputs).logits
        ours = opened.model(batch)["asked"]
    inside = inputs["attention_mask"].bool()
    assert (adapted - ours)[inside].abs().max() < 1e-5
    assert (merged(**inputs).logits - ours)[inside].abs().max() < 1e-4
    assert (before - ours)[inside].abs().max() > 1e-3  # they learned something


def test_adapters_of_a_model_from_nothing_come_with_it(data: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    run(config(data, model=SMALL | {"lora": True}), tmp_path / "run")
    opened, batch = batch_of(tmp_path / "run", "texts")
    opened.export("texts", tmp_path / "out", adapters=True)
    with quiet():
        base = AutoModelForCausalLM.from_pretrained(tmp_path / "out" / "base")
        plain = PeftModel.from_pretrained(base, tmp_path / "out").eval()
    inputs = {name: batch.inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        assert torch.allclose(plain(**inputs).logits, opened.model(batch)["texts"], atol=1e-5)


def test_a_pretrained_model_is_trained_whole_and_exported(
    data: Path, pretrained: Path, tmp_path: Path
) -> None:
    model = {"encoder": str(pretrained), "max_length": 24, "layers": 1}
    run(config(data, model=model), tmp_path / "run")
    opened, batch = batch_of(tmp_path / "run", "asked")
    opened.export("asked", tmp_path / "out")
    with quiet():
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    inputs = {name: batch.inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.inference_mode():
        assert torch.allclose(plain(**inputs).logits, opened.model(batch)["asked"], atol=1e-5)
    assert type(plain) is LlamaForCausalLM
    assert plain.config.num_hidden_layers == 1


def test_other_kinds_can_stand_beside(data: Path, tmp_path: Path) -> None:
    tasks = [
        entry(data, "asked", kind="generate", prompt="q", answer="a"),
        entry(data, "labelled", text="t", label="y"),
    ]
    run(config(data, tasks=tasks, model=SMALL | {"pooling": "last"}), tmp_path / "run")
    opened = load_run(tmp_path / "run")
    assert list(opened.model.heads) == ["labelled"]
    assert set(opened.predict("labelled", "dev")) <= {"True", "False"}


def test_accumulated_parts_of_a_batch_give_the_gradient_of_the_whole(
    data: Path, tmp_path: Path
) -> None:
    results = [
        run(
            config(
                data,
                model=SMALL | {"dropout": 0.0},
                budget={"steps": 3, "batch": 6, "accumulate": parts},
                optimizer={"name": "sgd", "lr": 0.1, "clip": 0},
            ),
            tmp_path / str(parts),
        )
        for parts in (1, 4)
    ]
    assert results[0].tasks["texts"].loss == pytest.approx(results[1].tasks["texts"].loss, abs=1e-6)


def test_a_model_that_cannot_write_is_refused(data: Path, tmp_path: Path) -> None:
    bert = BertModel(
        BertConfig(
            vocab_size=64,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=64,
        )
    )
    with quiet():
        bert.save_pretrained(tmp_path / "bert")
        words = Tokenizer.train(["the cat says meow"], 64, 32)
        save_tokenizer(words, ModelSpec(encoder="small"), tmp_path / "bert")
    model = {"encoder": str(tmp_path / "bert"), "max_length": 24}
    with pytest.raises(UserError, match="expected a causal language model"):
        run(config(data, model=model), tmp_path / "run")
    with pytest.raises(UserError, match="causal language model, found 'bilstm'"):
        run(config(data, model={"encoder": "bilstm"}), tmp_path / "run")
    with pytest.raises(UserError, match=r"model.conditional"):
        run(config(data, model={"encoder": "small", "conditional": True}), tmp_path / "run")
    tasks = [entry(data, "labelled", text="t", label="y")]
    with pytest.raises(UserError, match=r"model.lora: the encoder small has no such thing"):
        run(config(data, tasks=tasks, model=SMALL | {"lora": True}), tmp_path / "run")
    with pytest.raises(UserError, match=r"model.lora.targets"):
        run(config(data, model=SMALL | {"lora": {"targets": ["no_such"]}}), tmp_path / "run")


def test_a_plan_knows_how_long_texts_are(data: Path) -> None:
    planned = {each.task: each for each in plan(config(data)).tasks}
    assert planned["texts"].length > planned["asked"].length
    assert planned["texts"].rows == 18


@pytest.mark.parametrize(
    "policy",
    [
        {"name": "odm"},
        {"name": "ado", "every": 7, "ignored": 0},
        {"name": "aioli", "every": 9, "repeats": 1, "stretch": 2, "examples": 6},
        {"name": "doge", "every": 2, "examples": 6, "targets": ["asked"]},
    ],
    ids=lambda policy: policy["name"],
)
def test_policies_that_mix_the_data_of_language_models(
    data: Path, policy: dict[str, Any], tmp_path: Path
) -> None:
    budget = {"steps": 30, "tokens": 48}
    run(config(data, policy=policy, budget=budget, evaluate={"every": 30}), tmp_path / "run")
    steps = [each for each in read(tmp_path / "run" / "journal.jsonl") if isinstance(each, Step)]
    assert len({step.p for step in steps}) > 1  # it learned something
    tokens = {task: [s.tokens or 0 for s in steps if s.task == task] for task in ("asked", "texts")}
    for counts in tokens.values():
        assert 38 <= np.mean(counts) <= 58


def test_epochs_count_tokens_where_batches_do(data: Path) -> None:
    """A task whose epoch is long in tokens is discounted less than its examples would say."""
    budget = {"steps": 3000, "tokens": 48}
    [asked, texts] = plan(config(data, policy="aimed", budget=budget)).tasks
    weights = {
        each.task: math.log(each.share) + max(0.0, each.epochs - 1) / 15 for each in (asked, texts)
    }
    assert min(asked.epochs, texts.epochs) > 5
    assert weights["asked"] == pytest.approx(weights["texts"], rel=1e-3)


def test_a_journal_says_how_long_an_epoch_is_in_tokens(data: Path, tmp_path: Path) -> None:
    """So the run's policy, estimated from its log, has the shares that it had."""
    policy = {"name": "aimed", "repeats": 0.5}
    budget = {"steps": 40, "tokens": 48}
    run(config(data, policy=policy, budget=budget, evaluate={"every": 40}), tmp_path / "run")
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    info = Log.from_journal(tmp_path / "run").info
    assert info is not None
    _, again = read_policy(tmp_path / "policy.yaml", info)
    steps = [each for each in read(tmp_path / "run" / "journal.jsonl") if isinstance(each, Step)]
    found = {step.task: step.p for step in steps}
    assert found["asked"] < 0.49  # it was discounted
    assert found == dict(zip(again.tasks, again.probabilities().tolist(), strict=True))


def test_a_script_that_is_started_again_goes_on(data: Path, tmp_path: Path) -> None:
    made = config(data, model={name: SMALL[name] for name in ("layers", "max_length")})
    made = made.model_copy(update={"budget": made.budget.model_copy(update={"steps": 2})})
    first = run(made, tmp_path / "run", resume=True)
    assert run(made, tmp_path / "run", resume=True) == first
    with pytest.raises(UserError, match="another configuration"):
        run(made.model_copy(update={"seed": 2}), tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    "decides",
    [
        {"policy": {"name": "active", "every": 2, "passes": 2, "examples": 4}},
        {"policy": {"name": "thompson", "primary": "asked", "batches": 2}},
        {"selection": "mt_uncertainty"},
        {"weighting": {"name": "alpha_vil", "target": "asked"}},
    ],
    ids=["active", "thompson", "mt_uncertainty", "alpha_vil"],
)
def test_whoever_decides_can_read_texts(
    data: Path, decides: dict[str, Any], tmp_path: Path
) -> None:
    budget = {"steps": 4, "rounds": 1, "batch": 4}
    found = run(config(data, budget=budget, **decides), tmp_path / "run")
    assert set(found.tasks) == {"asked", "texts"}


def test_only_a_policy_counts_tokens(data: Path) -> None:
    with pytest.raises(UserError, match=r"budget.tokens: expected a policy"):
        config(data, budget={"tokens": 100}, selection="mt_uncertainty")
