"""RTE and MRPC as primaries: the baseline, AutoSeM without each stage, and AutoSeM.

    python scripts/autosem_glue.py --data DATA --out OUTCOMES [--seeds 1 2 3] [--workers 2]

Each outcome is a JSON file in OUTCOMES and is not made again; a study that was killed goes on. The
table is printed from what is there. A seed takes about three quarters of an hour on a free core.

The rules, written before the runs. A variant's score is the primary's dev score of the final
training, mean and standard deviation over the seeds. Stage 1, the search and the final training of
a seed all have that seed. The claim of the paper holds here if the mean of `full` is above that of
`baseline` by more than the standard error of the difference, and is no lower than `no-selection`
and `no-search`. The dev set that the ratio is chosen on is the one that scores are told of, as in
the paper's Table 2; so the baseline, which is chosen among checkpoints alone, is at a disadvantage
of the best of 20.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from taskmix.config import RunConfig, changed, decided_by, load
from taskmix.files import write_whole
from taskmix.studies.autosem import AutosemSettings, autosem
from taskmix.studies.autosem.spent import StageCost
from taskmix.training.run import run

FILE = Path(__file__).parent.parent / "examples" / "autosem-glue.yaml"
PRIMARIES = ("glue/rte", "glue/mrpc")
TRIALS = {"glue/rte": 20, "glue/mrpc": 15}  # the paper's
VARIANTS: dict[str, dict[str, Any]] = {
    "baseline": {},
    "no-selection": {"without": "selection"},
    "no-search": {"without": "search"},
    "full": {},
    "full, cheaper": {"prune": True, "warm_start": True},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the outcomes")
    parser.add_argument("--data", help="folder of the official data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--primaries", nargs="+", choices=PRIMARIES, default=list(PRIMARIES))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--storage", help="URL of a storage that several machines share")
    parser.add_argument("--rounds", type=int, default=100, help="of stage 1, ten batches each")
    parser.add_argument("--trials", type=int, help="20 for RTE and 15 for MRPC if not given")
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    return parser.parse_args()


def outcome(config: RunConfig, primary: str, variant: str, options: Any) -> dict[str, Any]:
    """The score of one variant with the configuration's seed, and what it cost."""
    name = f"{primary.replace('/', '-')}-{variant.replace(', ', '-')}-{config.seed}"
    config = changed(config, {"name": name}, "script")
    folder = options.out / "runs" / name
    if variant == "baseline":
        asked = {"tasks": [primary], "objective": primary}
        alone = decided_by(changed(config, asked, "script"), "random", Path(), "script")
        done = run(alone, folder, resume=True)
        return {"score": done.objective, "steps": StageCost.on(folder).steps, "ratio": {primary: 1}}
    settings = replace(
        AutosemSettings(**VARIANTS[variant]),
        rounds=options.rounds,
        trials=options.trials or TRIALS[primary],
    )
    found = autosem(
        config,
        primary,
        None,
        folder,
        settings=settings,
        workers=options.workers,
        storage=options.storage,
    )
    return {
        "score": found.finals[0].value,
        "steps": found.spent["total"].steps,
        "ratio": found.ratio,
    }


def outcomes(out: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(out.glob("*.json")):
        yield json.loads(path.read_text())


def table(out: Path) -> str:
    lines = [
        "| primary | variant | seeds | dev score | steps | ratios |",
        "|---|---|---|---|---|---|",
    ]
    there = list(outcomes(out))
    for primary in PRIMARIES:
        for variant in VARIANTS:
            of = [o for o in there if (o["primary"], o["variant"]) == (primary, variant)]
            if not of:
                continue
            scores = [100 * o["score"] for o in of]
            spread = f" ± {stdev(scores):.1f}" if len(scores) > 1 else ""
            steps = f"{mean(o['steps'] for o in of):,.0f}"
            ratios = ", ".join(":".join(str(n) for n in o["ratio"].values()) for o in of)
            cells = [primary, variant, str(len(of)), f"{mean(scores):.1f}{spread}", steps, ratios]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    options = arguments()
    for seed in [] if options.table else options.seeds:
        config = changed(load(FILE, options.sets, options.data), {"seed": seed}, "script")
        for primary in options.primaries:
            for variant in options.variants:
                key = {"primary": primary, "variant": variant, "seed": seed}
                name = "-".join(str(value) for value in key.values()).replace("/", "-")
                path = options.out / f"{name.replace(', ', '-')}.json"
                if not path.exists():
                    found = key | outcome(config, primary, variant, options)
                    write_whole(path, json.dumps(found, indent=2) + "\n")
                    print(json.dumps(found), flush=True)
    print(table(options.out))


if __name__ == "__main__":
    main()
