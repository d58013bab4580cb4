"""A worker of a study, as a process that a test starts and may kill.

It says each run that it is in behind the first checkpoint. A `victim` waits there to be killed; a
`survivor` is ready and waits for a line before it starts.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from taskmix.config import RunConfig
from taskmix.records import UnitRecord
from taskmix.studies.compare import compare
from taskmix.studies.comparison import Comparison

if TYPE_CHECKING:
    from taskmix.studies.autosem import AutosemResult
from taskmix.training.watching import Watcher

CONFIG = {
    "name": "shared",
    "tasks": ["digits/larger", "digits/left", "digits/right"],
    "budget": {"steps": 12, "batch": 8},
    "optimizer": {"lr": 3e-3, "head_factor": 1},
    "evaluate": {"every": 4, "examples": 50},
}


class Herald(Watcher):
    """Says where a run starts, and that its first checkpoint is behind it."""

    def __init__(self, title: str, victim: bool) -> None:
        self._title = title
        self._victim = victim
        self._began = False

    def advanced(self, record: UnitRecord) -> None:
        if not self._began:
            self._began = True
            print(f"{self._title} starts at step {record.step}", flush=True)
        if record.step == 6:
            print(f"{self._title} is on its way", flush=True)
            if self._victim:
                sys.stdin.readline()


def search(out: Path, storage: str | None, victim: bool = False) -> "AutosemResult":
    from taskmix.studies.autosem import AutosemSettings, autosem

    # Seven different ratios, all of which are tried: in whatever order, the best is the same.
    settings = AutosemSettings(
        trials=7, initial=3, primary_range=(1, 2), auxiliary_range=(0, 1), without="selection"
    )
    return autosem(
        CONFIG,
        "digits/larger",
        None,
        out,
        settings=settings,
        storage=storage,
        watch=watching(victim),
    )


def comparison(out: Path, victim: bool = False) -> Comparison:
    return compare(CONFIG, ["random", "task_size", "exp3s"], [1], out, watch=watching(victim))


def watching(victim: bool) -> Callable[[RunConfig, str], Herald]:
    return lambda config, title: Herald(title, victim)


if __name__ == "__main__":
    study, folder, url, role = sys.argv[1:]
    if role == "survivor":
        import taskmix.training.run  # noqa: F401 (what takes long, while another process works)

        sys.stdin.readline()
    if study == "autosem":
        search(Path(folder), url, victim=role == "victim")
    else:
        comparison(Path(folder), victim=role == "victim")
        print("optuna" in sys.modules)
