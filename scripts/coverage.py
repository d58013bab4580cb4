"""Print how often 95% intervals of off-policy estimates cover the truth, over a grid of logs.

python scripts/coverage.py [--logs 2000] [--seed 1]
"""

import argparse

from taskmix.studies.coverage import METHODS, Cell, Coverage, coverage, grid

#: What is promised, in percent.
PROMISED = (92.0, 98.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| rewards | T | largest weight | rounds of | " + " | ".join(METHODS) + " |")
    print("|---|---|---|---|" + "---|" * len(METHODS))
    shares = []
    for cell in grid():
        found = coverage(cell, options.logs, options.seed)
        print(f"| {named(cell)} | " + " | ".join(map(shown, found.values())) + " |", flush=True)
        shares += [100 * one.share for one in found.values() if often(one)]
    outside = sum(not PROMISED[0] <= share <= PROMISED[1] for share in shares)
    print(
        f"\n{len(shares)} figures from {min(shares):.1f} to {max(shares):.1f}%; {outside} outside"
    )


def named(cell: Cell) -> str:
    rounds = f"{cell.rounds}, alike" if cell.alike else str(cell.rounds)
    return f"{cell.rewards} | {cell.steps:,} | {cell.weight} | {rounds}"


def shown(found: Coverage) -> str:
    """The coverage in percent, and for how many logs there was an interval if not for all."""
    if not often(found):
        return "none"
    given = 100 * found.given / found.logs
    return f"{100 * found.share:.1f}" + (f" ({given:.0f}%)" if given < 99.5 else "")


def often(found: Coverage) -> bool:
    """Whether there were intervals enough, of one log in ten at least, to count."""
    return found.given >= found.logs / 10


if __name__ == "__main__":
    main()
