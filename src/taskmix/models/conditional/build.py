"""Conditioning a pretrained encoder on the task."""

from collections.abc import Sequence
from typing import Any

import transformers
from transformers import PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditional.modules import (
    ConditionalAttention,
    ConditionalBottleneck,
    ConditionalLayer,
    ConditionalNorm,
    DiagonalAlignment,
    Film,
    MatrixAlignment,
    TaskEmbeddings,
    default_blocks,
    seeded,
)
from taskmix.models.encoders import max_positions, without_pooler
from taskmix.models.frozen import freeze_layers, layer_stack
from taskmix.models.spec import PARTS, ConditionalSpec, checked

FAMILIES = {
    "bert": "BertModel",
    "camembert": "CamembertModel",
    "electra": "ElectraModel",
    "roberta": "RobertaModel",
    "xlm-roberta": "XLMRobertaModel",
}
"""The encoder classes that can be conditioned, all built of BERT's modules, by `model_type`."""


def condition(
    encoder: PreTrainedModel,
    tasks: Sequence[str],
    parts: Sequence[str] = PARTS,
    freeze: float = 0.5,
    *,
    seed: int = 0,
    **options: Any,
) -> ConditionalEncoder:
    """Return the encoder conditioned on its task, its function unchanged before training.

    The encoder becomes part of the result: its lower layers are frozen, and its pooler, which was
    trained for another task, is dropped.

    Args:
        encoder: a BERT, RoBERTa, XLM-RoBERTa, CamemBERT or ELECTRA encoder with SDPA attention.
        tasks: the names of the tasks, in the order of their ids.
        parts: which of `attention`, `alignment`, `norm` and `bottleneck`.
        freeze: the lower layers that are not trained: a count, or a share such as 0.5.
        seed: of the new modules' initial weights. Those of a module depend on its part and layer,
            those of a task embedding on the task's name, and neither on the other modules.
        options: `rank`, `layout`, `alignment`, `blocks`, `positions`, `per_head`,
            `bottleneck_width`, `start`, `embedding_start` and `scaled_embeddings`, as in
            `ConditionalSpec`.

    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> small = BertConfig(
    ...     vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
    ...     intermediate_size=32, max_position_embeddings=32,
    ... )
    >>> encoder = condition(BertModel(small), ["cola", "rte"], rank=4)
    >>> texts, mask = torch.randint(30, (3, 7)), torch.ones(3, 7)
    >>> encoder(texts, mask, encoder.ids(["cola", "rte", "cola"])).last_hidden_state.shape
    torch.Size([3, 7, 16])
    """
    spec = checked({"parts": tuple(parts), "freeze": freeze, **options})
    return build(encoder, tasks, spec, seed)


def build(
    encoder: PreTrainedModel, tasks: Sequence[str], spec: ConditionalSpec, seed: int = 0
) -> ConditionalEncoder:
    """Condition an encoder as the spec says; see `condition`."""
    _check_family(encoder)
    width: int = encoder.config.hidden_size
    if spec.rank != "full":
        spec = spec.model_copy(update={"rank": min(spec.rank, width)})
    layers = len(layer_stack(encoder))
    count = spec.layers_frozen(layers)
    result = ConditionalEncoder(
        without_pooler(encoder),
        TaskEmbeddings(tasks, width, seed, spec.embedding_start),
        _alignment(encoder, spec, seed),
        [_layer(encoder, spec, number, layers, seed) for number in range(layers)],
        spec,
    )
    if not spec.scaled_embeddings:
        for module in result.modules():
            if isinstance(module, Film):
                module.scale = 1.0
    result.to(device=encoder.device, dtype=encoder.dtype)
    if spec.freeze:
        freeze_layers(encoder, count)
        for module in result.embedding_modules():
            module.requires_grad_(requires_grad=False)
    return result.train(encoder.training)


def _check_family(encoder: object) -> None:
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


def _alignment(
    encoder: PreTrainedModel, spec: ConditionalSpec, seed: int
) -> DiagonalAlignment | MatrixAlignment | None:
    if "alignment" not in spec.parts:
        return None
    kind = DiagonalAlignment if spec.alignment == "diagonal" else MatrixAlignment
    with seeded(seed, "alignment"):
        return kind(encoder.config.hidden_size, spec.rank, spec.start)


def _layer(
    encoder: PreTrainedModel, spec: ConditionalSpec, number: int, layers: int, seed: int
) -> ConditionalLayer:
    """Make the conditional modules of one layer."""
    # As in the paper, attention biases are in all layers, conditional norms in the upper half, and
    # the bottleneck is in the last layer or, with a side stream, beside every layer.
    width: int = encoder.config.hidden_size
    attention, norms, bottleneck = None, [], None
    if "attention" in spec.parts:
        with seeded(seed, "attention", number):
            attention = _attention(encoder, spec)
    if "norm" in spec.parts and number >= layers // 2:
        with seeded(seed, "norm", number):
            norms = [ConditionalNorm(width, spec.rank, spec.start) for _ in range(2)]
    side = spec.side_stream(layers)
    if "bottleneck" in spec.parts and (side or number == layers - 1):
        with seeded(seed, "bottleneck", number):
            hidden = spec.bottleneck_width or max(1, width // 3)
            bottleneck = ConditionalBottleneck(width, hidden, spec.rank)
    if side:
        return ConditionalLayer(attention, norms, side=bottleneck)
    return ConditionalLayer(attention, norms, bottleneck)


def _attention(encoder: PreTrainedModel, spec: ConditionalSpec) -> ConditionalAttention:
    config = encoder.config
    longest = max_positions(config)
    assert longest is not None
    positions = longest if spec.positions is None else spec.positions
    if positions > longest:
        raise UserError(f"positions: found {positions}, but the encoder reads {longest} tokens")
    blocks = default_blocks(positions) if spec.blocks is None else spec.blocks
    heads: int = config.num_attention_heads if spec.per_head else 1
    return ConditionalAttention(config.hidden_size, positions, blocks, heads, spec.rank, spec.start)
