"""Optuna's own tests for samplers, with the Gaussian process in use from the second trial on."""

from collections.abc import Callable

import pytest
from optuna.samplers import BaseSampler
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)

from taskmix.search import GPHedgeSampler, nominate, process


class TestGPHedgeSampler(BasicSamplerTestCase, RelativeSamplerTestCase, SingleOnlySamplerTestCase):
    @pytest.fixture(autouse=True)
    def _hasty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Nominees need not be good here, and hundreds are asked for.
        monkeypatch.setattr(nominate, "_RANDOM_POINTS", 50)
        monkeypatch.setattr(nominate, "_NEAR_POINTS", 10)
        monkeypatch.setattr(nominate, "_STARTS", 1)
        monkeypatch.setattr(nominate, "_MAX_STEPS", 1)
        monkeypatch.setattr(process, "_MAX_ITERATIONS", 1)

    @pytest.fixture
    def sampler(self) -> Callable[[], BaseSampler]:
        return lambda: GPHedgeSampler(seed=1, initial=1)
