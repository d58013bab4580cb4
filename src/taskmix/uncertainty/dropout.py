"""Monte-Carlo dropout with one mask in each pass, shared by all examples."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from taskmix.rng import stream
from taskmix.uncertainty.information import joined

if TYPE_CHECKING:
    from torch import Tensor, nn

BatchT = TypeVar("BatchT")

#: The largest error of a sum of attention probabilities in half precision.
ATTENTION_TOLERANCE = 0.02


@contextmanager
def consistent_dropout(model: "nn.Module", seed: int, number: int) -> Iterator[None]:
    """Use one fixed dropout mask inside the context: one sample of the model's weights.

    Gal and Ghahramani (2016), with fixed masks as in Kirsch et al. (2019). Every `nn.Dropout` drops
    the same features for all examples, positions and mini-batches, which is the same as removing
    columns of the next weight matrix; `nn.Dropout1d`, `2d` and `3d` drop channels. A mask depends
    only on the seed, the pass and the module's name. A module drops if `model.train()` turns it on,
    so frozen layers drop as in training. The model is otherwise in evaluation mode, and attention
    probabilities are not dropped, as this corresponds to no weights. At the end, the mode of every
    module and the random state are restored.

    Args:
        model: any module.
        seed: the seed of the run.
        number: the number of the pass; each has different masks.

    >>> import torch
    >>> model = torch.nn.Dropout(0.5)
    >>> with consistent_dropout(model, seed=1, number=0):
    ...     first, again = model(torch.ones(2, 3, 8)), model(torch.ones(1, 8))
    >>> bool((first == again).all()), model.training
    (True, True)
    """
    import torch

    dropping = dropout_modules(model)
    modes = [(module, module.training) for module in model.modules()]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    hooks = []
    with torch.random.fork_rng(devices=list(devices)):
        try:
            model.eval()
            for name, (module, axis) in dropping.items():
                drop = _dropper(float(module.p), axis, seed, number, name)
                hooks.append(module.register_forward_hook(drop))
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for module, training in modes:
                module.training = training


def dropout_modules(model: "nn.Module") -> dict[str, tuple[Any, int]]:
    """Return the modules that drop features in training, by name, and the axis of the features."""
    from torch import nn

    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    dropping = {
        name: (module, -1 if isinstance(module, nn.Dropout) else 1)
        for name, module in model.named_modules()
        if isinstance(module, kinds) and module.training and module.p > 0
    }
    for module, training in modes:
        module.training = training
    return dropping


def _dropper(
    rate: float, axis: int, seed: int, number: int, name: str
) -> Callable[[Any, Any, "Tensor"], "Tensor"]:
    """Return a forward hook that drops the same features at every call."""
    masks: dict[int, Tensor] = {}

    def mask(output: "Tensor") -> "Tensor":
        features = output.shape[axis]
        if features not in masks:
            kept = stream(seed, "dropout", name, number).random(features) >= rate
            scale = 1.0 / (1.0 - rate) if rate < 1 else 0.0
            masks[features] = output.new_tensor(np.where(kept, scale, 0.0))
        return masks[features]

    def drop(_module: Any, _inputs: Any, output: "Tensor") -> "Tensor":
        if axis == -1 and _holds_distributions(output):
            return output
        shape = [1] * output.ndim
        shape[axis] = -1
        return output * mask(output).view(shape)

    return drop


def _holds_distributions(output: "Tensor") -> bool:
    """Return whether the last axis holds distributions, as of attention probabilities."""
    # Most transformers drop attention by a function, which evaluation mode turns off. DeBERTa,
    # MPNet and GPT-2 have a module for it, and XLNet uses the same module for its features.
    if output.ndim < 3 or output.numel() == 0 or bool((output < 0).any()):
        return False
    sums = output.float().sum(dim=-1)
    return bool(((sums - 1).abs() < ATTENTION_TOLERANCE).all())


def predictive_samples(
    model: "nn.Module",
    predict: Callable[[BatchT], "Tensor"],
    batches: Iterable[BatchT],
    passes: int,
    seed: int,
) -> NDArray[np.float64]:
    """Return the predictions under several dropout masks, shape `(passes, examples, classes)`.

    These are the samples for `bald` and `batch_bald`.

    Args:
        model: a module with dropout.
        predict: calls the model, and returns the predictive distributions of a batch, shape
            `(examples, classes)`.
        batches: the batches; they share the mask of a pass.
        passes: the number of masks.
        seed: the seed of the masks.

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
    """Yield the samples of each batch, with the arguments of `predictive_samples`."""
    import torch

    if passes < 1:
        raise ValueError(f"passes: expected at least 1, found {passes}")
    for batch in batches:
        samples = []
        for number in range(passes):
            with torch.inference_mode(), consistent_dropout(model, seed, number):
                samples.append(predict(batch).double().cpu().numpy())
        yield np.stack(samples)
