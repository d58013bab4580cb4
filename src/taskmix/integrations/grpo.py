"""TRL's GRPOTrainer and RLOOTrainer with environments that are mixed by a policy."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import datasets
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.utils import get_callable_name, is_async_callable

from taskmix.config import DEFAULT_POLICY, PolicySpec
from taskmix.errors import UserError, unknown
from taskmix.integrations.rollouts import check_policy, prompt_rewards, signals_of
from taskmix.integrations.transformers import MixtureMixin, check_sets
from taskmix.journal import Step
from taskmix.mixing import (
    BatchOrder,
    Item,
    ItemOrder,
    Key,
    LearnabilityOrder,
    Mixed,
    Mixer,
    PromptLearnability,
)
from taskmix.policies import Outcome, Policy

__all__ = ["MixtureGRPOMixin", "MixtureGRPOTrainer"]

Decide = Literal["generation", "prompt"]


class RolloutMixer(Mixer):
    """A mixer that yields generation batches: each prompt repeated, one share for each rank.

    TRL reads a batch for every forward pass, and uses only those for which it generates; the
    batches in between are empty.

    Args:
        policy, sizes, batch, options: see `Mixer`; the batch is the prompts of one draw.
        draws: in a generation batch.
        generations: the completions of each prompt.
        uses: forward passes for each generation batch.
        ranks: the number of processes.
    """

    def __init__(
        self,
        policy: PolicySpec,
        sizes: Mapping[str, int],
        batch: int,
        *,
        draws: int,
        generations: int,
        uses: int,
        ranks: int,
        **options: Any,
    ) -> None:
        super().__init__(policy, sizes, batch, **options)
        self.draws, self.generations, self.uses, self.ranks = draws, generations, uses, ranks
        self.used = 0  # forward passes with the current generation batch, before the first one here
        self._scored: dict[int, list[tuple[int, float | None]]] = {}

    def __iter__(self) -> Iterator[list[Key]]:
        blanks = self._blanks + -self.used % self.uses * self.ranks
        self._blanks = self.used = 0
        yield from ([] for _ in range(blanks))
        numbers = self._numbers()
        while True:
            keys = [
                key
                for number in islice(numbers, self.draws)
                for batch in self._keys(number)
                for key in batch
                for _ in range(self.generations)
            ]
            share = len(keys) // self.ranks
            yield from (keys[rank * share : (rank + 1) * share] for rank in range(self.ranks))
            yield from ([] for _ in range((self.uses - 1) * self.ranks))

    def settle_rollout(
        self, number: int, rewards: Sequence[float | None], **measured: Any
    ) -> Step | None:
        """Settle an open draw, with the mean reward of each of its prompts."""
        items = [item for batch in self._items[number] for item in batch]
        self._scored[number] = list(zip(items, rewards, strict=True))
        return self.settle(number, **measured)

    def _tell(self, outcome: Outcome) -> None:
        super()._tell(outcome)
        for item, reward in self._scored.pop(outcome.draw.number, []):
            self.orders[outcome.draw.task].tell(item, reward)

    def state_dict(self) -> dict[str, Any]:
        scored = {str(number): pairs for number, pairs in self._scored.items()}
        return super().state_dict() | {"scored": scored}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._scored = {
            int(number): [(item, reward) for item, reward in pairs]
            for number, pairs in state.get("scored", {}).items()
        }

    def _settings(self) -> dict[str, Any]:
        generation = [self.draws, self.generations, self.uses, self.ranks]
        decide = {"decide": "prompt" if self.draws > 1 else "generation"}
        settings = super()._settings() | {"draws, generations, uses and ranks": generation}
        return decide | settings


class _UnshuffledOrder(ItemOrder):
    """Full batches in the order of the data, for `shuffle_dataset=False`."""

    def epoch_batches(self, epoch: int) -> Iterator[list[int]]:
        starts = range(0, self._size - self._batch + 1, self._batch)
        return (list(range(start, start + self._batch)) for start in starts)


class _Prompts:
    """The rows of generation batches, by key; a row that is repeated is read once."""

    def __init__(self, mixed: Mixed) -> None:
        self._mixed = mixed

    def __getitems__(self, keys: Sequence[Key]) -> list[Item]:
        rows = {key: self._mixed[key] for key in dict.fromkeys(keys)}
        # TRL may write to a row.
        return [item._replace(value=dict(item.value)) for item in map(rows.__getitem__, keys)]


class MixtureGRPOMixin(MixtureMixin):
    """Makes TRL's GRPOTrainer or RLOOTrainer, or a subclass, mix environments by a policy.

    An environment is a set of prompts, with reward functions. Reward functions get the name of the
    environment of each completion in the column `environment`.

    The policy learns from the rewards of its draws: see `taskmix.Rewards`. The logs have `reward`,
    `spread`, `mute`, `advantage` and `tokens` of each environment, such as `reward_NAME`, and its
    share of the completions as `share_NAME`. With eval sets by name, TRL's metrics of each set have
    its name, such as `eval_NAME_reward`, and `eval_mean_reward` and `eval_worst_reward` are added.

    A checkpoint between two generations has the completions that are still to be used, in
    `rollouts-RANK.safetensors`, so that a resumed training continues with them. TRL alone would
    generate anew from the current prompts, at a different step of the schedule.

    Args:
        model, args, kwargs: those of the trainer and of `MixtureMixin`.
        reward_funcs: as TRL has them, for all environments; or by environment, a function or a list
            of functions.
        train_dataset: the prompts of each environment by name.
        policy: draws the environments; its tasks are their names. Or its name, such as "sec", or a
            mapping of its name and options, such as `{"name": "sec", "temperature": 0.1}`. The
            default, "aimed", does not learn.
        decide: "generation" draws once for a generation batch; "prompt" draws the environment of
            each of its prompts.
        prompts: "learnability", or a `taskmix.mixing.PromptLearnability`, draws the prompts of an
            environment by their pass rates. None shuffles them, or keeps their order if
            `shuffle_dataset` is False.
    """

    # Of the trainer that comes after it.
    args: Any
    mixer: RolloutMixer
    num_generations: Any
    num_iterations: Any
    reward_weights: Tensor
    _buffered_inputs: Any
    _metrics: Any
    _step: int

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        *args: Any,
        train_dataset: Mapping[str, Any],
        policy: PolicySpec = DEFAULT_POLICY,
        decide: Decide = "generation",
        prompts: Literal["learnability"] | PromptLearnability | None = None,
        **kwargs: Any,
    ) -> None:
        check_sets(policy, train_dataset)
        if decide not in ("generation", "prompt"):
            raise UserError(f"decide: expected generation or prompt, found {decide!r}")
        self._learnability = _learnability(prompts)
        for name in ("collators", "lengths"):
            if kwargs.get(name) is not None:
                raise UserError(f"{name}: expected None, as TRL collates prompts itself")
        self._each_prompt = decide == "prompt"
        self._rollouts: dict[str, list[dict[str, float]]] = {}
        if isinstance(kwargs.get("eval_dataset"), Mapping):
            sets = kwargs["eval_dataset"]
            for name in sets if isinstance(reward_funcs, Mapping) else ():
                if name not in train_dataset:  # it would have no rewards
                    raise unknown("environment", name, train_dataset, "eval_dataset")
            kwargs["eval_dataset"] = {name: _named(name, rows) for name, rows in sets.items()}
        tasks = policy.tasks if isinstance(policy, Policy) else tuple(train_dataset)
        super().__init__(
            model,
            _reward_functions(reward_funcs, tasks),
            *args,
            train_dataset=train_dataset,
            policy=policy,
            **kwargs,
        )

    def _stand_in(self, train_dataset: Mapping[str, Any]) -> Any:
        for name, rows in train_dataset.items():
            _check_prompts(name, rows)
        return next(iter(train_dataset.values()))

    def _mixer(self, policy: PolicySpec, **options: Any) -> RolloutMixer:
        args, sizes = self.args, Mixed(self.training_sets).sizes
        prompts = args.generation_batch_size // self.num_generations
        batch = 1 if self._each_prompt else prompts
        for name, size in sizes.items():
            if size < batch:
                raise UserError(
                    f"train_dataset, {name}: expected at least the {batch} prompts of a generation "
                    f"batch, found {size}"
                )
        seed = args.seed if args.data_seed is None else args.data_seed
        draws, uses = prompts // batch, args.steps_per_generation * self.num_iterations
        passes = self._optimizer_steps() * args.gradient_accumulation_steps
        return RolloutMixer(
            policy,
            sizes,
            batch,
            steps=math.ceil(passes / uses) * draws,
            draws=draws,
            generations=self.num_generations,
            uses=uses,
            ranks=args.world_size,
            seed=seed,
            orders={name: self._order(name, size, batch, seed) for name, size in sizes.items()},
            journal=options["journal"],
            lag=options["lag"],
        )

    def _order(self, name: str, size: int, batch: int, seed: int) -> BatchOrder:
        shuffled = self.args.shuffle_dataset
        if self._learnability is None:
            return (ItemOrder if shuffled else _UnshuffledOrder)(name, size, batch, seed)
        if not shuffled:
            raise UserError("shuffle_dataset: expected True, as prompts are drawn, found False")
        return LearnabilityOrder(name, size, batch, seed, self._learnability)

    def _prepare_outcomes(self, score: Any) -> None:
        if score is not None:
            raise UserError("score: expected None, as policies learn from rewards here")
        check_policy(self.mixer.policy)

    def _epoch_examples(self) -> int:
        return int(super()._epoch_examples() * self.num_generations * self.num_iterations)

    def _loadable(self) -> tuple[Any, Callable[..., Any]]:
        sets = {
            name: self._remove_unused_columns(rows, description=f"training ({name})")
            for name, rows in self.training_sets.items()
        }
        return _Prompts(Mixed(sets)), list

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        # Draws are settled when their completions have rewards, not after the step.
        loss: Tensor = super(MixtureMixin, self).training_step(*args, **kwargs)
        return loss

    def settle(self) -> None:
        pass

    def _write_evaluation(self, metrics: Mapping[str, float]) -> None:
        pass  # the loss of GRPO is no measure of the model

    def _generate_and_score_completions(self, inputs: list[Any]) -> dict[str, Any]:
        generate = super()._generate_and_score_completions  # type: ignore[misc]
        if not isinstance(inputs[0], Item):  # of an evaluation
            output: dict[str, Any] = generate(inputs)
            return output
        output = generate([item.value | {"environment": item.task} for item in inputs])
        gather, device = self.accelerator.gather, self.accelerator.device
        counted = [[item.draw for item in inputs], self._lengths_generated]
        numbers, tokens = gather(torch.tensor(counted, device=device).T).T.cpu()
        absolute = output["advantages"].abs().reshape(len(inputs), -1).mean(dim=1)
        self._settle_rollout(numbers, tokens, gather(absolute).double().cpu())
        return output

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, ids: Any) -> Tensor:
        by_function: Tensor = super()._calculate_rewards(  # type: ignore[misc]
            inputs, prompts, completions, ids
        )
        rewards = (by_function * self.reward_weights.to(by_function.device)).nansum(dim=1)
        rewards[by_function.isnan().all(dim=1)] = math.nan
        self._rewards = rewards.double().cpu()  # of all ranks
        self._lengths_generated = [len(tokens) for tokens in ids]  # of this rank
        return by_function

    def _settle_rollout(self, numbers: Tensor, tokens: Tensor, absolute: Tensor) -> None:
        """Settle the draws of a generation batch; each array has a value for each completion."""
        arrays = (self._rewards, absolute, tokens)
        columns = [array.tolist() for array in arrays]  # Python is faster than torch with so few
        places: dict[int, list[int]] = {}
        for place, number in enumerate(numbers.tolist()):
            places.setdefault(number, []).append(place)
        for number, chosen in places.items():
            task = self.mixer.opened(number).task
            rewards, advantages, lengths = ([column[i] for i in chosen] for column in columns)
            if all(map(math.isnan, rewards)):
                raise UserError(
                    f"reward_funcs, environment {task}: expected a number for each completion, "
                    f"found None for all {len(chosen)} of draw {number}"
                )
            measured = signals_of(rewards, advantages, self.num_generations)
            measured["tokens"] = sum(lengths)
            means = prompt_rewards(rewards, self.num_generations)
            self.mixer.settle_rollout(number, means, examples=len(chosen), **measured)
            self._rollouts.setdefault(task, []).append(measured)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs:
            for task, rollouts in self._rollouts.items():
                for name in rollouts[0]:
                    values = [rollout[name] for rollout in rollouts]
                    logs[f"{name}_{task}"] = sum(values) / len(values)
            self._rollouts = {}
        for name in self.eval_dataset if isinstance(self.eval_dataset, Mapping) else ():
            if f"eval_{name}_loss" in logs:  # TRL gives the metrics of all sets the same names
                metrics = {f"{name}_{key}": values for key, values in self._metrics["eval"].items()}
                self._metrics["eval"] = defaultdict(list, metrics)
        super().log(logs, *args, **kwargs)

    def mixture_state(self) -> dict[str, Any]:
        metrics = dict(self._metrics["train"])  # TRL does not save those since the latest log
        return super().mixture_state() | {"rollouts": self._rollouts, "metrics": metrics}

    def load_mixture_state(self, state: Mapping[str, Any]) -> None:
        super().load_mixture_state(state)
        self._rollouts = dict(state["rollouts"])
        self._metrics["train"].update(state["metrics"])
        # TRL counts forward passes from 0 after a resume, and so would generate at other steps.
        self._step = self.state.global_step * self.args.gradient_accumulation_steps
        self.mixer.used = self._step % self.mixer.uses

    # TRL saves and loads its generators' states on each rank, where the completions are as well.

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._step % self.mixer.uses:
            tensors = {
                f"{place}/{name}{'' if isinstance(value, Tensor) else '/list'}": torch.as_tensor(
                    value
                ).clone(memory_format=torch.contiguous_format)
                for place, batch in enumerate(self._buffered_inputs or [])
                for name, value in batch.items()
                if value is not None
            }
            save_file(tensors, self._rollouts_file(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        if checkpoint is None or not self._step % self.mixer.uses:
            return
        path = self._rollouts_file(checkpoint)
        if not path.exists():
            raise UserError(f"{path}: expected the completions that are in use, found no such file")
        batches: list[dict[str, Any]] = [{} for _ in range(self.args.steps_per_generation)]
        for key, tensor in load_file(path).items():
            place, name, *is_list = key.split("/")
            on_device = tensor.to(self.accelerator.device)
            batches[int(place)][name] = tensor.tolist() if is_list else on_device
        self._buffered_inputs = batches

    def _rollouts_file(self, folder: str) -> Path:
        return Path(folder) / f"rollouts-{self.args.process_index}.safetensors"


class MixtureGRPOTrainer(MixtureGRPOMixin, GRPOTrainer):
    """TRL's GRPOTrainer with environments that are mixed by a policy.

    Its arguments are those of `trl.GRPOTrainer` and of `MixtureGRPOMixin`.
    """


class _RewardFunction:
    """A reward function with a sentence for a bad result, for one environment or for all."""

    def __init__(self, function: Callable[..., Any], environment: str | None) -> None:
        name = get_callable_name(function)
        self.__name__ = name if environment is None else f"{environment}/{name}"
        self._function = function
        self._environment = environment

    def __call__(self, **columns: Any) -> list[float | None]:
        chosen = self._chosen(columns)
        with self._naming_errors():
            values = self._function(**self._select(columns, chosen)) if chosen else []
        return self._spread(self._checked(values, len(chosen)), columns, chosen)

    @contextmanager
    def _naming_errors(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"This is an error of the reward function {self.__name__}.")
            raise

    def _chosen(self, columns: Mapping[str, Any]) -> list[int]:
        """Return the rows of the environment."""
        rows = range(len(columns["prompts"]))
        if self._environment is None:
            return list(rows)
        if "environment" not in columns:
            raise UserError(
                "eval_dataset: expected sets by name, or a column environment, as the reward "
                "functions are given by environment"
            )
        return [row for row in rows if columns["environment"][row] == self._environment]

    def _select(self, columns: Mapping[str, Any], chosen: list[int]) -> dict[str, Any]:
        selected = {
            name: [column[row] for row in chosen] if isinstance(column, list) else column
            for name, column in columns.items()
        }
        log_extra = columns.get("log_extra")
        if log_extra is not None:
            # TRL expects a value for each row of the batch.
            selected["log_extra"] = lambda name, values: log_extra(
                name, self._spread(values, columns, chosen)
            )
        return selected

    def _spread(self, values: Sequence[Any], columns: Any, chosen: list[int]) -> list[Any]:
        """Return a value for each row of the batch, None for other environments."""
        by_row = dict(zip(chosen, values, strict=True))
        return [by_row.get(row) for row in range(len(columns["prompts"]))]

    def _checked(self, values: Any, expected: int) -> list[float | None]:
        what = f"reward function {self.__name__}: expected"
        if not isinstance(values, Sequence | Tensor) and not hasattr(values, "tolist"):
            raise UserError(f"{what} a list of {expected} rewards, found {values!r}")
        if len(values) != expected:
            raise UserError(
                f"{what} {expected} rewards, one for each completion, found {len(values)}"
            )
        for value in values:
            if value is not None and not _is_finite(value):
                raise UserError(f"{what} finite numbers, or None to abstain, found {value!r:.40}")
        return [None if value is None else float(value) for value in values]


class _AsyncRewardFunction(_RewardFunction):
    async def __call__(  # type: ignore[override] # TRL awaits it
        self, **columns: Any
    ) -> list[float | None]:
        chosen = self._chosen(columns)
        with self._naming_errors():
            values = await self._function(**self._select(columns, chosen)) if chosen else []
        return self._spread(self._checked(values, len(chosen)), columns, chosen)


def _is_finite(value: Any) -> bool:
    try:
        return math.isfinite(value)
    except (TypeError, ValueError):  # not a number, or a tensor of several
        return False


def _reward_functions(given: Any, tasks: Sequence[str]) -> Any:
    """Return the reward functions for TRL, each checked and limited to its environment."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        functions = given if isinstance(given, list) else [given]
        return [_checked_function(function, None) for function in functions]
    for name in given:
        if name not in tasks:
            raise unknown("environment", name, tasks, "reward_funcs")
    missing = [task for task in tasks if not given.get(task)]
    if missing:
        raise UserError(f"reward_funcs: expected functions for {missing[0]}, found none")
    return [
        _checked_function(function, task)
        for task in tasks
        for function in (given[task] if isinstance(given[task], list) else [given[task]])
    ]


def _checked_function(function: Any, environment: str | None) -> Any:
    if isinstance(function, str | torch.nn.Module):
        if environment is not None:
            raise UserError(
                f"reward_funcs, {environment}: expected functions, as a reward model scores all "
                "environments, found a model"
            )
        return function
    kind = _AsyncRewardFunction if is_async_callable(function) else _RewardFunction
    return kind(function, environment)


def _learnability(prompts: Any) -> PromptLearnability | None:
    if prompts is None or isinstance(prompts, PromptLearnability):
        return prompts
    if prompts != "learnability":
        raise UserError(
            f"prompts: expected learnability, a PromptLearnability or None, found {prompts!r}"
        )
    return PromptLearnability()


def _check_prompts(name: str, rows: Any) -> None:
    if not isinstance(rows, datasets.Dataset):
        raise UserError(
            f"train_dataset, {name}: expected a datasets.Dataset, found {type(rows).__name__}"
        )
    if "prompt" not in rows.column_names:
        raise UserError(
            f"train_dataset, {name}: expected a column prompt, found {', '.join(rows.column_names)}"
        )
    _named(name, rows)


def _named(name: str, rows: Any) -> Any:
    """Return an environment's data with its name in the column `environment`."""
    if not isinstance(rows, datasets.Dataset):
        return rows
    if "environment" not in rows.column_names:
        return rows.add_column("environment", [name] * len(rows))
    others = [value for value in rows.unique("environment") if value != name]
    if others:
        raise UserError(
            f"data of {name}: expected its name in the column environment, found {others[0]!r}"
        )
    return rows
