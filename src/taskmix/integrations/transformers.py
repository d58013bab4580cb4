"""The Trainer of transformers with data sets that are mixed by a policy."""

import logging
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
import transformers
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import DataLoader, Subset
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import seed_worker

try:
    import datasets
except ModuleNotFoundError:  # of the libraries of the extra, the one that is often missing
    raise ModuleNotFoundError(
        "a policy in the Trainer needs datasets; pip install 'taskmix[hf]'"
    ) from None

from taskmix.config import DEFAULT_POLICY, PolicySpec
from taskmix.errors import UserError, unknown
from taskmix.mixing import Mixed, Mixer, RandomState, Scorer, Tally, collate_by
from taskmix.mixing.decisions import check_names
from taskmix.mixing.mixed import Collator
from taskmix.policies import Policy

__all__ = ["MixtureMixin", "MixtureTrainer"]

log = logging.getLogger(__name__)

Decide = Literal["step", "batch"]
COMBINED = ("mean", "worst")


class MixtureCallback(transformers.TrainerCallback, ExportableState):
    """Settles draws after each optimiser step; saves the mixer's state in trainer_state.json."""

    # The Trainer may create a callback from its class alone, so each trainer has its own subclass.
    trainer: ClassVar["MixtureMixin"]

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"mixture": self.trainer.mixture_state()}}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        # The checkpoint of a trainer without a mixture has no such entry.
        saved = state.stateful_callbacks.setdefault(type(self).__name__, None)
        if state.global_step and saved is not None:
            self.trainer.load_mixture_state(saved["attributes"]["mixture"])
        elif state.global_step:
            log.warning(
                "checkpoint-%d holds no state of the mixture: it was not written by a mixture "
                "trainer; the policy starts anew, with draw 1",
                state.global_step,
            )
        elif not any(Path(args.output_dir).glob("checkpoint-*")):
            self.trainer.mixer.put_journal_aside()  # of a training that ended before its first one
        self.trainer.check_score()
        micro_batches = state.global_step * args.gradient_accumulation_steps * args.world_size
        self.trainer.mixer.skip(0 if args.ignore_data_skip else micro_batches)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.settle()


if TYPE_CHECKING:
    _Base = transformers.Trainer
else:
    _Base = object


class MixtureMixin(_Base):
    """Makes any Trainer mix several training sets by a policy.

    Put it before a Trainer: `class Mine(MixtureMixin, MyTrainer)`. The logs have the loss of each
    set as `loss_NAME` and its share of the examples since the previous log as `share_NAME`. With
    several eval sets there are also `eval_mean_METRIC` and `eval_worst_METRIC`, which
    `metric_for_best_model` may name.
    `self.task` is the name of the batch's set, in a step and in the evaluation of named eval sets,
    for a `compute_loss` that needs it.

    Args:
        train_dataset: the training sets by name.
        policy: draws the sets; its tasks are their names. Or its name, such as "aimed", or a
            mapping of its name and options as in a run file: `{"name": "exp3s", "eta": 0.01}`.
        decide: "step" draws once for an optimiser step, so that its micro-batches on all ranks are
            from one set; "batch" draws for each micro-batch.
        collators: by set; the `data_collator` for all if None.
        lengths: by set, the length of each example, to batch examples of similar length. None:
            taken from the data if `train_sampling_strategy` is "group_by_length".
        journal: a new file to write every draw to; None for no journal. A file that exists is
            renamed if `output_dir` has no checkpoint, and refused if it has one.
        lag: see `taskmix.mixing.Mixer`.
        score: for policies that learn from dev scores, such as `Thompson`: the name of
            a metric of `compute_metrics`, which is measured on the eval set of the same name as the
            training set; or scorers by set, see `taskmix.mixing.Tally`.
        args, kwargs: those of the Trainer.
    """

    def __init__(
        self,
        *args: Any,
        train_dataset: Mapping[str, Any],
        policy: PolicySpec = DEFAULT_POLICY,
        decide: Decide = "step",
        collators: Mapping[str, Collator] | None = None,
        lengths: Mapping[str, ArrayLike] | None = None,
        journal: Path | str | None = None,
        lag: int | None = None,
        score: str | Mapping[str, Scorer] | None = None,
        **kwargs: Any,
    ) -> None:
        check_sets(policy, train_dataset)
        _check(decide, kwargs.get("eval_dataset"))
        super().__init__(  # type: ignore[misc] # args are those before the training set
            *args, train_dataset=self._stand_in(train_dataset), **kwargs
        )
        if collators is not None:
            check_names("collators", collators, train_dataset, "training set")
        self._check_args()
        self.training_sets = self._prepared(train_dataset)
        self.task = ""
        self._eval_names: dict[str, str] = {}
        self._collators = collators or self.data_collator
        self._losses: dict[str, list[float]] = {}
        self._examples_logged: dict[str, int] = {}
        self._user_lengths = lengths
        per_step = self.args.world_size * self.args.gradient_accumulation_steps
        batches = per_step if decide == "step" else 1
        self.mixer = self._mixer(
            policy,
            journal=journal,
            lag=lag,
            batches=batches,
            steps=self._optimizer_steps() * per_step // batches,
        )
        self._prepare_outcomes(score)
        self._metric = self._score_metric(score)
        self._scored = list(self._scorers(score)) if isinstance(score, str) else []
        self.mixer.about = {
            "name": self.args.run_name or "mixture",
            "measure": "loss" if self._metric is None else "score",
        }
        self._warn_of_epochs()
        self.add_callback(type("MixtureCallback", (MixtureCallback,), {"trainer": self})())

    def _warn_of_epochs(self) -> None:
        """Say which strategies would act only at the end, as the mixture is one epoch."""
        steps = max(1, round(self._epoch_examples() / self.get_total_train_batch_size(self.args)))
        for kind in ("eval", "save", "logging"):
            if getattr(self.args, f"{kind}_strategy") == "epoch":
                log.warning(
                    '%s_strategy="epoch" acts only at the end of a mixture; %s_strategy="steps" '
                    "with %s_steps=%d acts each time that as many examples were drawn as all "
                    "training sets have",
                    *(kind, kind, kind, steps),
                )

    def _check_args(self) -> None:
        if self.args.auto_find_batch_size:
            raise UserError("auto_find_batch_size: expected False with a policy, found True")
        for name in ("split_batches", "dispatch_batches"):
            if getattr(self.accelerator, name):
                raise UserError(f"accelerator_config, {name}: expected False with a policy")

    def _stand_in(self, train_dataset: Mapping[str, Any]) -> Any:
        """Return the training set that is passed to the Trainer's `__init__`."""
        for base in type(self).__mro__:
            if base.__module__.startswith("trl."):
                raise UserError(
                    f"MixtureMixin: expected a Trainer that takes its training set as it is, found "
                    f"TRL's {base.__name__}, which prepares it; of TRL's trainers those with a "
                    "class in taskmix.integrations can mix"
                )
        return Mixed(train_dataset)

    def _prepared(self, train_dataset: Mapping[str, Any]) -> dict[str, Any]:
        """Return the training sets after the Trainer's preprocessing."""
        return dict(train_dataset)

    def _mixer(self, policy: PolicySpec, **options: Any) -> Mixer:
        seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
        sizes, batch = Mixed(self.training_sets).sizes, self.args.train_batch_size
        return Mixer(policy, sizes, batch, seed=seed, lengths=self._lengths(), **options)

    def _prepare_outcomes(self, score: str | Mapping[str, Scorer] | None) -> None:
        """Check that the policy's signals are measured, and prepare to collect them."""
        self._tally = Tally(self.mixer, self._scorers(score))

    def _lengths(self) -> Mapping[str, ArrayLike] | None:
        by_length = self.args.train_sampling_strategy == "group_by_length"
        if self._user_lengths is not None or not by_length:
            return self._user_lengths
        column = self.args.length_column_name
        return {name: _lengths_of(name, rows, column) for name, rows in self.training_sets.items()}

    def _scorers(self, score: str | Mapping[str, Scorer] | None) -> Mapping[str, Scorer]:
        if not isinstance(score, str):
            return score or {}
        sets = self.eval_dataset
        if self.compute_metrics is None or not isinstance(sets, Mapping):
            raise UserError(
                f"score: expected eval sets by name and compute_metrics for {score}, found none"
            )
        return {
            name: partial(self._score, score, name)
            for name in self.mixer.policy.tasks
            if name in sets
        }

    def check_score(self) -> None:
        """Raise if `compute_metrics` does not return the metric that the policy learns from."""
        for name in self._scored[:1]:
            assert self._metric is not None
            self._score(self._metric, name, 2)

    def _score(self, metric: str, name: str, examples: int | None) -> float:
        """Evaluate a set; no log, callback or random number of the training shows it."""
        rows: Any = self.eval_dataset[name]  # type: ignore[index] # a mapping, as was checked
        if examples is not None and examples < len(rows):
            places = np.linspace(0, len(rows) - 1, examples).astype(int).tolist()
            rows = rows.select(places) if hasattr(rows, "select") else Subset(rows, places)
        loader = self._get_dataloader(rows, "Evaluation", self.args.eval_batch_size)
        self.task = name
        with RandomState().again():
            output = self.evaluation_loop(loader, name, prediction_loss_only=False)
        metrics = output.metrics or {}
        if f"eval_{metric}" not in metrics:
            found = [key.removeprefix("eval_") for key in metrics]
            raise unknown("metric", metric, found, f"score, {name}")
        return float(metrics[f"eval_{metric}"])

    def set_initial_training_values(self, args: Any, dataloader: DataLoader[Any]) -> Any:
        """Define an epoch of the infinite mixture as the number of examples in all sets."""
        max_steps = args.max_steps
        args.max_steps = self._optimizer_steps()
        try:
            return super().set_initial_training_values(args, dataloader)
        finally:
            args.max_steps = max_steps

    def _optimizer_steps(self) -> int:
        args = self.args
        if args.max_steps > 0:
            return args.max_steps
        examples = self._epoch_examples() * args.num_train_epochs
        return max(1, round(examples / self.get_total_train_batch_size(args)))

    def _epoch_examples(self) -> int:
        return len(Mixed(self.training_sets))

    def get_train_dataloader(self) -> DataLoader[Any]:
        args = self.args
        workers = args.dataloader_num_workers
        dataset, collate = self._loadable()
        loader: DataLoader[Any] = DataLoader(
            dataset,
            batch_sampler=self.mixer,
            collate_fn=collate,
            num_workers=workers,
            pin_memory=args.dataloader_pin_memory,
            persistent_workers=args.dataloader_persistent_workers,
            prefetch_factor=args.dataloader_prefetch_factor,
            multiprocessing_context=args.dataloader_multiprocessing_context,
            worker_init_fn=partial(seed_worker, num_workers=workers, rank=args.process_index),
            # Without it, the loader's seed comes from the generator of the dropout masks.
            generator=torch.Generator().manual_seed(args.seed),
        )
        prepared: DataLoader[Any] = self.accelerator.prepare(loader)
        return prepared

    def _loadable(self) -> tuple[Any, Callable[..., Any]]:
        """Return the data of the loader and its collator."""
        sets, collators = self._readable()
        return Mixed(sets), collate_by(collators)

    def _readable(self) -> tuple[dict[str, Any], dict[str, Collator]]:
        """Return sets and collators without the columns that the model does not take."""
        sets, collators = {}, {}
        by_name = self._collators
        for name, rows in self.training_sets.items():
            collator: Callable[..., Any] = (
                by_name[name] if isinstance(by_name, Mapping) else by_name
            )
            if isinstance(rows, datasets.Dataset):
                sets[name] = self._remove_unused_columns(rows, description=f"training ({name})")
                collators[name] = collator
            else:
                sets[name] = rows
                collators[name] = self._get_collator_with_removed_columns(collator, name)
        return sets, collators

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> Tensor:
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
        """Return the number of labels that count in the loss, as the Trainer counts them."""
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
        """Return the mean loss of a batch, and its weight in the mean over the step's batches.

        The Trainer's loss is either a sum divided by the items of all batches of the step, or a
        mean divided by the number of batches.
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
        """Return whether the model's loss is a mean, whatever `num_items_in_batch` is."""
        problem = getattr(getattr(self.model, "config", None), "problem_type", None)
        replaced = self.compute_loss_func is not None or self.label_smoother is not None
        return not replaced and problem in ("regression", "multi_label_classification")

    def _loss_again(self, inputs: dict[str, Any], task: str, state: RandomState) -> Tensor:
        """Return the mean loss of a batch after the step, with the same dropout."""
        self.task = task
        prepared = self._prepare_inputs(inputs)
        with torch.no_grad(), state.again(), self.compute_loss_context_manager():
            loss: Tensor = self.compute_loss(self.model, prepared)  # type: ignore[arg-type, assignment]
        return loss.mean()

    def settle(self) -> None:
        for settled in self._tally.settle():
            if math.isfinite(settled.loss):
                self._losses.setdefault(settled.task, []).append(settled.loss)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:
            spent, before = dict(self.mixer.spent), self._examples_logged
            total = sum(spent.values()) - sum(before.values())
            for name in self.training_sets:
                if losses := self._losses.get(name):
                    logs[f"loss_{name}"] = sum(losses) / len(losses)
            for name in self.training_sets:
                logs[f"share_{name}"] = (spent[name] - before.get(name, 0)) / max(1, total)
            self._losses, self._examples_logged = {}, spent
        super().log(logs, *args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate each set; with several, add the mean and the worst of each metric."""
        eval_dataset = kwargs.get("eval_dataset", args[0] if args else None)
        sets = self.eval_dataset if eval_dataset is None else eval_dataset
        prefix = kwargs.get("metric_key_prefix", "eval")
        if isinstance(sets, dict):  # the Trainer evaluates each with a prefix of its own
            self._eval_names = {f"{prefix}_{name}": name for name in sets}
        else:
            self.task = self._eval_names.get(prefix, self.task)
        metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        if isinstance(sets, dict):
            if self.is_in_train and prefix == "eval":
                self._write_evaluation(metrics)
            combined = self._combined(metrics, list(sets), prefix)
            self.log(dict(combined))
            metrics.update(combined)
            # Early stopping needs the metric that the best model is chosen by.
            handler = self.callback_handler
            self.control = handler.on_evaluate(self.args, self.state, self.control, combined)
        return metrics

    def _write_evaluation(self, metrics: Mapping[str, float]) -> None:
        """Write an evaluation of eval sets with the names of the training sets to the journal."""
        losses = {name: metrics.get(f"eval_{name}_loss") for name in self.training_sets}
        scores = (
            {name: None if loss is None else -loss for name, loss in losses.items()}
            if self._metric is None
            else {name: metrics.get(f"eval_{name}_{self._metric}") for name in losses}
        )
        known = [*losses.values(), *scores.values()]
        if all(value is not None and math.isfinite(value) for value in known):
            self.mixer.evaluated(scores, losses)  # type: ignore[arg-type] # none is None

    def _score_metric(self, score: str | Mapping[str, Scorer] | None) -> str | None:
        """Return the metric by which the eval sets are compared; None for the loss."""
        if isinstance(score, str):
            return score
        best = (self.args.metric_for_best_model or "loss").removeprefix("eval_")
        for name in (*COMBINED, *self.training_sets):
            best = best.removeprefix(f"{name}_")
        return best if self.args.greater_is_better and best != "loss" else None

    def _combined(
        self, metrics: Mapping[str, float], sets: list[str], prefix: str
    ) -> dict[str, float]:
        """Return the mean and the worst over the sets of every metric that all of them have."""
        by_set = [
            {k.removeprefix(start): v for k, v in metrics.items() if k.startswith(start)}
            for start in (f"{prefix}_{name}_" for name in sets)
        ]
        combined = {}
        for name in by_set[0]:
            values = [of_set[name] for of_set in by_set if of_set.get(name) is not None]
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
        """Return the state of the mixture for a checkpoint, as JSON-able values."""
        logged = {"losses": self._losses, "examples_logged": self._examples_logged}
        return {"mixer": self.mixer.state_dict()} | logged

    def load_mixture_state(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `mixture_state`."""
        self.mixer.load_state_dict(state["mixer"])
        self._losses = {name: list(losses) for name, losses in state["losses"].items()}
        self._examples_logged = dict(state.get("examples_logged", {}))


class MixtureTrainer(MixtureMixin, transformers.Trainer):
    """The Trainer of transformers with training sets that are mixed by a policy.

    Its arguments are those of `transformers.Trainer` and of `MixtureMixin`.
    """


def check_sets(policy: PolicySpec, sets: Mapping[str, Any]) -> None:
    """Raise unless there is a training set for each task of the policy."""
    if not isinstance(sets, Mapping):
        raise UserError(
            "train_dataset: expected a mapping of names to data sets, such as {'reviews': ...},"
            f" found {type(sets).__name__}"
        )
    if not sets:
        raise UserError("train_dataset: expected at least one data set, found none")
    for name, rows in sets.items():
        if hasattr(rows, "__len__") and len(rows) == 0:
            raise UserError(f"train_dataset, {name}: expected examples, found none")
    if isinstance(policy, Policy):
        check_names("train_dataset", sets, policy.tasks)


def _check(decide: str, evaluated: Any) -> None:
    if decide not in ("step", "batch"):
        raise UserError(f"decide: expected step or batch, found {decide!r}")
    for name in COMBINED:
        if isinstance(evaluated, Mapping) and name in evaluated:
            raise UserError(
                f"eval_dataset: expected another name than {name}, the name of the {name} over the "
                "sets"
            )


def _lengths_of(name: str, dataset: Any, column: str) -> ArrayLike:
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
