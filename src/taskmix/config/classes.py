"""The classes that a run file names: ours by a short name, a user's own as `module:Class`."""

import inspect
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from taskmix.errors import UserError, unknown
from taskmix.families import Decider, Family
from taskmix.policies import Policy, Stratified
from taskmix.run_info import RunInfo

if TYPE_CHECKING:
    from taskmix.config.schema import RunConfig

NOT_OPTIONS = frozenset({"self", "tasks", "sizes", "batch", "scaler", "propensity"})
"""Arguments that the run itself gives to a decider, or that only Python can say."""


def is_own(name: object) -> bool:
    """Return whether a run file means a class of the user's own by this name.

    >>> is_own("exp3s"), is_own("mine:Greedy")
    (False, True)
    """
    return isinstance(name, str) and ":" in name


def own_class(name: str, base: type[Any], where: str, folder: str | None) -> Any:
    """Import a class of the user's own.

    Args:
        name: `module:Class`.
        base: what it has to be a subclass of.
        where: what a complaint calls the place that names it.
        folder: where the module is looked for, behind the installed packages.
    """
    module, _, attribute = name.partition(":")
    with _behind_the_installed(folder):
        try:
            cls = getattr(import_module(module), attribute)
        except Exception as error:  # the module is the user's: anything may go wrong in it
            raise UserError(
                f"{where}: expected module:Class, found {name!r} ({_in_a_line(error)})"
            ) from error
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UserError(f"{where}: expected a subclass of {base.__name__} at {name!r}")
    return cls


def _in_a_line(error: Exception) -> str:
    said = " ".join(str(error).split())
    usual = isinstance(error, (ImportError, AttributeError, SyntaxError))
    return said if usual else f"{type(error).__name__}: {said}"


@contextmanager
def _behind_the_installed(folder: str | None) -> Iterator[None]:
    """Look for modules in the folder too, after everywhere else."""
    if folder is None or folder in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def decider_class(family: Family, spec: Mapping[str, Any], code: str | None) -> type[Decider]:
    """Return the class that a run names, its options checked; imports a class of one's own.

    Args:
        family: of the decider.
        spec: its name and options.
        code: the folder of own modules.
    """
    name = str(spec["name"])
    own = is_own(name)
    cls = own_class(name, family.base, family.key, code) if own else _our_class(family, name)
    drawn = {"draws"} if family.key == "policy" else set()
    known = set(inspect.signature(cls.__init__).parameters) - NOT_OPTIONS | drawn
    if extra := sorted(set(spec) - {"name", "as"} - known):
        raise unknown("option", extra[0], known, f"{family.key} {name}")
    if not own:  # what a class of one's own takes is its own affair
        _check_values(cls, spec, f"{family.key} {name}")
    if spec.get("draws", "iid") not in ("iid", "stratified"):
        raise UserError(f"policy.draws: expected iid or stratified, found {spec['draws']!r}")
    return cls


def _check_values(cls: type[Any], options: Mapping[str, Any], where: str) -> None:
    """Raise unless the options are of the types that the class says, and their numbers finite."""
    hints = get_type_hints(cls.__init__) | get_type_hints(cls.for_run)
    for key, value in options.items():
        if key not in hints or key in NOT_OPTIONS:
            continue
        adapter = TypeAdapter(hints[key], config=ConfigDict(arbitrary_types_allowed=True))
        try:
            # YAML has no tuples.
            adapter.validate_python(value, strict=not isinstance(value, (list, dict)))
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise UserError(
                f"{where}: {key}: {message[0].lower()}{message[1:]}, found {value!r}"
            ) from None
        if _is_infinite(value):
            raise UserError(f"{where}: {key}: expected finite numbers, found {value!r}")


def _is_infinite(value: Any) -> bool:
    match value:
        case Mapping():
            return any(_is_infinite(each) for each in value.values())
        case list() | tuple():
            return any(_is_infinite(each) for each in value)
    return isinstance(value, float) and not math.isfinite(value)


def _our_class(family: Family, name: str) -> type[Decider]:
    ours = {cls.name: cls for cls in family.members}
    if name not in ours:
        raise unknown(family.key, name, ours, family.key)
    return ours[name]


def options_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a decider's class.

    The other keys say which class, what the user calls it, and how a policy draws.

    >>> options_of({"name": "temperature", "temperature": 2, "as": "warm"})
    {'temperature': 2}
    """
    return {key: value for key, value in spec.items() if key not in ("name", "as", "draws")}


def build_decider(config: "RunConfig", info: RunInfo) -> Decider:
    """Make the decider of a run, told about the run."""
    spec = config.decider
    cls = decider_class(config.family, spec, config.code)
    try:
        decider = cls.for_run(info, **options_of(spec))
        if spec.get("draws") == "stratified" and isinstance(decider, Policy):
            return Stratified(decider)
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        raise UserError(f"{config.family.key} {spec['name']}: {_reason(error)}") from None
    return decider


def _reason(error: Exception) -> str:
    """Return what an error says, in the words of a run file where an option is missing."""
    missing = re.search(r"missing .*required.* argument.*?'(\w+)'", str(error))
    return f"expected the option {missing[1]}, found none" if missing else str(error)
