"""Several policies on the same tasks at the same budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from bursar.config import RunConfig, changed, decided_by

if TYPE_CHECKING:
    from torch import nn

    from bursar.tasks.task import Task
    from bursar.training.folder import Finished
    from bursar.training.watching import Watcher

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
    config: RunConfig | Mapping[str, Any] | str | Path,
    deciders: Sequence[str | Mapping[str, Any]],
    seeds: Sequence[int],
    out: Path | str,
    *,
    model: "Callable[[], nn.Module] | None" = None,
    tasks: "Sequence[Task] | Mapping[str, Task]" = (),
    cache: Path | None = None,
    watch: "Callable[[RunConfig, str], Watcher] | None" = None,
) -> Comparison:
    """Run each decider with each seed at the same budget; what is done is not done again.

    Args:
        config: what the runs have in common, as `run` takes it.
        deciders: policies, selectors or weightings: names, or mappings of a name and options.
        seeds: paired: a seed means the same first weights and data order under every decider.
        out: the folder of the runs.
        model: makes the module of one's own that each run starts from.
        tasks: tasks made in Python.
        cache: the folder for what is computed once, encoded splits above all.
        watch: makes the watcher of each run from its configuration and a title.
    """
    from bursar.training.run import configured, run

    out, asked = Path(out), configured(config, tasks)
    runs: dict[str, list[Finished]] = {}
    folders: dict[str, list[Path]] = {}
    for seed in seeds:
        for decider in deciders:
            own = changed(decided_by(asked, decider, Path(), "compare"), {"seed": seed}, "compare")
            name = label(own.decider)
            folder = out / _folder(name) / f"seed-{seed}"
            done = run(
                own,
                folder,
                model=model() if model is not None else None,
                tasks=tasks,
                resume=True,
                cache=cache,
                watchers=[watch(own, f"{name}, seed {seed}")] if watch is not None else (),
            )
            runs.setdefault(name, []).append(done)
            folders.setdefault(name, []).append(folder)
    return Comparison(runs, folders)


def _folder(name: str) -> str:
    plain = "".join(c if c.isalnum() or c in "_-=.," else "-" for c in name).strip("-")
    if len(plain) <= LONGEST:
        return plain
    return plain[:LONGEST] + "-" + blake2b(name.encode(), digest_size=4).hexdigest()
