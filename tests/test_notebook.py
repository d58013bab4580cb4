"""The notebook runs from its first cell to its last, and its results are tables in it."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first_steps.ipynb"
TIMEOUT = 300  # of a cell, in seconds


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's client
def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(
        notebook, timeout=TIMEOUT, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    tables = [out for out in outputs if "<table>" in out.get("data", {}).get("text/html", "")]
    assert len(tables) == 5
    assert (tmp_path / "studies" / "first" / "report.html").exists()


def test_the_stored_outputs_are_those_of_the_cells() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [bool(cell.outputs) for cell in code] == [False] + [True] * (len(code) - 1)
