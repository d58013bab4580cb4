"""The three tasks of Fang and Alqatari (2020) with four policies and a selector.

    python -m experiments.three_tasks.run [--table]

TASKMIX_DATA names the folder of the official data sets. Finished outcomes are not made again.
"""

from collections.abc import Sequence
from typing import Any

from experiments.shared import (
    EXAMPLES,
    Outcomes,
    add_sets,
    command_line,
    compare_deciders,
    policy_table,
    publish,
)

FILE = EXAMPLES / "three-tasks.yaml"
DECIDERS: dict[str, Any] = {
    "random": "random",
    "task_size": "task_size",
    "active": {"name": "active", "every": 50, "examples": 100},
    "mt_uncertainty": "mt_uncertainty",
    "progress": "progress",
}


def table(outcomes: Outcomes) -> str:
    return policy_table(outcomes)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--deciders", nargs="+", choices=DECIDERS, default=list(DECIDERS))
    add_sets(parser)
    options = parser.parse_args(arguments)
    if not options.table:
        deciders = {name: DECIDERS[name] for name in options.deciders}
        seeds, runs = options.seeds, options.runs
        compare_deciders(options.outcomes, FILE, deciders, seeds, runs, options.sets)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
