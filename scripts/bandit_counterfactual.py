"""Print how much of the RANDOM-to-ORACLE gap counterfactual policies close on the MTL bandit.

    python scripts/bandit_counterfactual.py [--iterations 2] [--sets 1 2 3] [--environments 8]

With `--rise N` a step is worth the rise of the mean score between evaluations every N steps, in
place of the paper's reward.
"""

import argparse

import numpy as np

from taskmix.studies.counterfactual_bandit import (
    Closed,
    counterfactual_bandit,
    phased_ways,
    pooled_ways,
    room_left_in,
    score_rise,
    weighted_ways,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    defaults = {"environments": 8, "seeds": 10, "steps": 1000, "iterations": 2}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--sets", type=int, nargs="+", default=[1, 2, 3], help="of environments")
    parser.add_argument("--rise", type=int, help="steps between evaluations")
    options = vars(parser.parse_args())
    sets, rise = options.pop("sets"), options.pop("rise")
    reward = room_left_in if rise is None else score_rise(rise)
    # With one log there is nothing to pool.
    pools = pooled_ways() if options["iterations"] > 1 else {}
    ways = {**weighted_ways(), **phased_ways(), **pools}
    found = [counterfactual_bandit(ways, **options, seed=seed, reward=reward) for seed in sets]
    count = options["environments"] * len(sets)
    print(f"{options}, sets {sets}, {'room left' if rise is None else f'rise over {rise}'}\n")
    heads = "".join(f" set {seed} |" for seed in sets)
    print(f"| policy | gap closed, median of {count} | beats RANDOM |{heads}")
    print("|---|---|---|" + "---|" * len(sets))
    for results in zip(*found, strict=True):
        everywhere = Closed(results[0].name, np.concatenate([result.shares for result in results]))
        each = "".join(f" {result.median:.2f} ({result.wins}) |" for result in results)
        print(f"| {everywhere.name} | {everywhere.median:.2f} | {everywhere.wins} |{each}")


if __name__ == "__main__":
    main()
