"""The model of AutoSeM: a BiLSTM over word vectors of a frozen pretrained encoder."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import PreTrainedModel

from taskmix.models.encoders import Encoder, Representation
from taskmix.tasks.batches import FROZEN_STATES
from taskmix.tasks.encoding import SECOND_TEXT


class BiLSTMEncoder(Encoder):
    """Reads each of a pair's texts with one BiLSTM, and compares the two.

    Guo, Pasunuru and Bansal (2019), section 3.1. A word vector is the weighted sum of all layers of
    a frozen pretrained encoder, which reads each text alone; the weights are trained. The paper
    does the same with ELMo. Both texts pass through the same BiLSTM; u and v are the maxima over
    their words, and the input of a head is (equation 1)

        h = [u; v; u * v; |u - v|],

    in which v is zero where there is one text. The weights of the layers are a free vector, as in
    the authors' code. The maximum is over words alone; theirs includes the zeros of the padding.

    The frozen states are rounded to half precision, with a cache, which it halves, and without.
    """

    def __init__(
        self, words: PreTrainedModel, hidden: int, depth: int = 2, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.words = words.requires_grad_(requires_grad=False).eval()
        self.layers = int(words.config.num_hidden_layers) + 1
        self.word_width = int(words.config.hidden_size)
        self.mix = nn.Parameter(torch.full((self.layers,), 1 / self.layers))
        self.lstm = nn.LSTM(
            self.word_width,
            hidden,
            depth,
            batch_first=True,
            bidirectional=True,
            dropout=dropout if depth > 1 else 0.0,
        )
        self.width = 2 * hidden

    @property
    def pooled_width(self) -> int:
        return 4 * self.width

    @property
    def state_width(self) -> int:
        """The width of the frozen states of a token."""
        return self.layers * self.word_width

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.words.eval()
        return self

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        mask = inputs["attention_mask"]
        texts = texts_of(mask, inputs.get(SECOND_TEXT))
        states = inputs.get(FROZEN_STATES)
        vectors = self.mixed(self.states(inputs) if states is None else states)
        tokens = vectors.new_zeros(*mask.shape, self.width)
        for text in texts:
            if text.present:
                tokens = text.scatter(self._read(text.gather(vectors), text.lengths), tokens)
        u, v = (text.maxima(tokens) for text in texts)
        return Representation(torch.cat([u, v, u * v, (u - v).abs()], dim=-1), tokens)

    @torch.no_grad()
    def states(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the states of all layers of the frozen encoder, which reads each text alone.

        The shape is `(sequences, tokens, state_width)`, in half precision; zero at the padding.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        states = torch.zeros(*mask.shape, self.state_width, dtype=torch.float16, device=mask.device)
        first, second = texts_of(mask, inputs.get(SECOND_TEXT))
        states = first.scatter(self._all_layers(first.gather(ids), first.lengths), states)
        if not second.present:
            return states
        # The second text gets the start token of a sequence, whose state is dropped again.
        with_start = torch.cat([ids[:, :1], second.gather(ids)], dim=1)
        layers = self._all_layers(with_start, second.lengths + 1)
        return second.scatter(layers[:, 1:], states)

    def mixed(self, states: Tensor) -> Tensor:
        """Return the word vectors: the weighted sum of the layers' states."""
        layers = states.unflatten(-1, (self.layers, self.word_width))
        return torch.einsum("btlw,l->btw", layers.to(self.mix.dtype), self.mix)

    def _all_layers(self, ids: Tensor, lengths: Tensor) -> Tensor:
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        output = self.words(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        return torch.cat(output.hidden_states, dim=-1).half()

    def _read(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the LSTM's outputs for left-aligned words."""
        packed = pack_padded_sequence(
            vectors, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=vectors.shape[1]
        )
        return outputs


@dataclass(frozen=True)
class Text:
    """The positions of the first or second text of each sequence."""

    inside: Tensor  # (sequences, tokens): whether a token is of this text
    order: Tensor  # (sequences, tokens): the positions of its tokens, then all others
    lengths: Tensor  # (sequences,): the number of its tokens

    @property
    def present(self) -> bool:
        """Whether any sequence has this text."""
        return bool(self.lengths.any())

    def gather(self, values: Tensor) -> Tensor:
        """Return the values of its tokens, left-aligned and padded to the longest."""
        order = self.order[:, : int(self.lengths.max())]
        index = order[(...,) + (None,) * (values.ndim - 2)]
        return values.gather(1, index.expand(*order.shape, *values.shape[2:]))

    def scatter(self, values: Tensor, into: Tensor) -> Tensor:
        """Return `into` with left-aligned values at the positions of its tokens."""
        index = self.order[:, : values.shape[1], None].expand_as(values)
        scattered = torch.zeros_like(into).scatter(1, index, values.to(into.dtype))
        return torch.where(self.inside[..., None], scattered, into)

    def maxima(self, tokens: Tensor) -> Tensor:
        """Return the maxima over its tokens, shape `(sequences, width)`; zero where it has none."""
        lowest = torch.finfo(tokens.dtype).min
        maxima = tokens.masked_fill(~self.inside[..., None], lowest).amax(1)
        return torch.where(self.lengths[:, None] > 0, maxima, torch.zeros_like(maxima))


def texts_of(mask: Tensor, second: Tensor | None) -> tuple[Text, Text]:
    """Return the positions of the first and the second text of each sequence.

    >>> mask, second = torch.tensor([[1, 1, 1, 0]]), torch.tensor([[0, 0, 1, 0]])
    >>> [text.lengths.tolist() for text in texts_of(mask, second)]
    [[2], [1]]
    """
    behind = torch.zeros_like(mask) if second is None else second
    first, other = (_text(mask.bool() & (behind == number)) for number in (0, 1))
    return first, other


def _text(inside: Tensor) -> Text:
    order = torch.argsort((~inside).to(torch.int8), dim=1, stable=True)
    return Text(inside, order, inside.sum(1))
