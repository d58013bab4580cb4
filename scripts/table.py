"""A study's runs as a Markdown table: python scripts/table.py FOLDER

FOLDER/POLICY/seed-N are run folders. A cell is the mean over the seeds, in hundredths; behind the
mean over the tasks stand its range and the examples that passed forward and backward, in thousands.
"""

import sys
from pathlib import Path
from statistics import mean

from taskmix.training.folder import SCORES, Finished, finished


def main() -> None:
    study = Path(sys.argv[1])
    policies: dict[str, list[Finished]] = {}
    for path in sorted(study.glob(f"*/seed-*/{SCORES}")):
        policies.setdefault(path.parent.parent.name, []).append(finished(path.parent))
    tasks = list(next(iter(policies.values()))[0].tasks)
    print("| policy | seeds |", " | ".join(tasks), "| mean | range | forward | backward |")
    print("|---|---|" + "---|" * (len(tasks) + 4))
    finds = [run for runs in policies.values() for run in runs]
    known = next(
        run for run in finds if all(run.tasks[task].baseline is not None for task in tasks)
    )
    baselines = [known.tasks[task].baseline or 0.0 for task in tasks]
    cells = [f"{100 * value:.1f}" for value in [*baselines, mean(baselines)]]
    print("| without looking | |", " | ".join(cells), "| | | |")
    for policy, runs in policies.items():
        cells = [f"{100 * mean(run.tasks[task].score for run in runs):.1f}" for task in tasks]
        scores = [100 * run.score for run in runs]
        spent = [mean(run.forward for run in runs), mean(run.backward for run in runs)]
        print(
            f"| {policy} | {len(runs)} |",
            " | ".join(cells),
            f"| {mean(scores):.1f} | {min(scores):.1f}-{max(scores):.1f} |",
            " | ".join(f"{count / 1000:.1f}" for count in spent),
            "|",
        )


if __name__ == "__main__":
    main()
