"""The tasks of a run file: a name, a user's files, or a data set of the hub."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_serializer, model_validator

from taskmix.errors import UserError, explain
from taskmix.models.spec import Section
from taskmix.tasks.shapes import Missing


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


def _expected(what: str, check: Callable[[Any], bool]) -> BeforeValidator:
    def validate(value: Any) -> Any:
        if not check(value):
            raise ValueError(f"expected {what}")
        return str(value) if isinstance(value, Path) else value

    return BeforeValidator(validate)


Column = Annotated[str, _expected("the name of a column", _is_text)]
Names = Annotated[
    tuple[str, ...],
    _expected("a list of names", lambda value: _is_list(value) and all(map(_is_text, value))),
]
Labels = Annotated[tuple[str | int | float | bool, ...], _expected("a list", _is_list)]
Place = Annotated[
    str, _expected("a file or a data set", lambda value: isinstance(value, (str, Path)))
]


class _Entry(Section):
    name: str = Field(min_length=1)
    rows: int | None = Field(default=None, ge=2, strict=True)
    held_out: float | None = Field(default=None, gt=0, lt=1, strict=True)

    @model_serializer
    def _as_in_a_run_file(self) -> Any:
        fields = type(self).model_fields
        values = {key: getattr(self, key) for key in fields if key in self.model_fields_set}
        return self.name if type(self) is NamedTask and values.keys() == {"name"} else values


class NamedTask(_Entry):
    """A task of the catalogue or one made in Python, or a part of it.

    Args:
        name: of the task.
        rows: train on at most this many rows.
        held_out: take this share of the training rows as the dev split.
    """


class _TableTask(_Entry):
    """The common keys of tasks from tables; `from_files` explains them."""

    kind: str = "classify"
    text: Column = ""
    label: Column = ""
    pair: Column | None = None
    choices: Names = ()
    separator: str | None = None
    id: Column | None = None
    prompt: Column = ""
    answer: Column = ""
    missing: Missing = "error"
    labels: Labels | None = None
    metrics: Names | None = None
    dev: str | None
    test: str | None

    @model_validator(mode="after")
    def _one_dev_split(self) -> "_TableTask":
        if self.dev is None and self.held_out is None:
            raise ValueError(
                "expected a dev file, or `held_out: 0.1` for a tenth of the rows, found none"
            )
        if self.held_out is not None and self.dev is not None and self.test is not None:
            raise ValueError(
                "test: expected none, for held_out makes dev the test split, found one beside it"
            )
        return self

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the function that makes the task."""
        return {key: getattr(self, key) for key in type(self).model_fields if key not in PARTS}


PARTS = ("rows", "held_out")
"""The keys that select a part of a task."""


class FilesTask(_TableTask):
    """A task from a user's files: the arguments of `from_files`."""

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


def task_entry(value: Any) -> TaskEntry:
    """Return the validated entry of a task."""
    if isinstance(value, get_args(TaskEntry)):
        entry: TaskEntry = value
        return entry
    values = {"name": value} if isinstance(value, str) else value
    if not isinstance(values, Mapping):
        raise ValueError("expected the name of a task, or a mapping that says where it is")
    name = values.get("name")
    if not isinstance(name, str) or not name:
        raise UserError(f"tasks: expected a name of letters, found {name!r}")
    form: type[TaskEntry] = FilesTask
    if "hub" in values:
        form = HubTask
    elif isinstance(value, str) or ("train" not in values and values.keys() & set(PARTS)):
        form = NamedTask
    try:
        return form.model_validate(dict(values))
    except ValidationError as error:
        raise UserError(explain(error, form, f"tasks: {name}")) from None
