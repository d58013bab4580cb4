"""Classes named in run files: built-in ones by a short name, a user's own as `module:Class`."""

import inspect
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    create_model,
    field_validator,
)

from taskmix.errors import UserError, explain, unknown
from taskmix.families import FAMILIES, Decider, Family
from taskmix.policies import Policy, Stratified
from taskmix.run_info import RunInfo
from taskmix.tables import Column, Table

if TYPE_CHECKING:
    from taskmix.config.schema import RunConfig

PolicySpec = Policy | str | Mapping[str, Any]
"""A policy, its name, or a mapping of its name and options."""
NOT_OPTIONS = frozenset({"self", "info", "tasks", "sizes", "batch", "scaler", "propensity"})
"""Arguments of deciders that the run supplies, or that only Python code can pass."""
SECTION_KEYS = ("name", "as", "draws", "forecast")
"""The keys of a decider's section that are no options of its class."""


def is_own(name: object) -> bool:
    """Return whether this names a class of the user's own.

    >>> is_own("exp3s"), is_own("mine:Greedy")
    (False, True)
    """
    return isinstance(name, str) and ":" in name


def own_class(name: str, base: type[Any], where: str, folder: str | None) -> Any:
    """Import a class of the user's own; `folder` is searched behind the installed packages."""
    module, _, attribute = name.partition(":")
    with _search_last(folder):
        try:
            cls = getattr(import_module(module), attribute)
        except Exception as error:  # the module is the user's: anything may go wrong in it
            raise UserError(
                f"{where}: expected module:Class, found {name!r} ({_one_line(error)})"
            ) from error
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UserError(f"{where}: expected a subclass of {base.__name__} at {name!r}")
    return cls


def _one_line(error: Exception) -> str:
    message = " ".join(str(error).split())
    usual = isinstance(error, (ImportError, AttributeError, SyntaxError))
    return message if usual else f"{type(error).__name__}: {message}"


@contextmanager
def _search_last(folder: str | None) -> Iterator[None]:
    """Search modules in the folder too, after everywhere else."""
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def decider_class(family: Family, spec: Mapping[str, Any], code: str | None) -> type[Decider]:
    """Return the class of a decider and validate its options; imports a user's class."""
    name = str(spec["name"])
    own = is_own(name)
    cls = own_class(name, family.base, family.key, code) if own else _our_class(family, name)
    model = _options_model(cls, family.key == "policy", own)
    try:
        model.model_validate(dict(spec))
    except ValidationError as error:
        raise UserError(explain(error, model, f"{family.key} {name}", "option")) from None
    return cls


class _DeciderSpec(BaseModel):
    """The keys of every decider's section."""

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True, protected_namespaces=()
    )
    name: str
    called: Any = Field(default=None, alias="as")

    @field_validator("*", mode="after")
    @classmethod
    def _finite(cls, value: Any) -> Any:
        if _is_infinite(value):  # inside a mapping of anything, pydantic does not look
            raise ValueError("expected finite numbers")
        return value


class _PolicySpec(_DeciderSpec):
    draws: Literal["iid", "stratified"] = "iid"
    forecast: dict[str, Any] | None = None  # what learned shares promise; for the report alone


def parameters_of(cls: type[Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a decider's class that a run file can set."""
    parameters = {
        **inspect.signature(cls.__init__).parameters,
        **inspect.signature(cls.for_run).parameters,
    }
    return {
        key: parameter
        for key, parameter in parameters.items()
        if key not in NOT_OPTIONS
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


@cache
def _options_model(cls: type[Any], policy: bool, own: bool) -> type[BaseModel]:
    """Derive the model of a decider's section from the signatures of its class.

    The options of a user's class have any type, and none is required: its `for_run` may fill it in.
    """
    hints = {} if own else get_type_hints(cls.__init__) | get_type_hints(cls.for_run)
    fields: dict[str, Any] = {}
    for key, parameter in parameters_of(cls).items():
        required = parameter.default is parameter.empty and not own
        fields[key] = (_strict(hints.get(key, Any)), ... if required else None)
    return create_model(cls.__name__, __base__=_PolicySpec if policy else _DeciderSpec, **fields)


def _strict(hint: Any) -> Any:
    """Return the type without pydantic's conversion of texts to numbers."""
    if hint in (int, float, bool, str):
        return Annotated[hint, Strict()]
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_strict(member) for member in get_args(hint))]  # noqa: UP007
    return hint


def _is_infinite(value: Any) -> bool:
    match value:
        case Mapping():
            return any(_is_infinite(inner) for inner in value.values())
        case list() | tuple():
            return any(_is_infinite(inner) for inner in value)
    return isinstance(value, float) and not math.isfinite(value)


def _our_class(family: Family, name: str) -> type[Decider]:
    ours = {cls.name: cls for cls in family.members}
    if name in family.removed:
        raise UserError(
            f"{family.key}: expected one that this version has, found {name!r}, which was removed "
            f"{family.removed[name]}"
        )
    for other in FAMILIES.values():
        if name in {cls.name for cls in other.members} - ours.keys():
            raise UserError(
                f"{family.key}: expected the name of a {family.key}, found {name!r}, a {other.key}"
            )
    if name not in ours:
        raise unknown(family.key, name, ours, family.key)
    return ours[name]


def decider_tables() -> list[Table]:
    """Return one table for each family: names, descriptions and options."""
    options, description = Column("options", left=True), Column("description", left=True)
    return [
        Table(
            [Column(family.key), description, options],
            [[cls.name, _summary(cls), _options_text(cls)] for cls in family.members],
        )
        for family in FAMILIES.values()
    ]


def _summary(cls: type[Any]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


def _options_text(cls: type[Any]) -> str:
    """Return the options, with defaults that are numbers or words."""
    return ", ".join(
        f"{key}={parameter.default}" if isinstance(parameter.default, int | float | str) else key
        for key, parameter in parameters_of(cls).items()
    )


def options_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a decider's class: all keys but those of every decider.

    >>> options_of({"name": "temperature", "temperature": 2, "as": "warm"})
    {'temperature': 2}
    """
    return {key: value for key, value in spec.items() if key not in SECTION_KEYS}


def label(decider: Mapping[str, Any]) -> str:
    """Return a decider's name in tables: the user's, else its name and options.

    >>> label({"name": "temperature", "temperature": 2})
    'temperature 2'
    >>> label({"name": "exp3s", "eta": 0.1, "epsilon": 0.05})
    'exp3s eta 0.1, epsilon 0.05'
    >>> label({"name": "temperature", "temperature": 2, "as": "warm"})
    'warm'
    """
    if "as" in decider:
        return str(decider["as"])
    name = str(decider["name"])
    options = [
        str(value) if key == name else f"{key} {value}"
        for key, value in decider.items()
        if key not in ("name", "forecast")
    ]
    return f"{name} {', '.join(options)}".rstrip()


def build_decider(config: "RunConfig", info: RunInfo) -> Decider:
    """Make the decider of a run."""
    return _build(config.family, config.decider, info, config.code)


def build_policy(policy: PolicySpec, info: RunInfo) -> Policy:
    """Return a policy; one that is named is made as a run file's is.

    >>> info = RunInfo({"rte": 160, "cb": 8}, steps=100, batch=16)
    >>> build_policy({"name": "temperature", "temperature": 2}, info).name
    'temperature'
    """
    if isinstance(policy, Policy):
        return policy
    spec = {"name": policy} if isinstance(policy, str) else policy
    if not (isinstance(spec, Mapping) and isinstance(spec.get("name"), str)):
        raise UserError(
            f"policy: expected a policy, its name, or a mapping with a name, found {policy!r}"
        )
    built = _build(FAMILIES["policy"], spec, info, None)
    assert isinstance(built, Policy)
    built.spec = spec
    return built


def _build(family: Family, spec: Mapping[str, Any], info: RunInfo, code: str | None) -> Decider:
    cls = decider_class(family, spec, code)
    try:
        decider = cls.for_run(info, **options_of(spec))
        if spec.get("draws") == "stratified" and isinstance(decider, Policy):
            return Stratified(decider)
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise UserError(f"{family.key} {spec['name']}: {_reason(error)}") from None
    return decider


def _reason(error: Exception) -> str:
    """Return the message of an error; that of a missing argument names the option."""
    missing = re.search(r"missing .*required.* argument.*?'(\w+)'", str(error))
    return f"expected the option {missing[1]}, found none" if missing else str(error)
