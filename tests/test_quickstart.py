"""The quickstart page: its commands run, and print what the page shows."""

import runpy
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERDICTS = (
    "An estimate from",
    "aimed reached a dev score",
    "Differences are paired by seed",
    '"product"',
)
CONSOLES = runpy.run_path(str(ROOT / "scripts" / "consoles.py"))


def test_the_commands_of_the_quickstart_print_what_it_shows(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "examples", tmp_path, dirs_exist_ok=True)
    page = (ROOT / "docs" / "quickstart.md").read_text()
    blocks = CONSOLES["commands"](page)
    assert len(blocks) >= 4
    for said in (said for block in blocks for said in block):
        shown, printed = said.output, CONSOLES["run"](said.command, tmp_path)
        for part in VERDICTS:  # depends on numbers, and they on the processor
            shown, printed = shown.partition(part)[0], printed.partition(part)[0]
        assert CONSOLES["shape"](printed) == CONSOLES["shape"](shown), said.command
