"""Training as a policy says: draw, batch, step, outcome."""

import time
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from bursar import rng as streams
from bursar.policies import DevScore, Draw, Gain, Outcome, Policy, Uncertainty
from bursar.rng import seed_for
from bursar.tasks.batches import Batch, in_order
from bursar.tasks.parts import Split
from bursar.training.evaluation import evaluate, tensors
from bursar.training.trainer import Job, Trainer, finite
from bursar.uncertainty import measure, predictive_samples


class PolicyTrainer(Trainer):
    """Gives each step of the budget to the task that a policy draws.

    Args:
        job: what it works with.
        policy: who decides.
    """

    def __init__(self, job: Job, policy: Policy) -> None:
        super().__init__(job)
        self.policy = policy
        self.rng = streams.stream(self.config.seed, "draws")
        self._probes: dict[tuple[str, int | None], Split] = {}

    def advance(self) -> None:
        """Draw, batch, step, outcome."""
        began = time.perf_counter()
        step = self.step + 1
        draw = self.policy.ask(self.rng)
        batch = self.streams[draw.task].next()
        [loss] = self.update(step, [(batch, 1.0)])
        outcome = self.measure(step, draw, batch, loss)
        self.policy.tell(outcome)
        self.step = step
        self.journal.draw(
            step,
            outcome,
            examples=len(batch.items),
            tokens=batch.tokens,
            seconds=round(time.perf_counter() - began, 4),
        )
        for watcher in self.watchers:
            watcher.stepped(step, draw.task, loss, batch.tokens)

    def measure(self, step: int, draw: Draw, batch: Batch, loss: float) -> Outcome:
        """The outcome of a draw, with the signals that the policy wants for it and no others."""
        gain = score = uncertainty = None
        for signal in self.policy.due(draw):
            if isinstance(signal, Gain):
                after = self._loss_again(step, batch)
                gain = loss - finite(after, f"task {draw.task}, step {step}: the loss afterwards")
            elif isinstance(signal, DevScore):
                score = self._score(signal)
            elif isinstance(signal, Uncertainty):
                uncertainty = self._uncertainty(step, signal)
        return Outcome(draw, loss=loss, gain=gain, score=score, uncertainty=uncertainty)

    @torch.no_grad()
    def _loss_again(self, step: int, batch: Batch) -> float:
        """The loss on the same batch under the same dropout masks."""
        self.model.train()  # another signal may have put dropout off
        self.seed_dropout(step)
        self.spent.forward += len(batch.items)
        return sum(float(self.loss(batch.task, part)) * share for share, part in self.parts(batch))

    def _score(self, signal: DevScore) -> float:
        """The dev score of the task that the signal names."""
        split = self._probe(signal.task, signal.examples)
        self.spent.forward += len(split)
        task = self.tasks[signal.task]
        size = self.config.evaluate.batch
        return evaluate(self.model, task, split, size, self.device).score

    def _uncertainty(self, step: int, signal: Uncertainty) -> dict[str, float]:
        """The model's uncertainty on the dev examples of each task."""
        seed = seed_for(self.config.seed, "uncertainty", step)
        return {name: self._unsure(name, signal, seed) for name in self.tasks}

    def _unsure(self, name: str, signal: Uncertainty, seed: int) -> float:
        split = self._probe(name, signal.examples)
        batches = list(in_order(name, split.encoded, self.config.evaluate.batch))
        self.spent.forward += signal.passes * len(split)

        def predict(batch: Batch) -> Tensor:
            inputs = tensors(batch, self.device)
            return self.tasks[name].kind.distribution(self.model(name, inputs), inputs)

        samples = predictive_samples(self.model, predict, batches, signal.passes, seed)
        return measure(samples, signal.score, self._residual(name, split, signal))

    def _residual(self, name: str, split: Split, signal: Uncertainty) -> float:
        """The mean squared error of a regression, which its entropy needs; 1 elsewhere."""
        if signal.score != "entropy" or self.tasks[name].kind.name != "regress":
            return 1.0
        task, size = self.tasks[name], self.config.evaluate.batch
        self.spent.forward += len(split)
        return 2 * evaluate(self.model, task, split, size, self.device).loss

    def _probe(self, task: str, examples: int | None) -> Split:
        """The dev examples that signals are measured on, the same ones each time."""
        if (task, examples) not in self._probes:
            self._probes[task, examples] = self.dev[task].at_most(examples)
        return self._probes[task, examples]

    def diagnostics(self) -> dict[str, Any]:
        """What the policy believes."""
        return self.policy.diagnostics()

    def state_dict(self) -> dict[str, Any]:
        """Everything but tensors that the next step depends on."""
        own = {"policy": self.policy.state_dict(), "draws": streams.state_of(self.rng)}
        return super().state_dict() | own

    def load_state_dict(self, step: int, state: Mapping[str, Any]) -> None:
        """Stand where `state_dict` was taken, after `step` steps."""
        super().load_state_dict(step, state)
        self.policy.load_state_dict(state["policy"])
        self.rng = streams.restore(state["draws"])

    def adopt(self, step: int, state: Mapping[str, Any], model: Mapping[str, Tensor]) -> None:
        """Go on from a run with other tasks; the policy starts anew, its random stream does not."""
        super().adopt(step, state, model)
        self.rng = streams.restore(state["draws"])
