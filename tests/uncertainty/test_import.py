import subprocess
import sys


def test_scoring_arrays_loads_no_torch():
    code = (
        "import sys, numpy as np, taskmix.uncertainty as u\n"
        "p = np.full((3, 4, 2), 0.5)\n"
        "u.bald(p), u.batch_bald(p), u.legacy(p), u.measure(p)\n"
        "raise SystemExit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
