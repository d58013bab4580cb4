"""GP-Hedge as a sampler of Optuna's."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.trial import FrozenTrial, TrialState

from taskmix.rng import stream
from taskmix.search.axes import Array, axis
from taskmix.search.hedge import Nomination, known_rewards, probabilities, total
from taskmix.search.history import StudyHistory, publish, publish_round
from taskmix.search.nominate import candidates, nominee
from taskmix.search.process import FUNCTIONS, Process, standardised
from taskmix.search.space import Canonical, Features, Space

if TYPE_CHECKING:
    from optuna.study import Study

_logger = logging.getLogger(__name__)

_DRAWS = 100
_ATTEMPTS = 10


class GPHedgeSampler(BaseSampler):
    """Searches with a Gaussian process and a portfolio of acquisition functions.

    GP-Hedge (Hoffman, Brochu and de Freitas 2011), the second stage of AutoSeM (Guo, Pasunuru and
    Bansal 2019). For each trial, probability of improvement, expected improvement and upper
    confidence bound each nominate the point x_i where they are largest; one nominee is tried, drawn
    from softmax(η g). When its outcome is known and the process is fitted again, every function's
    gain grows by the posterior mean at its own nominee: g_i ← g_i + μ(x_i). Means are counted in
    standard deviations of the observed values, so the choice does not depend on the objective's
    scale.

    No point is tried twice while another is left. Nominees and rewards are written into the trials,
    and random numbers depend on the seed and the trial's number alone. So a resumed study goes on
    as if it had never stopped, and workers that share a storage need no seeds of their own; a trial
    under evaluation counts as observed at its posterior mean. A pruned trial counts with its last
    report, kept inside the range of the finished trials.

    Parameters that not all finished trials have in common are drawn at random, as in Optuna's own
    samplers. Studies with several objectives are refused.

    Args:
        seed: of all random choices; a random one if None.
        initial: trials that have to be observed before the process is used; until then points are
            random. The paper's 10 are half of its budget.
        space: the parameters, where they are known beforehand; then even the first trials of
            several workers differ. None infers them from finished trials.
        canonical: from the parameters of a point to those of the one that stands for all its
            equals; no two equal points are tried.
        features: what the process sees of a point, numbers between 0 and 1; None for the
            parameters, scaled to the unit cube.
        xi: the least improvement that counts, in standard deviations.
        kappa: standard deviations above the mean in the upper confidence bound.
        eta: how strongly a lead in gains counts.

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
        if initial < 1:
            raise ValueError(f"initial: expected at least 1, found {initial}")
        if min(xi, kappa, eta) < 0:
            raise ValueError(
                f"xi, kappa, eta: expected numbers of at least 0, found {xi}, {kappa}, {eta}"
            )
        self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else seed
        self._initial = initial
        self._space = None if space is None else dict(space)
        self._canonical = canonical
        self._features = features
        self._xi = xi
        self._kappa = kappa
        self._eta = eta

    def infer_relative_search_space(
        self, study: "Study", trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return the parameters that are chosen together: those that finished trials share."""
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
        """Return a random value for a parameter that was not chosen together with the others."""
        _refuse_several_objectives(study)
        self._warn_of_independent_sampling(study, trial, param_name)
        one = axis(param_name, param_distribution)
        rng = stream(self._seed, "point", trial.number, param_name)
        return one.value(float(one.draw(rng, 1)[0]))

    def sample_relative(
        self, study: "Study", trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the point to try, and write into the trial how it was chosen."""
        _refuse_several_objectives(study)
        fixed = trial.system_attrs.get("fixed_params", {})
        if search_space.keys() <= fixed.keys():
            return {}
        space = Space.of(search_space, self._canonical, self._features)
        history = StudyHistory.read(study, trial, space)
        for attempt in range(_ATTEMPTS):
            rng = stream(self._seed, "suggestion", trial.number, attempt)
            row = self._suggest(study, trial, space, history, rng)
            publish(study, trial, space.params(row))
            # Another worker may have published an equal point since the history was read.
            known, history = history, StudyHistory.read(study, trial, space)
            if space.key(row) not in history.taken - known.taken:
                break
        return space.params(row)

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
        rows = candidates(space, history.taken, best, rng)
        nominees = {
            name: nominee(function, space, history.taken, rows)
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
    """Return a random point that was not tried, if there is one."""
    for row in space.draw(rng, _DRAWS):
        if space.key(row) not in history.taken:
            return space.representative(row)
    return np.asarray(candidates(space, history.taken, row, rng)[0])


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
