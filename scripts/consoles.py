"""Run the commands of a page's console blocks, and write what they print into the page.

    python scripts/consoles.py docs/quickstart.md

A test runs them too, and compares what they print with the page, numbers apart.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Said:
    """A command of a page, and what it printed to standard output."""

    command: str
    output: str


def commands(page: str) -> list[list[Said]]:
    """Return the commands of each console block, with the output that the page shows."""
    return [
        [
            Said(command.strip(), output.strip("\n"))
            for command, _, output in (part.partition("\n") for part in block.split("$ ")[1:])
        ]
        for block in BLOCK.findall(page)
    ]


def run(command: str, folder: Path) -> str:
    """Run a command as a reader would who has installed taskmix; return its standard output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "COLUMNS": "100", "PATH": path, "TERM": "dumb"}
    done = subprocess.run(
        command, shell=True, cwd=folder, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout.strip("\n")


def shape(output: str) -> str:
    """Return an output without numbers, and without spaces and lines that depend on their width."""
    words = re.sub(r"[+-]?\d[\d,.]*", "#", output)
    words = re.sub(r"(# (h|min) )?# (min|s)\b", "TIME", words)
    return re.sub(r"[\s─━┃│┏┳┓┡╇┩└┴┘├┼┤]+", " ", words).strip()


def rewritten(page: str, folder: Path) -> str:
    """Return the page with what its commands print now."""
    shutil.copytree(DOCS / "examples", folder, dirs_exist_ok=True)
    texts = [
        "".join(f"$ {said.command}\n{_lines(run(said.command, folder))}" for said in block)
        for block in commands(page)
    ]
    replacements = iter(texts)
    return BLOCK.sub(lambda _: f"```console\n{next(replacements)}```", page)


def _lines(output: str) -> str:
    return f"{output}\n" if output else ""


def main() -> None:
    path = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        path.write_text(rewritten(path.read_text(), Path(folder)))


if __name__ == "__main__":
    main()
