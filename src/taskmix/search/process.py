"""The Gaussian process over the observed points, and its three acquisition functions."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.search.space import Array

if TYPE_CHECKING:
    from botorch.acquisition.acquisition import AcquisitionFunction
    from botorch.models import SingleTaskGP
    from botorch.models.model import Model

FUNCTIONS = ("pi", "ei", "ucb")

_MAX_ITERATIONS = 20


def standardised(values: Array) -> Array:
    """Scale the values to mean 0 and standard deviation 1, with infinite ones clipped."""
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return np.zeros_like(values)
    # Scaled first, so that values near the largest float do not overflow.
    scale = float(np.abs(finite).max()) or 1.0
    clipped = np.clip(values, finite.min(), finite.max()) / scale
    deviation = float(clipped.std())
    if deviation <= 1e-12:
        return np.zeros_like(values)
    return np.asarray((clipped - clipped.mean()) / deviation)


class Process:
    """A Gaussian process with a Matérn-5/2 kernel, a length scale for each input, and fitted noise.

    `inputs` and `pending` have the shape `(points, columns)`; `values` are standardised and to be
    maximised.
    """

    # BoTorch's `SingleTaskGP`, whose hyper-parameters are the maximum a posteriori. Its priors
    # regularise the length scales and the noise while there are few observations, and depend on the
    # number of inputs (Hvarfner, Hellsten and Nardi 2024).

    def __init__(self, inputs: Array, values: Array, pending: Array) -> None:
        self.best = float(values.max())
        self._model: Any = _fitted(inputs, values)
        if len(pending):
            # Points under evaluation count as observed at their posterior mean ("kriging
            # believer", Ginsbourger, Le Riche and Carraro 2010), so they are not nominated again.
            self._model = _believed(self._model, pending)

    def mean(self, inputs: Array) -> Array:
        """Return the posterior mean, shape `(points,)`."""
        return self._moments(inputs)[0]

    def deviation(self, inputs: Array) -> Array:
        """Return the posterior standard deviation, shape `(points,)`."""
        return np.sqrt(self._moments(inputs)[1])

    def functions(self, xi: float, kappa: float) -> "dict[str, AcquisitionFunction]":
        """Return the acquisition functions by name, each to be maximised."""
        # With posterior mean m, standard deviation s and z = (m - best - ξ) / s: Φ(z),
        # s (z Φ(z) + φ(z)) and m + κ s. Logarithms have a gradient everywhere.
        from botorch.acquisition.analytic import (
            LogExpectedImprovement,
            LogProbabilityOfImprovement,
            UpperConfidenceBound,
        )

        return {
            "pi": LogProbabilityOfImprovement(self._model, best_f=self.best + xi),
            "ei": LogExpectedImprovement(self._model, best_f=self.best + xi),
            "ucb": UpperConfidenceBound(self._model, beta=kappa**2),
        }

    def _moments(self, inputs: Array) -> tuple[Array, Array]:
        import torch

        with torch.no_grad():
            posterior = self._model.posterior(torch.from_numpy(inputs)[:, None, :])
            mean, variance = posterior.mean, posterior.variance
        return mean.reshape(-1).numpy(), variance.reshape(-1).numpy()


def evaluate(function: "AcquisitionFunction", inputs: Array) -> Array:
    """Return the values of an acquisition function, shape `(points,)`."""
    import torch

    with torch.no_grad():
        values = function(torch.from_numpy(inputs)[:, None, :])
    return np.asarray(values.numpy())


def climb(function: "AcquisitionFunction", inputs: Array, free: tuple[int, ...]) -> Array:
    """Maximise by L-BFGS-B from each point inside the unit cube, changing the columns `free`."""
    import torch
    from botorch.exceptions.warnings import OptimizationWarning
    from botorch.generation.gen import gen_candidates_scipy

    starts = torch.from_numpy(inputs)[:, None, :]
    fixed = {k: starts[:, 0, k] for k in range(inputs.shape[1]) if k not in free}
    with warnings.catch_warnings(record=True) as raised:
        reached, _ = gen_candidates_scipy(
            starts, function, 0.0, 1.0, options={"maxiter": _MAX_ITERATIONS}, fixed_features=fixed
        )
    for warning in raised:
        # A line search that ends early has still improved the point.
        if not issubclass(warning.category, OptimizationWarning):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return np.asarray(reached.detach()[:, 0, :].numpy())


def _fitted(inputs: Array, values: Array) -> "SingleTaskGP":
    import torch
    from botorch.exceptions.errors import ModelFittingError
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.utils.gpytorch_modules import get_covar_module_with_dim_scaled_prior
    from gpytorch.mlls import ExactMarginalLogLikelihood

    model = SingleTaskGP(
        torch.from_numpy(inputs),
        torch.from_numpy(values)[:, None],
        covar_module=get_covar_module_with_dim_scaled_prior(inputs.shape[1], use_rbf_kernel=False),
        outcome_transform=None,
    )
    likelihood = ExactMarginalLogLikelihood(model.likelihood, model)
    if not values.any():
        likelihood.eval()  # equal values carry no information: keep the modes of the priors
        return model
    try:
        # One attempt, wherever the optimiser stops: BoTorch's further attempts would start at
        # random points from torch's global generator.
        fit_gpytorch_mll(
            likelihood,
            max_attempts=1,
            warning_handler=lambda warning: True,
            optimizer_kwargs={"options": {"ftol": 1e-6, "gtol": 1e-3}},
        )
    except ModelFittingError:
        likelihood.eval()  # back at the modes, where it started
    return model


def _believed(model: "SingleTaskGP", pending: Array) -> "Model":
    import torch

    points = torch.from_numpy(pending)
    with torch.no_grad():
        mean = model.posterior(points).mean
        return model.condition_on_observations(points, mean)
