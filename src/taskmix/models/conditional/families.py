"""The encoders that can be conditioned: BERT and those built of the same modules."""

from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from taskmix.errors import UserError

FAMILIES = {
    "bert": "BertModel",
    "camembert": "CamembertModel",
    "electra": "ElectraModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
}
"""By the `model_type` of a config, the class of the encoder."""

_AFTER_PADDING = ("camembert", "roberta", "xlm-roberta")


def check_family(encoder: object) -> None:
    """Raise unless this is an encoder that can be conditioned."""
    config = getattr(encoder, "config", None)
    name = FAMILIES.get(str(getattr(config, "model_type", None)))
    if name is None or not isinstance(encoder, getattr(transformers, name)):
        raise UserError(
            f"encoder: expected one of {', '.join(sorted(FAMILIES.values()))}, "
            f"found {type(encoder).__name__}"
        )
    assert isinstance(encoder, PreTrainedModel)
    if encoder.config.is_decoder:
        raise UserError("encoder: expected an encoder, found a decoder (config.is_decoder)")
    attention = encoder.config._attn_implementation
    if attention != "sdpa":
        raise UserError(
            f"encoder: expected attn_implementation='sdpa', found {attention!r}; "
            "load the encoder with that option"
        )


def layers_of(encoder: PreTrainedModel) -> list[Any]:
    """Return the encoder's layers, the lowest first."""
    stack: Any = encoder.encoder
    return list(stack.layer)


def norms_of(layer: Any) -> tuple[Any, Any]:
    """Return a layer's two norms: behind attention, and behind the feed-forward part."""
    return layer.attention.output.LayerNorm, layer.output.LayerNorm


def positions_of(config: PreTrainedConfig) -> int:
    """Return how many tokens the encoder can read.

    >>> from transformers import BertConfig, RobertaConfig
    >>> positions_of(BertConfig()), positions_of(RobertaConfig(max_position_embeddings=514))
    (512, 512)
    """
    positions: int = config.max_position_embeddings
    # RoBERTa and its kin count positions from behind the padding's id.
    if config.model_type in _AFTER_PADDING:
        positions -= int(config.pad_token_id or 0) + 1
    return positions
