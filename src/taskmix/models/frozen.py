"""An encoder's layers: finding them, freezing the lower ones, and running the frozen ones once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from taskmix.errors import UserError


def layer_stack(model: nn.Module) -> list[nn.Module]:
    """Return a model's layers, the lowest first: its longest list of modules; [] without any."""
    lists = (list(module) for module in model.modules() if isinstance(module, nn.ModuleList))
    return max(lists, key=len, default=[])


def freeze_layers(model: nn.Module, count: int) -> None:
    """Stop training a model's embeddings and its lowest `count` layers."""
    stack = layer_stack(model)
    if not stack:
        raise UserError(f"model.freeze: found no stack of layers in {type(model).__name__}")
    if count > len(stack):
        raise UserError(f"model.freeze: found {count}, but the encoder has {len(stack)} layers")
    try:
        embeddings = getattr(model, "embeddings", None) or model.get_input_embeddings()  # type: ignore[operator]
    except NotImplementedError:
        raise UserError(f"model.freeze: found no embeddings in {type(model).__name__}") from None
    for module in [embeddings, *stack[:count]]:
        module.requires_grad_(requires_grad=False)


class Frozen:
    """The lower layers of an encoder that training does not change, as one fixed function.

    The output of a fixed function for an example can be cached: scoring computes it, and training
    starts from it. A fixed function has no dropout; `disable_dropout` turns it off. An encoder in
    which anything but layers is trained has no frozen part.
    """

    def __init__(self, encoder: nn.Module) -> None:
        stack = layer_stack(encoder)
        inside = {id(p) for layer in stack for p in layer.parameters()}
        if any(p.requires_grad and id(p) not in inside for p in encoder.parameters()):
            stack = []
        trained = [any(p.requires_grad for p in layer.parameters()) for layer in stack]
        self._layers = stack[: trained.index(True)] if True in trained else stack
        self._above = stack[len(self._layers) :]
        above = {id(m) for layer in self._above for m in layer.modules()}
        self._modules = [m for m in encoder.modules() if id(m) not in above] if self._layers else []
        self._without_dropout = self._modules

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def by_task(self) -> bool:
        """Whether the output depends on the task of a sequence, and not on its tokens alone."""
        return False

    def disable_dropout(self) -> None:
        """Turn off dropout in the layers that are not trained, which `train` has turned on."""
        for module in self._without_dropout:
            module.training = False

    def state(self) -> Iterator[Tensor]:
        """Yield all tensors that the output depends on."""
        for module in self._modules:
            yield from module.parameters(recurse=False)
            yield from module.buffers(recurse=False)

    @contextmanager
    def recording(self) -> Iterator[list[Tensor]]:
        """Collect the outputs of the last frozen layer, call by call, if they are tensors."""
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
        """Make the frozen layers return this output instead of computing it; None changes nothing.

        The embeddings below them still run, at the price of a table look-up.
        """
        with _replaced(self._layers if output is not None else [], lambda *_args, **_kw: output):
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make the layers above return their input."""
        with _replaced(self._above, _identity):
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


def _identity(*args: Any, **named: Any) -> Any:
    return args[0] if args else named["hidden_states"]
