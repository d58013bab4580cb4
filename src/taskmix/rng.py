"""Random streams that depend on a seed and a name alone."""

# Every stream is a counter-based generator (Philox), keyed by a seed and words that name its use:
# `stream(seed, "order", task, epoch)`. So the data order of a task does not depend on the tasks
# drawn in between, a resumed run needs no stored generator state, and all ranks decide alike
# without communication.

from hashlib import blake2b
from typing import Any

import numpy as np


def _digest(seed: int, *name: str | int) -> bytes:
    words = "\x1f".join([str(seed), *(f"{type(word).__name__}:{word}" for word in name)])
    return blake2b(words.encode(), digest_size=16).digest()


def stream(seed: int, *name: str | int) -> np.random.Generator:
    """Return the random stream with this name.

    >>> bool(stream(1, "order", "rte", 0).random() == stream(1, "order", "rte", 0).random())
    True
    >>> bool(stream(1, "order", "rte", 0).random() == stream(1, "order", "rte", 1).random())
    False
    """
    key = np.frombuffer(_digest(seed, *name), dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def seed_for(seed: int, *name: str | int) -> int:
    """Return a 63-bit seed with this name, for torch's generators."""
    return int.from_bytes(_digest(seed, *name)[:8], "little") >> 1


def state_of(rng: np.random.Generator) -> dict[str, Any]:
    """Return the state of a Philox generator as JSON-able values."""
    state = rng.bit_generator.state
    if state["bit_generator"] != "Philox":
        raise TypeError(f"expected a Philox generator, found {state['bit_generator']}")
    return {
        "counter": [int(x) for x in state["state"]["counter"]],
        "key": [int(x) for x in state["state"]["key"]],
        "buffer": [int(x) for x in state["buffer"]],
        "buffer_pos": int(state["buffer_pos"]),
        "has_uint32": int(state["has_uint32"]),
        "uinteger": int(state["uinteger"]),
    }


def restore(state: dict[str, Any]) -> np.random.Generator:
    """Return the generator in the state that `state_of` returned.

    >>> rng = stream(7, "draws")
    >>> _ = rng.random(3)
    >>> bool(restore(state_of(rng)).random() == rng.random())
    True
    """
    bits = np.random.Philox()
    bits.state = {
        "bit_generator": "Philox",
        "state": {
            "counter": np.array(state["counter"], dtype=np.uint64),
            "key": np.array(state["key"], dtype=np.uint64),
        },
        "buffer": np.array(state["buffer"], dtype=np.uint64),
        "buffer_pos": state["buffer_pos"],
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }
    return np.random.Generator(bits)
