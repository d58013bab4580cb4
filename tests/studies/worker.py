"""A worker of a study, as a process that a test starts and may kill.

It says each trial that it is in behind the first checkpoint. A `victim` waits there to be killed; a
`survivor` is ready and waits for a line before it starts.
"""

import sys
from pathlib import Path

from taskmix.config import RunConfig
from taskmix.progress import Quiet
from taskmix.records import UnitRecord
from taskmix.studies.autosem import AutosemResult, AutosemSettings, autosem

CONFIG = {
    "name": "shared",
    "tasks": ["digits/larger", "digits/left", "digits/right"],
    "budget": {"steps": 12, "batch": 8},
    "optimizer": {"lr": 3e-3, "head_factor": 1},
    "evaluate": {"every": 4, "examples": 50},
}
# Seven different ratios, all of which are tried: whatever order they come in, the best is the same.
SETTINGS = AutosemSettings(
    trials=7, initial=3, primary_range=(1, 2), auxiliary_range=(0, 1), without="selection"
)


class Herald(Quiet):
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


def study(out: Path, storage: str | None, victim: bool = False) -> AutosemResult:
    def watch(config: RunConfig, title: str) -> Herald:
        return Herald(title, victim)

    return autosem(
        CONFIG, "digits/larger", None, out, settings=SETTINGS, storage=storage, watch=watch
    )


if __name__ == "__main__":
    folder, url, role = sys.argv[1:]
    if role == "survivor":
        import taskmix.training.run  # noqa: F401 (what takes long, while another process works)

        sys.stdin.readline()
    study(Path(folder), url, victim=role == "victim")
