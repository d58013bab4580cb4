"""The command that reproduces the papers' experiments."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from taskmix.cli.base import DataOption, QuietOption, Sets, StudyFolder, WorkersOption, command
from taskmix.cli.terminal import busy, out, print_tables, showing
from taskmix.errors import UserError


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

    A recipe names its rules: the experiment is reproduced if all of them hold. The command can be
    stopped and started again. Without a recipe it lists all of them with their number of runs, or
    prints stored results.
    """
    from taskmix.cli.base import seeds_of
    from taskmix.config import RunConfig
    from taskmix.studies import reproduce as study

    changes = [*(sets or ()), *([f"model.encoder={json.dumps(encoder)}"] if encoder else [])]
    listed = seeds_of(RunConfig(tasks=["any"]), seeds) if seeds else None
    if everything and name is not None:
        raise UserError(f"--all: expected no recipe beside it, found {name}")
    names = study.recipe_names() if everything else [name] if name else []
    if name is not None and encoder is not None and study.read_recipe(name).bandit:
        raise UserError(f"--encoder: expected a recipe that trains a model, found {name}")
    if dry_run:
        place = [] if data is None else [f"data={json.dumps(str(data))}"]
        with busy("counting rows"):
            costs = study.dry_run(names, scale, seeds=listed, sets=[*changes, *place])
        print_tables(costs.tables())
        return
    if not names:
        if results is None:
            print_tables(study.RecipeList(scale).tables())
        else:
            for table in study.Reproductions(study.read_reproductions(results)).tables():
                print(table.markdown(), end="")
        return
    failed = []
    for each in names:
        runs = study.run_count(study.read_recipe(each), scale, listed)
        folder = to / each if to is not None and everything else to
        try:
            with showing(quiet, workers, runs) as view:
                result = study.reproduce(
                    each,
                    scale,
                    out=folder,
                    seeds=listed,
                    workers=workers,
                    data=data,
                    sets=changes,
                    watch=view,
                )
        except UserError as error:
            if not everything:
                raise
            failed.append(f"{each}: {error}")
            continue
        if results is not None:
            study.store(result, results)
        print_tables(result.tables())
        out.print(f"{each}: {result.verdict()}", soft_wrap=True)
    if failed:
        raise UserError("; ".join(failed))
