"""Changes of run files: `--set key=value`, other deciders, absolute paths."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from taskmix.config.classes import is_own
from taskmix.config.dialect import read_value, read_yaml, write_value
from taskmix.config.schema import DEFAULT_POLICY, RunConfig
from taskmix.errors import UserError
from taskmix.families import FAMILIES
from taskmix.models.spec import ENCODERS

MAX_SHOWN = 60  # characters of a value in a message


def load(path: Path, sets: Sequence[str] = (), data: str | None = None) -> RunConfig:
    """Read a run file with changes such as `budget.steps=500`, its paths made absolute."""
    values = read_yaml(path)
    for change in sets:
        _apply(values, change)
    values = _absolute(values, path.parent.resolve())
    if data is not None:
        values["data"] = str(Path(data).resolve())
    return parse(values, str(path))


def parse(values: Mapping[str, Any], where: str) -> RunConfig:
    """Return the configuration of these values; an error names the first wrong one."""
    try:
        return RunConfig(**values)
    except (TypeError, UserError) as error:
        raise UserError(f"{where}: {error}") from None


def parse_stored(values: Mapping[str, Any], where: str) -> RunConfig:
    """Return the configuration of a run that is only read; its policy may have been removed."""
    policy = values.get("policy")
    if not (isinstance(policy, Mapping) and policy.get("name") in FAMILIES["policy"].removed):
        return parse(values, where)
    config = parse({**values, "policy": DEFAULT_POLICY}, where)
    stored: RunConfig = config.model_copy(update={"policy": dict(policy)})
    return stored


def changed(config: RunConfig, values: Mapping[str, Any], where: str) -> RunConfig:
    """Return the configuration with other values, validated."""
    return parse(config.model_dump() | dict(values), where)


def changed_keys(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield in words the keys whose values differ between two configurations.

    >>> list(changed_keys({"budget": {"steps": 40}}, {"budget": {"steps": 60}}))
    ['budget.steps was 40, now 60']
    """
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        before, now = dict(enumerate(before)), dict(enumerate(now))
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for part in {**before, **now}:
            where = f"{key}.{part}" if key else str(part)
            yield from changed_keys(before.get(part), now.get(part), where)
    elif before != now:
        yield f"{key} was {_brief(before)}, now {_brief(now)}"


def _brief(value: Any) -> str:
    """Return a value as a run file has it, on one line."""
    text = "none" if value is None else write_value(value, on_one_line=True).partition("\n")[0]
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def with_sets(config: RunConfig, sets: Sequence[str]) -> RunConfig:
    """Return the configuration with `key=value` changes, as `load` makes them."""
    values = config.model_dump()
    for change in sets:
        _apply(values, change)
    return parse(values, "--set")


def decided_by(config: RunConfig, decider: Any, base: Path, where: str) -> RunConfig:
    """Return the configuration with another policy, selector or weighting."""
    spec = policy_from(decider, base)
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    keys = {cls.name: key for key, family in FAMILIES.items() for cls in family.members}
    key = keys.get(str(name), "policy")
    return changed(config, dict.fromkeys(FAMILIES) | {key: spec}, where)


def policy_from(spec: Any, base: Path) -> Any:
    """Return the specification of a policy, which is read if it is the path of a policy file."""
    if not (isinstance(spec, str) and spec.endswith((".yaml", ".yml"))):
        return spec
    # On the command line, a policy file is named from the working directory.
    return read_yaml(Path(spec) if Path(spec).exists() else base / spec)


def _apply(values: dict[str, Any], change: str) -> None:
    key, sign, text = change.partition("=")
    if not sign or not key:
        raise UserError(f"--set {change}: expected key=value, such as budget.steps=500")
    value = read_value(text, f"--set {change}")
    *path, last = key.split(".")
    for part in path:
        below = values.setdefault(part, {})
        if isinstance(below, str):  # `policy: exp3s` is short for `policy: {name: exp3s}`
            below = values[part] = {"name": below}
        if below is True:  # `conditional: true` is short for all defaults
            below = values[part] = {}
        if not isinstance(below, dict):
            raise UserError(f"--set {change}: {part} is not a mapping")
        values = below
    values[last] = value
    if key == "budget.steps":
        values.pop("epochs", None)


def _absolute(values: dict[str, Any], base: Path) -> dict[str, Any]:
    """Return the values with relative paths taken from the run file's folder."""
    values = dict(values)
    if "policy" in values:
        values["policy"] = policy_from(values["policy"], base)
    if isinstance(values.get("data"), str):
        values["data"] = str(base / values["data"])
    if isinstance(model := values.get("model"), dict):
        values["model"] = model | _absolute_model(model, base)
    if isinstance(values.get("tasks"), list):
        values["tasks"] = [_absolute_task(task, base) for task in values["tasks"]]
    if "code" not in values and _names_own_code(values):
        values["code"] = str(base)
    return values


def _absolute_model(model: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the keys of a model that name a folder, with absolute paths."""
    names = {key: model.get(key) for key in ("encoder", "over")}
    absolute: dict[str, Any] = {
        key: str(base / name)
        for key, name in names.items()
        if isinstance(name, str) and name not in ENCODERS and (base / name).is_dir()
    }
    start = model.get("adapt")
    if isinstance(start, dict) and isinstance(start.get("model"), str):
        absolute["adapt"] = start | {"model": str(base / start["model"])}
    return absolute


def _names_own_code(values: Mapping[str, Any]) -> bool:
    """Return whether a decider, an encoder or a kind is a class of the user's own."""
    specs = [values.get(key) for key in FAMILIES]
    names = [spec.get("name") if isinstance(spec, dict) else spec for spec in specs]
    tasks, model = values.get("tasks"), values.get("model")
    if isinstance(tasks, list):
        names += [entry.get("kind") for entry in tasks if isinstance(entry, dict)]
    if isinstance(model, dict):
        names.append(model.get("encoder"))
    return any(map(is_own, names))


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
