"""RTE and MRPC as primaries: the baseline, AutoSeM without each stage, and AutoSeM.

    python -m experiments.autosem_glue.run [--seeds 1 2 3] [--workers 2] [--table]

Finished outcomes are not made again; a study that was killed goes on. A seed takes about three
quarters of an hour on a free core. The rules are in the README.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

from experiments.shared import (
    EXAMPLES,
    Outcomes,
    add_sets,
    command_line,
    markdown,
    publish,
    spread,
)
from taskmix import RunConfig, autosem, run
from taskmix.config import changed, decided_by, load
from taskmix.studies.autosem import AutosemSettings, StageCost

FILE = EXAMPLES / "autosem-glue.yaml"
PRIMARIES = ("glue/rte", "glue/mrpc")
TRIALS = {"glue/rte": 20, "glue/mrpc": 15}  # the paper's
VARIANTS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "no-selection": {"without": "selection"},
    "no-search": {"without": "search"},
    "full": {},
    "full, cheaper": {"prune": True, "warm_start": True},
}


def name_of(primary: str, variant: str, seed: int) -> str:
    return f"{primary.replace('/', '-')}-{variant.replace(', ', '-')}-{seed}"


def outcome(
    config: RunConfig, primary: str, variant: str, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the score of one variant with the configuration's seed, and its cost."""
    name = name_of(primary, variant, config.seed)
    config = changed(config, {"name": name}, "experiment")
    folder: Path = options.runs / name
    if variant == "baseline":
        only = changed(config, {"tasks": [primary], "objective": primary}, "experiment")
        scores = run(decided_by(only, "random", Path(), "experiment"), folder, resume=True)
        return {
            "score": scores.objective,
            "steps": StageCost.of_run(folder).steps,
            "ratio": {primary: 1},
        }
    settings = replace(
        AutosemSettings(**VARIANTS[variant]),
        rounds=options.rounds,
        trials=options.trials or TRIALS[primary],
    )
    result = autosem(
        config,
        primary,
        None,
        folder,
        settings=settings,
        workers=options.workers,
        storage=options.storage,
        seeds=[config.seed + 1000],
    )
    return {
        "score": result.search.best.value,
        "steps": result.selection.spent.steps + result.search.spent.steps,
        "ratio": result.ratio,
    }


def table(outcomes: Outcomes) -> str:
    rows = []
    for primary in PRIMARIES:
        for variant in VARIANTS:
            of = [
                o for o in outcomes.values() if (o["primary"], o["variant"]) == (primary, variant)
            ]
            if of:
                steps = f"{mean(o['steps'] for o in of):,.0f}"
                ratios = ", ".join(":".join(str(n) for n in o["ratio"].values()) for o in of)
                scores = spread([100 * o["score"] for o in of])
                rows.append([primary, variant, str(len(of)), scores, steps, ratios])
    return markdown(["primary", "variant", "seeds", "dev score", "steps", "ratios"], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--primaries", nargs="+", choices=PRIMARIES, default=list(PRIMARIES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--storage", help="URL of a storage that several machines share")
    parser.add_argument("--rounds", type=int, default=100, help="of stage 1, ten batches each")
    parser.add_argument("--trials", type=int, help="20 for RTE and 15 for MRPC if not given")
    add_sets(parser)
    options = parser.parse_args(arguments)
    for seed in [] if options.table else options.seeds:
        config = load(FILE, [*options.sets, f"seed={seed}"], os.environ.get("TASKMIX_DATA"))
        for primary in options.primaries:
            for variant in options.variants:
                name = name_of(primary, variant, seed)
                if name not in options.outcomes:
                    key = {"primary": primary, "variant": variant, "seed": seed}
                    values = key | outcome(config, primary, variant, options)
                    options.outcomes.add(name, values)
                    print(json.dumps(values), flush=True)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
