"""The benchmarks follow the package: their measurements are for `make bench`, not for tests."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "benchmarks"


def test_every_benchmark_can_be_imported() -> None:
    names = sorted(path.stem for path in FOLDER.glob("bench_*.py"))
    code = "; ".join(f"import {name}; {name}.BENCHMARKS" for name in names)
    done = subprocess.run([sys.executable, "-c", code], cwd=FOLDER, capture_output=True, text=True)
    assert len(names) > 10
    assert done.returncode == 0, done.stderr
