"""Samples of a model's predictions under Monte-Carlo dropout."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.uncertainty.arrays import joined
from taskmix.uncertainty.dropout import consistent_dropout

if TYPE_CHECKING:
    from torch import Tensor, nn

BatchT = TypeVar("BatchT")


def predictive_samples(
    model: "nn.Module",
    predict: Callable[[BatchT], "Tensor"],
    batches: Iterable[BatchT],
    passes: int,
    seed: int,
) -> NDArray[np.float64]:
    """Return what the model predicts for each example under each of several dropout masks.

    Args:
        model: the module whose dropout is drawn.
        predict: from a batch to its predictive distributions, shape `(examples, classes)`; it calls
            the model.
        batches: the batches; a pass has one mask for all of them.
        passes: how many masks.
        seed: of the masks.

    Returns:
        The samples that `bald` and `batch_bald` take, shape `(passes, examples, classes)`.

    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Linear(4, 3))
    >>> batches = [torch.ones(2, 4), torch.ones(1, 4)]
    >>> predictive_samples(model, lambda x: model(x).softmax(-1), batches, passes=5, seed=1).shape
    (5, 3, 3)
    """
    return joined(list(batch_samples(model, predict, batches, passes, seed)))


def batch_samples(
    model: "nn.Module",
    predict: Callable[[BatchT], "Tensor"],
    batches: Iterable[BatchT],
    passes: int,
    seed: int,
) -> Iterator[NDArray[np.float64]]:
    """Yield the samples of `predictive_samples` batch by batch, so that none need be kept.

    Args:
        model: the module whose dropout is drawn.
        predict: from a batch to its predictive distributions, shape `(examples, classes)`; it calls
            the model.
        batches: the batches; a pass has one mask for all of them.
        passes: how many masks.
        seed: of the masks.
    """
    if passes < 1:
        raise ValueError(f"passes: expected at least 1, found {passes}")
    for batch in batches:
        yield np.stack([_sample(model, predict, batch, seed, number) for number in range(passes)])


def _sample(
    model: "nn.Module",
    predict: Callable[[BatchT], "Tensor"],
    batch: BatchT,
    seed: int,
    number: int,
) -> NDArray[np.float64]:
    """Return the predictions for a batch under one mask, shape `(examples, classes)`."""
    import torch

    with torch.inference_mode(), consistent_dropout(model, seed, number):
        predicted: NDArray[np.float64] = predict(batch).double().cpu().numpy()
    return predicted
