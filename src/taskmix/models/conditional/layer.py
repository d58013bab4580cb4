"""What conditions one layer of an encoder."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from taskmix.models.conditional.attention import ConditionalAttention
from taskmix.models.conditional.bottleneck import ConditionalBottleneck
from taskmix.models.conditional.families import norms_of
from taskmix.models.conditional.norm import ConditionalNorm


class ConditionalLayer(nn.Module):
    """The conditional modules of one layer; the layer itself stays in its encoder.

    With f what the layer's feed-forward part gives and a what it is given, the layer's output is
    Norm(f + Bottleneck(z, f) + a): Figure 3a of Pilault et al. (2021), with a detour beside f so
    that f survives.

    Args:
        attention: the bias on its attention scores.
        norms: what conditions its two norms.
        bottleneck: the detour beside its feed-forward part.
        side: the detour from its output to the side stream (Figure 3b), which the encoder runs.
    """

    def __init__(
        self,
        attention: ConditionalAttention | None = None,
        norms: Iterable[ConditionalNorm] = (),
        bottleneck: ConditionalBottleneck | None = None,
        side: ConditionalBottleneck | None = None,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList(norms)
        self.bottleneck = bottleneck
        self.side = side

    def forward(self, layer: Any, hidden: Tensor, mask: Tensor | None, codes: Tensor) -> Tensor:
        """Run a layer on sequences of several tasks.

        Args:
            layer: the encoder's own layer.
            hidden: its input, shape `(sequences, tokens, width)`.
            mask: true where there is a token, shape `(sequences, 1, 1, tokens)`; None if there
                is one everywhere.
            codes: the sequences' task embeddings, shape `(sequences, width)`.

        Returns:
            Its output, shape `(sequences, tokens, width)`.
        """
        if self.attention is not None:
            bias = self.attention(codes, hidden.shape[1])
            mask = bias if mask is None else bias.masked_fill(~mask, float("-inf"))
        if not self.norms and self.bottleneck is None:
            output: Tensor = layer(hidden, mask)
            return output
        attended, _ = layer.attention.self(hidden, mask)
        added = layer.attention.output
        middle = self._norm(0, layer, added.dropout(added.dense(attended)) + hidden, codes)
        fed = layer.output.dropout(layer.output.dense(layer.intermediate(middle)))
        if self.bottleneck is not None:
            fed = fed + self.bottleneck(fed, codes)
        return self._norm(1, layer, fed + middle, codes)

    def _norm(self, place: int, layer: Any, x: Tensor, codes: Tensor) -> Tensor:
        norm = norms_of(layer)[place]
        output: Tensor = self.norms[place](x, norm, codes) if self.norms else norm(x)
        return output
