"""The examples and pages of docs/ run as their readers would run them."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import taskmix
from taskmix.errors import UserError
from taskmix.journal import read, without_times

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "experiments").rglob("*.md")),
]
EXAMPLES = ROOT / "docs" / "examples"
PARTS = EXAMPLES / "own_parts"


def script(name: str, folder: Path) -> list[str]:
    return [sys.executable, str(EXAMPLES / name), str(folder)]


def said(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def everything(folder: Path) -> dict[str, Any]:
    """All of a finished run that has to be equal in two runs, times apart."""
    found: dict[str, Any] = {
        name: (folder / name).read_bytes()
        for name in ("run.yaml", "scores.json", "model/model.safetensors")
    }
    found["journal"] = [without_times(record) for record in read(folder / "journal.jsonl")]
    return found


KILLER = """
import os, runpy, signal, sys
from taskmix.journal import Journal
write, left = Journal._write, [int(sys.argv[1])]

def last(journal, lines):
    write(journal, lines)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)

Journal._write = last
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def kill(command: list[str], folder: Path, lines: int = 70) -> None:
    """Start a script in a process that is killed at this line of its journal."""
    killer = [sys.executable, "-c", KILLER, str(lines), *command[1:]]
    done = subprocess.run(killer, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (folder / "scores.json").exists()


def test_a_model_and_tasks_of_ones_own_go_on_after_a_kill(tmp_path: Path) -> None:
    whole = said(script("own_model.py", tmp_path / "whole"), tmp_path)
    kill(script("own_model.py", tmp_path / "killed"), tmp_path / "killed")
    assert said(script("own_model.py", tmp_path / "killed"), tmp_path) == whole
    assert everything(tmp_path / "killed") == everything(tmp_path / "whole")
    scores = ast.literal_eval(whole)
    # Blind guesses get 0.64 and 0.4 right; 0.82 and 0.64 are beyond their chance of 1e-3 of 50.
    assert scores["tumour"] > 0.82
    assert scores["wine"] > 0.64


def test_the_plain_loop_goes_on_after_a_kill_with_the_same_losses_and_dropout(
    tmp_path: Path,
) -> None:
    said(script("pytorch_loop.py", tmp_path / "whole"), tmp_path)
    kill(script("pytorch_loop.py", tmp_path / "killed"), tmp_path / "killed", lines=40)
    said(script("pytorch_loop.py", tmp_path / "killed"), tmp_path)
    journals = [(tmp_path / f / "journal.jsonl").read_bytes() for f in ("whole", "killed")]
    assert journals[0] == journals[1]
    assert journals[0].count(b'"kind":"step"') == 40


def test_a_model_of_ones_own_takes_thirty_lines() -> None:
    tree = ast.parse((EXAMPLES / "own_model.py").read_text())
    lines: set[int] = set()
    for node in ast.walk(tree):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and not docstring:
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for node in ast.walk(tree):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or docstring:
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
    text = (EXAMPLES / "own_model.py").read_text().splitlines()
    assert len([line for line in lines if text[line - 1].strip()]) <= 30


def test_a_network_of_ones_own_on_tasks_of_the_catalogue(tmp_path: Path) -> None:
    scores = ast.literal_eval(said(script("own_network.py", tmp_path / "run"), tmp_path))
    # 400 dev pictures of ten digits: a blind guess is above 0.2 less than once in 10^8.
    assert min(scores.values()) > 0.2


def test_a_policy_a_kind_and_an_encoder_from_one_file_beside_the_run_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "taskmix"]
    folder = tmp_path / "run"
    said([*command, "run", str(PARTS / "run.yaml"), "--out", str(folder), "-q"], tmp_path)
    assert taskmix.load(folder, trust_code=True).result.score > 0.6
    refused = subprocess.run(
        [*command, "predict", str(folder), "--task", "mood", "dev"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert refused.returncode == 2
    assert "--trust-code" in refused.stderr
    trusted = [*command, "predict", str(folder), "--task", "mood", "dev", "--trust-code"]
    answers = said(trusted, tmp_path).split()
    assert len(answers) == 12
    assert set(answers) <= {'"good"', '"bad"'}


def test_a_run_whose_model_was_made_in_python_is_not_resumed_without_it(tmp_path: Path) -> None:
    said(script("own_model.py", tmp_path / "run"), tmp_path)
    (tmp_path / "run/scores.json").unlink()
    with pytest.raises(UserError, match=r"this run's model was made in Python, __main__:Net"):
        taskmix.resume(tmp_path / "run")
    with pytest.raises(UserError, match="expected a finished run"):
        taskmix.load(tmp_path / "run")


def blocks(page: str) -> list[str]:
    """Return the Python code of a page, block by block."""
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def block_with(page: str, text: str) -> str:
    [block] = [block for block in blocks(page) if text in block]
    return block


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_policy_on_the_page_of_policies_conforms() -> None:
    from taskmix.testing import PolicyConformance

    names: dict[str, Any] = {}
    exec(block_with("docs/policies.md", "class Hardest"), names)
    kit = type("Kit", (PolicyConformance,), {"make": lambda self, tasks: names["Hardest"](tasks)})()
    for name in dir(kit):
        test = getattr(kit, name)
        if name.startswith("test_") and test.__code__.co_argcount == 1:
            test()
