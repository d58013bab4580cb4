"""How much of the training data has been used."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Usage:
    """Counts the different training examples that have been trained on at least once.

    The column "% data used" of table 1 in Pilault et al. (2021).

    Args:
        sizes: by task, how many training examples it has.

    >>> usage = Usage({"cola": 8, "rte": 2})
    >>> usage.add("rte", np.array([0, 0, 1]))
    >>> usage.fraction, usage.of("rte")
    (0.2, 1.0)
    """

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self._seen = {task: np.zeros(size, dtype=np.bool_) for task, size in sizes.items()}

    def add(self, task: str, items: NDArray[np.int64]) -> None:
        """These items of a task have been trained on."""
        self._seen[task][items] = True

    def of(self, task: str) -> float:
        """Return the share of a task's examples that have been used."""
        return float(self._seen[task].mean())

    @property
    def fraction(self) -> float:
        """The share of all examples that have been used."""
        used = sum(int(seen.sum()) for seen in self._seen.values())
        return used / sum(len(seen) for seen in self._seen.values())

    def state_dict(self) -> dict[str, str]:
        """Return by task, one bit an example."""
        return {
            task: base64.b64encode(np.packbits(seen).tobytes()).decode()
            for task, seen in self._seen.items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The counterpart of `state_dict`."""
        for task, seen in self._seen.items():
            bits = np.frombuffer(base64.b64decode(state[task]), dtype=np.uint8)
            if len(bits) != -(-len(seen) // 8):
                raise ValueError(f"state of {task}: expected {len(seen)} examples, found others")
            seen[:] = np.unpackbits(bits, count=len(seen)).astype(np.bool_)
