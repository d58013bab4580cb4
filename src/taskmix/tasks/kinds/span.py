"""Extractive question answering: a span of a context a row."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.kinds.base import IGNORE_INDEX, Array, Columns, Kind, Scored, cached_fact
from taskmix.tasks.kinds.texts import only, reader
from taskmix.tasks.metrics import normalised
from taskmix.tasks.rows import Answer, QuestionRow, Row, Source
from taskmix.tasks.shapes import ColumnMap, Questions, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Tokenizer, Window


@dataclass(frozen=True)
class Span(Kind):
    """The span of a context that answers a question, or nothing.

    A long context is cut into overlapping windows, each an item. Each token of a window has a logit
    of being the answer's start and one of being its end; the first token of the sequence means "not
    in this window". Start and end are two decisions, each a softmax over that token and the
    context's, and the loss is the mean of their negative log-likelihoods.

    The answer to a question is the most probable span of all its windows, no longer than `longest`.
    Where `no_answer` is allowed, it is empty if "not in this window" is more probable in every
    window.
    """

    name = "span"
    reads = "tokens"
    held = frozenset({"row", "chars"})
    targets = frozenset({"starts", "ends", "context"})
    metrics = (m.EXACT_MATCH, m.TOKEN_F1)
    usual = ("em", "f1")
    stride: int = 64  # tokens that neighbouring windows share
    no_answer: bool = False  # whether a context may hold no answer (SQuAD 2)
    longest: int = 30  # tokens of the longest answer

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        if not columns.pair:
            raise UserError("a span task needs `pair`, the column of the context.")
        return Questions(columns.text, columns.pair, columns.label, columns.id or "id")

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        def any_unanswered() -> bool:
            return any(isinstance(row, QuestionRow) and row.answers == () for row in train.rows())

        return cls(no_answer=cached_fact("unanswered", train, any_unanswered))

    def __post_init__(self) -> None:
        for name, least in (("stride", 0), ("longest", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name}: expected at least {least}, found {getattr(self, name)}")

    @property
    def width(self) -> int:
        return 2

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        questions = only(rows, QuestionRow, where)
        windows = reader(tokenizer, where).windows(
            [row.question for row in questions], [row.context for row in questions], self.stride
        )
        flat = [window for of_row in windows for window in of_row]
        spans = [
            [_span(row, window) for window in of_row]
            for row, of_row in zip(questions, windows, strict=True)
        ]
        counts = [len(of_row) for of_row in windows]
        starts, ends = np.array([span for of_row in spans for span in of_row], dtype=np.int64).T
        context = [(window.first, window.first + len(window.chars)) for window in flat]
        lost = [_lost(row, of_row) for row, of_row in zip(questions, spans, strict=True)]
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
        if not (train.dense["ends"] > 0).any():
            raise UserError("no window of the training split holds an answer")
        return self

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        return split.dense["starts"] < 0

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        from torch.nn.functional import cross_entropy

        starts, ends = _candidates(logits, batch)
        return (cross_entropy(starts, batch["starts"]) + cross_entropy(ends, batch["ends"])) / 2

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        import torch

        return torch.stack(_candidates(logits, batch), dim=1).flatten(0, 1).softmax(-1)

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        import torch

        starts = batch["starts"]
        return torch.arange(len(starts), device=starts.device).repeat_interleave(2)

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        import torch

        starts, ends = (values.log_softmax(-1) for values in _candidates(logits, batch))
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
        predicted, expected = [], []
        for windows, row in zip(_by_row(split), rows, strict=True):
            assert isinstance(row, QuestionRow)
            window, _ = self._best(windows, raw)
            predicted.append("" if window is None else _text(row, window, raw, split))
            expected.append(self._accepted(row))
        return Scored(predicted, expected)

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return list(self.scored(raw, split, rows).predicted)

    def probabilities(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        return [float(np.exp(self._best(windows, raw)[1])) for windows in _by_row(split)]

    def _best(self, windows: NDArray[np.int64], raw: Sequence[Any]) -> tuple[int | None, float]:
        """Return the window with a row's answer, None without an answer, and its score."""
        best = max(windows, key=lambda window: float(raw[window][2]))
        score = float(raw[best][2])
        nowhere = min(float(raw[window][3]) for window in windows)
        if np.isneginf(score) or (self.no_answer and nowhere > score):
            return None, nowhere
        return best, score

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        questions = [row for row in rows if isinstance(row, QuestionRow)]
        words = ["".join(row.context.split(maxsplit=1)[:1]) for row in questions]
        guesses = [""] * len(questions) if self.no_answer else words
        return Scored(guesses, [self._accepted(row) for row in questions])

    def _accepted(self, row: QuestionRow) -> tuple[str, ...]:
        """Return the texts that count as right; none where the question has no answer."""
        texts = row.accepted
        if texts is None:
            texts = tuple(answer.text for answer in row.answers or ())
        if self.no_answer:  # SQuAD 2's script passes over answers of nothing but articles.
            texts = tuple(text for text in texts if normalised(text))
        return tuple(dict.fromkeys(texts))

    def columns_spec(self) -> dict[str, Any]:
        return {"kind": self.path(), "stride": self.stride}


def _span(row: QuestionRow, window: "Window") -> tuple[int, int]:
    """Return the first and last token of the first answer inside the window, or `(0, 0)`."""
    if row.answers is None:
        return IGNORE_INDEX, IGNORE_INDEX
    spans = (_tokens_of(answer, window) for answer in row.answers)
    return next((span for span in spans if span is not None), (0, 0))


def _lost(row: QuestionRow, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a question has answers, but none inside a window."""
    return bool(row.answers) and all(span == (0, 0) for span in spans)


def _tokens_of(answer: Answer, window: "Window") -> tuple[int, int] | None:
    chars, end = window.chars, answer.start + len(answer.text)
    if not len(chars) or not answer.text or answer.start < chars[0, 0] or end > chars[-1, 1]:
        return None
    first = int(np.searchsorted(chars[:, 1], answer.start, side="right"))
    last = int(np.searchsorted(chars[:, 0], end, side="left")) - 1
    return (window.first + first, window.first + last) if first <= last else None


def _chars(window: "Window") -> Array:
    """Return the characters of each token, shape `(tokens, 2)`; zeros outside the context."""
    chars = np.zeros((len(window.ids), 2), dtype=np.int32)
    chars[window.first : window.first + len(window.chars)] = window.chars
    return chars


def _candidates(logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "tuple[Tensor, Tensor]":
    """Return the logits of start and end, each `(windows, tokens)`; masked outside the context."""
    import torch

    positions = torch.arange(logits.shape[1], device=logits.device)
    first, past = batch["context"].unsqueeze(-1).unbind(1)
    inside = (positions == 0) | ((positions >= first) & (positions < past))
    starts, ends = logits.float().masked_fill(~inside.unsqueeze(-1), -torch.inf).unbind(-1)
    return starts, ends


def _text(row: QuestionRow, window: int, raw: Sequence[Any], split: "Encoded") -> str:
    chars = split.ragged["chars"][split.offsets[window] : split.offsets[window + 1]]
    first, last = map(int, raw[window][:2])
    return row.context[chars[first, 0] : chars[last, 1]]


def _by_row(split: "Encoded") -> list[NDArray[np.int64]]:
    """Return the indices of each row's windows."""
    borders = np.flatnonzero(np.diff(split.dense["row"])) + 1
    return np.split(np.arange(len(split)), borders)
