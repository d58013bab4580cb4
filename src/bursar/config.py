"""A run file, validated. Whatever it can say, Python can say with the same words."""

import inspect
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from bursar.errors import UserError, unknown
from bursar.models.spec import ENCODERS, ModelSpec
from bursar.policies import POLICIES, Policy, Stratified
from bursar.run_info import RunInfo
from bursar.selection import SELECTORS, Selector
from bursar.weighting import WEIGHTINGS, Weighting


class Section(BaseModel):
    """A part of a run file; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Budget(Section):
    """What there is to spend.

    Args:
        steps: optimiser steps.
        rounds: rounds of a weighting, which counts in these instead of steps.
        batch: examples in a step.
        accumulate: in how many parts a batch passes through the model, to save memory.
    """

    steps: int = Field(default=1000, ge=1)
    rounds: int = Field(default=10, ge=1)
    batch: int = Field(default=16, ge=1)
    accumulate: int = Field(default=1, ge=1)


class Optimizer(Section):
    """AdamW or SGD, with warm-up and linear decay (constant in the rounds of a weighting).

    Args:
        name: `adamw` or `sgd`.
        momentum: of `sgd`.
        lr: learning rate of the encoder.
        head_factor: the heads learn this many times faster; they start from nothing.
        weight_decay: not applied to biases and norms.
        warmup: share of the steps in which the rate rises from 0.
        clip: largest norm of the gradient; 0 for no clipping.
    """

    name: Literal["adamw", "sgd"] = "adamw"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    lr: float = Field(default=5e-5, gt=0, allow_inf_nan=False)
    head_factor: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    warmup: float = Field(default=0.1, ge=0, le=1)
    clip: float = Field(default=1.0, ge=0, allow_inf_nan=False)


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


class RunConfig(Section):
    """One training: tasks, model, who decides, budget, seed.

    A policy decides, or in its place a selector (`selection`) or a weighting (`weighting`).
    Everything has a default but the tasks.

    >>> config = RunConfig(tasks=["digits/left", "digits/right"], budget={"steps": 50})
    >>> config.policy, config.budget.batch
    ({'name': 'random'}, 16)
    """

    name: str = Field(default="run", pattern=r"^\w[\w.+-]*$")
    tasks: tuple[str | dict[str, Any], ...]
    model: ModelSpec = ModelSpec()
    policy: dict[str, Any] | None = None
    selection: dict[str, Any] | None = None
    weighting: dict[str, Any] | None = None
    budget: Budget = Budget()
    optimizer: Optimizer = Optimizer()
    evaluate: Evaluate = Evaluate()
    checkpoint: Checkpoint = Checkpoint()
    seed: int = Field(default=1, ge=0)
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    data: str | None = None

    @field_validator("tasks")
    @classmethod
    def _some_tasks(cls, tasks: tuple[Any, ...]) -> tuple[Any, ...]:
        if not tasks:
            raise ValueError("expected at least one task, found none")
        return tasks

    @field_validator("policy", "selection", "weighting", mode="before")
    @classmethod
    def _named(cls, spec: Any) -> Any:
        if isinstance(spec, str):
            return {"name": spec}
        if isinstance(spec, Mapping) and "name" not in spec:
            raise ValueError("expected a name among the keys")
        return spec

    @model_validator(mode="before")
    @classmethod
    def _somebody_decides(cls, values: Any) -> Any:
        if isinstance(values, Mapping):
            said = [key for key in DECIDERS if values.get(key) is not None]
            if not said:
                return {**values, "policy": "random"}
            if len(said) > 1:
                raise ValueError(
                    f"expected one of {', '.join(DECIDERS)}, found {' and '.join(said)}"
                )
        return values

    @model_validator(mode="after")
    def _known_decider(self) -> "RunConfig":
        decider_class(self.decides, self.decider)
        return self

    @property
    def decides(self) -> str:
        """Which of `policy`, `selection` and `weighting` decides."""
        return next(key for key in DECIDERS if getattr(self, key) is not None)

    @property
    def decider(self) -> dict[str, Any]:
        """What the run file says of the one who decides."""
        spec: dict[str, Any] = getattr(self, self.decides)
        return spec

    @property
    def length(self) -> int:
        """The budget in the unit of the one who decides: steps, or a weighting's rounds."""
        return self.budget.rounds if self.decides == "weighting" else self.budget.steps

    @property
    def evaluate_every(self) -> int:
        """Steps between evaluations."""
        return self.evaluate.every or max(1, self.length // 10)

    @property
    def checkpoint_every(self) -> int:
        """Steps between checkpoints."""
        return self.checkpoint.every or self.evaluate_every


Decider = Policy | Selector | Weighting
DECIDERS: Mapping[str, tuple[type[Decider], ...]] = {
    "policy": POLICIES,
    "selection": SELECTORS,
    "weighting": WEIGHTINGS,
}
NOT_OPTIONS = frozenset({"self", "tasks", "sizes", "batch", "scaler", "propensity"})
"""Arguments that the run itself gives to the one who decides, or that only Python can say."""


def decider_class(what: str, spec: Mapping[str, Any]) -> type[Decider]:
    """The class that a run file names, ours or one's own as `module:Class`; checks its options."""
    name = str(spec["name"])
    cls = _own_class(what, name) if ":" in name else _our_class(what, name)
    drawn = {"draws"} if what == "policy" else set()
    known = set(inspect.signature(cls.__init__).parameters) - NOT_OPTIONS | drawn
    if extra := sorted(set(spec) - {"name"} - known):
        raise unknown("option", extra[0], known, f"{what} {name}")
    if spec.get("draws", "iid") not in ("iid", "stratified"):
        raise UserError(f"policy.draws: expected iid or stratified, found {spec['draws']!r}")
    return cls


def _our_class(what: str, name: str) -> type[Decider]:
    ours = {cls.name: cls for cls in DECIDERS[what]}
    if name not in ours:
        raise unknown(what, name, ours, what)
    return ours[name]


def _own_class(what: str, name: str) -> Any:
    bases: dict[str, type] = {"policy": Policy, "selection": Selector, "weighting": Weighting}
    base = bases[what]
    module, _, attribute = name.partition(":")
    try:
        cls = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UserError(f"{what}: expected module:Class, found {name!r} ({error})") from None
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UserError(f"{what}: expected a subclass of {base.__name__} at {name!r}")
    return cls


def build_decider(config: RunConfig, info: RunInfo) -> Decider:
    """The one who decides in a run, told about it."""
    spec = config.decider
    options = {key: value for key, value in spec.items() if key not in ("name", "draws")}
    try:
        decider = decider_class(config.decides, spec).for_run(info, **options)
        if spec.get("draws") == "stratified" and isinstance(decider, Policy):
            return Stratified(decider)
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise UserError(f"{config.decides} {spec['name']}: {error}") from None
    return decider


def load(path: Path, sets: Sequence[str] = (), data: str | None = None) -> RunConfig:
    """A run file with `key=value` changes, its paths made absolute.

    Args:
        path: the YAML file.
        sets: changes such as `budget.steps=500`; the value is read as YAML.
        data: the folder of catalogue tasks, before the file's own word.
    """
    values = read_yaml(path)
    for change in sets:
        _apply(values, change)
    values = _absolute(values, path.parent.resolve())
    if data is not None:
        values["data"] = str(Path(data).resolve())
    return parse(values, str(path))


_BOOL, _FLOAT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:float"
_POWER_OF_TEN = re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$")
_DIGITS = list("-+0123456789")


class _Loader(yaml.SafeLoader):
    """YAML as version 1.2 has it: 1e-3 is a number, and the label `yes` is a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (the parent's type)
        first: [pair for pair in pairs if pair[0] != _BOOL]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(_BOOL, re.compile("^(?:true|false)$", re.IGNORECASE), list("tTfF"))
_Loader.add_implicit_resolver(_FLOAT, _POWER_OF_TEN, _DIGITS)


class _Dumper(yaml.SafeDumper):
    """Puts a text that `_Loader` would take for a number, or a break in one, between quotes."""


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    breaks = any(character in text for character in "\x85\u2028\u2029")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if breaks else None)


_Dumper.add_implicit_resolver(_FLOAT, _POWER_OF_TEN, _DIGITS)
_Dumper.add_representer(str, _quoted)


def read_value(text: str) -> Any:
    """What a YAML text says."""
    return yaml.load(text, _Loader)


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML file that holds a mapping."""
    try:
        values = read_value(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected UTF-8, found another byte at {error.start}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(
            f"{path}{line}: expected YAML, {getattr(error, 'problem', error)}"
        ) from None
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of keys, found {_sort_of(values)}")
    return values


def _sort_of(value: Any) -> str:
    sorts = {
        type(None): "nothing",
        list: "a list",
        str: "a text",
        int: "a number",
        float: "a number",
    }
    return sorts.get(type(value), type(value).__name__)


def _apply(values: dict[str, Any], change: str) -> None:
    key, sign, text = change.partition("=")
    if not sign or not key:
        raise UserError(f"--set {change}: expected key=value, such as budget.steps=500")
    try:
        value = read_value(text)
    except yaml.YAMLError:
        raise UserError(f"--set {change}: expected a YAML value behind the =") from None
    *path, last = key.split(".")
    for part in path:
        below = values.setdefault(part, {})
        if isinstance(below, str):  # `policy: exp3s` is short for `policy: {name: exp3s}`
            below = values[part] = {"name": below}
        if not isinstance(below, dict):
            raise UserError(f"--set {change}: {part} is not a mapping")
        values = below
    values[last] = value


def _absolute(values: dict[str, Any], base: Path) -> dict[str, Any]:
    """Relative paths of one's own files, taken from the run file's folder."""
    values = dict(values)
    if "policy" in values:
        values["policy"] = policy_from(values["policy"], base)
    if isinstance(values.get("data"), str):
        values["data"] = str(base / values["data"])
    encoder = values["model"].get("encoder") if isinstance(values.get("model"), dict) else None
    if isinstance(encoder, str) and encoder not in ENCODERS and (base / encoder).is_dir():
        values["model"] = values["model"] | {"encoder": str(base / encoder)}
    if isinstance(values.get("tasks"), list):
        values["tasks"] = [_absolute_task(task, base) for task in values["tasks"]]
    return values


def policy_from(said: Any, base: Path) -> Any:
    """What a run file or the command line says of a policy; a policy file is opened."""
    if not (isinstance(said, str) and said.endswith((".yaml", ".yml"))):
        return said
    # A policy file from the command line is meant from where the user stands.
    return read_yaml(Path(said) if Path(said).exists() else base / said)


def _absolute_task(task: Any, base: Path) -> Any:
    if not isinstance(task, dict):
        return task
    if "hub" in task:
        saved = isinstance(task["hub"], str) and (base / task["hub"]).is_dir()
        return task | ({"hub": str(base / task["hub"])} if saved else {})
    files = {"train", "dev", "test"}
    return {
        key: str(base / value) if key in files and isinstance(value, str) else value
        for key, value in task.items()
    }


def parse(values: Mapping[str, Any], where: str) -> RunConfig:
    """Values as a run configuration, or one sentence about the first of them that is wrong."""
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise UserError(_sentence(error, where)) from None
    except TypeError as error:
        raise UserError(f"{where}: {error}") from None
    except UserError as error:
        raise UserError(f"{where}: {error}") from None


def decided_by(config: RunConfig, said: Any, base: Path, where: str) -> RunConfig:
    """The configuration with another policy, selector or weighting, whichever the name means."""
    spec = policy_from(said, base)
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    rooms = {cls.name: what for what, classes in DECIDERS.items() for cls in classes}
    what = rooms.get(str(name), "policy")
    return changed(config, dict.fromkeys(DECIDERS) | {what: spec}, where)


def changed(config: RunConfig, values: Mapping[str, Any], where: str) -> RunConfig:
    """The configuration with other values, checked as a run file's are."""
    return parse(config.model_dump() | dict(values), where)


def _sentence(error: ValidationError, where: str) -> str:
    first, *rest = error.errors()
    field = ".".join(str(part) for part in first["loc"] if part not in ("str", "dict[str,any]"))
    more = f" (and {len(rest)} more)" if rest else ""
    if first["type"] == "extra_forbidden":
        *path, key = first["loc"]
        fields = list(_section(path).model_fields)
        return (
            str(unknown("key", str(key), fields, f"{where}: {'.'.join(map(str, path)) or 'run'}"))
            + more
        )
    if first["type"] == "missing":
        return f"{where}: {field}: expected a value, found none{more}"
    message = first["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    return f"{where}: {field}: {message}, found {first['input']!r}{more}"


def _section(path: Sequence[Any]) -> type[BaseModel]:
    section: type[BaseModel] = RunConfig
    for part in path:
        section = section.model_fields[part].annotation  # type: ignore[assignment]
    return section


def dump(config: RunConfig) -> str:
    """The configuration as a run file: rerunning it reproduces the run."""
    values = config.model_dump(mode="json")
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
