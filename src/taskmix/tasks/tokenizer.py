"""Texts to token ids, through the `tokenizers` library."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from taskmix.errors import UserError
from taskmix.files import hash_of, read_json

Ids = NDArray[np.int64]
PAD, START, END = "<|pad|>", "<|start|>", "<|end|>"
"""The special tokens of a tokenizer trained for a model that generates."""


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A question with a window of its context."""

    ids: Ids
    first: int  # index of the context's first token in `ids`
    chars: NDArray[np.int32]  # (window, 2): the characters of each token in the context
    cut: bool = False  # whether the question was cut


class Tokenizer:
    """A fast tokenizer that cuts at `max_length`."""

    def __init__(
        self, backend: Backend, max_length: int, pad_id: int = 0, end: int | None = None
    ) -> None:
        if max_length < 8:
            raise UserError(f"max_length: expected at least 8, found {max_length}")
        # A private copy: truncation is a setting of the backend, and callers differ in it.
        self.backend = Backend.from_str(backend.to_str())
        self.backend.no_padding()
        self.backend.enable_truncation(max_length, strategy="longest_first")
        self.max_length = max_length
        self.pad_id = pad_id
        self.end = end

    @classmethod
    def from_folder(cls, folder: Path, max_length: int) -> Self:
        """Load the tokenizer of a model folder."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise UserError(f"{folder}: expected a tokenizer.json, found none")
        backend = Backend.from_file(str(path))
        return cls(backend, max_length, _pad_id(backend, folder), backend.token_to_id(END))

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int, max_length: int) -> Self:
        """Train a lower-case tokenizer: byte-pair encoding of words, each with a mark in front."""
        # The library's WordPiece trainer numbers its pieces in the order of a hash map, and so
        # gives another vocabulary each time.
        backend = Backend(models.BPE(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        mark = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), mark])
        backend.decoder = decoders.Metaspace()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary, special_tokens=special, show_progress=False
        )
        backend.train_from_iterator(texts, trainer)
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        return cls(backend, max_length, pad_id=0)

    @classmethod
    def train_generator(cls, texts: Iterable[str], vocabulary: int, max_length: int) -> Self:
        """Train a tokenizer for a model that generates: byte-pair encoding of bytes, lossless."""
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[PAD, START, END],
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        backend.post_processor = processors.TemplateProcessing(
            single=f"{START} $A", pair=f"{START} $A $B", special_tokens=[(START, 1)]
        )
        return cls(backend, max_length, pad_id=0, end=2)

    @property
    def vocabulary(self) -> int:
        """The number of token ids."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def fingerprint(self) -> str:
        """Return a hash of the tokenizer's function, computed once."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        end = "" if self.end is None else f"\x1f{self.end}"
        return hash_of(self.backend.to_str() + end)

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str | None], *, offsets: bool = False
    ) -> list[Encoding]:
        """Encode texts, each with its pair if it has one; character offsets cost more time."""
        inputs: list[Any] = [
            text if pair is None else (text, pair) for text, pair in zip(texts, pairs, strict=True)
        ]
        if offsets:
            return self.backend.encode_batch(inputs)
        return self.backend.encode_batch_fast(inputs)

    def continued(
        self, prompts: Sequence[str], answers: Sequence[str]
    ) -> "tuple[list[Ids], list[Ids]]":
        """Return the tokens of prompts, and of the answers that follow, without special tokens.

        A space separates the two, where a prompt does not end with one.
        """
        joined = [_joined(*pair) for pair in zip(prompts, answers, strict=True)]
        prompt_ids, joined_ids, answer_ids = map(self._ids, (prompts, joined, answers))
        following = [
            both[len(prompt) :] if np.array_equal(both[: len(prompt)], prompt) else answer
            for prompt, both, answer in zip(prompt_ids, joined_ids, answer_ids, strict=True)
        ]
        return prompt_ids, following

    def _ids(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._untruncated.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]

    def text(self, ids: Sequence[int]) -> str:
        """Decode tokens, special ones left out."""
        return str(self.backend.decode(list(ids), skip_special_tokens=True))

    @cached_property
    def start(self) -> Ids:
        """The special tokens before a text, shape `(tokens,)`."""
        probe = self._untruncated.encode("a")
        return np.array(probe.ids[: probe.sequence_ids.index(0)], dtype=np.int64)

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoding]:
        """Encode sentences that are split into words already."""
        return self.backend.encode_batch([list(words) for words in sentences], is_pretokenized=True)

    def windows(
        self, questions: Sequence[str], contexts: Sequence[str], stride: int
    ) -> list[list[Window]]:
        """Return each question with every window of its context; neighbours share `stride` tokens.

        A question is cut at half of the maximum length; neighbours share at most half a window.
        """
        different = list(dict.fromkeys(contexts))
        encodings = self._untruncated.encode_batch(different, add_special_tokens=False)
        encoded = dict(zip(different, map(_with_chars, encodings), strict=True))
        return [
            list(self._windows(question, *encoded[context], stride))
            for question, context in zip(self._ids(questions), contexts, strict=True)
        ]

    def _windows(
        self, question: Ids, context: Ids, chars: NDArray[np.int32], stride: int
    ) -> Iterator[Window]:
        frame = self._frame
        limit = (self.max_length - frame.size) // 2
        cut = len(question) > limit
        question = question[:limit]
        room = self.max_length - frame.size - len(question)
        before = np.concatenate([frame.before, question, frame.between])
        step = room - min(stride, room // 2)
        for start in range(0, max(1, len(context) - room + step), step):
            piece = context[start : start + room]
            ids = np.concatenate([before, piece, frame.after])
            yield Window(ids, len(before), chars[start : start + room], cut)

    @property
    def segments(self) -> bool:
        """Whether the second text of a pair is a segment, with a token type of its own."""
        return self._frame.segments

    def untruncated(self) -> Backend:
        """Return a copy of the backend without truncation."""
        backend = Backend.from_str(self.backend.to_str())
        backend.no_truncation()
        return backend

    _untruncated = cached_property(untruncated)

    @cached_property
    def _frame(self) -> "_Frame":
        probe = self._untruncated.encode("a", "a")
        texts = probe.sequence_ids
        first, second = texts.index(0), texts.index(1)
        past_first, past_second = (len(texts) - texts[::-1].index(text) for text in (0, 1))
        ids = np.array(probe.ids, dtype=np.int64)
        return _Frame(
            ids[:first], ids[past_first:second], ids[past_second:], probe.type_ids[second] == 1
        )

    def save(self, folder: Path) -> None:
        # The library's own way to save raises a bare Exception on a full disk.
        text = self.backend.to_str(pretty=True)
        (folder / "tokenizer.json").write_text(text, encoding="utf-8")


@dataclass(frozen=True, slots=True, eq=False)
class _Frame:
    """The special tokens around two texts, and whether the second is a segment of its own."""

    before: Ids
    between: Ids
    after: Ids
    segments: bool

    @property
    def size(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


def _joined(prompt: str, answer: str) -> str:
    return prompt + answer if not prompt or prompt[-1:].isspace() else f"{prompt} {answer}"


def _with_chars(encoding: Encoding) -> tuple[Ids, NDArray[np.int32]]:
    chars = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
    return np.array(encoding.ids, dtype=np.int64), chars


def _pad_id(backend: Backend, folder: Path) -> int:
    path = folder / "tokenizer_config.json"
    token = read_json(path, "a tokenizer's settings").get("pad_token") if path.exists() else None
    if isinstance(token, dict):
        token = token.get("content")
    return int(backend.token_to_id(token or "[PAD]") or 0)
