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
from taskmix.tasks.encoding import SECOND


class BiLSTMEncoder(Encoder):
    """Reads each of a pair's texts with one BiLSTM, and compares the two.

    Guo, Pasunuru and Bansal (2019), section 3.1. A word vector is the sum of all layers of a frozen
    pretrained encoder, each text read by itself, with trained weights: what the paper does with
    ELMo. Both texts go through the same BiLSTM; u and v are the maxima over their words, and what a
    head sees is (equation 1)

        h = [u; v; u * v; |u - v|],

    in which v is zero where there is one text. The weights of the layers are a free vector, as in
    the authors' code. The maximum is over words alone; theirs has the padding's zeros in it.

    The frozen states are in half precision, so that a cache of them takes half the room; without a
    cache they are rounded alike.

    Args:
        words: the pretrained encoder; it is not trained.
        hidden: units of the LSTM in each direction; the paper has 512, and 1024 for RTE.
        depth: layers of the LSTM; the paper has 2.
        dropout: between them.
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
        """How many numbers stand for a pair."""
        return 4 * self.width

    @property
    def state_width(self) -> int:
        """How many numbers the frozen encoder gives for a token."""
        return self.layers * self.word_width

    def train(self, mode: bool = True) -> Self:
        """Turn dropout on or off, but in the frozen encoder."""
        super().train(mode)
        self.words.eval()
        return self

    def forward(self, inputs: Mapping[str, Tensor]) -> Representation:
        """Return the LSTM's token vectors, and the comparison of the two texts."""
        mask = inputs["attention_mask"]
        texts = texts_of(mask, inputs.get(SECOND))
        states = inputs.get(FROZEN_STATES)
        vectors = self.mixed(self.states(inputs) if states is None else states)
        tokens = vectors.new_zeros(*mask.shape, self.width)
        for text in texts:
            if text.some:
                tokens = text.put(self._read(text.taken(vectors), text.lengths), tokens)
        u, v = (text.largest(tokens) for text in texts)
        return Representation(torch.cat([u, v, u * v, (u - v).abs()], dim=-1), tokens)

    @torch.no_grad()
    def states(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return what all layers of the frozen encoder give, each text read by itself.

        Args:
            inputs: of a batch.

        Returns:
            half precision, shape `(sequences, tokens, state_width)`; zero at the padding.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        found = torch.zeros(*mask.shape, self.state_width, dtype=torch.float16, device=mask.device)
        first, second = texts_of(mask, inputs.get(SECOND))
        found = first.put(self._layers_of(first.taken(ids), first.lengths), found)
        if not second.some:
            return found
        # The second text gets the token that every text begins with, and loses its state again.
        begun = torch.cat([ids[:, :1], second.taken(ids)], dim=1)
        return second.put(self._layers_of(begun, second.lengths + 1)[:, 1:], found)

    def mixed(self, states: Tensor) -> Tensor:
        """Return the word vectors: the layers' states in their weighted sum.

        Args:
            states: as `states` gives them.
        """
        layers = states.unflatten(-1, (self.layers, self.word_width))
        return torch.einsum("btlw,l->btw", layers.to(self.mix.dtype), self.mix)

    def _layers_of(self, ids: Tensor, lengths: Tensor) -> Tensor:
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        output = self.words(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        return torch.cat(output.hidden_states, dim=-1).half()

    def _read(self, vectors: Tensor, lengths: Tensor) -> Tensor:
        """Return the LSTM's outputs for words at the front of each row."""
        packed = pack_padded_sequence(
            vectors, lengths.clamp(min=1).cpu(), batch_first=True, enforce_sorted=False
        )
        outputs, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=vectors.shape[1]
        )
        return outputs


@dataclass(frozen=True)
class Text:
    """Where one of the texts of each sequence stands in it.

    Args:
        inside: whether a token is of this text, shape `(sequences, tokens)`.
        order: the places of its tokens, then all others, shape `(sequences, tokens)`.
        lengths: how many tokens it has, shape `(sequences,)`.
    """

    inside: Tensor
    order: Tensor
    lengths: Tensor

    @property
    def some(self) -> bool:
        """Whether any sequence has this text."""
        return bool(self.lengths.any())

    def taken(self, values: Tensor) -> Tensor:
        """Return the values of its tokens at the front of each row, as long as the longest."""
        order = self.order[:, : int(self.lengths.max())]
        index = order[(...,) + (None,) * (values.ndim - 2)]
        return values.gather(1, index.expand(*order.shape, *values.shape[2:]))

    def put(self, values: Tensor, into: Tensor) -> Tensor:
        """Return `into` with the values of its tokens at their places.

        Args:
            values: at the front of each row, as `taken` gives them.
            into: shape `(sequences, tokens, width)`.
        """
        index = self.order[:, : values.shape[1], None].expand_as(values)
        scattered = torch.zeros_like(into).scatter(1, index, values.to(into.dtype))
        return torch.where(self.inside[..., None], scattered, into)

    def largest(self, tokens: Tensor) -> Tensor:
        """Return the maxima over its tokens, shape `(sequences, width)`; zero where it has none."""
        least = torch.finfo(tokens.dtype).min
        found = tokens.masked_fill(~self.inside[..., None], least).amax(1)
        return torch.where(self.lengths[:, None] > 0, found, torch.zeros_like(found))


def texts_of(mask: Tensor, second: Tensor | None) -> tuple[Text, Text]:
    """Return where the first and the second text of each sequence stand.

    Args:
        mask: 1 where there is a token, shape `(sequences, tokens)`.
        second: 1 where it is of the second text; None if there is none.

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
