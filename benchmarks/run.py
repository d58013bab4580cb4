"""`make bench`: every benchmark of this folder, one table, exit code 1 if a goal is missed."""

import importlib
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table


def main() -> None:
    wanted = sys.argv[1:]
    console = Console(width=140)
    table = Table("figure", "measured", "goal", "met")
    missed = 0
    for path in sorted(Path(__file__).parent.glob("bench_*.py")):
        if wanted and path.stem.removeprefix("bench_") not in wanted:
            continue
        for number, benchmark in enumerate(importlib.import_module(path.stem).BENCHMARKS, 1):
            console.print(f"{path.stem}, {number} ...", style="dim")
            found = benchmark()
            for result in found if isinstance(found, list) else [found]:
                console.print(f"  {result.name}: {result.value:,.3g} {result.unit}", style="dim")
                table.add_row(
                    result.name,
                    f"{result.value:,.3g} {result.unit}",
                    result.goal,
                    "yes" if result.ok else "NO",
                )
                missed += not result.ok
    console.print(table)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
