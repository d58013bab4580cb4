"""MT-Uncertainty sampling: trains on the most uncertain examples of all tasks."""

from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import unknown
from taskmix.selection.base import ExampleScore, Selection, Selector
from taskmix.uncertainty import bald, entropy
from taskmix.uncertainty.information import numbers

Scores = NDArray[np.float64]
#: Computes utilities, comparable across tasks, from the normalised scores of each task.
Rule = Callable[[Sequence[Scores]], list[Scores]]


def paper_rule(scores: Sequence[Scores]) -> list[Scores]:
    """Return the utilities U = H / (H' Ĥ), equations 4 and 5 of Pilault et al. (2021).

    The scores are H / H'. Ĥ is left out, as it is the same for all candidates.
    """
    return list(scores)


def code_rule(scores: Sequence[Scores]) -> list[Scores]:
    """Return the utilities U = H/H' · mean(H/H') / max over tasks of mean(H/H').

    The rule in the code of Pilault et al. (2021). It favours tasks with a high mean uncertainty, as
    the paper says of its own rule.
    """
    means = [float(of_task.mean()) if len(of_task) else 0.0 for of_task in scores]
    highest = max(means) or 1.0
    return [of_task * (mean / highest) for of_task, mean in zip(scores, means, strict=True)]


INTERVALS = 5
"""The number of intervals of a regression's label; the labels of STS-B are from 0 to 5."""
RULES: dict[str, Rule] = {"code": code_rule, "paper": paper_rule}


def example_scores(
    samples: Any, score: ExampleScore = "entropy", residual: float = 1.0
) -> NDArray[np.float64]:
    """Return the uncertainty of each example, from 0 (certain) to 1 (uninformed).

    The score is H / H' with H' = log(classes), Pilault et al. (2021), equation 4; shape
    `(examples,)`. BALD instead of H excludes the uncertainty that no training can remove. A class
    counts if it has a probability above 0 in some pass, so padding does not change a score.

    A regression is scored as a classification: its classes are five intervals of the standardised
    label that are equally likely before anything is known, and its prediction is a Gaussian with
    the variance `residual`, at most 1. So an uninformed prediction has the score 1, as it has with
    classes, and candidates of a regression that is not learned yet still have different scores.

    Args:
        samples: the predictions of each pass, shape `(passes, examples, classes)`; with one class,
            the standardised means of a regression.
        score: `entropy` of the mean prediction; or `bald`, the mutual information with the weights,
            which needs several passes.
        residual: the mean squared error of a regression, in units of the label's variance.

    >>> example_scores(np.array([[[0.5, 0.5], [1.0, 0.0]]])).tolist()
    [1.0, 0.0]
    >>> example_scores(np.array([[[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]])).round(3).tolist()
    [1.0, 0.937]
    >>> example_scores(np.array([[[0.0], [1.0]]]), residual=1.0).round(3).tolist()
    [1.0, 0.752]
    """
    p = numbers(samples)
    # With a single class, the score is 0 with any divisor.
    classes = np.maximum((p > 0).any(axis=0).sum(axis=-1), 2)
    if p.shape[-1] == 1:
        p, classes = interval_probabilities(p, residual), np.array(INTERVALS)
    nats = bald(p) if score == "bald" else entropy(p.mean(axis=0))
    return np.asarray(nats / np.log(classes))


def interval_probabilities(means: Scores, residual: float) -> Scores:
    """Return the probabilities of the intervals of a regression's label: `(..., INTERVALS)`."""
    from scipy.special import ndtr

    if not residual >= 0:
        raise ValueError(f"residual: expected a variance, found {residual}")
    edges = [NormalDist().inv_cdf(k / INTERVALS) for k in range(1, INTERVALS)]
    deviation = np.sqrt(np.clip(residual, 1e-12, 1.0))
    below = ndtr((edges - means) / deviation)
    bounds = [np.zeros_like(means), below, np.ones_like(means)]
    return np.diff(np.concatenate(bounds, axis=-1), axis=-1)


class MTUncertainty(Selector):
    """Trains on the most uncertain of the candidates, to which every task contributes equally.

    Pilault et al. (2021), algorithm 1: of b candidates from each task, train on the best b, and
    discard the others. If utilities are equal, the earlier candidate and then the earlier task is
    preferred, so that tasks with equal scores get equal shares.

    With `every` = k, the best kb candidates of a pool are the examples of the next k steps. Step i
    gets the ranks i, i + k, i + 2k, …, because neighbours in rank are often of the same task.

    Args:
        tasks: the names of the tasks.
        batch: b, the number of examples in a training step.
        rule: the comparison of candidates of different tasks: `code` or `paper`.
        score: the uncertainty of an example: `entropy`, or `bald` by Monte-Carlo dropout.
        every: k, the number of steps between two scorings.
        pool: the number of candidates of each task in a scoring; kb if None.
        passes: the number of dropout masks for `bald`, and for any score of a regression.
        scores_from: by task, another task whose scores its candidates get, by position. The
            authors' code has no score for a regression and gives STS-B the scores of MRPC:
            `{glue/stsb: glue/mrpc}`.

    >>> selector = MTUncertainty(["cola", "rte"], batch=2, rule="paper")
    >>> selector.candidates()
    {'cola': 2, 'rte': 2}
    >>> [step] = selector.choose({"cola": np.array([0.2, 0.9]), "rte": np.array([0.5, 0.4])})
    >>> {task: places.tolist() for task, places in step.chosen.items()}
    {'cola': [1], 'rte': [0]}
    """

    name = "mt_uncertainty"

    def __init__(
        self,
        tasks: Sequence[str],
        batch: int,
        rule: Literal["code", "paper"] = "code",
        score: ExampleScore = "entropy",
        every: int = 1,
        pool: int | None = None,
        passes: int = 8,
        scores_from: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(tasks, batch)
        for task in [*(scores_from or {}), *(scores_from or {}).values()]:
            if task not in tasks:
                raise unknown("task", task, tasks, "mt_uncertainty: scores_from")
        if rule not in RULES:
            raise unknown("rule", rule, RULES, "mt_uncertainty")
        if score not in get_args(ExampleScore):
            raise unknown("score", score, get_args(ExampleScore), "mt_uncertainty")
        if every < 1:
            raise ValueError(f"every: expected at least 1, found {every}")
        pool = every * batch if pool is None else pool
        if pool * len(tasks) < every * batch:
            raise ValueError(f"pool: expected enough for {every} x {batch} examples, found {pool}")
        if passes < 2:
            raise ValueError(f"passes: expected at least 2, found {passes}")
        self.score, self.passes, self.every = score, passes, every
        self._rule, self._pool = RULES[rule], pool
        self._scores_from = dict(scores_from or {})

    def candidates(self) -> dict[str, int]:
        return dict.fromkeys(self.tasks, self._pool)

    def choose(self, scores: Mapping[str, NDArray[np.float64]]) -> list[Selection]:
        ordered = [self._checked(task, scores) for task in self.tasks]
        for task, source in self._scores_from.items():
            place, scored = self.tasks.index(task), self._checked(source, scores)
            ordered[place] = np.resize(scored, len(ordered[place]))
        utilities = self._rule(ordered)
        places = np.concatenate([np.arange(len(of_task)) for of_task in ordered])
        owners = np.repeat(np.arange(len(ordered)), [len(of_task) for of_task in ordered])
        ranks = np.lexsort((owners, places, -np.concatenate(utilities)))
        best = ranks[: self.every * self.batch]
        fresh = dict(zip(self.tasks, map(len, ordered), strict=True))
        stale = dict.fromkeys(self.tasks, 0)
        steps = []
        for first in range(min(self.every, len(best))):
            dealt = best[first :: self.every]
            chosen = {
                task: places[dealt][owners[dealt] == number]
                for number, task in enumerate(self.tasks)
            }
            steps.append(Selection(chosen, stale if first else fresh))
            self._count(steps[-1])
        return steps

    def _checked(self, task: str, scores: Mapping[str, Scores]) -> Scores:
        if task not in scores:
            raise ValueError(f"scores: expected those of {task}, found {', '.join(scores)}")
        of_task = np.asarray(scores[task], dtype=np.float64)
        if of_task.ndim != 1 or not np.all(np.isfinite(of_task)) or np.any(of_task < 0):
            raise ValueError(
                f"scores of {task}: expected a finite number, not below 0, for each candidate"
            )
        return of_task
