"""How many parameters the model of a run file has, counted without loading any."""

from collections.abc import Sequence

import torch
from torch import nn
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.build import build_conditional
from taskmix.models.causal import adapted, small_causal_config
from taskmix.models.conditional.count import ParameterCount, count_parameters
from taskmix.models.encoders import TextEncoder, quiet, small_config, text_config
from taskmix.models.spec import ModelSpec
from taskmix.models.tokenizers import pretrained_source


def parameters_of(spec: ModelSpec, tasks: Sequence[str]) -> ParameterCount:
    """Count the parameters of a text encoder, plain or conditioned, for so many tasks.

    Nothing is loaded but the encoder's configuration. The vocabulary of `small` is counted as large
    as it may become. Heads are not counted.

    Args:
        spec: what a run file says of the model.
        tasks: the names of the tasks.
    """
    if spec.encoder in ("cnn", "lenet") or ":" in (spec.encoder or ""):
        raise UserError(f"model.encoder: expected a text encoder to count, found {spec.encoder!r}")
    with torch.device("meta"):
        if spec.causal:
            return _counted(_causal(spec), tasks)
        plain = _plain(spec)
        if spec.conditional is not None:
            return count_parameters(build_conditional(plain, tasks, spec.conditional))
        return _counted(TextEncoder(plain, spec.pooling, spec.freeze).model, tasks)


def _counted(model: nn.Module, tasks: Sequence[str]) -> ParameterCount:
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    trained = sum(size for size, moves in sizes if moves)
    return ParameterCount(len(tasks), sum(size for size, _ in sizes), trained, 0, 0, 0, 0)


def _causal(spec: ModelSpec) -> nn.Module:
    """Return the language model that a spec describes, adapters included, without weights."""
    folder = pretrained_source(spec)
    config: PreTrainedConfig = (
        small_causal_config(spec, spec.vocabulary) if folder is None else text_config(folder, spec)
    )
    with quiet():
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config)
    return adapted(model, spec)


def _plain(spec: ModelSpec) -> PreTrainedModel:
    folder = pretrained_source(spec)
    config: PreTrainedConfig = (
        small_config(spec, spec.vocabulary) if folder is None else text_config(folder, spec)
    )
    with quiet():
        model: PreTrainedModel = AutoModel.from_config(config)
    if getattr(model, "pooler", None) is not None:
        setattr(model, "pooler", None)  # noqa: B010 (its type knows no None)
    return model
