"""One task's encoder and head as a transformers model; needs torch and transformers, not taskmix.

`taskmix export` copies this file into the folder that it writes. There it is loaded by
`AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)`, or the class
for the task at hand. Where taskmix is installed, call `register()` once instead and leave
`trust_remote_code` out.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    BatchEncoding,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import (
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)


class ExportedConfig(PreTrainedConfig):
    """What an exported model is made of.

    Args:
        encoder: the configuration of the encoder, as an object or as a dictionary.
        segments: whether the encoder reads `token_type_ids`.
        pooling: the vector that stands for a sequence. `mean`, `first` and `last` are the mean of
            its tokens, its first and its last one; `pair` is u, v, |u - v| and u * v, for u and v
            the means of its two texts.
        marks: how many marked pieces of the text join that vector, each by the mean of its tokens.
        hidden_units: units of the head's hidden layer; 0 for a linear head.
        head_dropout: dropout in front of the head.
        bias_blocks: the shape of the attention biases: layers, heads (1 for one bias a layer),
            blocks on the diagonal, tokens of a block; None without biases.
        bias_positions: the first tokens of a sequence, which the blocks cover.
        more: what every configuration of transformers has; the head gives `num_labels` numbers.
    """

    model_type = "taskmix"
    sub_configs = {"encoder": AutoConfig}  # noqa: RUF012 (as transformers declares it)
    _auto_class = "AutoConfig"

    def __init__(
        self,
        encoder: PreTrainedConfig | dict[str, Any] | None = None,
        pooling: str = "mean",
        marks: int = 0,
        hidden_units: int = 0,
        head_dropout: float = 0.0,
        segments: bool = True,
        bias_blocks: Sequence[int] | None = None,
        bias_positions: int = 0,
        **more: Any,
    ) -> None:
        if isinstance(encoder, dict):
            encoder = AutoConfig.for_model(**encoder)
        self.encoder = encoder
        self.pooling = pooling
        self.marks = marks
        self.hidden_units = hidden_units
        self.head_dropout = head_dropout
        self.segments = segments
        self.bias_blocks = bias_blocks
        self.bias_positions = bias_positions
        super().__init__(**more)


class Exported(PreTrainedModel):
    """An encoder and a head; the subclasses say what the head reads and what it gives."""

    config_class = ExportedConfig
    base_model_prefix = "encoder"
    # Which kinds of attention there are is up to the encoder, which looks for itself.
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.encoder = AutoModel.from_config(config.encoder, trust_remote_code=False)
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None
        self.biases: nn.Parameter | None = None
        if config.bias_blocks is not None:
            *shape, size = config.bias_blocks
            self.biases = nn.Parameter(torch.zeros(*shape, size, size))
            for number, layer in enumerate(self.encoder.encoder.layer):
                layer.register_forward_pre_hook(partial(self._add_bias, number))
        width = self.head_inputs(config)
        self.dropout = nn.Dropout(config.head_dropout)
        self.hidden = nn.Linear(width, config.hidden_units) if config.hidden_units else None
        self.linear = nn.Linear(config.hidden_units or width, config.num_labels)
        self.post_init()  # type: ignore[no-untyped-call]

    @staticmethod
    def head_inputs(config: Any) -> int:
        """Return how many numbers the head reads."""
        return int(config.encoder.hidden_size)

    def _add_bias(self, number: int, _layer: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Add the layer's bias to its attention mask, which is of bools, of numbers or None."""
        assert self.biases is not None
        hidden, mask, *more = inputs
        bias = block_bias(self.biases[number], self.config.bias_positions, hidden.shape[1])
        if mask is None:
            mask = bias[None]
        elif mask.dtype == torch.bool:
            mask = torch.where(mask, bias, float("-inf"))
        else:
            mask = mask + bias
        return hidden, mask.to(hidden.dtype), *more

    def tokens(self, input_ids: Tensor, mask: Tensor, segments: Tensor | None) -> Tensor:
        """Return one vector a token, shape `(sequences, tokens, width)`."""
        columns = {"input_ids": input_ids, "attention_mask": mask}
        types = getattr(self.encoder.config, "type_vocab_size", 0) or 0
        if segments is not None and self.config.segments and types > 1:
            columns["token_type_ids"] = segments
        vectors: Tensor = self.encoder(**columns).last_hidden_state
        return vectors

    def head(self, features: Tensor) -> Tensor:
        """Return the logits `(..., outputs)` of features `(..., inputs)`."""
        features = self.dropout(features)
        if self.hidden is not None:
            features = self.hidden(features).relu()
        logits: Tensor = self.linear(features)
        return logits


class _Pooled(Exported):
    """The head reads one vector a sequence."""

    @staticmethod
    def head_inputs(config: Any) -> int:
        times = (4 if config.pooling == "pair" else 1) + config.marks
        return int(config.encoder.hidden_size * times)

    def sequence_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        marks: Tensor | None = None,
    ) -> Tensor:
        """Return the logits of sequences, shape `(sequences, outputs)`."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        tokens = self.tokens(input_ids, mask, token_type_ids)
        features = pool(tokens, mask, token_type_ids, self.config.pooling)
        expected = (len(input_ids), self.config.marks, 2)
        if self.config.marks and (marks is None or marks.shape != expected):
            found = None if marks is None else tuple(marks.shape)
            raise ValueError(f"marks: expected token spans of shape {expected}, found {found}")
        if marks is not None and self.config.marks:
            features = torch.cat([features, marked(tokens, marks).flatten(1)], dim=-1)
        return self.head(features)


class ExportedForSequenceClassification(_Pooled):
    """Logits of classes or labels for a text or a pair of texts, or a number in its own unit.

    A model with marked pieces (`config.marks`) takes one more input, `marks`: for each sequence
    the first token of each piece and the token after its last, shape `(sequences, pieces, 2)`.
    `find_marks` makes it.
    """

    _auto_class = "AutoModelForSequenceClassification"

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        marks: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        """Return logits `(sequences, outputs)`, and the loss if there are labels."""
        logits: Any = self.sequence_logits(input_ids, attention_mask, token_type_ids, marks)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return SequenceClassifierOutput(loss=loss, logits=logits)

    @staticmethod
    def find_marks(
        encodings: BatchEncoding, pieces: Sequence[Sequence[tuple[int, int, int]]]
    ) -> Tensor:
        """Return the input `marks` for texts that a fast tokenizer encoded.

        Args:
            encodings: what the tokenizer gave for a batch.
            pieces: for each sequence its marked pieces, each by the number of its text (0 or 1) and
                the characters there, from the first to the one after the last. A piece that was cut
                off is read at the sequence's first token.
        """
        return torch.tensor(
            [
                [_tokens_of(encodings, row, *piece) for piece in of_row]
                for row, of_row in enumerate(pieces)
            ]
        )


class ExportedForMultipleChoice(_Pooled):
    """A logit for each choice."""

    _auto_class = "AutoModelForMultipleChoice"

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> MultipleChoiceModelOutput:
        """Return logits `(items, choices)` of inputs `(items, choices, tokens)`."""
        flat = [
            None if column is None else column.flatten(0, 1)
            for column in (input_ids, attention_mask, token_type_ids)
        ]
        assert flat[0] is not None
        logits: Any = self.sequence_logits(flat[0], flat[1], flat[2]).view(input_ids.shape[:2])
        loss: Any = None if labels is None else functional.cross_entropy(logits, labels)
        return MultipleChoiceModelOutput(loss=loss, logits=logits)


class _OfTokens(Exported):
    def token_logits(
        self, input_ids: Tensor, attention_mask: Tensor | None, token_type_ids: Tensor | None
    ) -> Tensor:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return self.head(self.tokens(input_ids, mask, token_type_ids))


class ExportedForTokenClassification(_OfTokens):
    """Logits of tags for every token; a word's tag is the one of its first token."""

    _auto_class = "AutoModelForTokenClassification"

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> TokenClassifierOutput:
        """Return logits `(sequences, tokens, tags)`, and the loss if there are labels."""
        logits: Any = self.token_logits(input_ids, attention_mask, token_type_ids)
        loss = None if labels is None else self.loss_function(logits, labels, self.config)
        return TokenClassifierOutput(loss=loss, logits=logits)


class ExportedForQuestionAnswering(_OfTokens):
    """Two logits for every token: of being the answer's first, and of being its last."""

    _auto_class = "AutoModelForQuestionAnswering"

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
    ) -> QuestionAnsweringModelOutput:
        """Return logits of starts and ends, each `(sequences, tokens)`."""
        logits: Any = self.token_logits(input_ids, attention_mask, token_type_ids)
        starts, ends = logits.unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(starts, ends, start_positions, end_positions)
        return QuestionAnsweringModelOutput(loss=loss, start_logits=starts, end_logits=ends)


def register() -> None:
    """Let transformers' Auto classes load exported folders without `trust_remote_code`."""
    AutoConfig.register(ExportedConfig.model_type, ExportedConfig, exist_ok=True)
    for auto, model in (
        (AutoModelForSequenceClassification, ExportedForSequenceClassification),
        (AutoModelForMultipleChoice, ExportedForMultipleChoice),
        (AutoModelForTokenClassification, ExportedForTokenClassification),
        (AutoModelForQuestionAnswering, ExportedForQuestionAnswering),
    ):
        auto.register(ExportedConfig, model, exist_ok=True)


def pool(tokens: Tensor, mask: Tensor, second: Tensor | None, pooling: str) -> Tensor:
    """Return one vector a sequence, shape `(sequences, width)`, four times as wide for a pair.

    Args:
        tokens: one vector a token, shape `(sequences, tokens, width)`.
        mask: 1 where there is a token, shape `(sequences, tokens)`.
        second: 1 where it is of the sequence's second text; None if there is none.
        pooling: as in `ExportedConfig`; the v of a `pair` is zero where there is one text.
    """
    if pooling == "first":
        return tokens[:, 0]
    if pooling == "last":
        last = (mask * torch.arange(mask.shape[1], device=mask.device)).argmax(1)
        return tokens[torch.arange(len(tokens), device=tokens.device), last]
    if pooling == "mean":
        return _mean(tokens, mask)
    second = torch.zeros_like(mask) if second is None else second * mask
    u, v = _mean(tokens, mask - second), _mean(tokens, second)
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


def _mean(tokens: Tensor, mask: Tensor) -> Tensor:
    weights = mask.to(tokens.dtype).unsqueeze(-1)
    return (tokens * weights).sum(1) / weights.sum(1).clamp(min=1)


def block_bias(blocks: Tensor, positions: int, length: int) -> Tensor:
    """Put blocks `(..., n, s, s)` on the diagonal of a bias `(..., length, length)`.

    It is 0 outside the blocks and from the token number `positions` on.

    >>> block_bias(torch.tensor([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), 3, 4).tolist()
    [[1, 2, 0, 0], [3, 4, 0, 0], [0, 0, 5, 0], [0, 0, 0, 0]]
    """
    covered = min(length, positions)
    *leading, _, size, _ = blocks.shape
    used = -(-covered // size)
    spread = blocks.new_zeros(*leading, used, size, used, size)
    spread.diagonal(dim1=-4, dim2=-2).copy_(blocks[..., :used, :, :].movedim(-3, -1))
    bias = spread.view(*leading, used * size, used * size)[..., :covered, :covered]
    return functional.pad(bias, (0, length - covered, 0, length - covered))


def marked(tokens: Tensor, marks: Tensor) -> Tensor:
    """Return the mean vector of each marked piece, shape `(sequences, pieces, width)`."""
    positions = torch.arange(tokens.shape[1], device=tokens.device)
    inside = (positions >= marks[..., :1]) & (positions < marks[..., 1:])
    weights = inside.to(tokens.dtype)
    return (weights / weights.sum(-1, keepdim=True).clamp(min=1)) @ tokens


def _tokens_of(
    encodings: BatchEncoding, row: int, text: int, start: int, end: int
) -> tuple[int, int]:
    encoding = encodings[row]
    inside = [
        token
        for token, (sequence, (first, past)) in enumerate(
            zip(encoding.sequence_ids, encoding.offsets, strict=True)
        )
        if sequence == text and first < end and past > start
    ]
    return (inside[0], inside[-1] + 1) if inside else (0, 1)
