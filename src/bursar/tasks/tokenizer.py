"""Texts to token ids, through the `tokenizers` library."""

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from tokenizers import Encoding, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Backend

from bursar.errors import UserError


class Tokenizer:
    """A fast tokenizer that cuts at `max_length`.

    Args:
        backend: the tokenizer proper, with its special tokens set up.
        max_length: the longest sequence it gives, special tokens included.
        pad_id: the id that fills short rows.
    """

    def __init__(self, backend: Backend, max_length: int, pad_id: int = 0) -> None:
        if max_length < 8:
            raise UserError(f"max_length: expected at least 8, found {max_length}")
        # A private copy: truncation is a setting of the backend, and callers differ in it.
        self.backend = Backend.from_str(backend.to_str())
        self.backend.no_padding()
        self.backend.enable_truncation(max_length, strategy="longest_first")
        self.max_length = max_length
        self.pad_id = pad_id

    @classmethod
    def from_folder(cls, folder: Path, max_length: int) -> Self:
        """The tokenizer saved in a model folder."""
        path = folder / "tokenizer.json"
        if not path.exists():
            raise UserError(f"{folder}: expected a tokenizer.json, found none")
        backend = Backend.from_file(str(path))
        return cls(backend, max_length, _pad_id(backend, folder))

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int, max_length: int) -> Self:
        """A lower-case WordPiece tokenizer learned from these texts."""
        backend = Backend(models.WordPiece(unk_token="[UNK]"))
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.WordPiece()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(
            vocab_size=vocabulary, special_tokens=special, show_progress=False
        )
        backend.train_from_iterator(texts, trainer)
        backend.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B:1 [SEP]:1",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        return cls(backend, max_length, pad_id=0)

    @property
    def vocabulary(self) -> int:
        """How many token ids there are."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def fingerprint(self) -> str:
        """Names what the tokenizer does to a text."""
        return blake2b(self.backend.to_str().encode(), digest_size=16).hexdigest()

    def encode(
        self, texts: Sequence[str], pairs: Sequence[str | None], *, offsets: bool = False
    ) -> list[Encoding]:
        """Texts, each with its pair if it has one; character offsets only where asked for."""
        inputs: list[Any] = [
            text if pair is None else (text, pair) for text, pair in zip(texts, pairs, strict=True)
        ]
        if offsets:
            return self.backend.encode_batch(inputs)
        return self.backend.encode_batch_fast(inputs)

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> list[Encoding]:
        """Sentences that are cut into words already."""
        return self.backend.encode_batch([list(words) for words in sentences], is_pretokenized=True)

    def windows(self, question: str, context: str, stride: int) -> list[Encoding]:
        """A question with each window of a long context; neighbours share `stride` tokens."""
        backend = Backend.from_str(self.backend.to_str())
        backend.enable_truncation(self.max_length, stride=stride, strategy="only_second")
        encoding = backend.encode(question, context)
        return [encoding, *encoding.overflowing]

    def save(self, folder: Path) -> None:
        """Write `tokenizer.json`."""
        self.backend.save(str(folder / "tokenizer.json"))


def _pad_id(backend: Backend, folder: Path) -> int:
    path = folder / "tokenizer_config.json"
    token = json.loads(path.read_text()).get("pad_token") if path.exists() else None
    if isinstance(token, dict):
        token = token.get("content")
    return int(backend.token_to_id(token or "[PAD]") or 0)
