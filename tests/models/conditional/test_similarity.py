"""Covariance similarity, against the d x d matrices of the paper."""

import numpy as np
import pytest
import torch

from taskmix.errors import UserError
from taskmix.models.conditional import (
    condition,
    covariance_similarities,
    covariance_similarity,
    mean_similarities,
)


def reference(x, y, share=0.99):
    """Equation 7 by its letter: d x d covariances and their singular values."""
    roots = []
    for one in (x, y):
        u, d, _ = np.linalg.svd(one.T @ one)
        rank = next(r for r in range(1, len(d) + 1) if d[:r].sum() >= share * d.sum())
        roots.append(u[:, :rank] @ np.diag(np.sqrt(d[:rank])))
    top = np.linalg.norm(roots[0].T @ roots[1])
    return top / (np.linalg.norm(roots[0]) * np.linalg.norm(roots[1]))


def inputs(rows, seed, width=10):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, width)) @ np.diag(rng.uniform(0.1, 3, width))


@pytest.mark.parametrize("share", [0.99, 0.7])
@pytest.mark.parametrize("rows", [(4, 6), (40, 30), (4, 30), (10, 1)])
def test_it_is_the_equations(rows, share):
    x, y = inputs(rows[0], 1), inputs(rows[1], 2)
    found = covariance_similarity(torch.from_numpy(x), torch.from_numpy(y), share)
    assert found == pytest.approx(reference(x, y, share), rel=1e-9)


def test_it_is_symmetric_and_blind_to_scale_and_rotation():
    x, y = torch.from_numpy(inputs(30, 1)), torch.from_numpy(inputs(7, 2))
    turn, _ = torch.linalg.qr(torch.from_numpy(inputs(10, 3)))
    expected = covariance_similarity(x, y)
    assert covariance_similarity(y, x) == pytest.approx(expected)
    assert covariance_similarity(3 * x @ turn, 0.1 * y @ turn) == pytest.approx(expected)


@pytest.mark.parametrize("directions", [1, 4, 9])
def test_equal_directions_are_alike_by_one_over_their_root(directions):
    x = torch.eye(10)[:directions]
    assert covariance_similarity(x, x) == pytest.approx(directions**-0.5)


def test_fewer_rows_than_columns_make_no_large_matrix():
    x = torch.randn(3, 40_000)  # 40,000 x 40,000 would take 13 GB
    assert 0 < covariance_similarity(x, x) < 1


def test_the_table_and_its_means():
    tasks = [torch.from_numpy(inputs(rows, rows)) for rows in (5, 12, 30)]
    table = covariance_similarities(tasks)
    for i, x in enumerate(tasks):
        for j, y in enumerate(tasks):
            assert table[i, j].item() == pytest.approx(covariance_similarity(x, y))
    means = mean_similarities(table)
    assert means[0].item() == pytest.approx((table[0, 1] + table[0, 2]).item() / 2)


def test_what_enters_the_first_layer_can_be_measured(make, batch):
    conditioned = condition(make(), ["a", "b"], rank=2).eval()
    ids = torch.tensor([0, 0, 1, 1, 1])
    states = conditioned(**batch(), task_ids=ids, output_hidden_states=True).hidden_states[0]
    parts = [states[ids == task].flatten(0, 1) for task in (0, 1)]
    assert 0 < covariance_similarity(*parts) < 1


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (torch.zeros(3, 4), torch.ones(3, 4), "found only zeros"),
        (torch.ones(3, 4), torch.ones(3, 5), "expected one width, found 4 and 5"),
        (torch.ones(3), torch.ones(3, 4), r"expected shape \(rows, width\), found \(3,\)"),
        (torch.ones(0, 4), torch.ones(3, 4), r"expected shape \(rows, width\), found \(0, 4\)"),
    ],
)
def test_bad_inputs_are_one_sentence(x, y, sentence):
    with pytest.raises(UserError, match=sentence):
        covariance_similarity(x, y)


def test_a_share_is_a_share():
    with pytest.raises(UserError, match=r"share: expected .* found 0"):
        covariance_similarity(torch.ones(2, 2), torch.ones(2, 2), share=0)
    with pytest.raises(UserError, match="at least 2 tasks, found 1"):
        mean_similarities(torch.ones(1, 1))
