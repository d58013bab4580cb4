"""Storage of Optuna studies: an SQLite file, or a PostgreSQL server for several machines."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from taskmix.errors import UserError
from taskmix.search import check_installed
from taskmix.studies.locks import FileLocks, Locks, PostgresLocks

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from sqlalchemy import URL

FILE = "study.db"
"""The SQLite file in a study's folder."""
_TIMEOUT = 60
"""Seconds that a worker waits for another one's transaction."""


@dataclass(frozen=True)
class Storage:
    """Optuna's storage of trials with the workers' locks; leaving its context closes it."""

    trials: "RDBStorage"
    locks: Locks

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.trials.remove_session()
        self.trials.engine.dispose()


def default_url(folder: Path) -> str:
    return f"sqlite:///{folder.resolve() / FILE}"


def open_storage(url: str) -> Storage:
    """Open the storage of a URL, `sqlite:///PATH` or `postgresql://USER@HOST/DATABASE`."""
    check_installed()
    parsed = _parsed(url)
    shown = parsed.render_as_string(hide_password=True)
    with _one_sentence(shown):
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed, shown)
        return _postgres(parsed)


def _sqlite(url: "URL", shown: str) -> Storage:
    from optuna.storages import RDBStorage

    if not url.database or url.database == ":memory:":
        raise UserError(f"storage {shown}: expected the path of a file, found none")
    file = Path(url.database)
    file.parent.mkdir(parents=True, exist_ok=True)
    locks = FileLocks(file.with_name(f"{file.name}.locks"))
    with locks.wait("tables"):
        trials = RDBStorage(str(url), engine_kwargs={"connect_args": {"timeout": _TIMEOUT}})
    return Storage(trials, locks)


def _postgres(url: "URL") -> Storage:
    from optuna.storages import RDBStorage

    # Psycopg 3, whichever driver SQLAlchemy would take by default.
    url = url.set(drivername="postgresql+psycopg")
    locks = PostgresLocks(url)
    with locks.wait("taskmix tables"):  # two workers that make the same table at once collide
        # A connection that was idle during a long run may be gone.
        trials = RDBStorage(
            url.render_as_string(hide_password=False), engine_kwargs={"pool_pre_ping": True}
        )
    return Storage(trials, locks)


def _parsed(url: str) -> "URL":
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the second for a port of letters
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("sqlite", "postgresql"):
        # A URL that cannot be parsed is not shown: it may hold a password.
        found = "another" if parsed is None else f"{parsed.get_backend_name()!r}"
        raise UserError(
            f"storage: expected a URL that begins with sqlite:/// or postgresql://, found {found}"
        )
    return parsed


@contextmanager
def _one_sentence(shown: str) -> Iterator[None]:
    """Turn the errors of a database or of Optuna into one sentence."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except ImportError:
        raise UserError(
            f"storage {shown}: needs psycopg; pip install 'taskmix[postgres]'"
        ) from None
    except RuntimeError as error:  # raised by Optuna for tables of another version
        raise UserError(f"storage {shown}: {_first_line(error)}") from None
    except (SQLAlchemyError, StorageInternalError) as error:
        cause = error.__cause__ if isinstance(error, StorageInternalError) else error
        reason = cause.orig if isinstance(cause, DBAPIError) else cause
        raise UserError(
            f"storage {shown}: expected a database with Optuna's tables or room for them,"
            f" found: {_first_line(reason)}"
        ) from None


def _first_line(error: object) -> str:
    return " ".join(str(error).split("\n")[0].split())
