"""What a launcher, torchrun above all, tells each process; read without loading torch."""

import os
from dataclasses import dataclass

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables by which processes find each other."""


@dataclass(frozen=True)
class Launch:
    """How this process was started.

    Args:
        rank: its number among all, from 0.
        count: how many ranks there are.
        local: its number on this machine.
        restarts: how often torchrun has started the processes of this machine again.
        watched: whether torchrun watches over this process.
    """

    rank: int = 0
    count: int = 1
    local: int = 0
    restarts: int = 0
    watched: bool = False

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes and talks to the user."""
        return self.rank == 0


def launched() -> Launch:
    """Return how this process was started; alone, where no launcher says otherwise."""
    if any(name not in os.environ for name in NEEDED):
        return Launch()
    return Launch(
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
        int(os.environ.get("LOCAL_RANK", "0")),
        int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
        "TORCHELASTIC_RUN_ID" in os.environ,
    )
