"""What a draw and its outcome cost in a GRPO training of a tiny model."""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from harness import Result
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig

import taskmix
from taskmix.integrations.grpo import MixtureGRPOTrainer, RolloutMixer

sys.path.append(str(Path(__file__).parents[1]))  # the model and data of the RL arena

from experiments.rl_arena.environments import LEARNABLE, new_model, tokenizer
from experiments.rl_arena.run import data

WARMUP, STEPS, GOAL = 5, 35, 1.0


def correct(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(c == a) for c, a in zip(completions, answer, strict=True)]


class Clock(TrainerCallback):
    """The processor time that is spent in some functions, after the first steps of a training."""

    def __init__(self) -> None:
        self.seconds, self.start = 0.0, 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == WARMUP:
            self.seconds, self.start = 0.0, time.process_time()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            result = function(*args, **kwargs)
            self.seconds += time.process_time() - start
            return result

        return call

    def each(self, batches: Iterator[Any]) -> Iterator[Any]:
        while True:
            yield self.timed(next)(batches)


def _share(decide: Literal["generation", "prompt"]) -> float:
    """Return the percentage of a training that goes into draws, batches, outcomes and journal."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = MixtureGRPOTrainer(
            new_model(1),
            correct,
            GRPOConfig(
                folder,
                max_steps=STEPS,
                per_device_train_batch_size=32,
                num_generations=8,
                max_completion_length=24,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                use_cpu=True,
                bf16=False,
                disable_tqdm=True,
                gradient_checkpointing=False,
                dataloader_pin_memory=False,
            ),
            train_dataset={each.letter: data(each) for each in LEARNABLE},
            processing_class=tokenizer(),
            policy=taskmix.SEC([each.letter for each in LEARNABLE]),
            journal=Path(folder) / "journal.jsonl",
            decide=decide,
            callbacks=[clock],
        )
        trainer.remove_callback(PrinterCallback)
        batches = iter(trainer.mixer)
        trainer.mixer.__class__ = type(
            "TimedMixer", (RolloutMixer,), {"__iter__": lambda _: clock.each(batches)}
        )
        trainer._settle_rollout = clock.timed(trainer._settle_rollout)
        trainer.train()
        return 100 * clock.seconds / (time.process_time() - clock.start)


def share_of_a_step() -> list[Result]:
    """One draw for a step of 32 completions of 24 tokens, and one for each of its 4 prompts."""
    one, four = _share("generation"), _share("prompt")
    name = "GRPO of a tiny model, a draw and its outcome / a step"
    return [
        Result(name, one, "%", f"< {GOAL:g}", one < GOAL),
        Result(f"{name}, 4 draws", four, "%", "", True),
    ]


BENCHMARKS = [share_of_a_step]
