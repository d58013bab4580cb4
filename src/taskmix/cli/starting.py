"""Commands for a start: a first run file, and the list of policies."""

from pathlib import Path
from typing import Annotated

import typer

from taskmix.cli.base import command
from taskmix.cli.running import plan
from taskmix.cli.terminal import out, print_tables
from taskmix.errors import UserError


@command("taskmix init my-data", "taskmix init my-data --out my-data/small.yaml")
def init(
    folder: Annotated[Path, typer.Argument(help="A folder of CSV, TSV, JSONL, Parquet files.")],
    to: Annotated[
        Path | None, typer.Option("--out", help="The run file; default: taskmix.yaml in FOLDER.")
    ] = None,
) -> None:
    """Write a run file for a folder of tables, and show its plan.

    Kinds and columns are guessed from the first rows of each file. A comment gives the reason for
    each guess; correct the file where a guess is wrong.
    """
    from taskmix.config.guess import run_file

    path = to or folder / "taskmix.yaml"
    if path.exists():
        raise UserError(f"{path}: expected no such file, found one; give another with --out")
    text = run_file(folder, path.parent)
    path.write_text(text, encoding="utf-8")
    out.print(text, markup=False, highlight=False, soft_wrap=True)
    out.print(f"Written to {path}. Its plan:", soft_wrap=True)
    plan(path)


@command("taskmix policies")
def policies() -> None:
    """List the policies, selectors and weightings, with their options in a run file."""
    from taskmix.config import decider_tables

    print_tables(decider_tables())
