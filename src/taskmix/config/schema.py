"""The sections of a run file and their defaults."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    create_model,
    field_validator,
    model_serializer,
    model_validator,
)

from taskmix.config.classes import decider_class, is_own
from taskmix.config.dialect import write_value
from taskmix.config.entries import HubTask, TaskEntry, task_entry
from taskmix.errors import UserError, explain
from taskmix.families import FAMILIES, Family
from taskmix.models.spec import ModelSpec, Section

NAME = r"\w[\w.+-]*"
"""The names of runs and contestants, which are names of folders too."""


class Budget(Section):
    """The training budget.

    Args:
        steps: optimiser steps.
        epochs: instead of `steps`, passes over the training rows of all tasks together; the run
            counts the rows and sets `steps` from them.
        rounds: rounds of a weighting, instead of steps.
        batch: examples in a step.
        tokens: instead of `batch`, the approximate number of tokens in a step, so that texts of
            different lengths get equal shares; for policies only.
        accumulate: the number of parts in which a batch passes through the model, to save memory.
        count: the unit of the budget. `steps` counts steps or rounds, whatever they cost.
            `examples` counts backward passes of an example, `compute` forward and backward passes,
            with those of scoring and measuring; the budget is then the cost of plain `steps` of
            `batch` examples, for a weighting too.
    """

    steps: int = Field(default=1000, ge=1)
    epochs: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    rounds: int = Field(default=10, ge=1)
    batch: int = Field(default=16, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    accumulate: int = Field(default=1, ge=1)
    count: Literal["steps", "examples", "compute"] = "steps"

    @model_validator(mode="after")
    def _tokens_are_counted_in_steps(self) -> "Budget":
        if self.tokens is not None and self.count != "steps":
            raise ValueError(f"count: expected steps beside tokens, found {self.count}")
        if self.tokens is not None and self.epochs is not None:
            raise ValueError(f"epochs: expected batch with it, found tokens={self.tokens}")
        return self


class Optimizer(Section):
    """AdamW or SGD, with warm-up and linear decay (constant in the rounds of a weighting).

    Args:
        name: `adamw` or `sgd`.
        momentum: of `sgd`.
        lr: learning rate of the encoder.
        head_factor: multiplies the learning rate of the heads, which are initialised at random.
        conditional_factor: multiplies that of the conditional modules and task embeddings, whose
            effect on the encoder is a product of the two. With `embedding_start: 1`, trainings
            diverged at 10.
        weight_decay: not applied to biases and norms.
        warmup: share of the steps in which the rate rises from 0.
        clip: largest norm of the gradient; 0 for no clipping.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    lr: float = Field(default=5e-5, gt=0, allow_inf_nan=False)
    head_factor: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    conditional_factor: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    warmup: float = Field(default=0.1, ge=0, le=1)
    clip: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _only_sgd_has_momentum(self) -> "Optimizer":
        if self.name != "sgd" and self.momentum != type(self).model_fields["momentum"].default:
            raise ValueError(f"momentum: expected sgd with it, found {self.name}")
        return self


class Evaluate(Section):
    """The evaluations of a run.

    Args:
        every: steps between evaluations; a tenth of the budget if None.
        batch: examples in a batch of an evaluation.
        examples: maximum number of dev examples of each task, the same ones each time.
        patience: stop after this many evaluations without a better score; never if None.
        keep: the final model is the `best` evaluated one, or the `last`.
        batches: write the score of each batch of a task's first epoch to the journal, from the
            forward pass of the training; only a policy's run has them. See `BatchScore`.
    """

    every: int | None = Field(default=None, ge=1)
    batch: int = Field(default=64, ge=1)
    examples: int | None = Field(default=None, ge=1)
    patience: int | None = Field(default=None, ge=1)
    keep: Literal["best", "last"] = "best"
    batches: bool = False


class Checkpoint(Section):
    """The checkpoints of a run.

    Args:
        every: steps between checkpoints; one at each evaluation if None.
        keep: the number of latest checkpoints that are kept, besides the best.
    """

    every: int | None = Field(default=None, ge=1)
    keep: int = Field(default=1, ge=1)


class Sharing(Section):
    """The division of work among several ranks; no effect with a single process.

    Args:
        shard: divide the encoder's parameters, gradients and optimiser state among the ranks
            (FSDP2), for encoders that do not fit on one; otherwise each rank has all of them.
    """

    shard: bool = False


class Objective(Section):
    """The value that chooses the model to keep and decides about early stopping.

    In a run file, `objective: glue/rte` is the score of that task, a list of tasks the mean of
    their scores, and `{loss: glue/rte}` or `{loss: [...]}` the dev loss.

    Args:
        tasks: the target tasks, with equal weights.
        measure: `score` (higher is better) or `loss` (lower is better).
    """

    tasks: tuple[str, ...] = Field(min_length=1)
    measure: Literal["score", "loss"] = "score"

    @property
    def words(self) -> str:
        """The heading of its values in tables."""
        return "objective" if self.measure == "score" else "objective, loss"


class Resolved(Section):
    """Facts that a run determined at its start, in the run.yaml of its folder.

    If a run file has this section, its revisions are used again; the rest is information.

    Args:
        encoders: revisions of encoders by hub name; None if the hub did not answer.
        datasets: revisions of data sets by hub name.
        causal: whether the model is a causal language model, because a task generates.
        model: the class of a model made in Python.
        sizes: training examples by task.
    """

    encoders: dict[str, str | None] = {}  # noqa: RUF012 (pydantic copies it)
    datasets: dict[str, str | None] = {}  # noqa: RUF012
    causal: bool = False
    model: str | None = None
    sizes: dict[str, int] = {}  # noqa: RUF012


TRACKERS = ("tensorboard", "wandb", "mlflow", "trackio")
OF_MACHINE = ("data", "device", "code", "track")
"""Keys in which the runs of a study may differ from machine to machine."""
DEFAULT_POLICY = "aimed"
"""The policy of a run that names no decider."""
_KEYS: dict[str, Any] = dict.fromkeys(FAMILIES, (dict[str, Any] | None, None))
_Deciders: Any = create_model("_Deciders", __base__=Section, **_KEYS)


class RunConfig(_Deciders):  # type: ignore[misc]
    """One training: tasks, model, decider, budget, seed.

    The decider is a policy, a selector (`selection`) or a weighting (`weighting`). Everything but
    the tasks has a default.

    Args:
        name: the run's name.
        tasks: names of the catalogue, tasks made in Python, or mappings that describe a task.
        model: the model to train.
        policy: the policy that draws the task of each batch; or `selection`, or `weighting`. If
            none is named, the policy is `aimed`.
        budget: the training budget.
        optimizer: the optimiser and its learning rates.
        objective: the value to optimise; None means the mean score over all tasks, for a weighting
            its target's score.
        evaluate: the evaluations.
        checkpoint: the checkpoints.
        seed: determines all random numbers.
        loss: the loss of a batch of several tasks: the mean over its examples (`examples`), the
            mean over the tasks' mean losses (`mean`), or their sum (`sum`).
        precision: `bfloat16` for mixed precision; `auto` uses it if the device supports it.
        deterministic: use only deterministic algorithms, on a GPU too.
        ranks: the division of work among several ranks.
        device: the device; `auto` is the fastest one.
        track: trackers that log the run (`tensorboard`, `wandb`, `mlflow`, `trackio`): a name, a
            mapping of a name and options, or a list of these.
        data: the folder of the catalogue's files; None means the environment's TASKMIX_DATA.
        code: the folder from which a user's classes are imported: that of the run file.
        resolved: facts that the run determined at its start; only in the run.yaml of a run folder.

    >>> config = RunConfig(tasks=["digits/left", "digits/right"], budget={"steps": 50})
    >>> config.policy, config.budget.batch
    ({'name': 'aimed'}, 16)
    """

    name: str = Field(default="run", pattern=f"^{NAME}$")
    tasks: tuple[Annotated[TaskEntry, BeforeValidator(task_entry)], ...]
    model: ModelSpec = ModelSpec()
    budget: Budget = Budget()
    optimizer: Optimizer = Optimizer()
    objective: Objective | None = None
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoint = Checkpoint()
    seed: int = Field(default=1, ge=0)
    loss: Literal["examples", "mean", "sum"] = "examples"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    deterministic: bool = False
    ranks: Sharing = Sharing()
    device: str = "auto"
    track: tuple[dict[str, Any], ...] = ()
    data: str | None = None
    code: str | None = None
    resolved: Resolved | None = None

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise UserError(explain(error, RunConfig)) from None

    @field_validator("tasks")
    @classmethod
    def _some_tasks(cls, tasks: tuple[Any, ...]) -> tuple[Any, ...]:
        if not tasks:
            raise ValueError("expected at least one task, found none")
        return tasks

    @field_validator(*FAMILIES, mode="before")
    @classmethod
    def _check_spec(cls, spec: Any) -> Any:
        if isinstance(spec, str):
            return {"name": spec}
        if isinstance(spec, Mapping) and "name" not in spec:
            raise ValueError("expected a name among the keys")
        if isinstance(spec, Mapping) and "as" in spec:
            name = spec["as"]
            if not (isinstance(name, str) and re.fullmatch(NAME, name)):
                raise ValueError(f"as: expected a name of letters, digits and ._+-, found {name!r}")
        return spec

    @field_validator("track", mode="before")
    @classmethod
    def _expand_track(cls, value: Any) -> Any:
        specs = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
        named = [{"name": spec} if isinstance(spec, str) else spec for spec in specs]
        for spec in named:
            name = spec.get("name") if isinstance(spec, Mapping) else None
            if name not in TRACKERS:
                raise ValueError(f"expected {' or '.join(TRACKERS)}, found {name or spec!r}")
        return named

    @field_validator("objective", mode="before")
    @classmethod
    def _expand_objective(cls, value: Any) -> Any:
        measure = "score"
        if isinstance(value, Mapping) and set(value) == {"loss"}:
            measure, value = "loss", value["loss"]
        if isinstance(value, str):
            value = [value]
        return {"tasks": value, "measure": measure} if isinstance(value, (list, tuple)) else value

    @model_validator(mode="before")
    @classmethod
    def _one_decider(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            keys = [key for key in FAMILIES if values.get(key) is not None]
            if not keys:
                return {**values, "policy": DEFAULT_POLICY}
            if len(keys) > 1:
                raise ValueError(
                    f"expected one of {', '.join(FAMILIES)}, found {' and '.join(keys)}"
                )
        return values

    @model_validator(mode="after")
    def _known_decider(self) -> "RunConfig":
        # Opening a run must not execute code that came with it: a user's class is not imported.
        if not is_own(self.decider["name"]):
            decider_class(self.family, self.decider, None)
        return self

    @model_validator(mode="after")
    def _only_a_policy_counts_tokens(self) -> "RunConfig":
        if self.budget.tokens is not None and self.family.key != "policy":
            raise ValueError(f"budget.tokens: expected a policy with it, found a {self.family.key}")
        return self

    @model_validator(mode="after")
    def _only_steps_come_from_epochs(self) -> "RunConfig":
        if self.budget.epochs is not None and self.unit != "steps":
            raise ValueError(f"budget.epochs: expected steps, found a {self.family.key}'s rounds")
        return self

    @model_serializer(mode="wrap")
    def _without_an_empty_section(self, handler: SerializerFunctionWrapHandler) -> Any:
        values = handler(self)
        for key in ("resolved", "track"):
            if key in values and not values[key]:
                del values[key]
        return values

    @property
    def task_names(self) -> list[str]:
        """The names of the tasks, in order."""
        return [entry.name for entry in self.tasks]

    @property
    def model_spec(self) -> ModelSpec:
        """The model to build: the configured one with its resolved revision."""
        resolved = self.resolved or Resolved()
        spec = self.model
        if spec.revision is None and spec.hub_name is not None:
            revision = resolved.encoders.get(spec.hub_name)
            spec = spec.model_copy(update={"revision": revision})
        if resolved.causal:
            encoder = spec.encoder or "small"
            spec = spec.model_copy(update={"causal": True, "encoder": encoder})
        return spec

    def dataset_revision(self, entry: HubTask) -> str | None:
        """Return the configured revision of a data set, or else the resolved one."""
        resolved = self.resolved or Resolved()
        return entry.revision or resolved.datasets.get(entry.hub)

    @property
    def python_model(self) -> str | None:
        """The class of a model made in Python."""
        return (self.resolved and self.resolved.model) or self.model.given

    @property
    def family(self) -> Family:
        """The decider's family."""
        return next(family for key, family in FAMILIES.items() if getattr(self, key) is not None)

    @property
    def decider(self) -> dict[str, Any]:
        """The section of the decider."""
        spec: dict[str, Any] = getattr(self, self.family.key)
        return spec

    @property
    def unit(self) -> str:
        """The key of the budget that holds the run's length: steps, or a weighting's rounds."""
        return self.family.unit if self.budget.count == "steps" else "steps"

    @property
    def length(self) -> int:
        """The budget in its unit."""
        return int(getattr(self.budget, self.unit))

    @property
    def evaluate_every(self) -> int | None:
        """Steps or rounds between evaluations; None for one at each tenth of the budget."""
        if self.evaluate.every is None and self.budget.count == "steps":
            return max(1, self.length // 10)
        return self.evaluate.every

    @property
    def checkpoint_every(self) -> int | None:
        """Steps or rounds between checkpoints; None for one at each tenth of the budget."""
        return self.checkpoint.every or self.evaluate_every


def dump(config: RunConfig) -> str:
    """Return the configuration as a run file: rerunning it reproduces the run."""
    return write_value(config.model_dump(mode="json"))


def asked_for(config: RunConfig) -> RunConfig:
    """Return the configuration without its resolved facts, and without trackers."""
    asked: RunConfig = config.model_copy(update={"resolved": None, "track": ()})
    return asked
