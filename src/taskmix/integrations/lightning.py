"""A data module and a callback for Lightning that mix data sets by a policy."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import lightning
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import DataLoader

from taskmix.config import PolicySpec
from taskmix.errors import UserError
from taskmix.mixing import Mixed, Mixer, RandomState, Scorer, Shard, Tally, collate_by
from taskmix.mixing.mixed import Collator
from taskmix.rng import seed_for

__all__ = ["MixtureCallback", "MixtureDataModule"]


class _MixtureLoader(DataLoader[Any]):
    """A loader whose state is that of its mixer; Lightning saves and loads it."""

    def __init__(self, mixer: Mixer, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.mixer = mixer

    def state_dict(self) -> dict[str, Any]:
        return self.mixer.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.mixer.load_state_dict(state)


class MixtureDataModule(lightning.LightningDataModule):
    """Training sets by name, mixed by a policy; used together with a `MixtureCallback`.

    A batch is a dictionary with the number of its draw as "draw" and the name of its set as "task";
    see `taskmix.mixing.collate_by`. Batches never end: set `max_steps` of the Trainer. On several
    ranks also set `use_distributed_sampler=False`, and, if each set has its own head,
    `strategy="ddp_find_unused_parameters_true"`.

    Args:
        datasets: the training sets by name.
        policy: draws the sets; its tasks are their names. Or its name, such as "aimed", or a
            mapping of its name and options as in a run file: `{"name": "exp3s", "eta": 0.01}`.
        batch: examples in a batch of one rank.
        seed: of the draws, the order of the examples and dropout.
        decide: "step" draws once for an optimiser step, so that its micro-batches on all ranks are
            from one set; "batch" draws for each micro-batch.
        collators: by set, or one for all; torch's `default_collate` if None.
        lengths: by set, the length of each example, to batch examples of similar length.
        journal: a new file to write every draw to; None for no journal.
        lag: see `taskmix.mixing.Mixer`.
        loader: options of torch's DataLoader, such as `num_workers`.
    """

    def __init__(
        self,
        datasets: Mapping[str, Any],
        policy: PolicySpec,
        batch: int,
        *,
        seed: int,
        decide: Literal["step", "batch"] = "step",
        collators: Mapping[str, Collator] | Collator | None = None,
        lengths: Mapping[str, ArrayLike] | None = None,
        journal: Path | str | None = None,
        lag: int | None = None,
        **loader: Any,
    ) -> None:
        super().__init__()
        if decide not in ("step", "batch"):
            raise UserError(f"decide: expected step or batch, found {decide!r}")
        self.mixed = Mixed(datasets)
        self.seed = seed
        self.mixer: Mixer | None = None
        self._decide = decide
        self._loader = {"collate_fn": collate_by(collators), **loader}
        self._make = partial(
            Mixer,
            policy,
            self.mixed.sizes,
            batch,
            seed=seed,
            lengths=lengths,
            journal=journal,
            lag=lag,
        )
        self._make(batches=1)  # checks the settings now, and not in the middle of a fit

    def setup(self, stage: str) -> None:
        if self.mixer is None and self.trainer is not None:
            per_step = self.trainer.world_size * self.trainer.accumulate_grad_batches
            batches = per_step if self._decide == "step" else 1
            steps = max(self.trainer.max_steps, 0) * per_step // batches
            self.mixer = self._make(batches=batches, steps=steps or None)

    def train_dataloader(self) -> DataLoader[Any]:
        if self.mixer is None or self.trainer is None:
            raise UserError("train_dataloader: expected a Trainer that calls it, found none")
        return _MixtureLoader(
            self.mixer,
            self.mixed,
            batch_sampler=Shard(self.mixer, self.trainer.global_rank, self.trainer.world_size),
            generator=torch.Generator().manual_seed(self.seed),
            **self._loader,
        )


class MixtureCallback(lightning.Callback):
    """Settles each draw of a `MixtureDataModule`, and logs losses and shares by set.

    Lightning does not save the state of torch's generator, so dropout is seeded by the draw: a
    resumed training has the same masks as one that was not interrupted.

    Args:
        scorers: see `taskmix.mixing.Tally`.
    """

    def __init__(self, scorers: Mapping[str, Scorer] | None = None) -> None:
        self._scorers = scorers
        self._tally: Tally | None = None
        self._state = RandomState()
        self._steps = 0  # of the optimiser whose draws are settled
        self._losses: dict[str, float] = {}  # the latest one of each set

    def setup(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule, stage: str
    ) -> None:
        if stage == "fit":  # before Lightning loads the mixer's state
            self._tally = Tally(_mixer_of(trainer), self._scorers)

    def on_train_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        self._steps = trainer.global_step
        _leave_finished_epoch(trainer)

    def on_train_batch_start(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        batch: Any,
        batch_idx: int,
    ) -> None:
        name = ("dropout", batch["draw"], batch_idx, trainer.global_rank)
        torch.manual_seed(seed_for(_mixer_of(trainer).seed, *name))
        self._state = RandomState()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        assert self._tally is not None
        # Lightning returns a loss that is divided by the number of accumulated batches.
        accumulated = trainer.accumulate_grad_batches if pl_module.automatic_optimization else 1
        loss = torch.tensor(float("nan")) if outputs is None else outputs["loss"] * accumulated
        again = None
        if self._tally.wants_gain(batch["draw"]):
            again = partial(_loss_again, pl_module, batch, batch_idx, self._state)
        self._tally.add(batch["draw"], loss, _rows(batch), again=again)
        # The last batches of an epoch may be fewer than those of other steps.
        if trainer.global_step > self._steps:
            self._steps = trainer.global_step
            self._losses |= {draw.task: draw.loss for draw in self._tally.settle()}
            values = {f"loss_{task}": loss for task, loss in self._losses.items()}
            shares = _mixer_of(trainer).shares()
            values |= {f"share_{task}": share for task, share in shares.items()}
            pl_module.log_dict(values, on_step=True, on_epoch=False, batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        return {"losses": self._losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._losses = dict(state["losses"])


def _leave_finished_epoch(trainer: lightning.Trainer) -> None:
    """Begin the next epoch if the checkpoint was written at the end of one."""
    # With max_steps, Lightning 2.6 would train one more batch in the epoch that is over.
    loop = trainer.fit_loop
    if loop.restarted_on_epoch_end:
        loop.epoch_progress.increment_completed()
        loop.epoch_loop.restarting = False
        loop.on_iteration_done()


def _mixer_of(trainer: lightning.Trainer) -> Mixer:
    module = getattr(trainer, "datamodule", None)
    if not isinstance(module, MixtureDataModule) or module.mixer is None:
        raise UserError(
            "MixtureCallback: expected trainer.fit with a MixtureDataModule, found "
            f"{type(module).__name__}"
        )
    return module.mixer


def _rows(batch: Any) -> int:
    if isinstance(batch, Tensor):
        return len(batch) if batch.dim() else 0
    if isinstance(batch, Mapping):
        batch = list(batch.values())
    sizes = map(_rows, batch) if isinstance(batch, list | tuple) else ()
    return next((size for size in sizes if size), 0)


def _loss_again(
    module: lightning.LightningModule, batch: Any, batch_idx: int, state: RandomState
) -> Tensor:
    """Return the loss of a batch after the step, with the same dropout, and log nothing."""
    with torch.no_grad(), state.again(), _silent(module):
        result: Any = module.training_step(batch, batch_idx)
    loss: Tensor = result["loss"] if isinstance(result, Mapping) else result
    return loss


@contextmanager
def _silent(module: lightning.LightningModule) -> Iterator[None]:
    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    module.__dict__.update(log=nothing, log_dict=nothing)
    try:
        yield
    finally:
        del module.__dict__["log"], module.__dict__["log_dict"]
