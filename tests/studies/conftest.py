"""Workers that a test starts and may kill, and a PostgreSQL server of the test's own."""

import importlib.util
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WORKER = Path(__file__).with_name("worker.py")


@pytest.fixture(scope="session")
def worker() -> Any:
    """The module of the worker processes."""
    spec = importlib.util.spec_from_file_location("worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def started() -> Iterator[Any]:
    """Starts workers, and ends those that are left."""
    processes: list[subprocess.Popen[str]] = []

    def start(*words: str | Path) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, WORKER, *words],
            stdin=pipe,
            stdout=pipe,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def program(name: str) -> str | None:
    """A program of PostgreSQL's, which Debian keeps off the path."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(places[-1]) if places else shutil.which(name)


def server_user() -> str | None:
    """Whom the server runs as: it refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database on a server that ends with the tests."""
    initdb, pg_ctl = program("initdb"), program("pg_ctl")
    if initdb is None or pg_ctl is None:
        pytest.skip("needs PostgreSQL: initdb and pg_ctl of Debian's package `postgresql`")
    pytest.importorskip("psycopg", reason="needs psycopg: pip install 'taskmix[postgres]'")
    user, port = server_user(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="taskmix-postgres-"))
    if user is not None:
        shutil.chown(folder, user)

    def run(*words: str | Path) -> None:
        log = subprocess.DEVNULL  # a server that keeps a pipe open would never let go of it
        subprocess.run(words, user=user, cwd="/", check=True, stdout=log, stderr=log, timeout=120)

    options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
    try:
        run(initdb, "-D", folder / "data", "-A", "trust", "-U", "taskmix", "--no-sync")
        run(pg_ctl, "-D", folder / "data", "-w", "-o", options, "-l", folder / "log", "start")
        yield f"postgresql://taskmix@127.0.0.1:{port}/postgres"
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            run(pg_ctl, "-D", folder / "data", "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
