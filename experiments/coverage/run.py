"""How often 95% intervals of off-policy estimates cover the truth, over a grid of simulated logs.

    python -m experiments.coverage.run [--logs 2000] [--table]

A cell of the grid takes a few seconds. Finished cells are not simulated again.
"""

import os
from collections.abc import Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

from experiments.coverage.simulation import (
    METHODS,
    STORED_LOGGERS,
    Cell,
    Coverage,
    LearningCell,
    coverage,
    grid,
)
from experiments.shared import Outcomes, command_line, markdown, publish

PROMISED = (92.0, 98.0)
"""In percent; docs/off-policy.md promises it."""


def name_of(cell: Cell) -> str:
    alike = "-alike" if cell.alike else ""
    logger = f"-{cell.logger}" if isinstance(cell, LearningCell) else ""
    return f"{cell.rewards}-{cell.steps}-{cell.weight}-{cell.rounds}{alike}{logger}"


def simulate(outcomes: Outcomes, cell: Cell, logs: int, seed: int) -> None:
    found = coverage(cell, logs, seed)
    counts = {method: [each.given, each.covered] for method, each in found.items()}
    outcomes.add(name_of(cell), {"logs": logs, "seed": seed, "given_and_covered": counts})


def stored_coverage(outcomes: Outcomes, cell: Cell) -> dict[str, Coverage]:
    values = outcomes[name_of(cell)]
    counts = values["given_and_covered"]
    return {method: Coverage(values["logs"], *counts[method]) for method in METHODS}


def table(outcomes: Outcomes) -> str:
    rows, shares = [], []
    for cell in grid(STORED_LOGGERS):
        if name_of(cell) in outcomes:
            by_method = stored_coverage(outcomes, cell)
            rounds = f"{cell.rounds}, alike" if cell.alike else str(cell.rounds)
            logger = cell.logger if isinstance(cell, LearningCell) else "fixed"
            row = [logger, cell.rewards, f"{cell.steps:,}", str(cell.weight), rounds]
            if any(often(found) for found in by_method.values()):
                rows.append([*row, *map(cell_text, by_method.values())])
            shares += [100 * found.share for found in by_method.values() if often(found)]
    text = markdown(["logger", "rewards", "T", "largest weight", "rounds of", *METHODS], rows)
    if not shares:
        return text
    outside = sum(not PROMISED[0] <= share <= PROMISED[1] for share in shares)
    numbers = f"{len(shares)} figures from {min(shares):.1f} to {max(shares):.1f}%"
    return f"{text}\n\n{numbers}; {outside} outside {PROMISED[0]:.0f} to {PROMISED[1]:.0f}%"


def cell_text(found: Coverage) -> str:
    """Return the coverage in percent, and the share of logs with an interval if not all."""
    if not often(found):
        return "none"
    given = 100 * found.given / found.logs
    return f"{100 * found.share:.1f}" + (f" ({given:.0f}%)" if given < 99.5 else "")


def often(found: Coverage) -> bool:
    """Return whether at least one log in ten had an interval."""
    return found.given >= found.logs / 10


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cells", type=int, help="only the first cells of the grid")
    options = parser.parse_args(arguments)
    for cell in [] if options.table else grid()[: options.cells]:
        if name_of(cell) not in options.outcomes:
            simulate(options.outcomes, cell, options.logs, options.seed)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
