"""AutoSeM where the truth is known: which tasks it selects, how it mixes them, and the cost.

    python -m experiments.autosem_synthetic.run [--seeds 10] [--workers 2] [--table]

Finished outcomes are not made again; a study that was killed goes on. The tasks are in
`experiments.auxiliaries`, the goals in the README.
"""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from experiments.auxiliaries import AUXILIARIES, PRIMARY, auxiliary_tasks, network
from experiments.shared import Outcomes, command_line, markdown, publish, spread
from taskmix import autosem
from taskmix.studies.autosem import AutosemSettings

FIRST_SEED = 201  # the tasks and the defaults were chosen with smaller seeds
VARIANTS = {
    "full": AutosemSettings(),
    "cheaper": AutosemSettings(prune=True, warm_start=True),
    "short trials": AutosemSettings(prune=True, warm_start=True, trial_budget=0.5),
    "all three": AutosemSettings(without="selection"),
}
EARLIER = "earlier pruning"
"""`cheaper` with pruning after three trials and a fifth of a run; it can no longer be asked for."""


def name_of(variant: str, seed: int) -> str:
    return f"{variant.replace(' ', '-')}-{seed}"


def outcome(seed: int, variant: str, options: argparse.Namespace) -> dict[str, Any]:
    name = name_of(variant, seed)
    settings = VARIANTS[variant]
    if options.trials:
        settings = replace(settings, trials=options.trials)
    if options.rounds:
        settings = replace(settings, rounds=options.rounds)
    result = autosem(
        {
            "name": name,
            "seed": seed,
            "budget": {"steps": options.steps, "batch": 16},
            "optimizer": {"lr": 3e-3, "head_factor": 1},
            "evaluate": {"every": options.steps // 10},
        },
        PRIMARY,
        AUXILIARIES,
        options.runs / name,
        settings=settings,
        tasks=auxiliary_tasks(seed),
        model=network(seed),
        workers=options.workers,
        seeds=[seed + 1000],
    )
    alone, final = result.search.alone, result.finals[0]
    # A trial with the whole budget is a final training, too.
    value, steps = result.search.best.value, result.search.spent.steps
    if settings.trial_budget < 1:
        value, steps = final.value, steps + final.spent.steps
    return {
        "seed": seed,
        "variant": variant,
        "selected": list(result.selection.auxiliaries),
        "utilities": {u.task: round(u.mean, 3) for u in result.selection.utilities},
        "ratio": result.ratio,
        "value": value,
        "alone": None if alone is None else alone.value,
        "search_steps": steps,
        "steps": result.selection.spent.steps + steps,
        "trials": len(result.search.tried),
        "pruned": sum(trial.pruned for trial in result.search.tried),
    }


def lowest(ratio: dict[str, int]) -> bool:
    """Return whether the permuted auxiliary has no share, or the lowest of all auxiliaries."""
    others = [count for task, count in ratio.items() if task not in (PRIMARY, "permuted")]
    return ratio["permuted"] == 0 or ratio["permuted"] < min(others)


def table(outcomes: Outcomes) -> str:
    stored = outcomes.values()
    by = {name: [o for o in stored if o["variant"] == name] for name in (*VARIANTS, EARLIER)}
    head = ["variant", "seeds", "dev score", "primary alone", "search and final steps", "all steps"]
    rows = []
    for variant, of in by.items():
        if of:
            alone = f"{100 * mean(o['alone'] for o in of):.1f}"
            steps = [f"{mean(o[key] for o in of):,.0f}" for key in ("search_steps", "steps")]
            scores = spread([100 * o["value"] for o in of])
            rows.append([variant, str(len(of)), scores, alone, *steps])
    return "\n".join([markdown(head, rows), "", *verdicts(by)])


def verdicts(by: dict[str, list[dict[str, Any]]]) -> list[str]:
    full, everyone = by["full"], by["all three"]
    said = []
    for task in AUXILIARIES:
        times = sum(task in o["selected"] for o in full)
        said.append(f"{task}: selected in {times} of {len(full)}")
    low = sum(lowest(o["ratio"]) for o in everyone)
    said.append(f"permuted has 0 or the lowest share in {low} of {len(everyone)}")
    for variant in ("cheaper", "short trials", EARLIER):
        pairs = [(a, b) for a in full for b in by[variant] if a["seed"] == b["seed"]]
        if len(pairs) > 1:
            gains = [100 * (b["value"] - a["value"]) for a, b in pairs]
            error = stdev(gains) / len(gains) ** 0.5
            share = mean(b["search_steps"] / a["search_steps"] for a, b in pairs)
            gap = f"{mean(gains):+.2f} ± {error:.2f} points"
            said.append(f"{variant} - full: {gap}, {share:.0%} of steps")
    return [f"- {line}" for line in said]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400, help="of a training")
    parser.add_argument("--trials", type=int, help="of a search")
    parser.add_argument("--rounds", type=int, help="of stage 1")
    options = parser.parse_args(arguments)
    for seed in [] if options.table else range(FIRST_SEED, FIRST_SEED + options.seeds):
        for variant in options.variants:
            name = name_of(variant, seed)
            if name not in options.outcomes:
                values = outcome(seed, variant, options)
                options.outcomes.add(name, values)
                print(json.dumps(values), flush=True)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
