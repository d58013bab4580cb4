"""The examples of the documentation: short, and they run, stop and go on."""

import re
import runpy
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
# Those that train with a loop of somebody else: not own models, nor scripts that write data.
EXAMPLES = sorted(
    path
    for path in (DOCS / "examples").glob("*.py")
    if not path.stem.startswith("own_") and "taskmix" in path.read_text()
)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.* is deprecated:FutureWarning")
@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_runs_and_goes_on(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = []
    for folder, steps in (("whole", 20), ("parts", 10), ("parts", 20)):
        arguments = [str(script), str(tmp_path / folder), "--steps", str(steps)]
        monkeypatch.setattr(sys, "argv", arguments)
        runpy.run_path(str(script), run_name="__main__")
        said.append(capsys.readouterr().out.splitlines()[-1:])
    if script.stem == "accelerate_loop":  # has no journal, and says the shares
        assert said[0] == said[2] != said[1]
        return
    journals = [(tmp_path / f / "journal.jsonl").read_bytes() for f in ("whole", "parts")]
    assert journals[0] == journals[1]
    assert journals[0].count(b'"kind":"step"') == 20


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_adds_at_most_ten_lines_and_the_page_shows_them(script: Path) -> None:
    page = (DOCS / "integrations.md").read_text()
    assert f"examples/{script.name}" in page
    lines = script.read_text().splitlines()
    added = [line.removesuffix("  # taskmix").strip() for line in lines if "# taskmix" in line]
    added += [line for line in lines if re.match("(from|import) taskmix", line)]
    assert 3 <= len(added) <= 10
    assert not [line for line in added if line not in page]
