"""Eight GLUE tasks at equal steps: uniform, size-proportional, Exp3.S, a counterfactual policy.

    python -m experiments.small_glue.run [--table]

TASKMIX_DATA names the folder of the official data sets. Finished outcomes are not made again.
"""

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from experiments.shared import (
    EXAMPLES,
    Outcomes,
    add_sets,
    command_line,
    compare_deciders,
    markdown,
    policy_table,
    publish,
    run_decider,
)
from taskmix import Log
from taskmix.config import load
from taskmix.offpolicy import FarPolicyWarning, improve

FILE = EXAMPLES / "small-glue.yaml"
POLICIES = {"random": "random", "task_size": "task_size", "exp3s": "exp3s"}
ENTROPY_WEIGHT = 0.15
"""The paper's λ."""
PAPER_SHARES = {
    "glue/cola": 0.089,
    "glue/sst2": 0.094,
    "glue/mrpc": 0.086,
    "glue/stsb": 0.102,
    "glue/rte": 0.086,
    "glue/qnli": 0.134,
    "glue/mnli": 0.255,
    "glue/qqp": 0.154,
}
"""Table 3 of Glover and Hokamp (2019)."""


def learn_shares(outcomes: Outcomes, seed: int, runs: Path, sets: Sequence[str]) -> None:
    """Learn a policy from the journal of this seed's uniform run, one iteration."""
    if f"shares-{seed}" in outcomes:
        return
    config = load(FILE, [*sets, f"seed={seed}"], os.environ["TASKMIX_DATA"])
    _, folder = run_decider(config, "random", "random", runs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarPolicyWarning)  # the paper's λ is too small for one log
        policy = improve(Log.from_journal(folder), ENTROPY_WEIGHT)
    shares = dict(zip(policy.tasks, policy.probabilities().tolist(), strict=True))
    outcomes.add(f"shares-{seed}", {"seed": seed, "probabilities": shares})


def shares_table(outcomes: Outcomes) -> str:
    learned = {values["seed"]: values["probabilities"] for values in outcomes.values("shares-")}
    head = ["task", *(f"seed {seed}" for seed in learned), "mean", "paper"]
    rows = []
    for task in next(iter(learned.values())):
        shares = [by_task[task] for by_task in learned.values()]
        figures = [*shares, mean(shares), PAPER_SHARES[task]]
        rows.append([task, *(f"{figure:.3f}" for figure in figures)])
    return markdown(head, rows)


def table(outcomes: Outcomes) -> str:
    learned = f"\n\nThe learned shares:\n\n{shares_table(outcomes)}"
    return policy_table(outcomes) + (learned if outcomes.values("shares-") else "")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    add_sets(parser)
    options = parser.parse_args(arguments)
    outcomes: Outcomes = options.outcomes
    for seed in [] if options.table else options.seeds:
        compare_deciders(outcomes, FILE, POLICIES, [seed], options.runs, options.sets)
        learn_shares(outcomes, seed, options.runs, options.sets)
        fixed = {"name": "fixed", **outcomes[f"shares-{seed}"]}
        del fixed["seed"]
        learned = {"counterfactual": fixed}
        compare_deciders(outcomes, FILE, learned, [seed], options.runs, options.sets)
    publish(outcomes, table(outcomes))


if __name__ == "__main__":
    main()
