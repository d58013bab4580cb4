"""Reproduce the papers' experiments from the study files in `taskmix.recipes`."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taskmix.files import write_whole
from taskmix.studies.reproduce.cost import DryRun, RecipeList, dry_run, run_count, same_size
from taskmix.studies.reproduce.experiments import Experiment
from taskmix.studies.reproduce.recipe import (
    LEFT_OUT,
    Recipe,
    Rule,
    ScaleName,
    machine_sets,
    read_recipe,
    recipe_names,
)
from taskmix.studies.reproduce.results import (
    Reproduction,
    Reproductions,
    check_results_file,
    make_folder,
    read_reproductions,
    store,
)

if TYPE_CHECKING:
    from taskmix.config import RunConfig
    from taskmix.training.watching import Watcher

__all__ = [
    "LEFT_OUT",
    "DryRun",
    "Recipe",
    "RecipeList",
    "Reproduction",
    "Reproductions",
    "Rule",
    "ScaleName",
    "check_results_file",
    "dry_run",
    "read_recipe",
    "read_reproductions",
    "recipe_names",
    "reproduce",
    "run_count",
    "store",
]
RESULT = "reproduction.json"


def reproduce(
    name: str,
    scale: ScaleName = "small",
    *,
    out: Path | str | None = None,
    seeds: Sequence[int] | None = None,
    workers: int = 1,
    data: str | None = None,
    encoder: str | None = None,
    sets: Sequence[str] = (),
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Reproduction:
    """Run an experiment of a paper and compare the results with it.

    Finished runs are not run again, so a recipe can be stopped and resumed.

    Args:
        name: of the recipe, such as `camtl/table1`.
        scale: `small` for two cores, or `paper` for the paper's settings.
        out: the folder of the runs; `studies/reproduce/NAME-SCALE` if None.
        seeds: other seeds than the recipe's.
        workers: processes on this machine.
        data: the folder of the official data sets; None means the environment's TASKMIX_DATA.
        encoder: a hub name or folder in place of the recipe's encoder; with an encoder of another
            size, the results are not comparable with the paper's.
        sets: changes of the run file, as in `taskmix run --set`; the results are then not
            comparable with the paper's.
        watch: a function that creates the watcher of a run.
    """
    recipe = read_recipe(name)
    recipe.check_options(seeds=seeds, encoder=encoder, sets=sets)
    folder = Path(out or Path("studies/reproduce") / f"{name.replace('/', '-')}-{scale}")
    make_folder(folder)
    listed = seeds or recipe.scale(scale).seeds
    places = machine_sets(recipe, scale, data, encoder)
    changes = [*sets, *places]
    experiment = Experiment(recipe, scale, folder, listed, workers, changes, data, watch)
    values, seconds = experiment.run()
    other = [] if encoder is None or same_size(recipe, scale, places) else places
    settings = recipe.fingerprint(scale, [*sets, *other])
    result = Reproduction(name, scale, values, round(seconds, 1), settings)
    write_whole(folder / RESULT, json.dumps(result.to_json(), indent=2) + "\n")
    return result
