"""The outcomes of an experiment in one file, and the tables made of them."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from filelock import FileLock
from pydantic import TypeAdapter

from taskmix import RunConfig, run
from taskmix.config import changed, decided_by, load
from taskmix.training.folder import Finished

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
STUDIES = ROOT / "studies"
"""The run folders; git ignores it."""


class Outcomes:
    """The outcomes of an experiment in a JSON Lines file, each with a name of its own.

    Several processes may add outcomes at the same time. The order in the file is the order in which
    runs finished; `items` sorts by name, so that tables do not depend on it.

    Args:
        path: of the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __contains__(self, name: str) -> bool:
        return name in self._read()

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._read()[name]

    def items(self, prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the names that start with a prefix, in order, and their values."""
        for name, values in sorted(self._read().items()):
            if name.startswith(prefix):
                yield name, values

    def values(self, prefix: str = "") -> list[dict[str, Any]]:
        return [values for _, values in self.items(prefix)]

    def add(self, name: str, values: Mapping[str, Any]) -> None:
        """Append an outcome, unless another process has added it meanwhile."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_suffix(".lock")):
            lines = self._lines()
            if any(json.loads(line)["name"] == name for line in lines):
                return
            with self.path.open("ab") as file:
                file.truncate(sum(map(len, lines)))  # a torn line of a process that was killed
                file.write(json.dumps({"name": name, **values}).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())

    def _read(self) -> dict[str, dict[str, Any]]:
        parsed = [json.loads(line) for line in self._lines()]
        return {values.pop("name"): values for values in parsed}

    def _lines(self) -> list[bytes]:
        if not self.path.exists():
            return []
        lines = self.path.read_bytes().splitlines(keepends=True)
        return [line for line in lines if line.endswith(b"\n")]


def command_line(doc: str, script: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all experiments share.

    Args:
        doc: the docstring of the script, whose first line is the description.
        script: its `__file__`.
    """
    folder = Path(script).parent
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="run nothing, only print the table")
    parser.add_argument(
        "--outcomes",
        type=lambda path: Outcomes(Path(path)),
        default=str(folder / "outcomes.jsonl"),
        help="the file of the outcomes; those that it holds are not made again",
    )
    parser.add_argument(
        "--runs", type=Path, default=STUDIES / folder.name, help="the folder of the run folders"
    )
    return parser


def add_sets(parser: argparse.ArgumentParser) -> None:
    """Add `--set`, which changes the run file as it does in `taskmix run`."""
    parser.add_argument("--set", dest="sets", action="append", default=[], metavar="KEY=VALUE")


def publish(outcomes: Outcomes, table: str, name: str = "table.md") -> None:
    """Write the table beside the outcomes, and print it."""
    outcomes.path.parent.mkdir(parents=True, exist_ok=True)
    outcomes.path.with_name(name).write_text(table + "\n")
    print(table)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation, or a dash where there is nothing."""
    deviation = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{mean(values):.1f}{deviation}" if values else "-"


def held(holds: bool) -> str:
    return "held" if holds else "NOT held"


def run_decider(config: RunConfig, arm: str, decider: Any, runs: Path) -> tuple[Finished, Path]:
    """Run a policy, selector or weighting with the configuration's seed, or go on with its run."""
    name = f"{arm}-{config.seed}"
    asked = decided_by(changed(config, {"name": name}, "experiment"), decider, Path(), "experiment")
    return run(asked, runs / name, resume=True), runs / name


def compare_deciders(
    outcomes: Outcomes,
    file: Path,
    deciders: Mapping[str, Any],
    seeds: Sequence[int],
    runs: Path,
    sets: Sequence[str] = (),
) -> None:
    """Run each policy, selector or weighting with each seed, and store the scores."""
    for seed in seeds:
        config = load(file, [*sets, f"seed={seed}"], os.environ["TASKMIX_DATA"])
        for arm, decider in deciders.items():
            if f"{arm}-{seed}" not in outcomes:
                scores, _ = run_decider(config, arm, decider, runs)
                values = {"policy": arm, "seed": seed, "scores": asdict(scores)}
                outcomes.add(f"{arm}-{seed}", values)


def policy_table(outcomes: Outcomes) -> str:
    """Return the mean scores of each policy by task, and what its runs cost, in thousands."""
    policies: dict[str, list[Finished]] = {}
    for values in (values for values in outcomes.values() if "scores" in values):
        scores = TypeAdapter(Finished).validate_python(values["scores"])
        policies.setdefault(values["policy"], []).append(scores)
    if not policies:
        return "no outcomes yet"
    tasks = list(next(iter(policies.values()))[0].tasks)
    head = ["policy", "seeds", *tasks, "mean", "range", "forward", "backward"]
    rows = [["majority-class baseline", "", *_baselines(policies, tasks), "", "", ""]]
    for policy, runs in sorted(policies.items()):
        by_task = [mean(scores.tasks[task].score for scores in runs) for task in tasks]
        means = [100 * scores.score for scores in runs]
        rows.append(
            [
                policy,
                str(len(runs)),
                *(f"{100 * score:.1f}" for score in by_task),
                f"{mean(means):.1f}",
                f"{min(means):.1f}-{max(means):.1f}",
                f"{mean(scores.forward for scores in runs) / 1000:.1f}",
                f"{mean(scores.backward for scores in runs) / 1000:.1f}",
            ]
        )
    return markdown(head, rows)


def _baselines(policies: Mapping[str, Sequence[Finished]], tasks: Sequence[str]) -> list[str]:
    for scores in (scores for runs in policies.values() for scores in runs):
        values = [scores.tasks[task].baseline for task in tasks]
        known = [100 * value for value in values if value is not None]
        if len(known) == len(tasks):  # runs of selectors store none
            return [f"{value:.1f}" for value in [*known, mean(known)]]
    return ["-"] * (len(tasks) + 1)
