"""Consistent Monte-Carlo dropout: one mask a pass, shared by all examples."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from taskmix.rng import stream

if TYPE_CHECKING:
    from torch import Tensor, nn

#: Probabilities in half precision sum to 1 no better than this.
ROUGHLY = 0.02


@contextmanager
def consistent_dropout(model: "nn.Module", seed: int, number: int) -> Iterator[None]:
    """Inside the context, the model is one draw from the posterior that its dropout stands for.

    Gal and Ghahramani (2016), with the masks held fixed as in Kirsch et al. (2019). Every
    `nn.Dropout` drops the same features for all examples, all positions of a sequence and all
    mini-batches of whatever length, which is the same as removing columns of the next weight
    matrix; `nn.Dropout1d`, `2d` and `3d` likewise drop channels. A mask depends on the seed, the
    pass and the module's name alone. Everything else that training would make random stays off:
    dropout of attention probabilities too, for positions of different examples are not the same
    thing, and no weights stand behind them. Most of transformers applies it as a function, which
    evaluation mode turns off; DeBERTa, MPNet, GPT-2 and XLNet have a module for it, XLNet even the
    same one as for its features, so attention is known by its values: an array of three axes or
    more with a distribution along the last.

    Leaving it, also by an exception, restores the mode of every module and the random state; the
    modules were never replaced.

    Args:
        model: any module.
        seed: the run's seed.
        number: which pass; each has masks of its own.

    >>> import torch
    >>> model = torch.nn.Dropout(0.5)
    >>> with consistent_dropout(model, seed=1, number=0):
    ...     first, again = model(torch.ones(2, 3, 8)), model(torch.ones(1, 8))
    >>> bool((first == again).all()), model.training
    (True, True)
    """
    import torch

    modes = [(module, module.training) for module in model.modules()]
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    hooks = []
    with torch.random.fork_rng(devices=list(devices)):
        try:
            model.eval()
            for name, module in model.named_modules():
                if (axis := _features(module)) is not None:
                    rate = float(module.p)
                    drop = _dropper(rate, axis, seed, number, name)
                    hooks.append(module.register_forward_hook(drop))
            yield
        finally:
            for hook in hooks:
                hook.remove()
            for module, training in modes:
                module.training = training


def _features(module: "nn.Module") -> int | None:
    """Return the axis of a dropout module's features; None if the module is none or never drops."""
    from torch import nn

    if isinstance(module, nn.Dropout):
        return -1 if module.p > 0 else None
    if isinstance(module, nn.Dropout1d | nn.Dropout2d | nn.Dropout3d):
        return 1 if module.p > 0 else None
    return None


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
    """Return whether the last axis holds distributions, as attention probabilities do."""
    if output.ndim < 3 or output.numel() == 0 or bool((output < 0).any()):
        return False
    sums = output.float().sum(dim=-1)
    return bool(((sums - 1).abs() < ROUGHLY).all())
