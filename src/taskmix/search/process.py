"""The Gaussian process over what was observed, and the three functions that nominate from it."""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.search.axes import Array

if TYPE_CHECKING:
    from botorch.acquisition.acquisition import AcquisitionFunction
    from botorch.models import SingleTaskGP
    from botorch.models.model import Model

FUNCTIONS = ("pi", "ei", "ucb")

_ITERATIONS = 20


def standardised(values: Array) -> Array:
    """Return the values with mean 0 and standard deviation 1, or all 0 if they are equal.

    Infinite values count as the best or worst finite one.

    >>> standardised(np.array([1.0, 3.0, np.inf])).round(3).tolist()
    [-1.414, 0.707, 0.707]
    """
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

    BoTorch's `SingleTaskGP`. Its priors keep the length scales and the noise sensible while there
    are few observations, and grow with the number of inputs (Hvarfner, Hellsten and Nardi 2024).
    The hyper-parameters are those of the largest posterior density.

    Points under evaluation count as observed at their posterior mean ("kriging believer",
    Ginsbourger, Le Riche and Carraro 2010): the mean stays, the uncertainty there goes, and they
    are not nominated again.

    Args:
        inputs: shape `(points, columns)`, inside the unit cube or near it.
        values: standardised and to be maximised, shape `(points,)`.
        pending: inputs of the points under evaluation, shape `(pending, columns)`.
    """

    def __init__(self, inputs: Array, values: Array, pending: Array) -> None:
        self.best = float(values.max())
        self._model: Any = _fitted(inputs, values)
        if len(pending):
            self._model = _believed(self._model, pending)

    def mean(self, inputs: Array) -> Array:
        """Return the posterior mean at some points, shape `(points,)`."""
        return self._moments(inputs)[0]

    def deviation(self, inputs: Array) -> Array:
        """Return the posterior standard deviation at some points, shape `(points,)`."""
        return np.sqrt(self._moments(inputs)[1])

    def functions(self, xi: float, kappa: float) -> "dict[str, AcquisitionFunction]":
        """Return the acquisition functions by name, each to be maximised.

        With m and s the posterior's mean and standard deviation and z = (m - best - ξ) / s:
        probability of improvement Φ(z) and expected improvement s (z Φ(z) + φ(z)), both as
        logarithms, which have the same maximum and a gradient everywhere; and the upper confidence
        bound m + κ s.

        Args:
            xi: ξ, the least improvement that counts.
            kappa: κ.
        """
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
    """Return an acquisition function at some points, shape `(points,)`."""
    import torch

    with torch.no_grad():
        found = function(torch.from_numpy(inputs)[:, None, :])
    return np.asarray(found.numpy())


def climb(function: "AcquisitionFunction", inputs: Array, free: tuple[int, ...]) -> Array:
    """Return the points that L-BFGS-B reaches from these inside the unit cube.

    Args:
        function: what to maximise.
        inputs: the starts, shape `(points, columns)`.
        free: the columns that may change.
    """
    import torch
    from botorch.exceptions.warnings import OptimizationWarning
    from botorch.generation.gen import gen_candidates_scipy

    starts = torch.from_numpy(inputs)[:, None, :]
    fixed = {k: starts[:, 0, k] for k in range(inputs.shape[1]) if k not in free}
    with warnings.catch_warnings(record=True) as raised:
        reached, _ = gen_candidates_scipy(
            starts, function, 0.0, 1.0, options={"maxiter": _ITERATIONS}, fixed_features=fixed
        )
    for each in raised:
        # A line search that ends early has still climbed; BoTorch insists on saying so.
        if not issubclass(each.category, OptimizationWarning):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
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
        likelihood.eval()  # values that do not differ tell nothing: the modes of the priors
        return model
    try:
        # One attempt, and where the optimiser stops is good enough: BoTorch's further attempts
        # would start at random places from torch's global generator.
        fit_gpytorch_mll(
            likelihood,
            max_attempts=1,
            warning_handler=lambda warning: True,
            optimizer_kwargs={"options": {"ftol": 1e-6, "gtol": 1e-3}},
        )
    except ModelFittingError:
        likelihood.eval()  # at the modes again, where it started
    return model


def _believed(model: "SingleTaskGP", pending: Array) -> "Model":
    import torch

    points = torch.from_numpy(pending)
    with torch.no_grad():
        mean = model.posterior(points).mean
        return model.condition_on_observations(points, mean)
