"""What tests share."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest


def missing(what: str) -> None:
    """Skip on a user's machine; under CI nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI has to have it")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets."""
    named = os.environ.get("TASKMIX_DATA")
    if not named:
        missing("TASKMIX_DATA")
    return Path(str(named))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Encoded splits of tests stay out of the user's cache."""
    os.environ["TASKMIX_CACHE"] = str(tmp_path_factory.mktemp("cache"))


class Said(NamedTuple):
    """What a command answered."""

    code: int
    out: str
    err: str


Taskmix = Callable[..., Said]


@pytest.fixture
def taskmix(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Taskmix:
    """Runs the command line in this process."""
    from taskmix.cli import main

    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("TASKMIX_DATA", raising=False)

    def run(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["taskmix", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Said(int(ended.value.code or 0), said.out, said.err)

    return run
