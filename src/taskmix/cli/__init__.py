"""The command line: one file for each group of commands, each command a few lines of library calls.

A new command is a function in the file of its group; a new group is a file and its line in GROUPS.
"""

import sys
from importlib import import_module

from taskmix.cli.base import GROUPS, app
from taskmix.errors import TaskmixError
from taskmix.training.launch import launched

__all__ = ["app", "main"]

for group in GROUPS:
    import_module(f"taskmix.cli.{group}")


def main() -> None:
    """Entry point: a user's mistake is one sentence and exit code 2."""
    try:
        app()
    except TaskmixError as error:
        if launched().local == 0:  # of several ranks, one on each machine prints it
            print(f"taskmix: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # such as a full disk, or a folder without write permission
        print(f"taskmix: {error}", file=sys.stderr)
        sys.exit(1)
