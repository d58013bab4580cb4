"""GP-Hedge as a sampler of Optuna."""

import logging
import math
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState

from taskmix.rng import stream
from taskmix.search.history import (
    Nomination,
    StudyHistory,
    known_rewards,
    probabilities,
    publish,
    publish_round,
    total,
)
from taskmix.search.nominate import candidates, nominee, untried
from taskmix.search.process import FUNCTIONS, Process, standardised
from taskmix.search.space import Array, Canonical, Features, Space, make_axis

if TYPE_CHECKING:
    from optuna.study import Study

_logger = logging.getLogger(__name__)

#: The number of random draws of an untried point before all untried points are enumerated.
_MAX_DRAWS = 100
#: The maximum number of suggestions for one trial, if other workers try the same points.
_MAX_ATTEMPTS = 10
#: Of the threads of a process: each suggestion has to know the ones before it.
_ONE_AT_A_TIME = threading.Lock()


class GPHedgeSampler(BaseSampler):
    """Searches with a Gaussian process and a portfolio of acquisition functions.

    GP-Hedge (Hoffman, Brochu and de Freitas 2011), the second stage of AutoSeM (Guo, Pasunuru and
    Bansal 2019). For each trial, probability of improvement, expected improvement and upper
    confidence bound each nominate the point x_i where they are largest; one nominee, drawn from
    softmax(η g), is tried. Then the process is fitted again, and the gain of every function grows
    by the posterior mean at its nominee, in standard deviations of the observed values:
    g_i ← g_i + μ(x_i).

    No point is tried twice while there are others, and points that are tried at the same time keep
    a distance along continuous parameters. A resumed study continues exactly, and workers that
    share a storage and a seed try different points. A pruned trial counts with its last
    report, clipped to the range of the finished trials. Parameters that not all finished trials
    share are sampled at random, as in Optuna's samplers. Several objectives are not supported.

    Args:
        seed: the seed of all random choices; a random one if None.
        initial: the number of observed trials before the process is used; until then, points are
            random. The paper's 10 are half of its budget.
        space: the parameters; None infers them from finished trials. If given, even the first
            trials of several workers differ.
        canonical: maps the parameters of a point to those of its representative; only one of
            several equivalent points is tried.
        features: returns the inputs of the process for a point, numbers between 0 and 1; None for
            the parameters, scaled to the unit cube.
        xi: the minimum improvement, in standard deviations.
        kappa: the number of standard deviations above the mean in the upper confidence bound.
        eta: η, the weight of the gains.

    >>> import optuna
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=GPHedgeSampler(seed=1, initial=5))
    >>> study.optimize(lambda trial: (trial.suggest_int("x", 0, 50) - 37) ** 2, n_trials=15)
    >>> study.best_params
    {'x': 37}
    """

    def __init__(
        self,
        seed: int | None = None,
        initial: int = 10,
        space: Mapping[str, BaseDistribution] | None = None,
        canonical: Canonical | None = None,
        features: Features | None = None,
        xi: float = 0.01,
        kappa: float = 1.96,
        eta: float = 1.0,
    ) -> None:
        if not isinstance(initial, int) or initial < 1:
            raise ValueError(f"initial: expected a whole number of at least 1, found {initial}")
        for name, value in (("xi", xi), ("kappa", kappa), ("eta", eta)):
            if not 0 <= value < math.inf:
                raise ValueError(f"{name}: expected a finite number of at least 0, found {value}")
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._initial = initial
        self._space = None if space is None else dict(space)
        self._canonical, self._features = canonical, features
        self._xi, self._kappa, self._eta = xi, kappa, eta

    def infer_relative_search_space(
        self, study: "Study", trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        if self._space is not None:
            return self._space
        return intersection_search_space(study.get_trials(deepcopy=False))

    def sample_independent(
        self,
        study: "Study",
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        _refuse_several_objectives(study)
        self._warn_of_independent_sampling(study, trial, param_name)
        axis = make_axis(param_name, param_distribution)
        rng = stream(self._seed, "point", trial.number, param_name)
        return axis.value(float(axis.draw(rng, 1)[0]))

    def sample_relative(
        self, study: "Study", trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        _refuse_several_objectives(study)
        fixed = trial.system_attrs.get("fixed_params", {})
        if search_space.keys() <= fixed.keys():
            return {}
        space = Space.of(search_space, self._canonical, self._features)
        with _ONE_AT_A_TIME:
            return space.params(self._publish_suggestion(study, trial, space))

    def _publish_suggestion(self, study: "Study", trial: FrozenTrial, space: Space) -> Array:
        history = StudyHistory.read(study, trial, space)
        for attempt in range(_MAX_ATTEMPTS):
            rng = stream(self._seed, "suggestion", trial.number, attempt)
            row = self._suggest(study, trial, space, history, rng)
            publish(study, trial, space.params(row))
            # Another process may have published an equivalent point since the history was read.
            known, history = history, StudyHistory.read(study, trial, space)
            if space.key(row) not in history.taken - known.taken:
                break
        return row

    def _suggest(
        self,
        study: "Study",
        trial: FrozenTrial,
        space: Space,
        history: StudyHistory,
        rng: np.random.Generator,
    ) -> Array:
        if len(history.values) < self._initial or space.size == 1:
            return _random_row(space, history, rng)
        row, nominated = self._nominate(space, history, rng)
        publish_round(study, trial, nominated)
        return row

    def _nominate(
        self, space: Space, history: StudyHistory, rng: np.random.Generator
    ) -> tuple[Array, Nomination]:
        process = Process(
            space.inputs(history.observed),
            standardised(history.values),
            space.inputs(history.pending),
        )
        best = history.observed[history.values.argmax()]
        rows = candidates(space, history, best, rng)
        nominees = {
            name: nominee(function, space, history, rows)
            for name, function in process.functions(self._xi, self._kappa).items()
        }
        rewards = _rewards(process, space, history)
        known = {**rewards, **known_rewards(history.rounds.values())}
        gains = total(known.values(), FUNCTIONS)
        chances = probabilities(np.array(list(gains.values())), self._eta)
        followed = FUNCTIONS[int(rng.choice(len(FUNCTIONS), p=chances))]
        points = {name: space.params(row) for name, row in nominees.items()}
        return nominees[followed], Nomination(points, followed, rewards, gains)

    def _warn_of_independent_sampling(self, study: "Study", trial: FrozenTrial, name: str) -> None:
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if len(finished) >= self._initial:
            _logger.warning(
                "trial %d: %r is drawn at random, because not all finished trials have it with"
                " the same distribution",
                trial.number,
                name,
            )


def _random_row(space: Space, history: StudyHistory, rng: np.random.Generator) -> Array:
    """Return a random point, if possible one that was not tried."""
    rows = space.draw(rng, _MAX_DRAWS)
    fresh = untried(space, rows, history)
    if len(fresh):
        return space.representative(fresh[0])
    return np.asarray(candidates(space, history, rows[-1], rng)[0])


def _rewards(process: Process, space: Space, history: StudyHistory) -> dict[int, dict[str, float]]:
    """Return the posterior means at the nominees of observed trials that have no reward yet."""
    known = known_rewards(history.rounds.values())
    due = [number for number in history.rounds if number in history.numbers - known.keys()]
    rewards = {}
    for number in due:
        nominees = history.rounds[number].nominees
        rows = [space.row(nominees[name]) for name in FUNCTIONS]
        inside = [row for row in rows if row is not None]
        if len(inside) == len(rows):
            means = process.mean(space.inputs(np.stack(inside)))
            rewards[number] = dict(zip(FUNCTIONS, means.tolist(), strict=True))
    return rewards


def _refuse_several_objectives(study: "Study") -> None:
    if len(study.directions) > 1:
        raise ValueError(
            f"study: expected one objective for GPHedgeSampler, found {len(study.directions)}"
        )
