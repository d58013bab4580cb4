"""Locks between workers that end with the process that holds them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from sqlalchemy import URL

Held = AbstractContextManager[object]
"""A lock that is held; leaving it releases the lock."""

_KEEPALIVE = "-c tcp_keepalives_idle=60 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
"""A machine that vanished without a word has lost its locks after 90 seconds."""


class Locks(ABC):
    """Named locks, each held by at most one worker.

    The operating system or the database server releases a lock when its holder's process ends,
    however it ends. So whoever gets the lock of an unfinished piece of work knows that nobody else
    is at it, without a clock.
    """

    @abstractmethod
    def take(self, name: str) -> Held | None:
        """Return the lock, or None if another worker holds it."""

    @abstractmethod
    def wait(self, name: str) -> Held:
        """Return the lock as soon as nobody else holds it."""


class FileLocks(Locks):
    """Locks in a folder, for the workers of one machine.

    Args:
        folder: of the lock files; made if it is not there.

    >>> import tempfile
    >>> locks = FileLocks(Path(tempfile.mkdtemp()))
    >>> with locks.wait("search/3"):
    ...     locks.take("search/3") is None
    True
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, name: str) -> Held | None:
        """Return the lock, or None if another worker holds it."""
        lock = self._lock(name)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return None
        return _released(lock)

    def wait(self, name: str) -> Held:
        """Return the lock as soon as nobody else holds it."""
        lock = self._lock(name)
        lock.acquire()
        return _released(lock)

    def _lock(self, name: str) -> FileLock:
        self._folder.mkdir(parents=True, exist_ok=True)
        digest = blake2b(name.encode(), digest_size=8).hexdigest()
        return FileLock(self._folder / f"{digest}.lock")


@contextmanager
def _released(lock: FileLock) -> Iterator[None]:
    try:
        yield
    finally:
        lock.release()


class PostgresLocks(Locks):
    """Advisory locks of a PostgreSQL server, for the workers of any number of machines.

    Each lock that is held has a connection of its own; the server releases the lock when the
    connection ends.

    Args:
        url: of the database.
    """

    def __init__(self, url: "URL") -> None:
        from sqlalchemy import NullPool, create_engine

        options = {"options": _KEEPALIVE}
        self._engine = create_engine(
            url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options
        )

    def take(self, name: str) -> Held | None:
        """Return the lock, or None if another worker holds it."""
        return self._called("SELECT pg_try_advisory_lock(:key)", name)

    def wait(self, name: str) -> Held:
        """Return the lock as soon as nobody else holds it."""
        held = self._called("SELECT pg_advisory_lock(:key) IS NOT NULL", name)
        assert held is not None
        return held

    def _called(self, statement: str, name: str) -> Held | None:
        """Return the lock with the connection that holds it, or None if the answer is no."""
        from sqlalchemy import text

        key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
        with ExitStack() as opened:
            connection = opened.enter_context(self._engine.connect())
            if not connection.execute(text(statement), {"key": key}).scalar():
                return None
            return opened.pop_all()
