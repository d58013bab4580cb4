"""Figure 3 of Kourdis et al. (2020): python scripts/figure3.py OUTCOME.json OUT.html

α and the tasks' shares of the weights, epoch by epoch, of one stored outcome of MultiMNIST.
"""

import sys
from pathlib import Path

from taskmix.journal import Opening, Round
from taskmix.report.figures import weighting
from taskmix.report.history import History
from taskmix.studies.multimnist import TASKS
from taskmix.studies.target_results import TargetResult


def named(values: list[float]) -> dict[str, float]:
    return dict(zip(TASKS, values, strict=True))


def main() -> None:
    outcome = TargetResult.load(Path(sys.argv[1]))
    told = {"name": outcome.method, "target": outcome.target}
    rounds = [
        Round(epoch, {}, named(alphas), named(weights), 0.0, {})
        for epoch, (alphas, weights) in enumerate(
            zip(outcome.alphas, outcome.weights, strict=True), 1
        )
    ]
    opening = Opening(outcome.method, list(TASKS), dict.fromkeys(TASKS, 1), outcome.seed, told, {})
    figure = weighting(History(opening, rounds=rounds))
    figure.update_layout(template="plotly_white", paper_bgcolor="white", plot_bgcolor="white")
    figure.write_html(Path(sys.argv[2]), include_plotlyjs=True, config={"displayModeBar": False})


if __name__ == "__main__":
    main()
