"""A piece of a context a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.kinds.base import Array, Columns, Kind, Scored
from taskmix.tasks.kinds.texts import only, reader
from taskmix.tasks.metrics import normalised
from taskmix.tasks.remembered import remembered
from taskmix.tasks.rows import Answer, QuestionRow, Row, Source
from taskmix.tasks.shapes import Questions, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer, Window

UNLABELLED = -100


@dataclass(frozen=True)
class Span(Kind):
    """The piece of a context that answers a question, or nothing.

    A long context is cut into overlapping windows, each an item of its own. The model gives each
    token of a window a number for being the answer's first and one for being its last; the first
    token of the sequence stands for "not in this window". Start and end are two decisions, softmax
    over that token and the context's, and the loss is the mean of their negative log-likelihoods.

    The answer to a question is the most probable span of all its windows, no longer than
    `longest`. Where `no_answer` is allowed it is nothing if "not in this window" is more probable
    than that in every window.

    Args:
        stride: how many tokens neighbouring windows share.
        no_answer: whether a context may hold no answer (SQuAD 2).
        longest: the longest answer, in tokens.

    >>> Span().width
    2
    """

    name = "span"
    reads = "tokens"
    held = frozenset({"row", "chars"})
    targets = frozenset({"starts", "ends", "context"})
    metrics = (m.EXACT_MATCH, m.TOKEN_F1)
    usual = ("em", "f1")
    stride: int = 64
    no_answer: bool = False
    longest: int = 30

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return questions with their answers."""
        if not columns.pair:
            raise UserError("a span task needs `pair`, the column of the context.")
        return Questions(columns.text, columns.pair, columns.label, columns.id or "id")

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        """Make the kind, with questions without an answer if the training rows have any."""
        return cls(no_answer=remembered("unanswered", train, lambda: _any_unanswered(train)))

    def __post_init__(self) -> None:
        for name, least in (("stride", 0), ("longest", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: expected at least {least}, found {getattr(self, name)}")

    @property
    def width(self) -> int:
        """Start and end."""
        return 2

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Windows: token ids, the answer's tokens, the context's tokens and their characters."""
        asked = only(rows, QuestionRow, where)
        windows = reader(tokenizer, where).windows(
            [row.question for row in asked], [row.context for row in asked], self.stride
        )
        flat = [window for of_row in windows for window in of_row]
        spans = [
            [_span(row, window) for window in of_row]
            for row, of_row in zip(asked, windows, strict=True)
        ]
        counts = [len(of_row) for of_row in windows]
        starts, ends = np.array([span for of_row in spans for span in of_row], dtype=np.int64).T
        context = [(window.first, window.first + len(window.chars)) for window in flat]
        lost = [_lost(row, of_row) for row, of_row in zip(asked, spans, strict=True)]
        return Columns(
            dense={
                "starts": starts,
                "ends": ends,
                "context": np.array(context, dtype=np.int32),
                "cut": np.array([window.cut for window in flat]),
                "lost": np.repeat(lost, counts),
            },
            ragged={
                "input_ids": [window.ids for window in flat],
                "chars": [_chars(window) for window in flat],
            },
            per_sequence={"second": np.array([window.first for window in flat], dtype=np.int32)},
            items=counts,
        )

    def fit(self, train: "Encoded") -> Self:
        """Nothing to learn, but somewhere there must be an answer."""
        if not (train.dense["ends"] > 0).any():
            raise UserError("no window of the training split holds an answer")
        return self

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        """Windows of questions whose answers are not published."""
        return split.dense["starts"] < 0

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Mean of the cross-entropies of start and end."""
        from torch.nn.functional import cross_entropy

        starts, ends = _candidates(logits, batch)
        return (cross_entropy(starts, batch["starts"]) + cross_entropy(ends, batch["ends"])) / 2

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Softmax of start, then end, of each window, shape `(2 * windows, tokens)`."""
        import torch

        return torch.stack(_candidates(logits, batch), dim=1).flatten(0, 1).softmax(-1)

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Start and end of each window."""
        import torch

        starts = batch["starts"]
        return torch.arange(len(starts), device=starts.device).repeat_interleave(2)

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """First and last token of the best span, its log-probability, and that of none."""
        import torch

        starts, ends = (each.log_softmax(-1) for each in _candidates(logits, batch))
        none = starts[:, 0] + ends[:, 0]
        starts[:, 0] = -torch.inf
        reach = torch.nn.functional.pad(ends, (0, self.longest - 1), value=-torch.inf)
        # spans[w, i, d]: from token i to token i + d.
        spans = starts.unsqueeze(-1) + reach.unfold(1, self.longest, 1)
        score, place = spans.flatten(1).max(dim=1)
        first = place // self.longest
        last = first + place % self.longest
        return list(torch.stack([first, last, score, none], dim=1).cpu().double().numpy())

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Texts, beside all that count as right; none do where there is no answer."""
        return self._beside(raw, split, rows)

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Texts; empty ones for no answer."""
        return list(self._beside(raw, split, rows).predicted)

    def probabilities(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Return the probability of the answer in its window."""
        return [self._certainty(windows, raw) for windows in _by_row(split)]

    def _certainty(self, windows: NDArray[np.int64], raw: Sequence[Any]) -> float:
        best = max(float(raw[window][2]) for window in windows)
        nowhere = min(float(raw[window][3]) for window in windows)
        silent = np.isneginf(best) or (self.no_answer and nowhere > best)
        return float(np.exp(nowhere if silent else best))

    def _beside(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        predicted, expected = [], []
        for windows, row in zip(_by_row(split), rows, strict=True):
            assert isinstance(row, QuestionRow)
            start, end = self._characters(windows, raw, split)
            predicted.append(row.context[start:end])
            expected.append(self._accepted(row))
        return Scored(predicted, expected)

    def _characters(
        self, windows: NDArray[np.int64], raw: Sequence[Any], split: "Encoded"
    ) -> tuple[int, int]:
        """Return where a row's answer stands in its context; `(0, 0)` if there is none."""
        best = max(windows, key=lambda window: float(raw[window][2]))
        first, last, score, _ = raw[best]
        nowhere = min(float(raw[window][3]) for window in windows)
        if np.isneginf(score) or (self.no_answer and nowhere > score):
            return 0, 0
        chars = split.ragged["chars"][split.offsets[best] : split.offsets[best + 1]]
        return int(chars[int(first), 0]), int(chars[int(last), 1])

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        """No answer where that is allowed, or else the context's first word."""
        asked = [row for row in rows if isinstance(row, QuestionRow)]
        words = ["".join(row.context.split(maxsplit=1)[:1]) for row in asked]
        guesses = [""] * len(asked) if self.no_answer else words
        return Scored(guesses, [self._accepted(row) for row in asked])

    def _accepted(self, row: QuestionRow) -> tuple[str, ...]:
        """Return the texts that count as right; none do where the question has no answer."""
        texts = row.accepted
        if texts is None:
            texts = tuple(answer.text for answer in row.answers or ())
        if self.no_answer:  # SQuAD 2's script passes over answers of nothing but articles.
            texts = tuple(text for text in texts if normalised(text))
        return tuple(dict.fromkeys(texts))

    def columns_spec(self) -> dict[str, Any]:
        """Name and stride."""
        return {"kind": self.path(), "stride": self.stride}


def _any_unanswered(train: Source) -> bool:
    return any(isinstance(row, QuestionRow) and row.answers == () for row in train.rows())


def _span(row: QuestionRow, window: "Window") -> tuple[int, int]:
    """First and last token of the first answer that the window holds whole, or `(0, 0)`."""
    if row.answers is None:
        return UNLABELLED, UNLABELLED
    found = (_tokens_of(answer, window) for answer in row.answers)
    return next((span for span in found if span is not None), (0, 0))


def _lost(row: QuestionRow, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a question has answers, but none that a window holds whole."""
    return bool(row.answers) and all(span == (0, 0) for span in spans)


def _tokens_of(answer: Answer, window: "Window") -> tuple[int, int] | None:
    chars, end = window.chars, answer.start + len(answer.text)
    if not len(chars) or not answer.text or answer.start < chars[0, 0] or end > chars[-1, 1]:
        return None
    first = int(np.searchsorted(chars[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(chars[:, 0], end, side="left")) - 1
    return (window.first + first, window.first + last) if first <= last else None


def _chars(window: "Window") -> Array:
    """Characters of each token of the sequence, shape `(tokens, 2)`; zeros outside the context."""
    chars = np.zeros((len(window.ids), 2), dtype=np.int32)
    chars[window.first : window.first + len(window.chars)] = window.chars
    return chars


def _candidates(logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "tuple[Tensor, Tensor]":
    """Logits of start and of end, each `(windows, tokens)`; only the context and token 0 count."""
    import torch

    positions = torch.arange(logits.shape[1], device=logits.device)
    first, past = batch["context"].unsqueeze(-1).unbind(1)
    inside = (positions == 0) | ((positions >= first) & (positions < past))
    starts, ends = logits.float().masked_fill(~inside.unsqueeze(-1), -torch.inf).unbind(-1)
    return starts, ends


def _by_row(split: "Encoded") -> list[NDArray[np.int64]]:
    """Return the windows of each row, in order."""
    borders = np.flatnonzero(np.diff(split.dense["row"])) + 1
    return np.split(np.arange(len(split)), borders)
