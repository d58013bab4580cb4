"""The door of the room: arrays and tensors in, the same kind out.

Scores are small and need no gradient, so one implementation in NumPy serves both and gives both the
same numbers. Torch is never imported here: whoever holds a tensor has done so already.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

AnyArray = TypeVar("AnyArray", NDArray[Any], "Tensor")

# Softmax in half precision misses a sum of one by less than this.
SLACK = 1e-2


def _is_tensor(x: object) -> bool:
    return type(x).__module__.split(".")[0] == "torch" and hasattr(x, "detach")


def numbers(x: Any) -> NDArray[np.float64]:
    """Return an array or tensor as a NumPy array in double precision."""
    if _is_tensor(x):
        x = x.detach().double().cpu().numpy()
    return np.asarray(x, dtype=np.float64)


def like(result: NDArray[np.float64], x: AnyArray) -> AnyArray:
    """Return a result as what `x` is: a tensor of its type on its device, or an array."""
    if _is_tensor(x):
        return cast(AnyArray, cast(Any, x).new_tensor(result))
    return cast(AnyArray, result)


def distributions(x: Any) -> NDArray[np.float64]:
    """Probabilities over the last axis, made to sum to one in double precision."""
    p = numbers(x)
    if p.ndim == 0 or p.shape[-1] == 0:
        raise ValueError(f"expected probabilities over a last axis, found shape {p.shape}")
    total = p.sum(axis=-1, keepdims=True)
    if not np.all(np.abs(total - 1) <= SLACK) or np.any(p < 0):
        raise ValueError("expected probabilities, none below 0, that sum to 1 over the last axis")
    return cast(NDArray[np.float64], p / total)


def passes_of(samples: Any) -> NDArray[np.float64]:
    """Samples of predictive distributions, shape `(passes, examples, classes)`."""
    p = distributions(samples)
    if p.ndim != 3 or 0 in p.shape[:2]:
        raise ValueError(f"expected samples (passes, examples, classes), found shape {p.shape}")
    return p


def joined(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return samples of examples end to end; what a narrow one does not know has probability 0.

    Args:
        parts: each of shape `(passes, examples, classes)`.
    """
    widest = max(part.shape[-1] for part in parts)
    pads = [((0, 0), (0, 0), (0, widest - part.shape[-1])) for part in parts]
    return np.concatenate(
        [np.pad(part, pad) for part, pad in zip(parts, pads, strict=True)], axis=1
    )
