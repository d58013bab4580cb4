"""The process and its three functions against the textbook, in loops."""

import math
import warnings

import numpy as np
import pytest
import torch
from botorch.exceptions.warnings import OptimizationWarning
from botorch.generation import gen
from scipy.stats import norm

from taskmix.rng import stream
from taskmix.search.process import FUNCTIONS, Process, climb, evaluate, standardised

NOTHING = np.empty((0, 2))


def observations(count: int = 12, columns: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = stream(5, "observations")
    inputs = rng.random((count, columns))
    values = np.sin(4 * inputs[:, 0]) + inputs[:, 1] ** 2 + 0.05 * rng.standard_normal(count)
    return inputs, standardised(values)


def matern(a: np.ndarray, b: np.ndarray, scales: np.ndarray) -> float:
    """Rasmussen and Williams (2006), equation 4.17."""
    distance = math.sqrt(sum(((x - y) / s) ** 2 for x, y, s in zip(a, b, scales, strict=True)))
    root = math.sqrt(5) * distance
    return (1 + root + root**2 / 3) * math.exp(-root)


def posterior(process: Process, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equations 2.25 and 2.26 at the fitted length scales, noise and mean."""
    inputs, values = observations()
    model = process._model
    scales = model.covar_module.lengthscale.detach().numpy().ravel()
    noise = model.likelihood.noise.item()
    level = model.mean_module.constant.item()
    covariance = np.array([[matern(a, b, scales) for b in inputs] for a in inputs])
    inverse = np.linalg.inv(covariance + noise * np.eye(len(inputs)))
    means, deviations = [], []
    for point in points:
        k = np.array([matern(point, a, scales) for a in inputs])
        means.append(level + k @ inverse @ (values - level))
        deviations.append(math.sqrt(1 - k @ inverse @ k))
    return np.array(means), np.array(deviations)


@pytest.fixture(scope="module")
def process() -> Process:
    return Process(*observations(), NOTHING)


@pytest.fixture(scope="module")
def points() -> np.ndarray:
    return stream(6, "points").random((25, 2))


def test_mean_and_deviation_are_the_textbook_s(process: Process, points: np.ndarray) -> None:
    means, deviations = posterior(process, points)
    np.testing.assert_allclose(process.mean(points), means, atol=1e-5)
    np.testing.assert_allclose(process.deviation(points), deviations, atol=1e-5)


@pytest.mark.parametrize("xi", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("kappa", [0.0, 1.96])
def test_the_three_functions_are_their_formulas(
    process: Process, points: np.ndarray, xi: float, kappa: float
) -> None:
    means, deviations = posterior(process, points)
    best = max(observations()[1])
    functions = process.functions(xi, kappa)
    assert tuple(functions) == FUNCTIONS
    found = {name: evaluate(function, points) for name, function in functions.items()}
    for k, (m, s) in enumerate(zip(means, deviations, strict=True)):
        z = (m - best - xi) / s
        improvement = s * (z * norm.cdf(z) + norm.pdf(z))
        assert found["pi"][k] == pytest.approx(norm.logcdf(z), abs=2e-3)
        assert math.exp(found["ei"][k]) == pytest.approx(improvement, rel=2e-3)
        assert found["ucb"][k] == pytest.approx(m + kappa * s, abs=1e-4)


def test_the_order_of_observations_does_not_matter(process: Process, points: np.ndarray) -> None:
    inputs, values = observations()
    order = stream(7, "order").permutation(len(values))
    other = Process(inputs[order], values[order], NOTHING)
    np.testing.assert_allclose(other.mean(points), process.mean(points), atol=1e-3)


def test_a_pending_point_keeps_the_mean_and_loses_its_uncertainty(
    process: Process, points: np.ndarray
) -> None:
    inputs, values = observations()
    waiting = np.array([[0.95, 0.05], [0.05, 0.95]])
    believing = Process(inputs, values, waiting)
    np.testing.assert_allclose(believing.mean(points), process.mean(points), atol=1e-5)
    assert (believing.deviation(points) <= process.deviation(points) + 1e-9).all()
    assert (believing.deviation(waiting) < 0.5 * process.deviation(waiting)).all()


def test_an_input_that_does_not_matter_gets_the_longest_scale() -> None:
    rng = stream(8, "relevance")
    inputs = rng.random((25, 3))
    fitted = Process(inputs, standardised(np.sin(6 * inputs[:, 1])), np.empty((0, 3)))
    scales = fitted._model.covar_module.lengthscale.detach().numpy().ravel()
    assert scales[1] < scales[0] / 3
    assert scales[1] < scales[2] / 3


def test_noise_is_fitted() -> None:
    rng = stream(9, "noise")
    inputs = rng.random((40, 1))
    smooth, rough = np.sin(6 * inputs[:, 0]), rng.standard_normal(40)
    fitted = [
        Process(inputs, standardised(smooth + scale * rough), np.empty((0, 1)))
        for scale in (0.0, 0.7)
    ]
    quiet, noisy = (each._model.likelihood.noise.item() for each in fitted)
    assert quiet < 0.01 < 0.1 < noisy


def test_gradients_climb_along_the_free_columns_only(process: Process) -> None:
    function = process.functions(0.01, 1.96)["ucb"]
    starts = stream(10, "starts").random((4, 2))
    reached = climb(function, starts, free=(1,))
    np.testing.assert_array_equal(reached[:, 0], starts[:, 0])
    assert (evaluate(function, reached) >= evaluate(function, starts) - 1e-9).all()
    assert ((reached >= 0) & (reached <= 1)).all()


def test_a_line_search_that_ends_early_is_nobody_s_concern(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(starts: torch.Tensor, *_: object, **__: object) -> tuple[torch.Tensor, None]:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("ABNORMAL", OptimizationWarning, stacklevel=1)
        warnings.warn("something else", RuntimeWarning, stacklevel=1)
        return starts, None

    monkeypatch.setattr(gen, "gen_candidates_scipy", stopped)
    with pytest.warns(RuntimeWarning, match="something else") as raised:
        climb(process.functions(0.01, 1.96)["ei"], np.full((1, 2), 0.5), free=(0, 1))
    assert len(raised) == 1


def test_equal_values_and_a_single_one_are_no_obstacle() -> None:
    for values in (np.zeros(5), np.zeros(1)):
        fitted = Process(stream(1, "x").random((len(values), 2)), values, NOTHING)
        assert np.isfinite(fitted.mean(np.array([[0.5, 0.5]]))).all()


def test_equal_points_with_different_values_are_no_obstacle() -> None:
    inputs = np.full((6, 2), 0.5)
    fitted = Process(inputs, standardised(np.arange(6.0)), NOTHING)
    assert fitted.mean(inputs)[:1] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize(
    "values",
    [
        [1.0, 2.0, 4.0],
        [1e308, -1e308, 0.0],
        [np.inf, 1.0, 3.0],
        [-np.inf, 1.0, 3.0],
        [1e-300, 3e-300, 2e-300],
    ],
)
def test_standardised_values_have_mean_0_and_deviation_1(values: list[float]) -> None:
    found = standardised(np.array(values))
    assert found.mean() == pytest.approx(0, abs=1e-12)
    assert found.std() == pytest.approx(1)
    finite = np.isfinite(values)
    order = np.argsort(np.array(values)[finite])
    assert (np.diff(found[finite][order]) > 0).all()


def test_values_without_a_difference_are_all_0() -> None:
    assert standardised(np.full(3, 7.0)).tolist() == [0, 0, 0]
    assert standardised(np.array([np.inf, np.inf])).tolist() == [0, 0]


def test_fitting_leaves_torch_s_generator_alone() -> None:
    before = torch.random.get_rng_state()
    Process(*observations(), NOTHING)
    assert torch.equal(before, torch.random.get_rng_state())
