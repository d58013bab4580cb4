"""The convergence figure of a run as an HTML page.

    python -m experiments.three_tasks.convergence RUN OUT.html

Figure 2 of Fang and Alqatari (2020): dev loss for each task with its minimum marked, and below it
the tasks' shares and the model's uncertainties.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from taskmix.report.figures import convergence
from taskmix.report.history import read_history
from taskmix.training.folder import JOURNAL


def main(arguments: Sequence[str] | None = None) -> None:
    run, out = map(Path, sys.argv[1:] if arguments is None else arguments)
    figure = convergence(read_history(run / JOURNAL))
    figure.update_layout(template="plotly_white", paper_bgcolor="white", plot_bgcolor="white")
    figure.write_html(out, include_plotlyjs=True, config={"displayModeBar": False})


if __name__ == "__main__":
    main()
