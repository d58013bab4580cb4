"""A task-conditioned encoder from a run file: any decider, exact resume, tasks that come later."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import DistilBertConfig, DistilBertModel

from taskmix.config import RunConfig, dump, load
from taskmix.errors import UserError
from taskmix.files import hash_of
from taskmix.journal import Journal, Opening, SelectionStep, read
from taskmix.models.build import build_conditioned
from taskmix.models.conditioned import ConditionedTextEncoder
from taskmix.models.multitask import MultiTaskModel
from taskmix.selection import MTUncertainty
from taskmix.tasks.batches import FROZEN_STATES, make_batch
from taskmix.training import selecting
from taskmix.training.assembly import assemble
from taskmix.training.change import change_tasks
from taskmix.training.checkpoints import Snapshot
from taskmix.training.engine import Engine
from taskmix.training.folder import RUN, config_of
from taskmix.training.frozen_states import FrozenStates
from taskmix.training.inference import load_run
from taskmix.training.loading import to_device
from taskmix.training.optimizer import build_optimizer
from taskmix.training.run import resume_run as resume
from taskmix.training.run import run
from taskmix.training.selecting import SelectionDriver, task_weights
from taskmix.training.session import check_config, config_hash

WORDS = ["the", "cat", "dog", "sat", "ran", "mat", "tree", "red"]
LABELS = {
    "two": lambda text: "yes" if "cat" in text else "no",
    "three": lambda text: f"c{text.count('the') % 3}",
    "v1.0": lambda text: "up" if "red" in text else "down",
}
MODEL = {
    "encoder": "small",
    "layers": 4,
    "width": 32,
    "attention_heads": 2,
    "vocabulary": 90,
    "max_length": 16,
}
DECIDERS: dict[str, dict[str, Any]] = {
    "exp3s": {"policy": {"name": "exp3s", "eta": 0.1}},
    "mt_uncertainty": {"selection": {"name": "mt_uncertainty"}},
    "alpha_vil": {"weighting": {"name": "alpha_vil", "target": "two"}},
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tasks")
    entries = []
    for seed, (name, label) in enumerate(LABELS.items()):
        rng = np.random.default_rng(seed)
        files = {}
        for split, rows in (("train", 30), ("dev", 10)):
            texts = [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(rows)]
            lines = ["text,y", *(f"{text},{label(text)}" for text in texts)]
            files[split] = str(folder / f"{name}-{split}.csv")
            Path(files[split]).write_text("\n".join(lines) + "\n")
        entries.append({"name": name, "kind": "classify", "text": "text", "label": "y", **files})
    return entries


@pytest.fixture(scope="module")
def configured(tasks: list[dict[str, Any]]) -> Callable[..., RunConfig]:
    """Makes a short run; its arguments are keys of a run file."""

    def make(conditional: Any = True, **changes: Any) -> RunConfig:
        values: dict[str, Any] = {
            "tasks": tasks,
            "model": MODEL | {"conditional": conditional},
            "budget": {"steps": 6, "rounds": 2, "batch": 6},
            "optimizer": {"lr": 3e-3, "head_factor": 1, "conditional_factor": 3},
            "evaluate": {"every": 2},
            "device": "cpu",
        }
        if isinstance(changes.get("weighting"), dict):
            values["evaluate"] = {"every": 1}
        return RunConfig(**(values | changes))

    return make


def test_a_run_file_says_it_in_a_word_or_in_a_mapping(
    configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    short, long = configured(), configured({"parts": ["norm"], "freeze": 1, "rank": 4})
    assert short.model.conditional is not None
    assert short.model.conditional.freeze == 0.5
    assert long.model.conditional is not None
    assert long.model.conditional.parts == ("norm",)
    assert configured(conditional=False).model.conditional is None
    file = tmp_path / "run.yaml"
    file.write_text(dump(long))
    assert load(file) == long


@pytest.mark.parametrize("decider", DECIDERS, ids=str)
@pytest.mark.parametrize("parts", [None, ["norm", "bottleneck"]], ids=["all", "upper"])
def test_any_decider_trains_it_and_resumes_bit_for_bit(
    decider: str,
    parts: list[str] | None,
    configured: Callable[..., RunConfig],
    everything: Callable[[Path], dict[str, Any]],
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    config = configured({"parts": parts} if parts else True, **DECIDERS[decider])
    run(config, tmp_path / "alone", cache=tmp_path)
    step = 1 if decider == "alpha_vil" else 3
    watchers = [interrupter(evaluation=step + 1)]
    with pytest.raises(interruption):
        run(config, tmp_path / "stopped", cache=tmp_path, watchers=watchers)
    torch.manual_seed(5)
    resume(tmp_path / "stopped", cache=tmp_path)
    assert everything(tmp_path / "stopped") == everything(tmp_path / "alone")
    first = build_model(config, tmp_path)
    trained = load_file(tmp_path / "alone/model/conditional.safetensors")
    start = {n: t for n, t in first.encoder.model.state_dict().items() if n in trained}
    moved = [name for name, tensor in trained.items() if not torch.equal(tensor, start[name])]
    assert any("film.write" in name for name in moved), "the conditional modules learn"
    assert any("task_embeddings" in name for name in moved), "the task embeddings learn"


def build_model(config: RunConfig, cache: Path) -> MultiTaskModel:
    model = assemble(config, cache=cache).model
    assert isinstance(model, MultiTaskModel)
    return model


def test_a_killed_process_leaves_a_run_that_goes_on_bit_for_bit(
    configured: Callable[..., RunConfig],
    everything: Callable[[Path], dict[str, Any]],
    tmp_path: Path,
) -> None:
    config = configured(**DECIDERS["mt_uncertainty"], checkpoint={"every": 1})
    run(config, tmp_path / "alone", cache=tmp_path)
    (tmp_path / "run.yaml").write_text(dump(config))
    code = (
        "import os, sys; from pathlib import Path; from taskmix.config import load;"
        "from taskmix.training.run import run; from taskmix.training import checkpoints;"
        "save, left = checkpoints.save, [3];\n"
        "def dying(*args):\n"
        "    left[0] -= 1\n"
        "    if not left[0]: os.kill(os.getpid(), 9)\n"
        "    return save(*args)\n"
        "checkpoints.save = dying\n"
        "run(load(Path(sys.argv[1])), sys.argv[2], cache=Path(sys.argv[3]))"
    )
    arguments = [str(tmp_path / name) for name in ("run.yaml", "killed", "")]
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=os.environ, check=False)
    assert done.returncode == -9
    resume(tmp_path / "killed", cache=tmp_path)
    assert everything(tmp_path / "killed") == everything(tmp_path / "alone")


def test_a_saved_model_is_the_same_to_the_bit_and_holds_no_code(
    configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = configured()
    run(config, tmp_path / "run", cache=tmp_path)
    folder = tmp_path / "run/model"
    assert {path.suffix for path in folder.iterdir()} <= {".json", ".safetensors"}
    trained = load_run(tmp_path / "run")
    again = load_run(tmp_path / "run")
    assert isinstance(trained.model, MultiTaskModel)
    assert isinstance(trained.model.encoder, ConditionedTextEncoder)
    kept = load_file(folder / "heads.safetensors")
    assert kept.keys() == trained.model.heads.state_dict().keys()
    for name, tensor in trained.model.state_dict().items():
        assert torch.equal(tensor, again.model.state_dict()[name])
    scores = json.loads((tmp_path / "run/scores.json").read_text())["tasks"]
    for task, found in trained.evaluate(cache=tmp_path).items():
        assert found.loss == scores[task]["loss"]


def test_a_change_of_tasks_adds_a_row_and_leaves_the_others(
    tasks: list[dict[str, Any]],
    configured: Callable[..., RunConfig],
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
) -> None:
    config = configured(tasks=tasks[:2], policy="random")
    folder = tmp_path / "run"
    with pytest.raises(interruption):
        run(config, folder, cache=tmp_path, watchers=[interrupter(step=3)])
    before = load_file(folder / "checkpoints/step-2/model.safetensors")
    change_tasks(folder, add=[tasks[2]], drop=["two"], cache=tmp_path)
    after = load_file(folder / "checkpoints/step-2/model.safetensors")
    rows = {name for name in after if "task_embeddings" in name}
    stem = "encoder.model.task_embeddings.rows.z_"
    assert rows == {stem + "three", stem + "v1%2E0"}
    shared = before.keys() & after.keys()
    assert stem + "three" in shared
    assert all(torch.equal(before[name], after[name]) for name in shared)
    assert list(resume(folder, cache=tmp_path).tasks) == ["three", "v1.0"]


@pytest.fixture
def driver_of(configured: Callable[..., RunConfig], tmp_path: Path) -> Any:
    """Makes a driver of MT-Uncertainty, without a run around it."""
    made: list[SelectionDriver] = []

    def make(conditional: Any = True, loss: str = "examples", **selector: Any) -> SelectionDriver:
        config = configured(conditional, loss=loss)
        parts = assemble(config, cache=tmp_path)
        names = [entry.task.name for entry in parts.prepared]
        journal = Journal.create(
            tmp_path / f"journal-{len(made)}.jsonl", Opening("test", names, {}, 1, {}, {})
        )
        decider = MTUncertainty(names, 6, **selector)
        made.append(SelectionDriver(Engine(config, parts.prepared, parts.model), decider, journal))
        return made[-1]

    yield make
    for driver in made:
        driver.journal.close()
        driver.engine.loader.close()


UPPER = {"parts": ["norm", "bottleneck"], "rank": 4}


def shake(model: MultiTaskModel) -> None:
    """Move the conditional modules away from their start, at which they do nothing."""
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.encoder.fresh():
            parameter.add_(0.3 * torch.randn_like(parameter))


@pytest.mark.parametrize("options", [{}, {"score": "bald", "passes": 2}], ids=["entropy", "bald"])
def test_training_from_states_of_scoring_is_training_from_the_text(
    driver_of: Callable[..., SelectionDriver], options: dict[str, Any]
) -> None:
    kept, computed = driver_of(UPPER, **options), driver_of(UPPER, **options)
    runs = []
    for driver in (kept, computed):
        shake(driver.engine.model)
    [chosen], [again] = kept.select(1), computed.select(1)
    assert len(kept.engine.model.frozen) == 2
    assert FROZEN_STATES in kept.engine.loader.of(chosen.items, chosen.states).inputs
    for driver, step in ((kept, chosen), (computed, replace(again, states=None))):
        driver._waiting = [step]
        driver.advance()
        model = driver.engine.model
        runs.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert runs[0].keys() == runs[1].keys()
    for name, gradient in runs[0].items():
        torch.testing.assert_close(gradient, runs[1][name], atol=1e-6, rtol=1e-3, msg=name)


def test_fixed_layers_run_once_for_scoring_and_training(
    driver_of: Callable[..., SelectionDriver],
) -> None:
    driver = driver_of(UPPER, score="bald", passes=3)
    calls: list[int] = []
    layers = driver.engine.model.encoder.model.encoder.encoder.layer
    for number in (1, 2):
        own = layers[number].attention.self
        own.register_forward_hook(lambda *_, n=number: calls.append(n))
    driver.advance()
    assert calls.count(1) == 3, "once for each task's candidates"
    assert calls.count(2) == 3 * (1 + 3) + 1, "without dropout, with three masks, and in training"


def test_data_that_are_gone_through_often_pass_the_fixed_layers_once(
    configured: Callable[..., RunConfig],
    everything: Callable[[Path], dict[str, Any]],
    interrupter: Callable[..., Any],
    interruption: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = configured(
        UPPER, **DECIDERS["mt_uncertainty"], budget={"steps": 12, "batch": 6}, evaluate={"every": 6}
    )
    run(config, tmp_path / "kept", cache=tmp_path)
    assert len(list((tmp_path / "frozen").iterdir())) == 3, "each task's training data"
    with pytest.raises(interruption):
        run(config, tmp_path / "stopped", cache=tmp_path, watchers=[interrupter(step=8)])
    shutil.rmtree(tmp_path / "frozen")
    resume(tmp_path / "stopped", cache=tmp_path)
    assert everything(tmp_path / "stopped") == everything(tmp_path / "kept")
    monkeypatch.setattr(selecting, "MIN_EPOCHS", 1000)
    run(config, tmp_path / "computed", cache=tmp_path)
    ours, theirs = (
        [r for r in read(tmp_path / name / "journal.jsonl") if isinstance(r, SelectionStep)]
        for name in ("kept", "computed")
    )
    assert len(ours) == len(theirs) == 12
    for one, other in zip(ours, theirs, strict=True):
        assert one.chosen == other.chosen
        assert one.losses == pytest.approx(other.losses, rel=1e-3)


def test_nothing_is_reused_where_modules_train_below(
    driver_of: Callable[..., SelectionDriver],
) -> None:
    driver = driver_of(True)
    assert len(driver.engine.model.frozen) == 0
    [chosen] = driver.select(1)
    assert chosen.states is None


@pytest.mark.parametrize("frozen", [False, True], ids=["", "all frozen"])
def test_kept_states_of_a_split_depend_on_the_task_where_they_must(
    frozen: bool, configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    parts = assemble(configured(UPPER), cache=tmp_path)
    model = parts.model
    assert isinstance(model, MultiTaskModel)
    shake(model)
    if frozen:
        model.encoder.requires_grad_(requires_grad=False)
    model.frozen = model.encoder.frozen()
    assert len(model.frozen) == (4 if frozen else 2)
    assert model.frozen.by_task == frozen
    split = parts.prepared[0].train
    cpu = torch.device("cpu")
    states = FrozenStates(model, batch=8, device=cpu, cache=tmp_path)
    kept = {task: states.add(task, split) for task in ("two", "three")}
    same = np.array_equal(kept["two"].ragged[FROZEN_STATES], kept["three"].ragged[FROZEN_STATES])
    assert same != frozen
    model.eval()
    for task in kept:
        batches = [
            to_device(make_batch({task: items}, {task: np.arange(5)}), cpu)
            for items in (split, kept[task])
        ]
        with torch.no_grad():
            computed, read = (model.encode(batch).tokens for batch in batches)
        mask = batches[0].inputs["attention_mask"].bool()
        torch.testing.assert_close(computed[mask], read[mask], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [("examples", (4 / 6, 2 / 6)), ("mean", (0.5, 0.5)), ("sum", (1.0, 1.0))],
)
def test_the_loss_of_a_mixed_batch(
    loss: str, expected: tuple[float, float], driver_of: Callable[..., SelectionDriver]
) -> None:
    driver = driver_of(True, loss)
    chosen = {"two": np.arange(4), "three": np.arange(2)}
    batch = driver.engine.loader.of(chosen)
    assert task_weights(batch, loss) == pytest.approx(
        dict(zip(("two", "three"), expected, strict=True))
    )
    model = driver.engine.model.eval()
    driver.engine.mean_losses([batch], task_weights(batch, loss))
    name = "encoder.model.conditions.0.attention.film.write.bias"
    found = dict(model.named_parameters())[name].grad
    model.zero_grad()
    total = torch.zeros(())
    for weight, task in zip(expected, chosen, strict=True):
        alone = driver.engine.loader.of({task: chosen[task]})
        total = total + weight * driver.engine.losses(alone)[task]
    total.backward()
    torch.testing.assert_close(found, dict(model.named_parameters())[name].grad)


def test_new_modules_learn_at_a_rate_of_their_own(
    configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = configured()
    model = build_model(config, tmp_path)
    optimizer = build_optimizer(model, config.optimizer)
    names = {id(p): name for name, p in model.named_parameters()}
    rates = {names[id(p)]: group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert set(rates) == {name for name, p in model.named_parameters() if p.requires_grad}
    for name, rate in rates.items():
        new = name.startswith("encoder.model.") and not name.startswith("encoder.model.encoder.")
        assert rate == pytest.approx(9e-3 if new else 3e-3), name


BAD = [
    ({"model": {"conditional": {"parts": ["nrom"]}}}, "model.conditional: parts: unknown part"),
    ({"model": {"conditional": {"rnak": 3}}}, "model.conditional: unknown option 'rnak'"),
    ({"model": {"conditional": 3}}, "model.conditional: .*found 3"),
    ({"model": {"conditional": True, "freeze": 2}}, "model.freeze: found 2 beside"),
    ({"model": {"conditional": True, "encoder": "cnn"}}, "model.conditional: .*found 'cnn'"),
    ({"model": {"conditional": True, "encoder": "my:Own"}}, "model.conditional: .*found 'my:Own'"),
    ({"model": {"adapt": {"model": "x", "rwo": "y"}}}, "model.adapt: unknown key 'rwo'"),
    ({"loss": "mode"}, "loss: .*found 'mode'"),
]


@pytest.mark.parametrize(("change", "sentence"), BAD)
def test_what_a_run_file_cannot_say_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        RunConfig(tasks=["a"], **change)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("conditional", "sentence"),
    [
        ({"blocks": 17}, "model.conditional: blocks: expected 1 to 16, one a token, found 17"),
        ({"positions": 17}, "model.conditional: positions: found 17, but the encoder reads 16"),
        ({"freeze": 9}, "model.conditional: freeze: found 9, but the encoder has 4 layers"),
    ],
)
def test_what_does_not_fit_the_encoder_is_one_sentence(
    conditional: dict[str, Any],
    sentence: str,
    configured: Callable[..., RunConfig],
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match=sentence):
        run(configured(conditional), tmp_path / "run", cache=tmp_path)
    assert not (tmp_path / "run").exists()


def test_an_unsupported_family_is_one_sentence(
    configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = configured()
    tokenizer = assemble(config, cache=tmp_path).tokenizer
    assert tokenizer is not None
    DistilBertModel(
        DistilBertConfig(vocab_size=tokenizer.vocabulary, dim=16, n_heads=2, n_layers=4)
    ).save_pretrained(tmp_path / "distilbert")
    with pytest.raises(UserError, match=r"model\.conditional: .*found DistilBertModel"):
        build_conditioned(config.model, tokenizer, str(tmp_path / "distilbert"), ["two"], 1)


def test_a_model_of_another_version_is_one_sentence(
    configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    run(configured(budget={"steps": 1, "batch": 4}), tmp_path / "run", cache=tmp_path)
    about = tmp_path / "run/model/conditional.json"
    values = json.loads(about.read_text())
    about.write_text(json.dumps(values | {"format": 7}))
    with pytest.raises(UserError, match="found format 7"):
        load_run(tmp_path / "run")
    about.write_text(json.dumps(values | {"tasks": values["tasks"][::-1]}))
    with pytest.raises(UserError, match="expected the tasks two, three"):
        load_run(tmp_path / "run")


def test_a_task_id_outside_the_table_is_one_sentence(
    configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    model = build_model(configured(), tmp_path)
    ids = torch.ones(2, 4, dtype=torch.long)
    inputs = {"input_ids": ids, "attention_mask": ids, "task_ids": torch.tensor([0, 3])}
    with pytest.raises(UserError, match="task_ids: expected ids from 0 to 2, found 3"):
        model.encoder(inputs)


def test_a_conditioned_run_of_version_0_1_is_refused_because_its_dropout_was_another(
    tmp_path: Path,
) -> None:
    asked = {"tasks": ["digits/left"], "model": {"encoder": "minilm", "conditional": True}}
    config = RunConfig(**asked)  # type: ignore[arg-type]
    written = dump(config).replace("  frozen_dropout: false\n", "")
    (tmp_path / RUN).write_text(written)
    old = Snapshot(1, {}, {}, {"config": hash_of(written)})
    with pytest.raises(UserError, match=r"begun by taskmix 0\.1, with dropout in frozen"):
        check_config(tmp_path, config_of(tmp_path), old)
    new = Snapshot(1, {}, {}, {"config": config_hash(config)})
    check_config(tmp_path, config_of(tmp_path), new)
