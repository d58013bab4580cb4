"""What a run file can say: its sections and their defaults."""

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
"""What runs and contestants may be called: folders have their names."""


class Budget(Section):
    """What there is to spend.

    Args:
        steps: optimiser steps.
        rounds: rounds of a weighting, which counts in these instead of steps.
        batch: examples in a step.
        tokens: about how many tokens a step has instead, so that texts of different lengths get
            equal shares; a policy's steps alone can be counted so.
        accumulate: in how many parts a batch passes through the model, to save memory.
        count: what the budget counts. `steps` are steps or rounds, whatever they cost. `examples`
            are examples passed backward, `compute` examples passed forward and backward added up,
            scoring and measuring included; the budget is then what plain steps of `batch` examples
            cost, for a weighting too.
    """

    steps: int = Field(default=1000, ge=1)
    rounds: int = Field(default=10, ge=1)
    batch: int = Field(default=16, ge=1)
    tokens: int | None = Field(default=None, ge=1)
    accumulate: int = Field(default=1, ge=1)
    count: Literal["steps", "examples", "compute"] = "steps"

    @model_validator(mode="after")
    def _tokens_are_counted_in_steps(self) -> "Budget":
        if self.tokens is not None and self.count != "steps":
            raise ValueError(f"count: expected steps beside tokens, found {self.count}")
        return self


class Optimizer(Section):
    """AdamW or SGD, with warm-up and linear decay (constant in the rounds of a weighting).

    Args:
        name: `adamw` or `sgd`.
        momentum: of `sgd`.
        lr: learning rate of the encoder.
        head_factor: the heads learn this many times faster; they start from nothing.
        conditional_factor: the same for the conditional modules and the task embeddings of a
            conditioned encoder. What they do to it is a product of the two: ten times the rate
            broke a training that went well with once.
        weight_decay: not applied to biases and norms.
        warmup: share of the steps in which the rate rises from 0.
        clip: largest norm of the gradient; 0 for no clipping.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    lr: float = Field(default=5e-5, gt=0, allow_inf_nan=False)
    head_factor: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    conditional_factor: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    warmup: float = Field(default=0.1, ge=0, le=1)
    clip: float = Field(default=1.0, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _only_sgd_has_momentum(self) -> "Optimizer":
        if self.name != "sgd" and self.momentum != type(self).model_fields["momentum"].default:
            raise ValueError(f"momentum: expected sgd with it, found {self.name}")
        return self


class Evaluate(Section):
    """When and on what the run is scored.

    Args:
        every: steps between evaluations; a tenth of the budget if None.
        batch: examples in a batch of an evaluation.
        examples: at most this many dev examples of each task, the same ones each time.
        patience: stop after this many evaluations without a better score; never if None.
        keep: the final model is the `best` evaluated one, or the `last`.
    """

    every: int | None = Field(default=None, ge=1)
    batch: int = Field(default=64, ge=1)
    examples: int | None = Field(default=None, ge=1)
    patience: int | None = Field(default=None, ge=1)
    keep: Literal["best", "last"] = "best"


class Checkpoint(Section):
    """How often a run's state is kept.

    Args:
        every: steps between checkpoints; as often as evaluations if None.
        keep: how many of the latest are kept, besides the best.
    """

    every: int | None = Field(default=None, ge=1)
    keep: int = Field(default=1, ge=1)


class Sharing(Section):
    """How several ranks share a run's work; without several ranks it changes nothing.

    Args:
        shard: divide the encoder's parameters, gradients and optimiser state among the ranks
            (FSDP2), for encoders that do not fit on one; else each rank has all of it.
    """

    shard: bool = False


class Objective(Section):
    """What a run is for: the value by which the model to keep is chosen, and when to stop.

    In a run file it is short: `objective: glue/rte` is the score of that task, a list of tasks the
    mean of their scores, `{loss: glue/rte}` or `{loss: [...]}` the dev loss, which is to be small.

    Args:
        tasks: the tasks that count, each alike.
        measure: `score` (higher is better) or `loss` (lower is better).
    """

    tasks: tuple[str, ...] = Field(min_length=1)
    measure: Literal["score", "loss"] = "score"

    @property
    def words(self) -> str:
        """What a table calls its value."""
        return "objective" if self.measure == "score" else "objective, loss"


class Resolved(Section):
    """What a run found out when it began. It stands in the run's own run.yaml.

    Of a run file that has this section, the revisions are used again; the rest is information.

    Args:
        encoders: by hub name, the revision of an encoder; None where the hub could not be asked.
        datasets: by hub name, the revision of a data set.
        causal: whether the model is a causal language model, because a task generates.
        model: the class of a model that was made in Python.
        sizes: by task, its training examples.
    """

    encoders: dict[str, str | None] = {}  # noqa: RUF012 (pydantic copies it)
    datasets: dict[str, str | None] = {}  # noqa: RUF012
    causal: bool = False
    model: str | None = None
    sizes: dict[str, int] = {}  # noqa: RUF012


OF_MACHINE = ("data", "device", "code")
"""Keys in which runs of one study may differ from machine to machine."""


DEFAULT_POLICY = "worth"
"""The policy of a run that names no decider."""


_KEYS: dict[str, Any] = dict.fromkeys(FAMILIES, (dict[str, Any] | None, None))
_Deciders: Any = create_model("_Deciders", __base__=Section, **_KEYS)


class RunConfig(_Deciders):  # type: ignore[misc]
    """One training: tasks, model, decider, budget, seed.

    A policy decides, or in its place a selector (`selection`) or a weighting (`weighting`).
    Everything has a default but the tasks.

    Args:
        name: of the run; its folder is called so.
        tasks: names of the catalogue, tasks made in Python, or mappings that say where one is.
        model: what learns.
        policy: who gets the next batch; or `selection`, or `weighting`. If none is named, the
            policy is `worth`.
        budget: what there is to spend.
        optimizer: how the model moves.
        objective: what the run is for; None means the mean score over all tasks, for a weighting
            its target's score.
        evaluate: when and on what the run is scored.
        checkpoint: how often a run's state is saved.
        seed: all randomness follows from it.
        loss: how the tasks' losses in a mixed batch add up: every example alike (`examples`), the
            mean over the tasks that are there (`mean`), or their sum (`sum`). A batch of one task
            has one loss.
        precision: `bfloat16` for mixed precision; `auto` takes it where the device has it.
        deterministic: use only algorithms that give the same bits each time, on a GPU too.
        ranks: how several ranks share the work.
        device: `auto` is the fastest there is.
        data: the folder of the catalogue's files; None means the environment's TASKMIX_DATA.
        code: the folder that classes of the user's own are imported from: the run file's.
        resolved: what the run found out when it began; only a run's own run.yaml has it.

    >>> config = RunConfig(tasks=["digits/left", "digits/right"], budget={"steps": 50})
    >>> config.policy, config.budget.batch
    ({'name': 'worth'}, 16)
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
    def _named(cls, spec: Any) -> Any:
        if isinstance(spec, str):
            return {"name": spec}
        if isinstance(spec, Mapping) and "name" not in spec:
            raise ValueError("expected a name among the keys")
        if isinstance(spec, Mapping) and "as" in spec:
            _check_name(spec["as"])
        return spec

    @field_validator("objective", mode="before")
    @classmethod
    def _spelled_out(cls, said: Any) -> Any:
        measure = "score"
        if isinstance(said, Mapping) and set(said) == {"loss"}:
            measure, said = "loss", said["loss"]
        if isinstance(said, str):
            said = [said]
        return {"tasks": said, "measure": measure} if isinstance(said, (list, tuple)) else said

    @model_validator(mode="before")
    @classmethod
    def _one_decider(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            said = [key for key in FAMILIES if values.get(key) is not None]
            if not said:
                return {**values, "policy": DEFAULT_POLICY}
            if len(said) > 1:
                raise ValueError(
                    f"expected one of {', '.join(FAMILIES)}, found {' and '.join(said)}"
                )
        return values

    @model_validator(mode="after")
    def _known_decider(self) -> "RunConfig":
        # To open a run must not run code that came with it: a class of one's own is not looked at.
        if not is_own(self.decider["name"]):
            decider_class(self.family, self.decider, None)
        return self

    @model_validator(mode="after")
    def _only_a_policy_counts_tokens(self) -> "RunConfig":
        if self.budget.tokens is not None and self.family.key != "policy":
            raise ValueError(f"budget.tokens: expected a policy with it, found a {self.family.key}")
        return self

    @model_serializer(mode="wrap")
    def _without_an_empty_section(self, handler: SerializerFunctionWrapHandler) -> Any:
        values = handler(self)
        if values.get("resolved", "") is None:
            del values["resolved"]
        return values

    @property
    def task_names(self) -> list[str]:
        """The names of the tasks, in order."""
        return [entry.name for entry in self.tasks]

    @property
    def model_spec(self) -> ModelSpec:
        """The model to build: the one that was asked for, with what the run found out about it."""
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
        """Return the revision of a data set: the one that was asked for, or that the run found."""
        resolved = self.resolved or Resolved()
        return entry.revision or resolved.datasets.get(entry.hub)

    @property
    def python_model(self) -> str | None:
        """The class of the model, where that was made in Python."""
        return (self.resolved and self.resolved.model) or self.model.given

    @property
    def family(self) -> Family:
        """The decider's family."""
        return next(family for key, family in FAMILIES.items() if getattr(self, key) is not None)

    @property
    def decider(self) -> dict[str, Any]:
        """What the run file says of the decider."""
        spec: dict[str, Any] = getattr(self, self.family.key)
        return spec

    @property
    def unit(self) -> str:
        """The key of the budget that says how long the run is: steps, or a weighting's rounds."""
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


def _check_name(said: Any) -> None:
    """Raise unless a decider can be called so."""
    if not (isinstance(said, str) and re.fullmatch(NAME, said)):
        raise ValueError(f"as: expected a name of letters, digits and ._+-, found {said!r}")


def dump(config: RunConfig) -> str:
    """Return the configuration as a run file: rerunning it reproduces the run."""
    return write_value(config.model_dump(mode="json"))


def asked_for(config: RunConfig) -> RunConfig:
    """Return the configuration without what a run found out."""
    asked: RunConfig = config.model_copy(update={"resolved": None})
    return asked
