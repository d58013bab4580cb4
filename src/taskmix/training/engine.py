"""The engine: executes what drivers ask for, and decides nothing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from taskmix.config import RunConfig
from taskmix.errors import RunInterruptedError, UserError
from taskmix.rng import seed_for
from taskmix.tasks.batches import Batch, TaskItems
from taskmix.tasks.parts import Split
from taskmix.training.evaluation import baseline, evaluate
from taskmix.training.folder import Scores
from taskmix.training.loading import Loader
from taskmix.training.prepare import Prepared
from taskmix.training.ranks import ALONE, Ranks, running_statistics
from taskmix.training.watching import Watchers


@dataclass
class Spent:
    """What a run has cost so far, in examples that passed through the model on all ranks."""

    forward: int = 0
    backward: int = 0

    def add(self, examples: int, *, backward: bool = False) -> None:
        """Note that examples passed forward through the model, and backward if they did."""
        self.forward += examples
        self.backward += examples if backward else 0


class Engine:
    """Runs a model on batches: precision, seeds, loading, evaluation, what was spent.

    The model is any module whose `forward` takes a `Batch` and gives outputs by task; what they
    mean, and so the losses, is up to the tasks' kinds.

    Args:
        config: the run's configuration.
        prepared: the tasks, in the order of the decider.
        model: what learns.
        watchers: who is told of what is being done.
        cache: the folder for what can be computed once and used again; the default one if None.
        ranks: those that train together.
    """

    def __init__(
        self,
        config: RunConfig,
        prepared: Sequence[Prepared],
        model: nn.Module,
        *,
        watchers: Watchers | None = None,
        cache: Path | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.config = config
        self.ranks = ranks
        self.device = pick_device(config.device)
        self.model = ranks.prepared(model, self.device)
        self.watchers = watchers or Watchers()
        self.cache = cache
        self.tasks = {entry.task.name: entry.task for entry in prepared}
        self.train = {entry.task.name: entry.train for entry in prepared}
        self.dev = {entry.task.name: entry.dev for entry in prepared}
        budget = config.budget
        self.loader = Loader(
            prepared,
            budget.batch,
            config.seed,
            self.device,
            tokens=budget.tokens,
            cut=ranks.cut,
            even=ranks.shards,
        )
        self.statistics = running_statistics(model)
        self.spent = Spent()
        self.autocast = wants_bfloat16(config.precision, self.device)

    def outputs(self, batch: Batch) -> Mapping[str, Any]:
        """Return the model's outputs for each task of a batch, in the run's precision."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast):
            outputs: Mapping[str, Any] = self.model(batch)
        return outputs

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        """Return the mean loss of each task of a batch, from one pass through the model.

        Of several ranks' batch it is the mean over this rank's part, and `share` says how much it
        counts.
        """
        outputs = self.outputs(batch)
        return {
            part.task: self.tasks[part.task].kind.loss(outputs[part.task], part.columns)
            for part in batch
        }

    def weighed(self, pieces: Sequence[Batch], tasks: Sequence[str]) -> Sequence[Batch]:
        """Return pieces of a batch with the shares by which their mean losses count in the whole.

        Shares go by items, as the pieces have them, but for tasks whose loss is a mean over
        decisions: a piece with more words counts more.

        Args:
            pieces: on the device; this rank's.
            tasks: of the whole batch.
        """
        by_decisions = [t for t in tasks if self.tasks[t].kind.mean_over == "decisions"]
        if not by_decisions or (len(pieces) == 1 and self.ranks.count == 1):
            return pieces
        counts = [
            {part.task: self._decisions(part) for part in piece if part.task in by_decisions}
            for piece in pieces
        ]
        own = [sum(count.get(task, 0) for count in counts) for task in by_decisions]
        whole = dict(zip(by_decisions, self.ranks.total(torch.tensor(own)).tolist(), strict=True))
        return [
            piece.with_shares({task: n / max(1, whole[task]) for task, n in count.items()})
            for piece, count in zip(pieces, counts, strict=True)
        ]

    def _decisions(self, part: TaskItems) -> int:
        return (
            self.tasks[part.task].kind.counted(part.columns, len(part.items)) if part.share else 0
        )

    def seed(self, *name: str | int) -> None:
        """Make what torch draws next depend on the run's seed, a name and the rank.

        That is dropout above all, which has to differ between ranks.
        """
        torch.manual_seed(seed_for(self.config.seed, *name, *self.ranks.name))

    def score(self, task: str, split: Split | None = None) -> Scores:
        """Return the scores of a task on a split; on its dev split if None."""
        split = self.dev[task] if split is None else split
        self.spent.add(len(split))
        return self.evaluate(task, split)

    def evaluate(self, task: str, split: Split) -> Scores:
        """Return the scores of a task on a split; it is not counted as spent."""
        size = self.config.evaluate.batch
        model, found = self.model, self.tasks[task]
        return evaluate(model, found, split, size, self.device, self.ranks, self.autocast)

    def guess(self, task: str, split: Split) -> float | None:
        """Return the score of predicting without looking on a split; None if nobody knows it."""
        return baseline(self.tasks[task], self.train[task], split)

    def state_dict(self) -> dict[str, Any]:
        """Return the place in the data, and what was spent."""
        return {"streams": self.loader.state_dict(), "spent": asdict(self.spent)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` returned; a task that was not there starts anew."""
        self.loader.load_state_dict(state["streams"])
        self.spent = Spent(**state["spent"])


def finite(value: float, what: str) -> float:
    """Return the value, if one can go on from it."""
    if not math.isfinite(value):
        raise RunInterruptedError(
            f"{what} is {value}, no number to go on from; look at the task's data or lower "
            "optimizer.lr, then start again"
        )
    return value


def pick_device(name: str) -> torch.device:
    """Return the device that a run file names; `auto` is the fastest there is."""
    if name != "auto":
        try:
            torch.zeros(1, device=name).cpu()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            why = str(error).splitlines()[0]
            raise UserError(
                f"device: expected auto or a device here, found {name!r}: {why}"
            ) from None
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def wants_bfloat16(precision: str, device: torch.device) -> bool:
    """Return whether to use mixed precision: where asked for, by default where a GPU has it."""
    if precision == "auto":
        return device.type == "cuda" and torch.cuda.is_bf16_supported()
    return precision == "bfloat16"
