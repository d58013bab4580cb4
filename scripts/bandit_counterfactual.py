"""Print how much of the RANDOM-to-ORACLE gap counterfactual policies close on the MTL bandit.

python scripts/bandit_counterfactual.py [--environments 8] [--seeds 10] [--steps 1000]
"""

import argparse

from bursar.studies.counterfactual_bandit import (
    Closed,
    counterfactual_bandit,
    fixed_ways,
    phased_ways,
    weighted_ways,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    defaults = {"environments": 8, "seeds": 10, "steps": 1000, "iterations": 2, "seed": 1}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    options = vars(parser.parse_args())
    ways = {**fixed_ways(), **weighted_ways(), **phased_ways()}
    results = {result.name: result for result in counterfactual_bandit(ways, **options)}
    print(f"{options}; λ = 0.25 unless it says otherwise\n")
    print("| policy | gap closed, median | beats RANDOM | in each environment |")
    print("|---|---|---|---|")
    for result in results.values():
        each = " ".join(f"{share:.2f}" for share in result.shares)
        print(f"| {result.name} | {result.median:.2f} | {result.wins} | {each} |")
    verdicts(results)


def verdicts(results: dict[str, Closed]) -> None:
    own, auto = results["own"], results["auto"]
    best = max((r for name, r in results.items() if name.startswith("λ")), key=lambda r: r.median)
    phased = results["8 phases"]
    print(f"\nown closes {own.median:.2f} (goal 0.6), beats RANDOM in {own.wins} (goal 7)")
    print(f"auto loses {best.median - auto.median:.2f} to {best.name} in hindsight (goal <= 0.1)")
    print(f"8 phases close {phased.median:.2f} (goal 1.0)")


if __name__ == "__main__":
    main()
