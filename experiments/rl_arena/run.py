"""Which policy should draw the environments of GRPO? Two suites on a CPU, equal generated tokens.

    python -m experiments.rl_arena.run [--table]

Finished runs are not made again.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import transformers
from datasets import Dataset
from transformers import LlamaForCausalLM
from trl.trainer.grpo_config import GRPOConfig

import taskmix
from experiments.rl_arena.environments import (
    LEARNABLE,
    SUITES,
    Environment,
    new_model,
    pass_rates,
    supervise,
    tokenizer,
)
from experiments.shared import Outcomes, command_line, markdown, publish
from taskmix.integrations.grpo import MixtureGRPOTrainer
from taskmix.policies import Policy
from taskmix.studies.paired import differences, how_tested, interval_words, p_words

SEEDS = range(1, 6)
CONTESTANTS = ("uniform", "size", "learnability", "sec", "dump", "climb", "oracle")
TOKENS = {"speeds": 10_000, "waste": 10_000}
"""The budget: tokens of the completions of a run."""
COMPLETIONS, GROUP = 32, 8
LEARNING_RATE = 3e-4


def policy(contestant: str, suite: Sequence[Environment]) -> Policy:
    sizes = {environment.letter: environment.size for environment in suite}
    learnable = {environment.letter for environment in LEARNABLE}
    match contestant:
        case "uniform":
            return taskmix.Random(list(sizes))
        case "size":
            return taskmix.TaskSize(sizes)
        case "learnability":
            return taskmix.Learnability(list(sizes))
        case "sec":
            return taskmix.SEC(list(sizes))
        case "dump":
            return taskmix.DUMP(list(sizes))
        case "climb":
            return taskmix.Climb(list(sizes))
        case _:
            known = [name for name in sizes if name in learnable]
            return taskmix.Fixed({name: (name in known) / len(known) for name in sizes})


def contestants(suite: str) -> list[str]:
    """Return the contestants of a suite; where all can be learned, the oracle is uniform."""
    return [name for name in CONTESTANTS if name != "oracle" or suite == "waste"]


class Stop(transformers.TrainerCallback):
    """Ends the training when the tokens are spent, and measures the pass rates on the way."""

    def __init__(self, suite: Sequence[Environment], budget: int) -> None:
        self.suite = suite
        self.budget = budget
        self.tokens = 0
        self.points: list[dict[str, Any]] = []

    def correct(
        self, completions: list[str], completion_ids: list[list[int]], answer: list[str], **_: Any
    ) -> list[float]:
        """The reward function: 1 for the right answer, else 0."""
        self.tokens += sum(map(len, completion_ids))
        return [float(c == a) for c, a in zip(completions, answer, strict=True)]

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.tokens >= self.budget * (len(self.points) + 1) / 4:
            rates = pass_rates(kwargs["model"], self.suite)
            point = {"step": state.global_step, "tokens": self.tokens, "pass_rates": rates}
            self.points.append(point)
        control.should_training_stop = self.tokens >= self.budget


def data(environment: Environment) -> Dataset:
    digits = environment.prompts()
    return Dataset.from_dict(
        {
            "prompt": [environment.prompt(d) for d in digits],
            "answer": [environment.rule(d) for d in digits],
        }
    )


def train(
    suite_name: str, contestant: str, seed: int, budget: int, base: Path, folder: Path
) -> dict[str, Any]:
    suite = SUITES[suite_name]
    model = LlamaForCausalLM.from_pretrained(base)
    stop = Stop(suite, budget)
    trainer = MixtureGRPOTrainer(
        model,
        stop.correct,
        GRPOConfig(
            str(folder),
            max_steps=100_000,
            per_device_train_batch_size=COMPLETIONS,
            num_generations=GROUP,
            max_completion_length=4,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            disable_tqdm=True,
            log_level="error",
            gradient_checkpointing=False,
            dataloader_pin_memory=False,
        ),
        train_dataset={environment.letter: data(environment) for environment in suite},
        processing_class=tokenizer(),
        policy=policy(contestant, suite),
        decide="prompt",
        callbacks=[stop],
    )
    trainer.train()
    shares = {name: round(share, 4) for name, share in trainer.mixer.shares().items()}
    return {
        "suite": suite_name,
        "policy": contestant,
        "seed": seed,
        "start": pass_rates(LlamaForCausalLM.from_pretrained(base), suite),
        "points": stop.points,
        "shares": shares,
    }


def base_model(seed: int, steps: int, folder: Path) -> Path:
    """Return the folder of the supervised model of a seed, which all contestants start from."""
    path = folder / f"base-{seed}-{steps}"
    if not (path / "config.json").exists():
        model = new_model(seed)
        supervise(model, seed, steps)
        model.save_pretrained(path)
    return path


def score(rates: Mapping[str, float]) -> float:
    return sum(rates.values()) / len(rates)


def table(outcomes: Outcomes) -> str:
    parts = []
    for suite in SUITES:
        runs = outcomes.values(f"{suite}/")
        scores: dict[str, dict[int, float]] = {}
        for run in runs:
            final = score(run["points"][-1]["pass_rates"])
            scores.setdefault(run["policy"], {})[run["seed"]] = final
        if "uniform" not in scores:
            continue
        compared = differences(scores, "uniform")
        start = [score(run["start"]) for run in runs if run["policy"] == "uniform"]
        rows = [["before", str(len(start)), f"{100 * sum(start) / len(start):.1f}", "", "", ""]]
        for name in (name for name in CONTESTANTS if name in scores):
            values = list(scores[name].values())
            difference = compared.get(name)
            mute = [_wasted(run) for run in runs if run["policy"] == name]
            rows.append(
                [
                    name,
                    str(len(values)),
                    f"{100 * sum(values) / len(values):.1f}",
                    interval_words(difference) if difference else "",
                    p_words(difference) if difference else "",
                    f"{100 * sum(mute) / len(mute):.0f}",
                ]
            )
        head = ["policy", "seeds", "pass rate", "above uniform", "p", "wasted"]
        parts.append(f"Suite `{suite}`:\n\n{markdown(head, rows)}\n\n{how_tested(compared)}")
    return "\n\n".join(parts) or "no outcomes yet"


def _wasted(run: Mapping[str, Any]) -> float:
    """Return the share of the completions on environments that cannot be improved."""
    learnable = {environment.letter for environment in LEARNABLE}
    shares: dict[str, float] = run["shares"]
    return sum(share for name, share in shares.items() if name not in learnable)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--policies", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--tokens", type=int, help="the budget, instead of the study's")
    parser.add_argument("--supervised", type=int, default=700, help="steps before the RL")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for seed in [] if options.table else options.seeds:
        for suite in options.suites:
            for contestant in contestants(suite):
                name = f"{suite}/{contestant}-{seed}"
                if contestant in options.policies and name not in options.outcomes:
                    base = base_model(seed, options.supervised, options.runs)
                    budget = options.tokens or TOKENS[suite]
                    folder = options.runs / name.replace("/", "-")
                    found = train(suite, contestant, seed, budget, base, folder)
                    options.outcomes.add(name, found)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
