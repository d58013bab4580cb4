"""An encoder's frozen lower layers, run once where they would be run again and again."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch import Tensor, nn


class FrozenPart(ABC):
    """The lower part of an encoder that training does not change, as one fixed function.

    What a fixed function gave for an example can be kept: it was computed to score the example, and
    training can start from it. A fixed function has no dropout either; `still` sees to that.
    """

    @property
    def by_task(self) -> bool:
        """Whether what it gives depends on the task of a sequence, and not on its tokens alone."""
        return False

    @abstractmethod
    def __len__(self) -> int:
        """How many layers it has."""

    @abstractmethod
    def still(self) -> None:
        """Turn off dropout in it, which `train` had turned on."""

    @abstractmethod
    def state(self) -> Iterator[Tensor]:
        """Return all tensors that its function depends on."""

    @abstractmethod
    def recording(self) -> AbstractContextManager[list[Tensor]]:
        """Collects what its last layer gives, call by call; nothing if that is no tensor."""

    @abstractmethod
    def given(self, output: Tensor | None) -> AbstractContextManager[None]:
        """Inside it, its layers give this output without computing it; None changes nothing."""

    @abstractmethod
    def alone(self) -> AbstractContextManager[None]:
        """Inside it, the layers above are left out where that can be."""


class Frozen(FrozenPart):
    """The lower layers of any encoder that are not trained, found by looking for its layers.

    Args:
        encoder: any module with a stack of layers. If anything but layers is trained in it, it has
            no frozen part.
    """

    def __init__(self, encoder: nn.Module) -> None:
        stack = _stack(encoder)
        inside = {id(p) for layer in stack for p in layer.parameters()}
        if any(p.requires_grad and id(p) not in inside for p in encoder.parameters()):
            stack = []
        trained = [any(p.requires_grad for p in layer.parameters()) for layer in stack]
        self._layers = stack[: trained.index(True)] if True in trained else stack
        self._above = stack[len(self._layers) :]
        above = {id(m) for layer in self._above for m in layer.modules()}
        self._modules = [m for m in encoder.modules() if id(m) not in above] if self._layers else []

    def __len__(self) -> int:
        """How many layers are frozen."""
        return len(self._layers)

    def still(self) -> None:
        """Turn off dropout in the frozen part, which `train` had turned on."""
        for module in self._modules:
            module.training = False

    def state(self) -> Iterator[Tensor]:
        """Yield all tensors that its function depends on."""
        for module in self._modules:
            yield from module.parameters(recurse=False)
            yield from module.buffers(recurse=False)

    @contextmanager
    def recording(self) -> Iterator[list[Tensor]]:
        """Collects what the last frozen layer gives, call by call; nothing if that is no tensor."""
        outputs: list[Tensor] = []
        if not self._layers:
            yield outputs
            return

        def record(_module: Any, _inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                outputs.append(output)

        hook = self._layers[-1].register_forward_hook(record)
        try:
            yield outputs
        finally:
            hook.remove()

    @contextmanager
    def given(self, output: Tensor | None) -> Iterator[None]:
        """Inside it, the frozen layers give this output without computing it; None changes nothing.

        The embeddings below them still run, at the price of a table look-up.
        """
        with _replaced(self._layers if output is not None else [], lambda *_args, **_kw: output):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Inside it, the layers above hand on what they are given."""
        with _replaced(self._above, _handed_on):
            yield


@contextmanager
def _replaced(layers: Sequence[nn.Module], forward: Callable[..., Any]) -> Iterator[None]:
    # One such context may be inside another: a batch may hold states where others are given.
    before = [vars(layer).get("forward") for layer in layers]
    try:
        for layer in layers:
            layer.forward = forward
        yield
    finally:
        for layer, replaced in zip(layers, before, strict=True):
            if replaced is None:
                vars(layer).pop("forward", None)
            else:
                layer.forward = replaced


def _handed_on(*args: Any, **named: Any) -> Any:
    return args[0] if args else named["hidden_states"]


def _stack(encoder: nn.Module) -> list[nn.Module]:
    """Return the encoder's longest list of modules: its layers."""
    lists = (list(module) for module in encoder.modules() if isinstance(module, nn.ModuleList))
    return max(lists, key=len, default=[])
