"""Several data sets in the Trainer of transformers, mixed by a policy."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import datasets
import torch
import transformers
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import seed_worker

from taskmix.errors import UserError
from taskmix.mixing import Mixed, Mixer, RandomState, Tally, collate_by
from taskmix.mixing.mixed import Collator
from taskmix.policies import Policy

__all__ = ["MixtureMixin", "MixtureTrainer"]

Decide = Literal["step", "batch"]
COMBINED = ("mean", "worst")


class MixtureCallback(transformers.TrainerCallback, ExportableState):
    """Settles draws after each optimiser step, and keeps the mixer's state in trainer_state.json.

    The Trainer may make a callback anew from its class alone, so the class knows the trainer: each
    trainer has a subclass of its own.
    """

    trainer: ClassVar["MixtureMixin"]

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"args": {}, "attributes": {"mixture": self.trainer.mixture_state()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Take up the state of a checkpoint, if the training goes on from one."""
        # A checkpoint from before the trainer had a mixture has no such entry.
        kept = state.stateful_callbacks.setdefault(type(self).__name__, None)
        if state.global_step and kept is not None:
            self.trainer.load_mixture_state(kept["attributes"]["mixture"])
        micro_batches = state.global_step * args.gradient_accumulation_steps * args.world_size
        self.trainer.mixer.skip(0 if args.ignore_data_skip else micro_batches)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say what came of the draws that the step was made of."""
        self.trainer.settle()


if TYPE_CHECKING:
    _Base = transformers.Trainer
else:
    _Base = object


class MixtureMixin(_Base):
    """Makes any Trainer take several training sets and a policy that says which comes next.

    Put it before a Trainer: `class Mine(MixtureMixin, MyTrainer)`. The loss of each set and the
    share of the examples spent on it are in the logs as `loss_NAME` and `share_NAME`. With several
    eval sets there are `eval_mean_METRIC` and `eval_worst_METRIC` beside those of each set, and
    `metric_for_best_model` can name them.

    Within a step, `self.task` is the name of the set that the batch is from, for a `compute_loss`
    that needs it.

    Args:
        train_dataset: the training sets by name.
        policy: draws the sets; its tasks are their names.
        decide: "step" makes one decision for an optimiser step, so that its micro-batches on all
            ranks are of one set; "batch" makes one for each micro-batch.
        collators: by set, how its items become a batch; the `data_collator` for all if None.
        lengths: by set, the length of each example, to put like lengths together. None: they are
            found in the data if `train_sampling_strategy` is "group_by_length".
        journal: the file to write every draw to; None for none.
        lag: see `taskmix.mixing.Mixer`.
        args, kwargs: those of the Trainer.
    """

    def __init__(
        self,
        *args: Any,
        train_dataset: Mapping[str, Any],
        policy: Policy,
        decide: Decide = "step",
        collators: Mapping[str, Collator] | None = None,
        lengths: Mapping[str, ArrayLike] | None = None,
        journal: Path | str | None = None,
        lag: int | None = None,
        **kwargs: Any,
    ) -> None:
        _check(policy, train_dataset, decide, kwargs.get("eval_dataset"))
        super().__init__(  # type: ignore[misc] # args are those before the training set
            *args, train_dataset=self._stand_in(train_dataset), **kwargs
        )
        self._check_args()
        self.training_sets = self._prepared(train_dataset)
        self.task = ""
        self._collators = collators or self.data_collator
        self._losses: dict[str, list[float]] = {}
        self._given_lengths = lengths
        per_step = self.args.world_size * self.args.gradient_accumulation_steps
        self.mixer = self._mixer(
            policy, journal=journal, lag=lag, batches=per_step if decide == "step" else 1
        )
        self._tally = Tally(self.mixer)
        self.add_callback(type("MixtureCallback", (MixtureCallback,), {"trainer": self})())

    def _check_args(self) -> None:
        if self.args.auto_find_batch_size:
            raise UserError("auto_find_batch_size: expected False with a policy, found True")
        for name in ("split_batches", "dispatch_batches"):
            if getattr(self.accelerator, name):
                raise UserError(f"accelerator_config, {name}: expected False with a policy")

    # For Trainers that change what they are given.
    def _stand_in(self, train_dataset: Mapping[str, Any]) -> Any:
        """Return what the Trainer takes for its training set."""
        return Mixed(train_dataset)

    def _prepared(self, train_dataset: Mapping[str, Any]) -> dict[str, Any]:
        """Return the training sets as they are trained on."""
        return dict(train_dataset)

    def _mixer(self, policy: Policy, **options: Any) -> Mixer:
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        return Mixer(
            policy,
            Mixed(self.training_sets).sizes,
            self.args.train_batch_size,
            seed=seed,
            lengths=self._lengths(),
            **options,
        )

    def _lengths(self) -> Mapping[str, ArrayLike] | None:
        by_length = self.args.train_sampling_strategy == "group_by_length"
        if self._given_lengths is not None or not by_length:
            return self._given_lengths
        column = self.args.length_column_name
        return {name: _found(name, each, column) for name, each in self.training_sets.items()}

    def set_initial_training_values(self, args: Any, dataloader: DataLoader[Any]) -> Any:
        """Count epochs over as many examples as all sets have together.

        A mixture has no end of its own, and the Trainer knows only loaders with an end or a number
        of steps.
        """
        if args.max_steps <= 0:
            examples = len(Mixed(self.training_sets)) * args.num_train_epochs
            steps = max(1, round(examples / self.get_total_train_batch_size(args)))
            args.max_steps, given = steps, args.max_steps
            try:
                return super().set_initial_training_values(args, dataloader)
            finally:
                args.max_steps = given
        return super().set_initial_training_values(args, dataloader)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the loader of the mixture."""
        given = self.args
        workers = given.dataloader_num_workers
        sets, collators = self._readable()
        loader: DataLoader[Any] = DataLoader(
            Mixed(sets),  # type: ignore[arg-type] # no more than items by key is asked of it
            batch_sampler=self.mixer,
            collate_fn=collate_by(collators),
            num_workers=workers,
            pin_memory=given.dataloader_pin_memory,
            persistent_workers=given.dataloader_persistent_workers,
            prefetch_factor=given.dataloader_prefetch_factor,
            multiprocessing_context=given.dataloader_multiprocessing_context,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=given.process_index),
            # Else the loader draws its seed where dropout draws its masks.
            generator=torch.Generator().manual_seed(given.seed),
        )
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def _readable(self) -> tuple[dict[str, Any], dict[str, Collator]]:
        """Return sets and collators without the columns that the model does not take."""
        sets, collators = {}, {}
        for name, each in self.training_sets.items():
            given = self._collators
            collator: Callable[..., Any] = given[name] if isinstance(given, Mapping) else given
            if isinstance(each, datasets.Dataset):
                sets[name] = self._remove_unused_columns(each, description=f"training ({name})")
                collators[name] = collator
            else:
                sets[name] = each
                collators[name] = self._get_collator_with_removed_columns(collator, name)
        return sets, collators

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
        """Train on a batch and take down its loss."""
        number, self.task = inputs.pop("draw"), inputs.pop("task")
        again = None
        if self._tally.wants_gain(number):
            again = partial(self._loss_again, dict(inputs), self.task, RandomState())
        examples, items = _rows(inputs), self._items(inputs)
        loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
        mean, weight = self._unscaled(loss, examples, items, num_items_in_batch)
        self._tally.add(number, mean, examples, weight=weight, again=again)
        return loss

    def _items(self, inputs: Mapping[str, Any]) -> Tensor | None:
        """Return how many labels of a batch count in its loss, as the Trainer counts them."""
        if "shift_labels" in inputs:
            labels = inputs["shift_labels"]
        else:
            labels = inputs.get("labels")
            if self._loss_shifts_labels and labels is not None:
                labels = labels[..., 1:]
        return labels.ne(-100).sum() if isinstance(labels, Tensor) else None

    def _unscaled(
        self, loss: Tensor, examples: int, items: Tensor | None, total: Any
    ) -> tuple[Tensor, Tensor | int]:
        """Return the mean loss of a batch, and what it counts beside the step's other batches.

        The Trainer's loss is a sum divided by the items of all batches of the step, or it is a mean
        divided by their number.
        """
        scaled: bool = (
            self.loss_is_scaled_for_ga
            if self.loss_is_scaled_for_ga is not None
            else (self.model_accepts_loss_kwargs and total is not None)
            or self.compute_loss_func is not None
        )
        if not scaled:
            return loss * self.current_gradient_accumulation_steps, examples
        if total is None or items is None:
            return loss, examples
        averaged = self.args.average_tokens_across_devices
        ranks = self.accelerator.num_processes // self.get_tp_size() if averaged else 1
        if self._ignores_items():
            return loss / ranks, examples
        return loss * total / ranks / items.clamp(min=1), items

    def _ignores_items(self) -> bool:
        """Return whether the model's loss is a mean, whatever number of items it is told."""
        problem = getattr(getattr(self.model, "config", None), "problem_type", None)
        own = self.compute_loss_func is not None or self.label_smoother is not None
        return not own and problem in ("regression", "multi_label_classification")

    def _loss_again(self, inputs: dict[str, Any], task: str, state: RandomState) -> Tensor:
        """Return the mean loss of a batch after the step, under the same dropout."""
        self.task = task
        prepared = self._prepare_inputs(inputs)
        with torch.no_grad(), state.again(), self.compute_loss_context_manager():
            loss: Tensor = self.compute_loss(self.model, prepared)  # type: ignore[arg-type, assignment]
        return loss.mean()

    def settle(self) -> None:
        """Say what came of the draws of an optimiser step."""
        for settled in self._tally.settle():
            if math.isfinite(settled.loss):
                self._losses.setdefault(settled.task, []).append(settled.loss)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Log the loss of each set and its share of the examples beside the training loss."""
        if "loss" in logs:
            for name, losses in self._losses.items():
                logs[f"loss_{name}"] = sum(losses) / len(losses)
            for name, share in self.mixer.shares().items():
                logs[f"share_{name}"] = share
            self._losses = {}
        super().log(logs, *args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate each set; with several, add the mean and the worst of each metric."""
        given = kwargs.get("eval_dataset", args[0] if args else None)
        sets = self.eval_dataset if given is None else given
        metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        if isinstance(sets, dict):
            prefix = kwargs.get("metric_key_prefix", "eval")
            self._add_combined(metrics, self._combined(metrics, list(sets), prefix))
        return metrics

    def _add_combined(self, metrics: dict[str, float], combined: dict[str, float]) -> None:
        self.log(dict(combined))
        metrics.update(combined)
        # For early stopping, which looks for the metric that the best model is chosen by.
        handler = self.callback_handler
        self.control = handler.on_evaluate(self.args, self.state, self.control, combined)

    def _combined(
        self, metrics: Mapping[str, float], sets: list[str], prefix: str
    ) -> dict[str, float]:
        """Return mean and worst over the sets of every metric that all of them have."""
        of = [
            {k.removeprefix(start): v for k, v in metrics.items() if k.startswith(start)}
            for start in (f"{prefix}_{name}_" for name in sets)
        ]
        combined = {}
        for name in of[0]:
            values = [metric[name] for metric in of if name in metric]
            if len(values) == len(sets) and not name.endswith(("_per_second", "runtime")):
                worst = max if self._lower_is_better(name) else min
                combined[f"{prefix}_mean_{name}"] = sum(values) / len(values)
                combined[f"{prefix}_worst_{name}"] = worst(values)
        return combined

    def _lower_is_better(self, metric: str) -> bool:
        if (self.args.metric_for_best_model or "").endswith(f"_{metric}"):
            return not self.args.greater_is_better
        return metric.endswith("loss")

    def mixture_state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of the mixture, as JSON-able values."""
        return {"mixer": self.mixer.state_dict(), "losses": self._losses}

    def load_mixture_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `mixture_state` returned."""
        self.mixer.load_state_dict(state["mixer"])
        self._losses = {name: list(losses) for name, losses in state["losses"].items()}


class MixtureTrainer(MixtureMixin, transformers.Trainer):
    """The Trainer of transformers over several training sets, mixed by a policy.

    Takes what `transformers.Trainer` takes and what `MixtureMixin` adds.
    """


def _check(policy: Policy, sets: Mapping[str, Any], decide: str, evaluated: Any) -> None:
    if not isinstance(sets, Mapping):
        raise UserError(
            f"train_dataset: expected training sets by name, found {type(sets).__name__}"
        )
    if set(sets) != set(policy.tasks):
        raise UserError(
            f"train_dataset: expected a set for each task of the policy, "
            f"{', '.join(policy.tasks)}, found {', '.join(sets) or 'none'}"
        )
    if decide not in ("step", "batch"):
        raise UserError(f"decide: expected step or batch, found {decide!r}")
    for name in COMBINED:
        if isinstance(evaluated, Mapping) and name in evaluated:
            raise UserError(
                f"eval_dataset: expected names other than {name}, which is that of the {name} over "
                "the sets"
            )


def _found(name: str, dataset: Any, column: str) -> ArrayLike:
    """Return the length of each example of a set."""
    if column in getattr(dataset, "column_names", ()):
        return list(dataset[column])
    if "input_ids" in getattr(dataset, "column_names", ()):
        return [len(ids) for ids in dataset["input_ids"]]
    try:
        return [len(item["input_ids"]) for item in dataset]
    except (KeyError, TypeError, IndexError):
        raise UserError(
            f"train_dataset, {name}: expected a column {column} or input_ids to group by length, "
            "found none; pass lengths"
        ) from None


def _rows(inputs: Mapping[str, Any]) -> int:
    return next((len(v) for v in inputs.values() if isinstance(v, Tensor) and v.dim()), 1)
