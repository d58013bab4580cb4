"""Eighteen tasks of every kind in one run, each beside its majority-class baseline.

    python -m experiments.eighteen.run [--table]

TASKMIX_DATA names the folder of the official data sets. A finished outcome is not made again.
"""

from collections.abc import Sequence

from experiments.shared import (
    EXAMPLES,
    Outcomes,
    add_sets,
    command_line,
    compare_deciders,
    markdown,
    publish,
)

FILE = EXAMPLES / "eighteen.yaml"
HEAD = ["task", "metrics", "score", "majority-class baseline", "above it"]


def table(outcomes: Outcomes) -> str:
    rows = []
    for values in outcomes.values("random-1"):
        for task, scores in values["scores"]["tasks"].items():
            score, baseline = scores["score"], scores["baseline"]
            metrics = ", ".join(f"{n} {100 * v:.1f}" for n, v in scores["metrics"].items())
            above = "yes" if score > baseline else "**no**"
            rows.append([task, metrics, f"{100 * score:.1f}", f"{100 * baseline:.1f}", above])
    return markdown(HEAD, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    add_sets(parser)
    options = parser.parse_args(arguments)
    if not options.table:
        uniform = {"random": "random"}
        compare_deciders(options.outcomes, FILE, uniform, [1], options.runs, options.sets)
    publish(options.outcomes, table(options.outcomes))


if __name__ == "__main__":
    main()
