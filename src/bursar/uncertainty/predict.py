"""Samples of a model's predictions under Monte-Carlo dropout."""

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from bursar.uncertainty.dropout import consistent_dropout

if TYPE_CHECKING:
    from torch import Tensor, nn

BatchT = TypeVar("BatchT")


def predictive_samples(
    model: "nn.Module",
    predict: Callable[[BatchT], "Tensor"],
    batches: Collection[BatchT],
    passes: int,
    seed: int,
) -> NDArray[np.float64]:
    """What the model predicts for each example under each of several dropout masks.

    Args:
        model: the module whose dropout is drawn.
        predict: from a batch to its predictive distributions, shape `(examples, classes)`; it calls
            the model.
        batches: the batches; each pass goes through all of them, under one mask.
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
    import torch

    if passes < 1:
        raise ValueError(f"passes: expected at least 1, found {passes}")
    rows = []
    with torch.inference_mode():
        for number in range(passes):
            with consistent_dropout(model, seed, number):
                rows.append(_joined([predict(batch).double().cpu() for batch in batches]))
    return torch.stack(rows).numpy()


def _joined(parts: list["Tensor"]) -> "Tensor":
    """Distributions end to end; what a narrow one does not know has probability 0."""
    import torch

    widest = max(part.shape[-1] for part in parts)
    pads = [(0, widest - part.shape[-1]) for part in parts]
    return torch.cat(
        [torch.nn.functional.pad(part, pad) for part, pad in zip(parts, pads, strict=True)]
    )
