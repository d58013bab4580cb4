"""Turning a pretrained encoder into a conditioned one."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedModel

from taskmix.errors import UserError
from taskmix.models.conditional.alignment import DiagonalAlignment, MatrixAlignment
from taskmix.models.conditional.attention import ConditionalAttention, default_blocks
from taskmix.models.conditional.bottleneck import ConditionalBottleneck
from taskmix.models.conditional.embeddings import TaskEmbeddings
from taskmix.models.conditional.encoder import ConditionalEncoder
from taskmix.models.conditional.families import check_family, layers_of, positions_of
from taskmix.models.conditional.film import seeded
from taskmix.models.conditional.layer import ConditionalLayer
from taskmix.models.conditional.norm import ConditionalNorm
from taskmix.models.conditional.spec import PARTS, ConditionalSpec, checked


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
        seed: of the new modules' first weights. A module's depend on its part and layer, a task
            embedding's on the task's name, and neither on what else there is.
        options: `rank`, `layout`, `alignment`, `blocks`, `per_head`, `bottleneck_width` and
            `start`, as in `ConditionalSpec`.

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
    """Return the encoder conditioned as the spec says; see `condition`.

    Args:
        encoder: the pretrained encoder.
        tasks: the names of the tasks, in the order of their ids.
        spec: how it is conditioned.
        seed: of the new modules' first weights.
    """
    check_family(encoder)
    width: int = encoder.config.hidden_size
    if spec.rank != "full" and spec.rank > width:
        raise UserError(f"rank: expected 1 to {width}, the encoder's width, found {spec.rank}")
    if getattr(encoder, "pooler", None) is not None:
        setattr(encoder, "pooler", None)  # noqa: B010 (its type knows no None)
    result = ConditionalEncoder(
        encoder,
        TaskEmbeddings(tasks, width, seed),
        _alignment(encoder, spec, seed),
        [_layer(encoder, spec, number, seed) for number in range(len(layers_of(encoder)))],
        spec,
    )
    result.to(device=encoder.device, dtype=encoder.dtype)
    freeze_layers(encoder, spec)
    return result.train(encoder.training)


def freeze_layers(encoder: PreTrainedModel, spec: ConditionalSpec) -> None:
    """Freeze the embeddings and the lower layers that the spec says, and nothing else."""
    layers: Any = layers_of(encoder)
    count = spec.layers_frozen(len(layers))
    if not spec.freeze:
        return
    for name, module in encoder.named_children():
        if name.startswith("embeddings"):
            module.requires_grad_(requires_grad=False)
    for layer in layers[:count]:
        layer.requires_grad_(requires_grad=False)


def _alignment(
    encoder: PreTrainedModel, spec: ConditionalSpec, seed: int
) -> DiagonalAlignment | MatrixAlignment | None:
    if "alignment" not in spec.parts:
        return None
    kind = DiagonalAlignment if spec.alignment == "diagonal" else MatrixAlignment
    with seeded(seed, "alignment"):
        return kind(encoder.config.hidden_size, spec.rank, spec.start)


def _layer(
    encoder: PreTrainedModel, spec: ConditionalSpec, number: int, seed: int
) -> ConditionalLayer:
    """Return the conditional modules of one layer, where the paper has them.

    Attention biases are in all layers, conditional norms in the upper half, and the bottleneck is
    in the last layer or, with a side stream, beside every layer.
    """
    width: int = encoder.config.hidden_size
    layers = len(layers_of(encoder))
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
    positions = positions_of(config)
    blocks = default_blocks(positions) if spec.blocks is None else spec.blocks
    heads: int = config.num_attention_heads if spec.per_head else 1
    return ConditionalAttention(config.hidden_size, positions, blocks, heads, spec.rank, spec.start)
