"""The site builds without a network and without a warning, and documents every public name."""

import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.test_public import NAMES

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-n", "-W", "-q", "-b", "html", DOCS, folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_is_on_the_site(site: Path) -> None:
    for page in DOCS.glob("*.md"):
        assert (site / f"{page.stem}.html").exists()


def test_pages_load_nothing_from_other_hosts(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text()
        for attribute in ('<script src="http', '<link rel="stylesheet" type="text/css" href="http'):
            assert attribute not in text, page.name


def test_every_public_name_is_documented(site: Path) -> None:
    inventory = (site / "objects.inv").read_bytes().split(b"zlib.\n", 1)[1]
    documented = {line.split()[0] for line in zlib.decompress(inventory).decode().splitlines()}
    names = {path.rpartition(".")[2] for path in NAMES}
    assert names <= {name.rpartition(".")[2] for name in documented}
