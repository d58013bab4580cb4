import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from taskmix.uncertainty import entropy

weights = arrays(np.float64, (5, 4), elements=st.floats(0, 1)).filter(
    lambda w: bool((w.sum(-1) > 1e-3).all())
)


def transcribed(p):
    return -sum(x * math.log(x) for x in p if x > 0)


@settings(derandomize=True, deadline=None)
@given(weights)
def test_it_is_minus_the_sum_of_p_log_p(w):
    p = w / w.sum(-1, keepdims=True)
    np.testing.assert_allclose(entropy(p), [transcribed(row) for row in p], atol=1e-12)


def test_certainty_has_none_and_ignorance_the_logarithm_of_the_classes():
    assert entropy(np.array([0.0, 1.0, 0.0])) == 0.0
    for classes in (2, 3, 7):
        h = entropy(np.full(classes, 1 / classes))
        assert h == pytest.approx(math.log(classes), abs=1e-15)
        assert h <= math.log(classes)


def test_a_tensor_gives_a_tensor_of_the_same_type_and_the_same_numbers():
    p = torch.rand(3, 2, 4, generator=torch.Generator().manual_seed(1)).softmax(-1)
    h = entropy(p)
    assert isinstance(h, torch.Tensor)
    assert h.dtype == torch.float32
    np.testing.assert_allclose(h.numpy(), entropy(p.double().numpy()), rtol=1e-6)


def test_half_precision_is_close_enough_to_a_distribution():
    p = torch.tensor([0.1, 0.2, 0.7], dtype=torch.bfloat16)
    assert entropy(p).item() == pytest.approx(transcribed([0.1, 0.2, 0.7]), rel=1e-2)


@pytest.mark.parametrize("p", [[0.5, 0.6], [1.5, -0.5], [math.nan, 1.0], []])
def test_what_is_no_distribution_is_refused(p):
    with pytest.raises(ValueError, match="expected probabilities"):
        entropy(np.array(p))
