"""The command that reproduces the papers' experiments."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from taskmix.cli.base import DataOption, QuietOption, Sets, StudyFolder, WorkersOption, command
from taskmix.cli.terminal import busy, out, print_tables, showing
from taskmix.errors import UserError


@command(
    "taskmix reproduce",
    "taskmix reproduce counterfactual/figure1",
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
    to: StudyFolder = None,
    workers: WorkersOption = 1,
    sets: Sets = None,
    data: DataOption = None,
    quiet: QuietOption = False,
) -> None:
    """Run an experiment of a paper and print the results beside the paper's, with a verdict.

    A recipe names its rules: the experiment is reproduced if all of them hold. The command can be
    stopped and started again. Without a recipe it lists all of them with their number of runs and
    steps, or prints stored results.
    """
    from taskmix.cli.base import seeds_of
    from taskmix.config import RunConfig
    from taskmix.studies import reproduce as study

    if name is None:
        if results is None:
            print_tables(study.RecipeList(scale).tables())
        else:
            for table in study.Reproductions(study.read_reproductions(results)).tables():
                print(table.markdown(), end="")
        return
    recipe = study.read_recipe(name)
    if encoder is not None and recipe.bandit:
        raise UserError(f"--encoder: expected a recipe that trains a model, found {name}")
    changes = [*(sets or ()), *([f"model.encoder={encoder}"] if encoder else [])]
    listed = seeds_of(RunConfig(tasks=["any"]), seeds) if seeds else None
    count = len(listed or recipe.scale(scale).seeds)
    runs = len(recipe.contestants) * max(1, len(recipe.targets)) * count
    if recipe.bandit:
        with busy("simulating"):
            result = study.reproduce(name, scale, out=to, workers=workers)
    else:
        with showing(quiet, workers, runs) as view:
            result = study.reproduce(
                name,
                scale,
                out=to,
                seeds=listed,
                workers=workers,
                data=data,
                sets=changes,
                watch=view,
            )
    if results is not None:
        study.store(result, results)
    print_tables(result.tables())
    out.print(f"{name}: {result.verdict()}", soft_wrap=True)
