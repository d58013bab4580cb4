"""The command that reproduces the papers' experiments."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from taskmix.cli.base import (
    DataOption,
    QuietOption,
    Sets,
    StudyFolder,
    WorkersOption,
    command,
    seeds_of,
)
from taskmix.cli.terminal import busy, print_tables, showing
from taskmix.errors import UserError

if TYPE_CHECKING:
    from taskmix.studies.reproduce import Reproduction, ScaleName


@command(
    "taskmix reproduce",
    "taskmix reproduce counterfactual/figure1",
    "taskmix reproduce --all --dry-run",
    "taskmix reproduce camtl/table1 --seeds 1,2,3 --workers 2",
    "taskmix reproduce camtl/table1 --scale paper --data ~/data --encoder ~/bert-base-cased",
)
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A recipe; default: list all of them.")
    ] = None,
    scale: Annotated[
        Literal["small", "paper"], typer.Option(help="A size for two cores, or the paper's.")
    ] = "small",
    seeds: Annotated[
        str | None, typer.Option(help="Seeds: 1,2,3 or 1-3; default: the recipe's.")
    ] = None,
    encoder: Annotated[
        str | None, typer.Option(help="A hub name or folder in place of the recipe's encoder.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="A file of stored results: add this one, or print all.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run all recipes, one after the other.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print rows, steps, hours and memory; run nothing.")
    ] = False,
    to: StudyFolder = None,
    workers: WorkersOption = 1,
    sets: Sets = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run an experiment of a paper and print the results beside the paper's, with a verdict.

    A recipe names its rules: the experiment is reproduced if all of them hold. Results of a recipe
    that is changed by --set are not comparable. The command can be stopped and started again.
    Without a recipe it lists all of them with their number of runs, or prints stored results.
    """
    from taskmix.studies import reproduce as study

    names = _names(name, everything, encoder)
    numbers = seeds_of(seeds) if seeds else None
    given: dict[str, Any] = {"seeds": numbers, "data": data, "encoder": encoder, "sets": sets or ()}
    if dry_run:
        with busy("counting rows"):
            costs = study.dry_run(names, scale, **given)
        print_tables(costs.tables())
        return
    if not names:
        _print_list(scale, results)
        return
    if results is not None:
        study.check_results_file(results)
    errors: dict[str, list[str]] = {}
    for recipe in names:
        folder = to / recipe if to is not None and everything else to
        # With --all, the options are for the recipes that have them.
        options = {} if everything and study.read_recipe(recipe).bandit else given
        try:
            result = _run(recipe, scale, quiet, out=folder, workers=workers, **options)
        except UserError as error:
            if not everything:
                raise
            errors.setdefault(str(error), []).append(recipe)
        else:
            _print_result(result, results)
    if errors:
        raise UserError("; ".join(f"{', '.join(of)}: {error}" for error, of in errors.items()))


def _run(
    name: str, scale: "ScaleName", quiet: bool, *, workers: int, **options: Any
) -> "Reproduction":
    """Run a recipe, with its progress on the terminal."""
    from taskmix.studies.reproduce import read_recipe, reproduce, run_count

    recipe = read_recipe(name)
    if recipe.bandit:
        with nullcontext() if quiet else busy("simulating"):
            return reproduce(name, scale, workers=workers, **options)
    with showing(quiet, workers, run_count(recipe, scale, options["seeds"])) as view:
        return reproduce(name, scale, workers=workers, watch=view, **options)


def _names(name: str | None, everything: bool, encoder: str | None) -> list[str]:
    """Return the recipes to run; none if they are to be listed."""
    from taskmix.studies.reproduce import recipe_names

    if everything and encoder is not None:
        raise UserError("--encoder: expected one recipe, found --all, whose encoders differ")
    if name is None:
        return recipe_names() if everything else []
    if everything:
        raise UserError(f"--all: expected no recipe beside it, found {name}")
    return [name]


def _print_list(scale: "ScaleName", results: Path | None) -> None:
    """Print the recipes, or the results that are stored in a file."""
    from taskmix.studies.reproduce import RecipeList, Reproductions, read_reproductions

    if results is None:
        print_tables(RecipeList(scale).tables())
        return
    for table in Reproductions(read_reproductions(results)).tables():
        print(table.markdown(), end="")


def _print_result(result: "Reproduction", results: Path | None) -> None:
    """Print a result, and store it in a file if there is one."""
    from taskmix.studies.reproduce import store

    if results is not None:
        store(result, results)
    print_tables(result.tables())
