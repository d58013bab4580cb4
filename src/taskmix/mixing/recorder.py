"""The journal of a mixture: begun late, resumed exactly, written by one process."""

import sys
import weakref
from pathlib import Path
from typing import Any

from taskmix.errors import UserError
from taskmix.journal import Journal, Opening
from taskmix.policies import Outcome


class Recorder:
    """Writes draws to a journal if there is one to write; the first rank does, the others do not.

    The file is made at the first draw and not before, because a state may still be loaded.

    Args:
        path: of the journal; None for none.
        opening: its first line.
    """

    def __init__(self, path: Path | str | None, opening: Opening) -> None:
        self._path = None if path is None else Path(path)
        self._opening = opening
        self._journal: Journal | None = None

    def begin(self) -> None:
        """Make the file, unless that is done."""
        if self._path is None or self._journal is not None or rank() > 0:
            return
        size = self._path.stat().st_size if self._path.exists() else 0
        if size:
            raise UserError(
                f"{self._path}: expected no journal before the first draw, found one of {size} "
                "bytes; load the state that it belongs to, or remove it"
            )
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._keep(Journal.create(self._path, self._opening))

    def draw(self, outcome: Outcome, **sizes: Any) -> None:
        """Write down what came of a draw."""
        if self._journal is not None:
            self._journal.draw(outcome.draw.number, outcome, **sizes)

    def position(self) -> int | None:
        """Return where the next line will stand, all before it safe on the disk; None for none."""
        if self._journal is None:
            return None
        self._journal.sync()
        return self._journal.position

    def resume(self, position: int | None) -> None:
        """Go on from a position."""
        if self._path is None or rank() > 0:
            return
        if self._journal is not None:
            self._journal.close()
            self._journal = None
            if position is None:
                self._path.unlink()
        if position is None:
            return
        if not self._path.exists():
            raise UserError(f"{self._path}: expected the journal of the state, found no such file")
        self._keep(Journal.resume(self._path, position))

    def _keep(self, journal: Journal) -> None:
        self._journal = journal
        # Somebody else's loop has no place to close it.
        weakref.finalize(self, journal.close)


def rank() -> int:
    """Return which process this is of those that train together; 0 if it is alone."""
    if "torch" not in sys.modules:
        return 0
    import torch.distributed as dist

    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
