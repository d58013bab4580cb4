"""Generation: the next tokens of a text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.kinds.base import IGNORE_INDEX, Columns, Kind, Scored, cached_fact
from taskmix.tasks.kinds.texts import only, reader
from taskmix.tasks.rows import PromptRow, Row, Source
from taskmix.tasks.shapes import ColumnMap, Prompts, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Ids, Tokenizer


@dataclass(frozen=True, slots=True)
class Continued:
    """A model's prediction for one item."""

    loss: float  # negative log-likelihood, summed over the target tokens
    tokens: int  # the number of target tokens
    misses: int  # target tokens that are not the most probable one
    first: int  # the most probable token after the prompt
    text: str | None = None  # the greedily decoded continuation, if it was decoded


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """One item."""

    ids: "Ids"
    start: int  # index of the first target token
    until: int  # number of tokens before a continuation
    cut: bool = False


@dataclass(frozen=True)
class Generate(Kind):
    """The next token: of texts that are learned as a whole, or of the answers to prompts.

    The task has no head: all such tasks share the head of a causal language model. The loss is the
    mean over the target tokens: all tokens of a text, or those of the answer, never those of the
    prompt. The end token, if the tokenizer has one, is a target too.

    A text that is longer than the model's maximum is cut into pieces, each an item that begins with
    the last token of the one before, so that every token is predicted once. A prompt that is longer
    than three quarters of the maximum loses its beginning, an answer its end.
    """

    name = "generate"
    asks = ()
    reads = "vocabulary"
    pads: ClassVar[Mapping[str, int]] = {"labels": IGNORE_INDEX}
    held = frozenset({"row", "known"})
    targets = frozenset({"labels", "until"})
    mean_over = "decisions"
    metrics = (m.PERPLEXITY, m.GREEDY_MATCH)
    usual = ("perplexity",)
    prompts: bool = False  # whether there are prompts, whose answers alone are targets
    longest: int = 0  # tokens of the longest training text or answer, by `fit`; limits predictions

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        if columns.text and (columns.prompt or columns.answer):
            raise UserError("a generate task has `text`, or `prompt` and `answer`, found both.")
        if not columns.text and not (columns.prompt and columns.answer):
            raise UserError(
                "a generate task needs `text`, the column of texts that are learned as a whole, or "
                "`prompt` and `answer`."
            )
        return Prompts(columns.prompt, columns.text or columns.answer, columns.id)

    @classmethod
    def for_task(cls, labels: tuple[str, ...] | None, train: Source) -> Self:
        def any_prompt() -> bool:
            return any(isinstance(row, PromptRow) and bool(row.prompt) for row in train.rows())

        return cls(prompts=cached_fact("prompts", train, any_prompt))

    @property
    def width(self) -> int:
        return 1

    def usual_metrics(self) -> tuple[str, ...]:
        return ("exact_match", "perplexity") if self.prompts else self.usual

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        texts = only(rows, PromptRow, where)
        words = reader(tokenizer, where)
        prompts, answers = words.continued(
            [row.prompt for row in texts], [row.answer or "" for row in texts]
        )
        pieces = [
            _pieces(words, prompt, answer, known=row.answer is not None)
            for row, prompt, answer in zip(texts, prompts, answers, strict=True)
        ]
        flat = [piece for of_row in pieces for piece in of_row]
        counts = [len(of_row) for of_row in pieces]
        return Columns(
            dense={
                "known": np.repeat([row.answer is not None for row in texts], counts),
                "until": np.array([piece.until for piece in flat], dtype=np.int32),
                "cut": np.array([piece.cut for piece in flat]),
            },
            ragged={
                "input_ids": [piece.ids for piece in flat],
                "labels": [_labels(piece) for piece in flat],
            },
            items=counts,
        )

    def fit(self, train: "Encoded") -> Self:
        targets = np.add.reduceat(train.ragged["labels"] >= 0, train.offsets[:-1])
        if not targets.any():
            raise UserError("the training split has no text to learn")
        return replace(self, longest=int(targets.max()))

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        return ~np.asarray(split.dense["known"], dtype=np.bool_)

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        return _losses(logits, batch).sum() / (batch["labels"][:, 1:] >= 0).sum().clamp(min=1)

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        return logits[:, :-1][batch["labels"][:, 1:] >= 0].float().softmax(-1)

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        return (batch["labels"][:, 1:] >= 0).nonzero()[:, 0]

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        import torch

        labels = batch["labels"][:, 1:]
        best = logits.argmax(-1)
        misses = ((best[:, :-1] != labels) & (labels >= 0)).sum(1)
        items = torch.arange(len(best), device=best.device)
        first = best[items, (batch["until"].long() - 1).clamp(min=0)]
        counts = torch.stack([(labels >= 0).sum(1), misses, first], dim=1).tolist()
        losses = _losses(logits, batch).double().sum(1).tolist()
        return [Continued(loss, *row) for loss, row in zip(losses, counts, strict=True)]

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        items = np.array([(item.loss, item.tokens, item.misses) for item in raw])
        return Scored(_by_row(items, split), _answers(rows))

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        last = np.flatnonzero(np.diff(split.dense["row"], append=-1))
        rows_of_split = [raw[int(item)] for item in last]
        return [row.first if row.text is None else row.text for row in rows_of_split]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        # Each token's frequency in the training split; a token that is not there counts as one.
        known, labels = (np.asarray(part.ragged["labels"]) for part in (train, split))
        counts = np.bincount(known[known >= 0], minlength=int(labels.max(initial=0)) + 1) + 1
        losses = np.where(labels >= 0, -np.log(counts / counts.sum())[np.maximum(labels, 0)], 0.0)
        tokens = [losses, labels >= 0, (labels >= 0) & (labels != counts.argmax())]
        items = np.stack([np.add.reduceat(t, split.offsets[:-1]) for t in tokens], axis=1)
        return Scored(_by_row(items.astype(np.float64), split), _answers(rows))

    def columns_spec(self) -> dict[str, Any]:
        return {"kind": self.path(), "prompts": self.prompts}


def _losses(logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
    """Return the loss of each token after the first, shape `(items, tokens - 1)`."""
    from torch.nn.functional import cross_entropy

    labels = batch["labels"][:, 1:]
    flat_logits = logits[:, :-1].float().flatten(0, 1)
    return cross_entropy(flat_logits, labels.flatten(), reduction="none").view_as(labels)


def _pieces(words: "Tokenizer", prompt: "Ids", answer: "Ids", known: bool) -> list[_Piece]:
    """Return the items of a row: one, or several of a long text that has no prompt."""
    room = words.max_length - len(words.start)
    max_prompt = room - room // 4
    before = np.concatenate([words.start, prompt[max(0, len(prompt) - max_prompt) :]])
    if not len(before) + len(answer):  # a model needs at least one token
        before = np.array([words.end or 0], dtype=np.int64)
    if not known:
        return [_Piece(before, len(before), len(before), len(prompt) > max_prompt)]
    end = [] if words.end is None else [words.end]
    ids = np.concatenate([before, answer, end]).astype(np.int64)
    if not len(prompt):
        return _windows(ids, len(words.start), words.max_length, len(end))
    cut = len(prompt) > max_prompt or len(ids) > words.max_length
    return [_Piece(ids[: words.max_length], len(before), len(before), cut)]


def _windows(ids: "Ids", first_target: int, size: int, end: int) -> list[_Piece]:
    """Cut a text into pieces, of which each begins with the last token of the one before."""
    pieces = []
    for start in range(0, max(len(ids) - 1, 1), size - 1):
        piece = ids[start : start + size]
        ends = end if start + size >= len(ids) else 0
        pieces.append(_Piece(piece, 1 if start else first_target, len(piece) - ends))
    return pieces


def _labels(piece: _Piece) -> NDArray[np.int32]:
    labels = piece.ids.astype(np.int32)
    labels[: max(piece.start, 1)] = IGNORE_INDEX  # the first token has no context
    return labels


def _by_row(items: NDArray[np.float64], split: "Encoded") -> list[tuple[float, ...]]:
    """Sum `(items, numbers)` over the items of each row."""
    firsts = np.flatnonzero(np.diff(split.dense["row"], prepend=-1))
    return [tuple(row) for row in np.add.reduceat(items, firsts).tolist()]


def _answers(rows: Iterator[Row]) -> list[str | None]:
    return [row.answer for row in rows if isinstance(row, PromptRow)]
