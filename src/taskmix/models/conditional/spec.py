"""What a run file can say about a conditioned encoder."""

from typing import Any, Literal

from pydantic import ValidationError, field_validator, model_validator

from taskmix.errors import UserError, unknown
from taskmix.models.section import Section

PARTS = ("attention", "alignment", "norm", "bottleneck")
"""The parts of CA-MTL, in the order of the paper's section 2.1."""

Rank = int | Literal["full"]


class ConditionalSpec(Section):
    """How an encoder is conditioned on its task, as in Pilault et al. (2021).

    Args:
        parts: which of `attention`, `alignment`, `norm` and `bottleneck`; each works alone.
        freeze: the lower layers that are not trained: a count, or a share such as 0.5. The
            encoder's embeddings are frozen with them; 0 freezes nothing. Conditional modules train
            in frozen layers too.
        rank: the rank of the FiLM generators, or `full` for the paper's matrices. The embeddings
            of T tasks span T dimensions, so that a rank of T already gives every task its own γ
            and β.
        layout: `base` has one bottleneck, in the last layer; `large` has one beside every layer,
            on a side stream; `auto` takes `large` from 24 layers on.
        alignment: `diagonal`, as in the paper's code, or `matrix`, as in its equation 2.
        blocks: blocks on the diagonal of the attention bias, over all positions of the encoder;
            None makes blocks of 16 tokens, or of the next smaller number that fits.
        per_head: one attention bias a head, in place of one a layer.
        bottleneck_width: hidden units of a bottleneck; a third of the encoder's width if None.
        start: standard deviation of the generators' first weights. 0 leaves the pretrained
            function as it is; the paper's code has 0.02.
    """

    parts: tuple[str, ...] = PARTS
    freeze: int | float = 0.5
    rank: Rank = 32
    layout: Literal["auto", "base", "large"] = "auto"
    alignment: Literal["diagonal", "matrix"] = "diagonal"
    blocks: int | None = None
    per_head: bool = False
    bottleneck_width: int | None = None
    start: float = 0.0

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
        for name in ("rank", "blocks", "bottleneck_width"):
            value = getattr(self, name)
            if isinstance(value, int) and value < 1:
                raise UserError(f"{name}: expected at least 1, found {value}")
        if self.start < 0:
            raise UserError(f"start: expected a standard deviation >= 0, found {self.start}")
        return self

    def layers_frozen(self, layers: int) -> int:
        """Return how many of an encoder's layers are frozen; a share is rounded down.

        >>> [ConditionalSpec(freeze=freeze).layers_frozen(12) for freeze in (0.5, 2)]
        [6, 2]
        """
        count = int(self.freeze * layers) if isinstance(self.freeze, float) else self.freeze
        if count > layers:
            raise UserError(f"freeze: found {count}, but the encoder has {layers} layers")
        return count

    def side_stream(self, layers: int) -> bool:
        """Return whether bottlenecks stand beside every layer of an encoder with so many layers.

        >>> ConditionalSpec().side_stream(12), ConditionalSpec().side_stream(24)
        (False, True)
        """
        large = layers >= 24 if self.layout == "auto" else self.layout == "large"
        return large and "bottleneck" in self.parts


def checked(options: dict[str, Any], where: str = "") -> ConditionalSpec:
    """Options as a spec, or one sentence about the first of them that is wrong.

    Args:
        options: the fields of `ConditionalSpec`.
        where: a file, for the sentence.
    """
    place = f"{where}, " if where else ""
    try:
        return ConditionalSpec(**options)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "extra_forbidden":
            fields = list(ConditionalSpec.model_fields)
            raise unknown("option", str(first["loc"][0]), fields, where) from None
        message = first["msg"].removeprefix("Value error, ").lower()
        raise UserError(f"{place}{first['loc'][0]}: {message}, found {first['input']!r}") from None
    except UserError as error:
        raise UserError(f"{place}{error}") from None
