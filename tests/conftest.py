"""What tests share."""

import os
from pathlib import Path

import pytest


def missing(what: str) -> None:
    """Skip on a user's machine; under CI nothing may be missing."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{what} is missing, and CI has to have it")
    pytest.skip(f"needs {what}")


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of real data sets."""
    named = os.environ.get("BURSAR_DATA")
    if not named:
        missing("BURSAR_DATA")
    return Path(str(named))


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Encoded splits of tests stay out of the user's cache."""
    os.environ["BURSAR_CACHE"] = str(tmp_path_factory.mktemp("cache"))
