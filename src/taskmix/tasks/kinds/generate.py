"""What a text goes on with, token by token."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from taskmix.errors import UserError
from taskmix.tasks import metrics as m
from taskmix.tasks.column_map import ColumnMap
from taskmix.tasks.kinds.base import Columns, Kind, Scored
from taskmix.tasks.kinds.texts import only, reader
from taskmix.tasks.remembered import remembered
from taskmix.tasks.rows import PromptRow, Row, Source
from taskmix.tasks.shapes import Prompts, Shape

if TYPE_CHECKING:
    from torch import Tensor

    from taskmix.tasks.encoding import Encoded
    from taskmix.tasks.tokenizer import Ids, Tokenizer

NONE = -100


@dataclass(frozen=True, slots=True)
class Continued:
    """What a model says of one item.

    Args:
        loss: negative log-likelihood of what is to be said, summed over its tokens.
        tokens: how many tokens these are.
        misses: how many of them are not the most probable one.
        first: the most probable token after what is given.
        text: all that greedy decoding says after it; None where one pass was made and no more.
    """

    loss: float
    tokens: int
    misses: int
    first: int
    text: str | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """One item: its tokens, which of them are to be said, and from where a text would go on."""

    ids: "Ids"
    said: int
    until: int
    cut: bool = False


@dataclass(frozen=True)
class Generate(Kind):
    """The next token: of texts that are learned as a whole, or of the answers to prompts.

    The task has no head: a causal language model gives a number for each word of its vocabulary,
    and all tasks share these. The loss is the mean over the tokens that are to be said: all tokens
    of a text, or those of the answer, never those of the prompt. A token that ends the text, if the
    tokenizer has one, is to be said too.

    A text that is longer than the model reads is cut into pieces, each an item of its own that
    begins with the last token of the one before, so that every token is predicted once. A prompt
    that is longer than three quarters of that loses its beginning, an answer its end.

    Args:
        prompts: whether there are prompts, whose answers alone are to be said.
        longest: the most tokens that an answer or text of the training split has; `fit` finds it,
            and no prediction is longer.

    >>> Generate(prompts=True).usual_metrics()
    ('exact_match', 'perplexity')
    """

    name = "generate"
    asks = ()
    reads = "vocabulary"
    pads: ClassVar[Mapping[str, int]] = {"labels": NONE}
    held = frozenset({"row", "known"})
    targets = frozenset({"labels", "until"})
    mean_over = "decisions"
    metrics = (m.PERPLEXITY, m.GREEDY_MATCH)
    usual = ("perplexity",)
    prompts: bool = False
    longest: int = 0

    @classmethod
    def shape(cls, columns: ColumnMap) -> Shape:
        """Return texts, or prompts with their answers."""
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
        """Make the kind, with prompts if the training rows have any."""
        return cls(prompts=remembered("prompts", train, lambda: _any_prompt(train)))

    @property
    def width(self) -> int:
        """There is no head."""
        return 1

    def usual_metrics(self) -> tuple[str, ...]:
        """Return the perplexity, and with prompts the share of answers that are right."""
        return ("exact_match", "perplexity") if self.prompts else self.usual

    def encode(self, rows: Sequence[Row], tokenizer: "Tokenizer | None", where: str) -> Columns:
        """Token ids, those that are to be said, and where a prediction goes on."""
        asked = only(rows, PromptRow, where)
        words = reader(tokenizer, where)
        prompts, answers = words.continued(
            [row.prompt for row in asked], [row.answer or "" for row in asked]
        )
        found = [
            _pieces(words, prompt, answer, known=row.answer is not None)
            for row, prompt, answer in zip(asked, prompts, answers, strict=True)
        ]
        flat = [piece for of_row in found for piece in of_row]
        counts = [len(of_row) for of_row in found]
        return Columns(
            dense={
                "known": np.repeat([row.answer is not None for row in asked], counts),
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
        """Find the longest text or answer; somewhere there must be something to say."""
        said = np.add.reduceat(train.ragged["labels"] >= 0, train.offsets[:-1])
        if not said.any():
            raise UserError("the training split has no text to learn")
        return replace(self, longest=int(said.max()))

    def unlabelled(self, split: "Encoded") -> NDArray[np.bool_]:
        """Prompts whose answers are not known."""
        return ~np.asarray(split.dense["known"], dtype=np.bool_)

    def loss(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Cross-entropy, the mean over the tokens to be said; 0 where there are none."""
        return _losses(logits, batch).sum() / (batch["labels"][:, 1:] >= 0).sum().clamp(min=1)

    def distribution(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Softmax for every token to be said, shape `(tokens, vocabulary)`."""
        return logits[:, :-1][batch["labels"][:, 1:] >= 0].float().softmax(-1)

    def owners(self, batch: Mapping[str, "Tensor"]) -> "Tensor":
        """Return the item of each token to be said."""
        return (batch["labels"][:, 1:] >= 0).nonzero()[:, 0]

    def predictions(self, logits: "Tensor", batch: Mapping[str, "Tensor"]) -> list[Any]:
        """Return the loss, tokens and misses of each item, and the token after what is given."""
        import torch

        labels = batch["labels"][:, 1:]
        best = logits.argmax(-1)
        misses = ((best[:, :-1] != labels) & (labels >= 0)).sum(1)
        items = torch.arange(len(best), device=best.device)
        first = best[items, (batch["until"].long() - 1).clamp(min=0)]
        counts = torch.stack([(labels >= 0).sum(1), misses, first], dim=1).tolist()
        losses = _losses(logits, batch).double().sum(1).tolist()
        return [Continued(loss, *each) for loss, each in zip(losses, counts, strict=True)]

    def scored(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Summed loss, tokens and misses of each row, beside its answer."""
        items = np.array([(each.loss, each.tokens, each.misses) for each in raw])
        return Scored(_by_row(items, split), _answers(rows))

    def answers(self, raw: Sequence[Any], split: "Encoded", rows: Iterator[Row]) -> list[Any]:
        """Texts, where they were decoded; else the id of the first token."""
        last = np.flatnonzero(np.diff(split.dense["row"], append=-1))
        found = [raw[int(item)] for item in last]
        return [each.first if each.text is None else each.text for each in found]

    def baseline(self, train: "Encoded", split: "Encoded", rows: Iterator[Row]) -> Scored:
        """Return what each token's frequency in the training split earns, whatever precedes it.

        A token that is not there counts as one.
        """
        seen, asked = (np.asarray(each.ragged["labels"]) for each in (train, split))
        counts = np.bincount(seen[seen >= 0], minlength=int(asked.max(initial=0)) + 1) + 1
        losses = np.where(asked >= 0, -np.log(counts / counts.sum())[np.maximum(asked, 0)], 0.0)
        tokens = [losses, asked >= 0, (asked >= 0) & (asked != counts.argmax())]
        items = np.stack([np.add.reduceat(each, split.offsets[:-1]) for each in tokens], axis=1)
        return Scored(_by_row(items.astype(np.float64), split), _answers(rows))

    def columns_spec(self) -> dict[str, Any]:
        """Return all but the longest answer, which `fit` finds."""
        return {"kind": self.path(), "prompts": self.prompts}


def _losses(logits: "Tensor", batch: Mapping[str, "Tensor"]) -> "Tensor":
    """Return the loss of each token from the second on, shape `(items, tokens - 1)`."""
    from torch.nn.functional import cross_entropy

    labels = batch["labels"][:, 1:]
    flat = cross_entropy(
        logits[:, :-1].float().flatten(0, 1), labels.flatten(), ignore_index=NONE, reduction="none"
    )
    return flat.view_as(labels)


def _pieces(words: "Tokenizer", prompt: "Ids", answer: "Ids", known: bool) -> list[_Piece]:
    """Return the items of a row: one, or several of a long text that has no prompt."""
    room = words.max_length - len(words.start)
    most = room - room // 4
    before = np.concatenate([words.start, prompt[max(0, len(prompt) - most) :]])
    if not len(before) + len(answer):  # of nothing at all no model can go on
        before = np.array([words.end or 0], dtype=np.int64)
    if not known:
        return [_Piece(before, len(before), len(before), len(prompt) > most)]
    end = [] if words.end is None else [words.end]
    ids = np.concatenate([before, answer, end]).astype(np.int64)
    if not len(prompt):
        return _windows(ids, len(words.start), words.max_length, len(end))
    cut = len(prompt) > most or len(ids) > words.max_length
    return [_Piece(ids[: words.max_length], len(before), len(before), cut)]


def _windows(ids: "Ids", said: int, size: int, end: int) -> list[_Piece]:
    """Cut a text into pieces, of which each begins with the last token of the one before."""
    pieces = []
    for start in range(0, max(len(ids) - 1, 1), size - 1):
        piece = ids[start : start + size]
        ends = end if start + size >= len(ids) else 0
        pieces.append(_Piece(piece, 1 if start else said, len(piece) - ends))
    return pieces


def _labels(piece: _Piece) -> NDArray[np.int32]:
    labels = piece.ids.astype(np.int32)
    labels[: max(piece.said, 1)] = NONE  # nothing stands before the first token
    return labels


def _by_row(items: NDArray[np.float64], split: "Encoded") -> list[tuple[float, ...]]:
    """Return the sums over each row's items, shape `(items, numbers)`."""
    firsts = np.flatnonzero(np.diff(split.dense["row"], prepend=-1))
    return [tuple(each) for each in np.add.reduceat(items, firsts).tolist()]


def _any_prompt(train: Source) -> bool:
    return any(isinstance(row, PromptRow) and bool(row.prompt) for row in train.rows())


def _answers(rows: Iterator[Row]) -> list[str | None]:
    return [row.answer for row in rows if isinstance(row, PromptRow)]
