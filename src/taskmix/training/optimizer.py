"""The optimiser, with warm-up and linear decay."""

from collections.abc import Iterator, Mapping, Sequence

from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim import Optimizer as TorchOptimizer

from taskmix.config import Optimizer
from taskmix.models.multitask import MultiTaskModel


def build_optimizer(model: nn.Module, config: Optimizer) -> TorchOptimizer:
    groups = [
        {
            "params": params,
            "lr": config.lr * factor,
            "base_lr": config.lr * factor,
            "weight_decay": decay,
        }
        for parameters, factor in _at_rates(model, config)
        for params, decay in zip(_split(parameters), (config.weight_decay, 0.0), strict=True)
        if params
    ]
    if config.name == "sgd":
        # Not fused: that fails where a head gets its first momentum later than others, and on
        # parameters that ranks divide among them.
        return SGD(groups, momentum=config.momentum, foreach=True)
    return AdamW(groups, fused=True)


def _at_rates(model: nn.Module, config: Optimizer) -> list[tuple[list[nn.Parameter], float]]:
    """Return groups of parameters, each with the factor on its learning rate."""
    if not isinstance(model, MultiTaskModel):  # the heads of a user's module are not known
        return [(list(model.parameters()), 1.0)]
    fresh = model.encoder.fresh()
    new = {id(parameter) for parameter in fresh}
    return [
        ([p for p in model.encoder.parameters() if id(p) not in new], 1.0),
        (fresh, config.conditional_factor),
        (list(model.heads.parameters()), config.head_factor),
    ]


def _split(parameters: Sequence[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return trained matrices, then biases and norms, which have no weight decay."""
    learning = [parameter for parameter in parameters if parameter.requires_grad]
    return [p for p in learning if p.ndim > 1], [p for p in learning if p.ndim <= 1]


def set_rate(optimizer: TorchOptimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor


def optimizer_tensors(optimizer: TorchOptimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimiser's state as tensors named `parameter:field`."""
    state = optimizer.state_dict()["state"]
    return {
        f"{name}:{field}": value
        for number, name in enumerate(_names(optimizer, model))
        for field, value in state.get(number, {}).items()
    }


def load_optimizer_tensors(
    optimizer: TorchOptimizer, model: nn.Module, tensors: Mapping[str, Tensor]
) -> None:
    """Restore `optimizer_tensors` without a copy; parameters that it lacks start anew."""
    numbers = {name: number for number, name in enumerate(_names(optimizer, model))}
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, field = key.rpartition(":")
        if name in numbers:
            state.setdefault(numbers[name], {})[field] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _names(optimizer: TorchOptimizer, model: nn.Module) -> list[str]:
    """Return the names of the parameters in the order of the optimiser's numbers."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [names[id(parameter)] for parameter in trained(optimizer)]


def trained(optimizer: TorchOptimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
