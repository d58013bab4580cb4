"""Locks between workers that end with the process that holds them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from filelock import FileLock, Timeout

from taskmix.errors import UserError

if TYPE_CHECKING:
    from sqlalchemy import URL

Result = TypeVar("Result")
Held = AbstractContextManager[object]
"""A lock that is held; leaving it releases the lock."""

_KEEPALIVE = "-c tcp_keepalives_idle=60 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
"""The server drops a connection, and its lock, after 90 seconds without an answer."""


class Locks(ABC):
    """Named locks, each held by at most one worker.

    The operating system or the database server releases a lock when its holder's process ends,
    however it ends. So the worker that gets the lock of an unfinished run is the only one that
    works on it, and no heartbeat is needed.
    """

    @abstractmethod
    def take(self, name: str) -> Held | None:
        """Return the lock, or None if another worker holds it."""

    @abstractmethod
    def wait(self, name: str) -> Held:
        """Return the lock as soon as nobody else holds it."""

    @contextmanager
    def first_free(self, names: Sequence[str]) -> Iterator[str]:
        """Hold the first lock that is free, and yield its name; if none is, wait for the first."""
        for name in names:
            held = self.take(name)
            if held is not None:
                break
        else:
            name, held = names[0], self.wait(names[0])
        with held:
            yield name

    def share(self, work: Mapping[str, Callable[[], Result]]) -> dict[str, Result]:
        """Do the work that no other worker has locked, until all of it is done.

        Return the results by name. Work that another worker has done is called again, so it has to
        find what that worker left.
        """
        done: dict[str, Result] = {}
        while remaining := [name for name in work if name not in done]:
            with self.first_free(remaining) as name:
                done[name] = work[name]()
        return done


class FileLocks(Locks):
    """Locks as files in a folder, for workers that share the folder.

    >>> import tempfile
    >>> locks = FileLocks(Path(tempfile.mkdtemp()))
    >>> with locks.wait("search/3"):
    ...     locks.take("search/3") is None
    True
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def take(self, name: str) -> Held | None:
        try:
            return self._lock(name).acquire(timeout=0)
        except Timeout:
            return None

    def wait(self, name: str) -> Held:
        return self._lock(name).acquire()

    def _lock(self, name: str) -> FileLock:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"{self._folder.parent}: expected a folder to write to, {error.strerror}"
            ) from None
        return FileLock(self._folder / f"{_hash(name).hex()}.lock")


class PostgresLocks(Locks):
    """Advisory locks of a PostgreSQL server, for the workers of any number of machines.

    Each lock that is held has its own connection; the server releases the lock when the connection
    ends.
    """

    def __init__(self, url: "URL") -> None:
        from sqlalchemy import NullPool, create_engine

        options = {"options": _KEEPALIVE}
        self._engine = create_engine(
            url, poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=options
        )

    def take(self, name: str) -> Held | None:
        return self._acquired("SELECT pg_try_advisory_lock(:key)", name)

    def wait(self, name: str) -> Held:
        held = self._acquired("SELECT pg_advisory_lock(:key) IS NOT NULL", name)
        assert held is not None
        return held

    def _acquired(self, statement: str, name: str) -> Held | None:
        """Return the connection that holds the lock, or None if the statement returned false."""
        from sqlalchemy import text

        key = int.from_bytes(_hash(name), signed=True)
        with ExitStack() as opened:
            connection = opened.enter_context(self._engine.connect())
            if not connection.execute(text(statement), {"key": key}).scalar():
                return None
            return opened.pop_all()


def _hash(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()
