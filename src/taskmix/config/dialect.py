"""The YAML of run files, read and written."""

import math
import re
from pathlib import Path
from typing import Any

import yaml

from taskmix.errors import UserError

_KEPT = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
_BOOL = re.compile("^(?:true|false)$", re.IGNORECASE)
_INT = re.compile(r"^(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)$")
_FLOAT = re.compile(
    r"^(?:[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
    r"|[-+]?\.inf|\.nan)$",
    re.IGNORECASE,
)
_DIGITS = list("-+0123456789")


class _Loader(yaml.SafeLoader):
    """YAML 1.2: 1e-3 is a number, `yes` is a text, and a key may not occur twice.

    Numbers to the base of 60 or 8 and dates of YAML 1.1 are texts: 12:30, 007.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012 (the parent's type)
        first: [pair for pair in pairs if pair[0] in _KEPT]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for (key, _), value in zip(node.value, keys, strict=False):
            if keys.count(value) > 1 and value != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"found the key {value!r} twice", key.start_mark
                )
        return super().construct_mapping(node, deep)


class _Dumper(yaml.SafeDumper):
    """Quotes texts that `_Loader` would read as numbers, and texts with line breaks."""


def _quoted(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    breaks = any(character in text for character in "\x85\u2028\u2029")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if breaks else None)


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
    _side.add_implicit_resolver("tag:yaml.org,2002:int", _INT, _DIGITS)
    _side.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, [*_DIGITS, "."])
_Dumper.add_representer(str, _quoted)


def read_value(text: str, where: str) -> Any:
    """Parse a YAML text; errors name it `where`."""
    try:
        return yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise UserError(f"{where}{line}: expected YAML, {problem}") from None
    except RecursionError:
        raise UserError(f"{where}: expected YAML, found it nested too deeply to read") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # such as `!!int x`
        raise UserError(f"{where}: expected YAML, found a value that is none: {error}") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file that holds a mapping."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: expected a file, found a pipe or a device")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except OSError as error:
        raise UserError(f"{path}: expected a readable file, {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: expected UTF-8, found another byte at {error.start}") from None
    values = read_value(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of keys, found {_describe(values)}")
    return values


def write_value(value: Any, *, on_one_line: bool = False) -> str:
    """Return a value as YAML, which `read_value` reads back unchanged."""
    return yaml.dump(
        value,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=on_one_line,
        width=math.inf if on_one_line else None,
    )


def _describe(value: Any) -> str:
    if isinstance(value, (int, float)):
        return "a number"
    types = {type(None): "nothing", list: "a list", str: "a text"}
    return types.get(type(value), type(value).__name__)
