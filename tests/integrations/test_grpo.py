"""The GRPOTrainer and RLOOTrainer of TRL."""

import math
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer
from typer.testing import CliRunner

import resuming
import taskmix
from taskmix.cli import app
from taskmix.errors import UserError
from taskmix.integrations.grpo import MixtureGRPOMixin, MixtureGRPOTrainer
from taskmix.journal import Step, read
from taskmix.mixing import PromptLearnability
from taskmix.policies import Outcome, Policy

SIZES = {"even": 40, "odd": 33, "small": 17}
STEPS = 6


def tokenizer() -> PreTrainedTokenizerFast:
    characters = ["<pad>", "<eos>", *"0123456789+="]
    made = Tokenizer(models.WordLevel({c: i for i, c in enumerate(characters)}, unk_token="<eos>"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", padding_side="left"
    )


def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"vocab_size": 14, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    tokens = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads, **tokens))


def data(sizes: dict[str, int] = SIZES) -> dict[str, Dataset]:
    return {
        name: Dataset.from_dict(
            {
                "prompt": [f"{place}{i % 10}+{i // 10}=" for i in range(size)],
                "parity": [place % 2] * size,
            }
        )
        for place, (name, size) in enumerate(sizes.items())
    }


def parity(completions: list[str], parity: list[int], **_: Any) -> list[float]:
    """The share of digits with the wanted parity."""
    digits = [[int(c) for c in text if c.isdigit()] for text in completions]
    return [
        sum(d % 2 == wanted for d in found) / max(1, len(found))
        for found, wanted in zip(digits, parity, strict=True)
    ]


class Follow(Policy):
    """Draws by the rewards so far: a draw shows whether all outcomes before it are equal."""

    name = "follow"
    needs = frozenset({taskmix.Rewards()})
    _saved = ("_sums",)

    def __init__(self, tasks: Any) -> None:
        super().__init__(tasks)
        self._sums = [1.0] * len(self.tasks)

    def probabilities(self) -> Any:
        weights = torch.tensor(self._sums, dtype=torch.float64).numpy()
        return weights / weights.sum()

    def tell(self, outcome: Outcome) -> None:
        if outcome.reward is not None and math.isfinite(outcome.reward):
            self._sums[outcome.draw.index] += min(abs(outcome.reward), 1.0)


def settings(folder: Path, **options: Any) -> dict[str, Any]:
    given = {
        "output_dir": str(folder),
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "num_generations": 2,
        "max_completion_length": 5,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "save_steps": 1,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "seed": 5,
    }
    return given | options


def quiet(made: Any) -> Any:
    made.remove_callback(transformers.PrinterCallback)
    return made


def trainer(folder: Path, **options: Any) -> MixtureGRPOTrainer:
    own = {"decide", "lag", "callbacks", "reward_funcs", "policy", "train_dataset", "eval_dataset"}
    own |= {"prompts"}
    more = {name: options.pop(name) for name in own & set(options)}
    sets = more.pop("train_dataset", None) or data()
    made = MixtureGRPOTrainer(
        model(),
        more.pop("reward_funcs", parity),
        GRPOConfig(**settings(folder, **options)),
        train_dataset=sets,
        processing_class=tokenizer(),
        policy=more.pop("policy", None) or Follow(list(sets)),
        journal=folder / "journal.jsonl",
        **more,
    )
    return quiet(made)


def losses(made: Any) -> list[Any]:
    names = ("loss", "reward", "grad_norm", "entropy", "reward_even", "mute_odd", "share_small")
    return [
        {name: entry[name] for name in names if name in entry}
        for entry in made.state.log_history
        if "loss" in entry
    ]


def steps(folder: Path) -> list[Step]:
    return [each for each in read(folder / "journal.jsonl") if isinstance(each, Step)]


class Kill(transformers.TrainerCallback):  # type: ignore[misc]
    """Ends its process behind the update of a step, before anything of the step is saved."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._step:
            os.kill(os.getpid(), signal.SIGKILL)


class Stop(Kill):
    """Ends the training behind a step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = state.global_step == self._step


def latest(folder: Path) -> str | None:
    saved = [each for each in folder.glob("checkpoint-*") if (each / "trainer_state.json").exists()]
    return str(max(saved, key=lambda each: int(each.name.split("-")[1]))) if saved else None


def killed_in_every_step(folder: Path, **options: Any) -> None:
    """Train in processes that are killed in step 1, 2, 3 and so on, each resumed from the last."""
    context = multiprocessing.get_context("fork")

    def train(step: int) -> None:
        torch.set_num_threads(1)
        made = trainer(folder, callbacks=[Kill(step)], **options)
        made.train(resume_from_checkpoint=latest(folder))

    for step in range(1, options.get("max_steps", STEPS) + 1):
        process = context.Process(target=train, args=(step,))
        process.start()
        process.join(120)
        assert process.exitcode == -signal.SIGKILL
        if step == 1:  # nothing was saved, so this journal belongs to no checkpoint
            (folder / "journal.jsonl").unlink()


REUSE = {
    f"{per_generation}-{iterations}-{accumulate}": {
        "steps_per_generation": per_generation,
        "num_iterations": iterations,
        "gradient_accumulation_steps": accumulate,
    }
    for per_generation in (1, 4)
    for iterations in (1, 2)
    for accumulate in (1, 2)
}


@pytest.mark.parametrize(
    "options",
    [
        *REUSE.values(),
        {"decide": "prompt", "max_steps": 10, **REUSE["4-2-1"]},
        {"prompts": "learnability", **REUSE["1-1-2"]},
        {"prompts": "learnability", "decide": "prompt", "lag": 5, **REUSE["1-2-1"]},
    ],
    ids=[*REUSE, "prompt", "learnable prompts", "learnable prompts with a lag"],
)
def test_a_training_that_is_killed_in_every_step_equals_one_that_is_not(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    whole = trainer(tmp_path / "whole", **options)
    whole.train()
    killed_in_every_step(tmp_path / "parts", **options)
    parts = trainer(tmp_path / "parts", **options)
    parts.train(resume_from_checkpoint=latest(tmp_path / "parts"))
    assert losses(parts) == losses(whole)
    assert parts.mixer.policy.state_dict() == whole.mixer.policy.state_dict()
    assert parts.mixer.state_dict()["orders"] == whole.mixer.state_dict()["orders"]
    journals = [(tmp_path / name / "journal.jsonl").read_bytes() for name in ("whole", "parts")]
    assert journals[0] == journals[1]
    for (name, ours), theirs in zip(
        whole.model.named_parameters(), parts.model.parameters(), strict=True
    ):
        assert torch.equal(ours, theirs), name


def test_a_checkpoint_within_a_generation_has_its_completions(tmp_path: Path) -> None:
    trainer(tmp_path, **REUSE["4-1-1"]).train()
    inside = [(tmp_path / f"checkpoint-{n}/rollouts-0.safetensors").exists() for n in (1, 3, 4)]
    assert inside == [True, True, False]
    (tmp_path / "checkpoint-3/rollouts-0.safetensors").unlink()
    with pytest.raises(UserError, match="expected the completions that are in use"):
        trainer(tmp_path, **REUSE["4-1-1"]).train(resume_from_checkpoint=tmp_path / "checkpoint-3")


def test_a_resumed_training_generates_when_the_one_before_would_have(tmp_path: Path) -> None:
    """TRL alone generates at once, because its buffer of completions is empty after a resume."""
    generated: list[int] = []

    def reward(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        generated.append(trainer_state.global_step)
        return [float(len(text)) for text in completions]

    def alone(folder: Path, callbacks: Any) -> GRPOTrainer:
        args = GRPOConfig(**settings(folder, **REUSE["4-1-1"]))
        rows = data()["even"]
        return GRPOTrainer(
            model(),
            reward,
            args,
            train_dataset=rows,
            processing_class=tokenizer(),
            callbacks=callbacks,
        )

    def mixed(folder: Path, callbacks: Any) -> GRPOTrainer:
        return trainer(folder, reward_funcs=reward, callbacks=callbacks, **REUSE["4-1-1"])

    for make, expected in ((alone, [0, 2]), (mixed, [0, 4])):
        folder = tmp_path / make.__name__
        generated.clear()
        quiet(make(folder, [Stop(2)])).train()
        quiet(make(folder, [])).train(resume_from_checkpoint=str(folder / "checkpoint-2"))
        assert generated == expected


def test_a_checkpoint_of_another_schedule_is_refused(tmp_path: Path) -> None:
    trainer(tmp_path, **REUSE["4-1-1"]).train()
    other = trainer(tmp_path, **REUSE["1-1-1"])
    with pytest.raises(UserError, match="state, "):
        other.train(resume_from_checkpoint=tmp_path / "checkpoint-4")


def test_a_journal_without_a_checkpoint_is_kept_under_another_name(tmp_path: Path) -> None:
    first = trainer(tmp_path, max_steps=1, save_strategy="no")
    first.train()
    before = (tmp_path / "journal.jsonl").read_bytes()
    trainer(tmp_path, max_steps=1).train()
    assert (tmp_path / "journal.jsonl.old-1").read_bytes() == before
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    with pytest.raises(UserError, match="expected no journal before the first draw"):
        trainer(tmp_path, max_steps=1).train()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"policy": "random"}, "state, policy: checkpoint: follow; this training: random; resume"),
        (
            {"decide": "prompt"},
            "state, decide: checkpoint: generation; this training: prompt; resume",
        ),
    ],
)
def test_a_checkpoint_of_another_policy_is_refused_by_its_name(
    tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    trainer(tmp_path, max_steps=1).train()
    with pytest.raises(UserError, match=sentence):
        trainer(tmp_path, **options).train(resume_from_checkpoint=tmp_path / "checkpoint-1")


class Reseed(transformers.TrainerCallback):  # type: ignore[misc]
    """The loader of TRL alone takes its seed from the generator that completions are sampled by."""

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        torch.manual_seed(state.global_step)


@pytest.mark.parametrize("options", REUSE.values(), ids=REUSE)
def test_one_environment_equals_the_trainer_alone(tmp_path: Path, options: dict[str, Any]) -> None:
    options = {**options, "shuffle_dataset": False, "save_strategy": "no"}
    rows = data()["even"]
    mixed = trainer(
        tmp_path / "mixed", train_dataset={"even": rows}, policy=taskmix.Random(["even"]), **options
    )
    alone = quiet(
        GRPOTrainer(
            model(),
            parity,
            GRPOConfig(**settings(tmp_path / "alone", **options)),
            train_dataset=rows,
            processing_class=tokenizer(),
        )
    )
    for made in (mixed, alone):
        made.add_callback(Reseed())
        made.train()
    for ours, theirs in zip(losses(mixed), losses(alone), strict=True):
        for name in ("loss", "grad_norm", "reward", "entropy"):
            assert ours.get(name, 0.0) == pytest.approx(theirs.get(name, 0.0), abs=1e-6)
    for (name, ours), theirs in zip(
        mixed.model.named_parameters(), alone.model.parameters(), strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-6), name


@pytest.mark.parametrize("decide", ["generation", "prompt"])
def test_a_draw_has_prompts_of_one_environment(tmp_path: Path, decide: str) -> None:
    seen: list[tuple[str, str]] = []

    def watch(prompts: list[str], environment: list[str], **_: Any) -> list[float]:
        seen.extend(zip(prompts, environment, strict=True))
        return [float(i % 3) for i in range(len(prompts))]

    made = trainer(tmp_path, reward_funcs=watch, decide=decide, **REUSE["4-2-1"])
    made.train()
    assert all(prompt[0] == str(list(SIZES).index(name)) for prompt, name in seen)
    groups = [seen[i : i + 2] for i in range(0, len(seen), 2)]
    assert all(first == second for first, second in groups)
    batches = [{name for _, name in seen[i : i + 16]} for i in range(0, len(seen), 16)]
    assert len(batches) == 1  # 6 steps are less than the 8 uses of a generation batch
    assert (len(batches[0]) == 1) == (decide == "generation")
    told = steps(tmp_path)
    assert len(told) == (1 if decide == "generation" else 8)
    assert sum(step.examples or 0 for step in told) == 16


def test_the_signals_are_those_of_the_rewards(tmp_path: Path) -> None:
    given: list[list[float]] = []

    def reward(completions: list[str], **_: Any) -> list[float]:
        # The first group is mute, the second is not.
        given.append([1.0, 1.0, 0.0, float(len(given) + 1)])
        return given[-1]

    made = trainer(tmp_path, reward_funcs=reward)
    made.train()
    for step, rewards in zip(steps(tmp_path), given, strict=True):
        deviation = rewards[3] / 2**0.5
        advantage = rewards[3] / 2 / (deviation + 1e-4) / 2
        assert step.reward == pytest.approx(sum(rewards) / 4)
        assert step.spread == pytest.approx(deviation / 2)
        assert step.mute == 0.5
        assert step.advantage == pytest.approx(advantage, rel=1e-5)
        assert 4 <= (step.tokens or 0) <= 20
    entry, told = made.state.log_history[0], steps(tmp_path)[0]
    for name in ("reward", "spread", "mute", "advantage", "tokens"):
        assert entry[f"{name}_{told.task}"] == getattr(told, name)
    assert entry["frac_reward_zero_std"] == told.mute


def test_rewards_by_environment_score_only_their_own(tmp_path: Path) -> None:
    def numbered(value: float) -> Any:
        def function(prompts: list[str], log_extra: Any, **_: Any) -> list[float]:
            log_extra("seen", [value] * len(prompts))
            return [value + i / 100 for i in range(len(prompts))]

        return function

    async def late(prompts: list[str], **_: Any) -> list[float | None]:
        return [None] * len(prompts)

    rewards = {"even": numbered(1.0), "odd": [numbered(2.0), late], "small": numbered(3.0)}
    made = trainer(
        tmp_path,
        reward_funcs=rewards,
        decide="prompt",
        eval_dataset=data(),
        steps_per_generation=4,
        per_device_eval_batch_size=2,
    )
    made.train()
    values = {"even": 1.0, "odd": 2.0, "small": 3.0}
    told = steps(tmp_path)
    assert {step.task for step in told} == set(SIZES)
    assert all(int(step.reward or 0) == values[step.task] for step in told)
    scores = made.evaluate()
    for name, value in values.items():
        assert int(scores[f"eval_{name}_reward"]) == value
    assert scores["eval_worst_reward"] == scores["eval_even_reward"]


def test_prompts_by_learnability_leave_those_without_a_gradient(tmp_path: Path) -> None:
    """Prompts of a third of each set are always solved, of another third never."""
    seen: list[int] = []

    def reward(completions: list[str], number: list[int], **_: Any) -> list[float]:
        seen.extend(number[::2])
        kinds = [n % 3 for n in number]
        return [float(kind == 1 or (kind == 2 and i % 2)) for i, kind in enumerate(kinds)]

    sets = {"even": data({"even": 30})["even"].add_column("number", list(range(30)))}
    made = trainer(
        tmp_path,
        train_dataset=sets,
        reward_funcs=reward,
        prompts=PromptLearnability(rate=1.0, epsilon=0.05),
        max_steps=60,
        save_strategy="no",
        learning_rate=0.0,
    )
    made.train()
    # The last batch may still be drawn ahead, so one prompt may lack its rewards.
    known = made.mixer.orders["even"].state_dict()["pass_rates"]
    assert all(known[str(n)] == float(n % 3 == 1) for n in set(seen) if n % 3 < 2)
    # 30 prompts once, then 90 draws, of which 5% and the first few are from all prompts. With
    # shuffled prompts, 50 or more of 60 draws have a chance below 1e-12.
    assert sum(n % 3 == 2 for n in seen[60:]) >= 50


def test_two_ranks_hold_the_same_pass_rates(tmp_path: Path) -> None:
    def work() -> None:
        made = trainer(tmp_path, prompts="learnability", save_strategy="no")
        made.train()
        orders = made.mixer.state_dict()["orders"]
        states: list[Any] = [None, None]
        dist.all_gather_object(states, orders)
        assert states[0] == states[1]
        assert any(order["pass_rates"] for order in orders.values())

    resuming.on_ranks(work)


class MixtureRLOOTrainer(MixtureGRPOMixin, RLOOTrainer):
    pass


def test_rloo_takes_the_same_mixin(tmp_path: Path) -> None:
    def train(folder: Path, stop: int, resume: str | None = None) -> Any:
        made = MixtureRLOOTrainer(
            model(),
            parity,
            RLOOConfig(**settings(folder, beta=0.0, **REUSE["4-1-1"])),
            train_dataset=data(),
            processing_class=tokenizer(),
            policy=Follow(list(SIZES)),
            journal=folder / "journal.jsonl",
            callbacks=[Stop(stop)],
        )
        quiet(made).train(resume_from_checkpoint=resume)
        return made

    whole = train(tmp_path / "whole", STEPS)
    train(tmp_path / "parts", 3)
    parts = train(tmp_path / "parts", STEPS, str(tmp_path / "parts/checkpoint-2"))
    assert losses(whole) == losses(parts)
    lines = [(tmp_path / name / "journal.jsonl").read_bytes() for name in ("whole", "parts")]
    assert lines[0] == lines[1]
    assert steps(tmp_path / "whole")


@pytest.mark.parametrize("name", ["1-1-2", "4-2-1"])
def test_two_ranks_that_are_killed_make_the_same_draws_and_resume(
    tmp_path: Path, name: str
) -> None:
    options = REUSE[name]

    def killed() -> None:
        trainer(tmp_path / "parts", callbacks=[Kill(4)], **options).train()

    def compared() -> None:
        whole, parts = (trainer(tmp_path / name, **options) for name in ("whole", "parts"))
        whole.train()
        parts.train(resume_from_checkpoint=str(tmp_path / "parts/checkpoint-3"))
        states: list[Any] = [None, None]
        dist.all_gather_object(states, (whole.mixer.state_dict()["policy"], losses(whole)))
        assert states[0] == states[1]
        assert parts.mixer.policy.state_dict() == whole.mixer.policy.state_dict()
        assert losses(parts) == losses(whole)
        for (name, ours), theirs in zip(
            whole.model.named_parameters(), parts.model.parameters(), strict=True
        ):
            assert torch.equal(ours, theirs), name
        dist.barrier()
        lines = [(tmp_path / name / "journal.jsonl").read_bytes() for name in ("whole", "parts")]
        assert lines[0] == lines[1]
        examples = 8 * options["steps_per_generation"]
        assert all(step.examples == examples for step in steps(tmp_path / "whole"))

    resuming.on_ranks(killed, exitcode=-signal.SIGKILL)
    resuming.on_ranks(compared)


def test_the_journal_can_be_evaluated(tmp_path: Path) -> None:
    trainer(tmp_path, max_steps=12, save_strategy="no").train()
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: fixed\nprobabilities: {even: 0.5, odd: 0.25, small: 0.25}\n")
    journal = str(tmp_path / "journal.jsonl")
    arguments = ["estimate", journal, "--policy", str(policy)]
    told = steps(tmp_path)
    for more, name in (([], "reward"), (["--reward", "absolute_advantage"], "advantage")):
        result = CliRunner().invoke(app, [*arguments, *more])
        assert result.exit_code == 0, result.output
        mean = sum(getattr(step, name) for step in told) / len(told)
        assert f"{mean:.4f}"[:5] in result.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"train_dataset": {"even": data()["even"]}}, "expected one for each task of the policy"),
        (
            {"train_dataset": data() | {"odd": data()["odd"].select([])}},
            "train_dataset, odd: expected examples, found none",
        ),
        (
            {"train_dataset": data() | {"odd": data()["odd"].remove_columns("prompt")}},
            "train_dataset, odd: expected a column prompt, found parity",
        ),
        (
            {"train_dataset": data() | {"odd": [{"prompt": "1"}]}},
            "train_dataset, odd: expected a datasets.Dataset, found list",
        ),
        (
            {"steps_per_generation": 16},
            "train_dataset, small: expected at least the 32 prompts of a generation batch",
        ),
        ({"prompts": "learnable"}, "prompts: expected learnability, a PromptLearnability or None"),
        (
            {"prompts": "learnability", "shuffle_dataset": False},
            "shuffle_dataset: expected True, as prompts are drawn, found False",
        ),
        ({"decide": "step"}, "decide: expected generation or prompt, found 'step'"),
        ({"reward_funcs": {"even": parity}}, "reward_funcs: expected functions for odd"),
        (
            {"reward_funcs": dict.fromkeys([*SIZES, "evne"], parity)},
            "reward_funcs: unknown environment",
        ),
        (
            {"policy": taskmix.Exp3S(list(SIZES))},
            r"learns from rewards \(climb, dump, .* or one that does not learn, .* needs Gain",
        ),
        ({"policy": "progress"}, "progress with of='reward'.* found one that needs Loss"),
        ({"policy": "odm"}, "policy odm: expected one that learns from rewards"),
        ({"policy": taskmix.ADO(list(SIZES))}, "policy ado: expected one that learns from rewards"),
        ({"train_dataset": [data()["even"]]}, "train_dataset: expected a mapping .* found list"),
        (
            {
                "policy": taskmix.DUMP(["even", "odd", "smal"]),
                "reward_funcs": dict.fromkeys(SIZES, parity),
            },
            r"train_dataset: expected one for each task .*; missing: smal; unknown: small",
        ),
        (
            {
                "reward_funcs": dict.fromkeys(SIZES, parity),
                "eval_dataset": {"even": data()["even"], "smal": data()["small"]},
            },
            "eval_dataset: unknown environment 'smal'; did you mean 'small'",
        ),
        ({"lag": 0}, "lag: expected at least 1 draw"),
        (
            {"policy": taskmix.SEC([*SIZES, "absent"])},
            "train_dataset: expected one for each task of the policy; missing: absent",
        ),
        (
            {"policy": {"name": "fixed", "probabilities": {"even": 0.5, "absent": 0.5}}},
            "policy fixed: probabilities: expected a value for each of .* found .*absent",
        ),
        ({"policy": "secs"}, "unknown policy 'secs'; did you mean 'sec'"),
    ],
)
def test_a_mistake_before_the_training_is_one_sentence(
    tmp_path: Path, options: dict[str, Any], sentence: str
) -> None:
    given = {"policy": Follow(list(SIZES))} | options
    with pytest.raises(UserError, match=sentence) as raised:
        trainer(tmp_path, **given)
    assert "\n" not in str(raised.value)


def test_an_error_in_a_reward_function_names_the_function_and_its_environment(
    tmp_path: Path,
) -> None:
    def broken(**_: Any) -> list[float]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        trainer(tmp_path, reward_funcs=dict.fromkeys(SIZES, broken)).train()
    assert raised.value.__notes__[0].endswith(("even/broken.", "odd/broken.", "small/broken."))


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        (None, "reward function function: expected a list of 4 rewards, found None"),
        ([None] * 4, "expected a number for each completion, found None for all 4 of draw 1"),
        ([1.0, math.nan, 0.0, 0.0], "expected finite numbers, or None to abstain, found nan"),
        ([1.0, math.inf, 0.0, 0.0], "expected finite numbers, or None to abstain, found inf"),
        (["good"] * 4, "expected finite numbers, or None to abstain, found 'good'"),
        (1.0, "expected a list of 4 rewards, found 1.0"),
        ([1.0] * 3, "expected 4 rewards, one for each completion, found 3"),
    ],
)
def test_a_bad_reward_is_one_sentence(tmp_path: Path, returned: Any, sentence: str) -> None:
    def function(**_: Any) -> Any:
        return returned

    with pytest.raises(UserError, match=sentence):
        trainer(tmp_path, reward_funcs=function).train()
