"""What a run file can say of a task: a name, files of the user's own, or a data set of the hub."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_serializer, model_validator

from taskmix.errors import UserError, explain
from taskmix.models.spec import Section


def _column(name: Any) -> Any:
    if not isinstance(name, str):
        raise ValueError("expected the name of a column")
    return name


def _names(names: Any) -> Any:
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError("expected a list of names")
    return names


def _labels(labels: Any) -> Any:
    if not isinstance(labels, (list, tuple)):
        raise ValueError("expected a list")
    return labels


def _place(place: Any) -> Any:
    if not isinstance(place, (str, Path)):
        raise ValueError("expected a file or a data set")
    return str(place)


Column = Annotated[str, BeforeValidator(_column)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Place = Annotated[str, BeforeValidator(_place)]


class _Entry(Section):
    name: str = Field(min_length=1)
    rows: int | None = Field(default=None, ge=2, strict=True)
    held_out: float | None = Field(default=None, gt=0, lt=1, strict=True)

    @model_serializer
    def _as_in_a_run_file(self) -> Any:
        said = {key: getattr(self, key) for key in type(self).model_fields if self.says(key)}
        return self.name if type(self) is NamedTask and said.keys() == {"name"} else said

    def says(self, key: str) -> bool:
        """Return whether the run file has this key."""
        return key in self.model_fields_set


class NamedTask(_Entry):
    """A task of the catalogue or one made in Python, or a part of it.

    Args:
        name: of the task.
        rows: train on at most this many rows.
        held_out: take this share of the training rows as the dev split.
    """


class _TableTask(_Entry):
    """What tasks from tables have in common; `from_files` explains the keys."""

    kind: str = "classify"
    text: Column = ""
    label: Column = ""
    pair: Column | None = None
    choices: Names = ()
    separator: str | None = None
    id: Column | None = None
    prompt: Column = ""
    answer: Column = ""
    labels: Annotated[tuple[str | int | float | bool, ...], BeforeValidator(_labels)] | None = None
    metrics: Names | None = None
    dev: str | None
    test: str | None

    @model_validator(mode="after")
    def _one_dev_split(self) -> "_TableTask":
        if self.dev is None and self.held_out is None:
            raise ValueError("expected a value for dev, or held_out, found none")
        if self.held_out is not None and self.dev is not None and self.test is not None:
            raise ValueError(
                "test: expected none, for held_out makes dev the test split, found one beside it"
            )
        return self

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the function that makes the task."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in PARTS}


PARTS = ("rows", "held_out")
"""The keys that take a part of a task."""


class FilesTask(_TableTask):
    """A task from files of the user's own: the arguments of `from_files`."""

    train: Place
    dev: Place | None = None
    test: Place | None = None
    format: str | None = None


class HubTask(_TableTask):
    """A task from a data set of the hub: the arguments of `from_hub`."""

    hub: Place
    config: str | None = None
    revision: str | None = None
    train: str = "train"
    dev: str | None = "validation"
    test: str | None = None


TaskEntry = NamedTask | FilesTask | HubTask


def task_entry(said: Any) -> TaskEntry:
    """Return what a run file says of a task as its form, or raise one sentence about it."""
    if isinstance(said, get_args(TaskEntry)):
        entry: TaskEntry = said
        return entry
    if isinstance(said, str):
        said = {"name": said}
        form: type[TaskEntry] = NamedTask
    elif not isinstance(said, Mapping):
        raise ValueError("expected the name of a task, or a mapping that says where it is")
    elif "hub" in said:
        form = HubTask
    else:
        form = FilesTask if "train" in said or not said.keys() & set(PARTS) else NamedTask
    name = said.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"tasks: expected a name of letters, found {name!r}")
    try:
        return form.model_validate(dict(said))
    except ValidationError as error:
        raise UserError(explain(error, form, f"tasks: {name}")) from None
