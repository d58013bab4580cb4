"""Figure 3 of Kourdis et al. (2020): α and the shares of the weights of one stored outcome.

python -m experiments.multimnist.figure3 OUT.html [--name 0.05/alpha_vil_paper-left-1]
"""

from collections.abc import Sequence
from pathlib import Path

from experiments.multimnist.study import TARGETS
from experiments.shared import command_line
from taskmix.journal import Opening, Round
from taskmix.report.figures import weighting
from taskmix.report.history import History


def by_task(values: Sequence[float]) -> dict[str, float]:
    return dict(zip(TARGETS, values, strict=True))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = command_line(__doc__, __file__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--name", default="0.05/alpha_vil_paper-left-1", help="of the outcome")
    options = parser.parse_args(arguments)
    result = options.outcomes[options.name]
    pairs = zip(result["alphas"], result["weights"], strict=True)
    rounds = [
        Round(epoch, {}, by_task(alphas), by_task(weights), 0.0)
        for epoch, (alphas, weights) in enumerate(pairs, 1)
    ]
    decider = {"name": result["method"], "target": result["target"]}
    sizes = dict.fromkeys(TARGETS, 1)
    budget = {"rounds": len(rounds)}
    opening = Opening(
        options.name, list(TARGETS), sizes, result["seed"], decider, budget, family="weighting"
    )
    figure = weighting(History(opening, units=rounds))
    figure.update_layout(template="plotly_white", paper_bgcolor="white", plot_bgcolor="white")
    figure.write_html(options.out, include_plotlyjs=True, config={"displayModeBar": False})


if __name__ == "__main__":
    main()
