"""Several policies on the same tasks at the same budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from bursar.config import RunConfig

if TYPE_CHECKING:
    from bursar.training.folder import Finished

LONGEST = 80
"""Characters in a folder's name; a policy of many numbers has more than file systems take."""


@dataclass(frozen=True)
class Comparison:
    """The finished runs of each policy.

    Args:
        runs: by policy, its runs, one a seed.
        folders: by policy, their folders.
    """

    runs: Mapping[str, Sequence["Finished"]]
    folders: Mapping[str, Sequence[Path]]

    @property
    def tasks(self) -> list[str]:
        """The tasks, in order."""
        return list(next(iter(self.runs.values()))[0].tasks)

    def score(self, policy: str, task: str | None = None) -> list[float]:
        """By seed, a policy's score on a task; on the average over tasks if None."""
        return [run.score if task is None else run.tasks[task].score for run in self.runs[policy]]

    def best(self) -> str:
        """The policy with the highest mean score over the seeds."""
        return max(self.runs, key=lambda policy: mean(self.score(policy)))


def label(decider: Mapping[str, Any]) -> str:
    """What a table calls a policy, selector or weighting: its name and what was asked of it.

    >>> label({"name": "temperature", "temperature": 2})
    'temperature(temperature=2)'
    """
    options = ", ".join(f"{key}={value}" for key, value in decider.items() if key != "name")
    return f"{decider['name']}({options})" if options else str(decider["name"])


def compare(
    configs: Sequence[RunConfig],
    seeds: Sequence[int],
    out: Path,
    run_one: Callable[[RunConfig, Path], "Finished"],
) -> Comparison:
    """Run each policy with each seed; what has been run already is not run again.

    Args:
        configs: alike but for who decides.
        seeds: paired: a seed means the same first weights and data order under every policy.
        out: the folder of the runs.
        run_one: runs, resumes or reads the run in a folder.
    """
    runs: dict[str, list[Finished]] = {}
    folders: dict[str, list[Path]] = {}
    for seed in seeds:
        for config in configs:
            name = label(config.decider)
            folder = out / _folder(name) / f"seed-{seed}"
            own = config.model_copy(update={"seed": seed})
            runs.setdefault(name, []).append(run_one(own, folder))
            folders.setdefault(name, []).append(folder)
    return Comparison(runs, folders)


def _folder(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "_-=.," else "-" for c in name).strip("-")
    if len(plain) <= LONGEST:
        return plain
    return plain[:LONGEST] + "-" + blake2b(name.encode(), digest_size=4).hexdigest()
