"""The Trainer of transformers."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from datasets import Dataset
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    TrainingArguments,
)

import taskmix
from resuming import (  # noqa: F401 (the tests are collected here)
    Case,
    TestResuming,
    Train,
    Trained,
    check,
    logged,
    stop_after,
)
from taskmix.errors import UserError
from taskmix.integrations.transformers import MixtureMixin, MixtureTrainer
from taskmix.journal import Evaluation, Step, read, read_only
from taskmix.mixing import Mixer
from taskmix.offpolicy.curves import ScoredRun

NAMES = ["easy", "hard", "noise"]


def rows(size: int, period: int, seed: int) -> list[dict[str, list[int]]]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(6, 14, (size,), generator=generator).tolist()
    starts = torch.randint(0, 20, (size,), generator=generator).tolist()
    return [
        {"input_ids": [(start + i) % period + 1 for i in range(length)]}
        for start, length in zip(starts, lengths, strict=True)
    ]


def collate(items: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    longest = max(len(item["input_ids"]) for item in items)
    ids = torch.tensor([i["input_ids"] + [0] * (longest - len(i["input_ids"])) for i in items])
    mask = (ids != 0).long()
    labels = ids.masked_fill(mask == 0, -100)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def data() -> dict[str, Any]:
    made = {"easy": rows(80, 5, 1), "hard": rows(40, 17, 2), "noise": rows(3, 19, 3)}
    return {name: Dataset.from_list(each) for name, each in made.items()}


def language_model(dropout: float = 0.1) -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"vocab_size": 32, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 32}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, attention_dropout=dropout))


def arguments(folder: Path, **options: Any) -> TrainingArguments:
    settings = {
        "max_steps": 8,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "save_steps": 3,
        "logging_steps": 2,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 5,
    }
    return TrainingArguments(str(folder), **(settings | options))


def trainer(
    folder: Path, kind: type[MixtureMixin] = MixtureTrainer, **options: Any
) -> MixtureTrainer:
    own = {"decide", "lag", "lengths", "collators", "eval_dataset", "callbacks", "compute_metrics"}
    own |= {"score"}
    more = {name: options.pop(name) for name in own & set(options)}
    model, sets = (
        options.pop("model", None) or language_model(),
        options.pop("sets", None) or data(),
    )
    policy = options.pop("policy", None) or taskmix.Exp3S(list(sets), eta=0.1)
    made = kind(
        model=model,
        args=arguments(folder, **options),
        train_dataset=sets,
        policy=policy,
        data_collator=collate,
        journal=folder / "journal.jsonl",
        **more,
    )
    for printer in (transformers.PrinterCallback, transformers.ProgressCallback):
        made.remove_callback(printer)
    return made  # type: ignore[return-value]


def training(**options: Any) -> Train:
    def train(case: Case) -> Trained:
        workers = {"dataloader_num_workers": case.workers}
        ahead = {"dataloader_prefetch_factor": 2} if case.workers else {}
        made = trainer(
            case.folder,
            gradient_accumulation_steps=case.accumulate,
            callbacks=[stop_after(case)],
            **({"decide": case.decide, "policy": case.policy(NAMES)} | workers | ahead | options),
        )
        made.train(resume_from_checkpoint=case.checkpoint)
        return Trained(made.mixer, made.model, logged(made))

    return train


@pytest.fixture
def host() -> Train:
    return training()


@pytest.mark.parametrize(
    "options",
    [
        {"lag": 4},
        {"ignore_data_skip": True},
        {"restore_callback_states_from_checkpoint": True},
        {"train_sampling_strategy": "group_by_length"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_resumed_training_with_other_settings_does_too(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    check(training(**options), tmp_path, 0, 2)


def steps(folder: Path) -> list[Step]:
    return [each for each in read(folder / "journal.jsonl") if isinstance(each, Step)]


class Watched(MixtureTrainer):
    """Keeps the true mean loss of each batch, and of each step."""

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.model.training and torch.is_grad_enabled():
            with torch.no_grad():
                logits = model(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
                ).logits[:, :-1]
                labels = inputs["labels"][:, 1:]
                losses = nn.functional.cross_entropy(
                    logits.flatten(0, 1), labels.flatten(), reduction="sum"
                )
            self.seen.append((self.task, float(losses), int((labels != -100).sum())))
        return super().compute_loss(model, inputs, *args, **kwargs)


@pytest.mark.parametrize("decide", ["step", "batch"])
def test_a_loss_is_that_of_its_own_batches_however_the_trainer_scaled_it(
    decide: str, tmp_path: Path
) -> None:
    made = trainer(
        tmp_path,
        Watched,
        decide=decide,
        gradient_accumulation_steps=2,
        model=language_model(dropout=0),
    )
    made.seen = []  # type: ignore[attr-defined]
    made.train()
    micro = made.seen  # type: ignore[attr-defined]
    size = 2 if decide == "step" else 1
    groups = [micro[i : i + size] for i in range(0, len(micro), size)]
    found = steps(tmp_path)
    assert [step.task for step in found] == [group[0][0] for group in groups]
    for step, group in zip(found, groups, strict=True):
        expected = sum(loss for _, loss, _ in group) / sum(items for _, _, items in group)
        assert step.loss == pytest.approx(expected, rel=1e-5)


class Regressor(nn.Module):
    """A model that takes no number of items, so that the Trainer divides by the accumulation."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        loss = ((self.layer(x).squeeze(-1) - labels) ** 2).mean()
        self.seen.append(loss.item())
        return {"loss": loss}


def test_a_loss_that_was_divided_by_the_accumulation_is_multiplied(tmp_path: Path) -> None:
    points = [{"x": [1.0 * i, 1.0], "labels": 2.0 * i} for i in range(12)]
    model = Regressor()
    made = MixtureTrainer(
        model,
        arguments(tmp_path, gradient_accumulation_steps=2, max_steps=3),
        train_dataset={"a": points, "b": points},
        policy=taskmix.Random(["a", "b"]),
        decide="batch",
        journal=tmp_path / "journal.jsonl",
    )
    made.train()
    assert [step.loss for step in steps(tmp_path)] == pytest.approx(model.seen)


def test_a_mean_loss_that_ignores_the_number_of_items_is_left_as_it_is(tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 9, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    config = BertConfig(**sizes, num_attention_heads=2, num_labels=1, problem_type="regression")
    model = BertForSequenceClassification(config)
    seen: list[float] = []
    model.register_forward_hook(lambda _, __, outputs: seen.append(outputs.loss.item()))
    points = [{"input_ids": [i % 9, 1, 2], "labels": float(i)} for i in range(12)]
    MixtureTrainer(
        model,
        arguments(tmp_path, gradient_accumulation_steps=2, max_steps=3),
        train_dataset={"a": points, "b": points},
        policy=taskmix.Random(["a", "b"]),
        decide="batch",
        journal=tmp_path / "journal.jsonl",
    ).train()
    assert [step.loss for step in steps(tmp_path)] == pytest.approx(seen)


def test_a_gain_is_the_fall_of_the_loss_on_the_same_batches_under_the_same_dropout(
    tmp_path: Path,
) -> None:
    # With a learning rate of 0 nothing falls; other dropout masks would show.
    trainer(tmp_path, learning_rate=0.0, gradient_accumulation_steps=2).train()
    assert [step.gain for step in steps(tmp_path)] == pytest.approx([0.0] * 8, abs=1e-6)


def test_measuring_gains_changes_nothing_in_the_training(tmp_path: Path) -> None:
    class Blind(taskmix.Random):
        needs = frozenset({taskmix.Gain()})

    weights = []
    for kind in (taskmix.Random, Blind):
        made = trainer(tmp_path / kind.__name__, policy=kind(NAMES))
        made.train()
        weights.append(torch.cat([p.detach().flatten() for p in made.model.parameters()]))
    assert torch.equal(*weights)
    assert steps(tmp_path / "Random")[0].gain is None
    assert steps(tmp_path / "Blind")[0].gain is not None


def test_one_decision_a_step_or_one_a_batch(tmp_path: Path) -> None:
    for decide, draws in (("step", 8), ("batch", 16)):
        made = trainer(tmp_path / decide, decide=decide, gradient_accumulation_steps=2)
        made.train()
        assert len(steps(tmp_path / decide)) == draws


def test_the_logs_have_the_loss_of_each_set_and_its_share_since_the_previous_log(
    tmp_path: Path,
) -> None:
    made = trainer(tmp_path, logging_steps=4)
    made.train()
    all_logs = [entry for entry in made.state.log_history if "loss" in entry]
    assert len(all_logs) == 2
    for logs, found in zip(all_logs, (steps(tmp_path)[:4], steps(tmp_path)[4:]), strict=True):
        examples = sum(step.examples for step in found)
        for name in NAMES:
            own = [step for step in found if step.task == name]
            assert logs[f"share_{name}"] == pytest.approx(sum(s.examples for s in own) / examples)
            if own:
                assert logs[f"loss_{name}"] == pytest.approx(sum(s.loss for s in own) / len(own))
        assert sum(logs[f"share_{name}"] for name in NAMES) == pytest.approx(1)


def test_the_best_model_is_chosen_by_the_mean_or_the_worst_or_one_of_the_eval_sets(
    tmp_path: Path,
) -> None:
    sets = {name: each.select(range(3)) for name, each in data().items()}
    combine = {
        "mean_loss": lambda losses: sum(losses) / 3,
        "worst_loss": max,
        "easy_loss": lambda losses: losses[0],
    }
    for metric, combined in combine.items():
        made = trainer(
            tmp_path / metric,
            eval_dataset=sets,
            eval_strategy="steps",
            eval_steps=3,
            metric_for_best_model=metric,
            load_best_model_at_end=True,
        )
        made.train()
        history: dict[int, dict[str, float]] = {}
        for entry in made.state.log_history:
            history.setdefault(entry["step"], {}).update(entry)
        values = [
            combined([history[step][f"eval_{name}_loss"] for name in NAMES]) for step in (3, 6, 8)
        ]
        assert made.state.best_metric == pytest.approx(min(values))
        assert f"eval_{metric}" in history[6]


def test_a_training_stops_early_by_the_mean_over_the_eval_sets(tmp_path: Path) -> None:
    made = trainer(
        tmp_path,
        eval_dataset={name: each.select(range(3)) for name, each in data().items()},
        eval_strategy="steps",
        eval_steps=3,
        metric_for_best_model="mean_loss",
        load_best_model_at_end=True,
        # Nothing is ever better by that much than the first.
        callbacks=[transformers.EarlyStoppingCallback(1, early_stopping_threshold=100.0)],
    )
    made.train()
    assert made.state.global_step == 6


def test_the_worst_of_a_score_is_the_lowest(tmp_path: Path) -> None:
    made = trainer(tmp_path, metric_for_best_model="mean_wer", greater_is_better=False)
    metrics = {f"eval_{n}_{m}": v for m in ("f1", "wer") for n, v in zip("ab", (1, 3), strict=True)}
    assert made._combined(metrics, ["a", "b"], "eval") == {
        "eval_mean_f1": 2,
        "eval_worst_f1": 1,
        "eval_mean_wer": 2,
        "eval_worst_wer": 3,
    }


def test_evaluations_are_in_the_journal_and_the_report_compares_policies_by_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for policy, seed in (("random", 1), ("random", 2), ("task_size", 1), ("task_size", 2)):
        made = trainer(
            tmp_path / f"{policy}-{seed}",
            policy=policy,
            seed=seed,
            eval_dataset=data(),
            eval_strategy="steps",
            eval_steps=4,
        )
        made.train()
        made.evaluate()  # not of the training
    records = list(read(tmp_path / "random-1" / "journal.jsonl"))
    evaluations = [record for record in records if isinstance(record, Evaluation)]
    assert [evaluation.step for evaluation in evaluations] == [4, 8]
    logs = [entry for entry in made.state.log_history if "eval_easy_loss" in entry]
    assert records[0].measure == "loss"
    assert made.mixer.policy.spec == {"name": "task_size"}
    last = read_only(tmp_path / "task_size-2" / "journal.jsonl", Evaluation)
    assert last[-1].losses["easy"] == logs[1]["eval_easy_loss"]
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "journal.jsonl").write_text("{\n")
    page = taskmix.write_report(tmp_path).read_text()
    assert "No verdict yet" not in page
    [warning] = [record.message for record in caplog.records if "broken" in record.message]
    assert warning.endswith("; left out")
    assert "dev loss" in taskmix.write_report(tmp_path / "random-1").read_text()
    assert ScoredRun.from_journal(tmp_path / "random-1").schedule.steps == 8


def test_strategies_by_epoch_are_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer(tmp_path, max_steps=-1, num_train_epochs=2, save_strategy="epoch")
    assert [record.message for record in caplog.records if "epoch" in record.message] == [
        'save_strategy="epoch" acts only at the end of a mixture; save_strategy="steps" with'
        " save_steps=31 acts each time that as many examples were drawn as all training sets have"
    ]


def test_epochs_are_counted_over_all_sets_together(tmp_path: Path) -> None:
    made = trainer(tmp_path, max_steps=-1, num_train_epochs=0.5, save_strategy="no")
    made.train()
    assert len(steps(tmp_path)) == round(0.5 * (80 + 40 + 3) / 4)


def test_a_trainer_of_ones_own_mixes_too(tmp_path: Path) -> None:
    class Own(transformers.Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append((self.task, inputs["input_ids"].shape[0]))
            return super().compute_loss(model, inputs, *args, **kwargs)

    class Mixture(MixtureMixin, Own):
        pass

    seen: list[tuple[str, int]] = []
    trainer(tmp_path, Mixture, policy=taskmix.Random(NAMES)).train()
    assert seen == [(step.task, step.examples) for step in steps(tmp_path)]


def test_an_evaluation_names_the_set_of_each_batch(tmp_path: Path) -> None:
    class Watched(MixtureTrainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if not model.training:
                seen.append((self.task, inputs["input_ids"].shape[0]))
            return super().compute_loss(model, inputs, *args, **kwargs)

    seen: list[tuple[str, int]] = []
    sets = data()
    policy = {"name": "fixed", "probabilities": {"easy": 1.0, "hard": 0.0, "noise": 0.0}}
    made = trainer(
        tmp_path,
        Watched,
        policy=policy,
        eval_dataset=sets,
        per_device_eval_batch_size=40,
        compute_metrics=first_token,
        score="accuracy",
    )
    expected = [("easy", 40), ("easy", 40), ("hard", 40), ("noise", 3)]
    made.train()
    assert seen == [("easy", 2)]  # to check the metric
    seen.clear()
    made.evaluate()
    assert seen == expected
    made.evaluate(sets, metric_key_prefix="test")
    assert seen == 2 * expected
    made._score("accuracy", "hard", 2)
    assert seen[-1] == ("hard", 2)


def test_without_datasets_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"pip install 'taskmix\[hf\]'"):
        importlib.reload(taskmix.integrations.transformers)


def test_a_checkpoint_from_before_the_mixture_can_be_gone_on_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = transformers.Trainer(
        language_model(), arguments(tmp_path), train_dataset=data()["easy"], data_collator=collate
    )
    before.remove_callback(transformers.PrinterCallback)
    before.train()
    made = trainer(tmp_path)
    made.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert "checkpoint-3 holds no state of the mixture" in caplog.text
    assert [step.step for step in steps(tmp_path)] == [1, 2, 3, 4, 5]


def first_token(prediction: Any) -> dict[str, float]:
    """Return how often the second token is predicted from the first."""
    predicted = prediction.predictions[:, 0].argmax(-1)
    return {"accuracy": float((predicted == prediction.label_ids[:, 1]).mean())}


def test_policies_learn_from_the_scores_of_eval_sets(tmp_path: Path) -> None:
    made = trainer(
        tmp_path,
        policy=taskmix.Thompson(NAMES, primary="hard", batches=1),
        eval_dataset=data(),
        compute_metrics=first_token,
        score="accuracy",
    )
    made.train()
    scores = [step.score for step in steps(tmp_path)]
    assert None not in scores
    assert scores[-1] == made.evaluate()["eval_hard_accuracy"]
    assert made._score("accuracy", "hard", None) == scores[-1]


def test_a_misspelt_score_is_said_before_the_first_step(tmp_path: Path) -> None:
    made = trainer(
        tmp_path,
        policy=taskmix.Thompson(NAMES, primary="hard"),
        eval_dataset=data(),
        compute_metrics=first_token,
        score="acuracy",
    )
    with pytest.raises(UserError, match=r"unknown metric 'acuracy'; did you mean 'accuracy'"):
        made.train()
    assert made.mixer.policy.draws == 0


def test_measuring_scores_changes_nothing_in_the_training(tmp_path: Path) -> None:
    class Scored(taskmix.Random):
        needs = frozenset({taskmix.DevScore("hard", examples=10)})

    trained = []
    for kind in (taskmix.Random, Scored):
        made = trainer(
            tmp_path / kind.__name__,
            policy=kind(NAMES),
            eval_dataset=data(),
            compute_metrics=first_token,
            score="accuracy",
        )
        made.train()
        trained.append((made.model, logged(made)))
    assert trained[0][1] == trained[1][1]
    for ours, theirs in zip(*(model.parameters() for model, _ in trained), strict=True):
        assert torch.equal(ours, theirs)
    assert all(step.score is not None for step in steps(tmp_path / "Scored"))


def test_the_state_of_a_checkpoint_is_json(tmp_path: Path) -> None:
    trainer(tmp_path).train()
    state = json.loads((tmp_path / "checkpoint-3" / "trainer_state.json").read_text())
    kept = state["stateful_callbacks"]["MixtureCallback"]["attributes"]["mixture"]
    assert kept["mixer"]["settings"]["tasks"] == NAMES


def test_what_is_wrong_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^train_dataset: expected a mapping of names"):
        MixtureTrainer(train_dataset=data()["easy"], policy=taskmix.Random(["easy"]))
    with pytest.raises(UserError, match=r"^train_dataset: expected .*; missing: b$"):
        MixtureTrainer(train_dataset={"a": [1]}, policy=taskmix.Random(["a", "b"]))
    with pytest.raises(UserError, match=r"^train_dataset: expected at least one data set"):
        MixtureTrainer(train_dataset={})
    with pytest.raises(UserError, match=r"^train_dataset, a: expected examples, found none"):
        MixtureTrainer(train_dataset={"a": []})
    with pytest.raises(UserError, match=r"^collators: .*missing: hard, noise; unknown: h"):
        trainer(tmp_path, collators={"easy": collate, "hart": collate})
    with pytest.raises(UserError, match=r"^decide: expected step or batch, found 'epoch'$"):
        trainer(tmp_path, decide="epoch")
    with pytest.raises(UserError, match=r"^journal: expected a file, such as .*, found the folder"):
        Mixer(taskmix.Random(["a"]), {"a": 1}, 1, seed=1, journal=tmp_path)
    with pytest.raises(UserError, match=r"^policy thompson: expected one that .* needs DevScore"):
        trainer(tmp_path, policy=taskmix.Thompson(NAMES, primary="easy"))
    with pytest.raises(UserError, match=r"^eval_dataset: expected another name than mean"):
        trainer(tmp_path, eval_dataset={"mean": data()["easy"]})
    with pytest.raises(UserError, match=r"^auto_find_batch_size: expected False"):
        trainer(tmp_path, auto_find_batch_size=True)
    with pytest.raises(UserError, match=r"^accelerator_config, split_batches: expected False with"):
        trainer(tmp_path, accelerator_config={"split_batches": True})
    with pytest.raises(UserError, match=r"^score: expected eval sets by name and compute_metrics"):
        trainer(tmp_path, score="accuracy")
    points = {name: [{"x": 1}] for name in NAMES}
    with pytest.raises(UserError, match=r"^train_dataset, easy: expected a column length or input"):
        trainer(tmp_path, sets=points, train_sampling_strategy="group_by_length")
