"""A run file, validated. Whatever it can say, Python can say with the same words."""

from taskmix.config.classes import (
    PolicySpec,
    build_decider,
    build_policy,
    decider_class,
    decider_tables,
    is_own,
    label,
    options_of,
    own_class,
)
from taskmix.config.dialect import read_value, read_yaml, write_value
from taskmix.config.entries import FilesTask, HubTask, NamedTask, TaskEntry, task_entry
from taskmix.config.overrides import (
    changed,
    changed_keys,
    decided_by,
    load,
    parse,
    parse_stored,
    with_sets,
)
from taskmix.config.schema import (
    DEFAULT_POLICY,
    OF_MACHINE,
    Objective,
    Optimizer,
    Resolved,
    RunConfig,
    asked_for,
    dump,
)

__all__ = [
    "DEFAULT_POLICY",
    "OF_MACHINE",
    "FilesTask",
    "HubTask",
    "NamedTask",
    "Objective",
    "Optimizer",
    "PolicySpec",
    "Resolved",
    "RunConfig",
    "TaskEntry",
    "asked_for",
    "build_decider",
    "build_policy",
    "changed",
    "changed_keys",
    "decided_by",
    "decider_class",
    "decider_tables",
    "dump",
    "is_own",
    "label",
    "load",
    "options_of",
    "own_class",
    "parse",
    "parse_stored",
    "read_value",
    "read_yaml",
    "task_entry",
    "with_sets",
    "write_value",
]
