"""The tokenizer of an exported model: what `AutoTokenizer` gives is what taskmix trained with."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend
from tokenizers import processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from taskmix.errors import UserError
from taskmix.tasks.kinds import Classify
from taskmix.tasks.rows import TextRow
from taskmix.tasks.tokenizer import Tokenizer

TYPES = "token_type_ids"


def export_tokenizer(folder: Path, tokenizer: Tokenizer, segments: bool) -> PreTrainedTokenizerFast:
    """Return the tokenizer for an exported folder.

    It pads and cuts on the right and at the length of the training, and gives the columns that the
    model reads, whatever its architecture's tokenizers usually do.

    Args:
        folder: where the trained model's tokenizer is.
        tokenizer: the one that the model was trained with.
        segments: whether the model reads which text a token is of.
    """
    special: dict[str, Any] = dict(AutoTokenizer.from_pretrained(folder).special_tokens_map)
    if "pad_token" not in special:
        # What stands behind the mask does not matter, but it must be a token that is in no text.
        special["pad_token"] = next(iter(special.values()), None)
    return PreTrainedTokenizerFast(
        tokenizer_object=_with_segments(tokenizer) if segments else _whole(tokenizer),
        model_max_length=tokenizer.max_length,
        padding_side="right",
        truncation_side="right",
        model_input_names=["input_ids", "attention_mask"] + [TYPES] * segments,
        **special,
    )


def check_tokenizer(folder: Path, tokenizer: Tokenizer, task: str) -> None:
    """Complain unless the tokenizer in a folder gives what the one of the training gives."""
    # The code beside an exported model says nothing of its tokenizer.
    loaded = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    texts = ["A cat.", "Who sat there, then?", "far, far away " * tokenizer.max_length]
    pairs = texts[::-1]
    found = loaded(texts, pairs, truncation=True)
    expected = [encoding.ids for encoding in tokenizer.encode(texts, pairs)]
    same = found["input_ids"] == expected
    if TYPES in found:
        types = [_types(tokenizer, text, pair) for text, pair in zip(texts, pairs, strict=True)]
        same = same and found[TYPES] == types
    if not same:
        raise UserError(
            f"task {task}: transformers would read this model's texts with another tokenizer "
            f"({type(loaded).__name__}) than it was trained with, so it cannot be exported"
        )


def _types(tokenizer: Tokenizer, text: str, pair: str | None) -> list[int]:
    """Return what the model was trained to see: 1 from where the second text starts."""
    columns = Classify(("no", "yes")).encode([TextRow(1, text, pair)], tokenizer, "probe")
    length, second = len(columns.ragged["input_ids"][0]), int(columns.per_sequence["second"][0])
    return [int(0 < second <= place) for place in range(length)]


def _whole(tokenizer: Tokenizer) -> Backend:
    """Return a copy of the backend that cuts nothing."""
    backend = Backend.from_str(tokenizer.backend.to_str())
    backend.no_truncation()
    return backend


def _with_segments(tokenizer: Tokenizer) -> Backend:
    """Return a copy of the backend, cutting nothing, whose token types are those of `_types`.

    Some tokenizers (RoBERTa's) give both texts of a pair the same type, some (Funnel's) give one of
    its own to a special token.
    """
    backend = _whole(tokenizer)
    probes = [(backend.encode("a"), _types(tokenizer, "a", None))]
    probes.append((backend.encode("a", "a"), _types(tokenizer, "a", "a")))
    if any(encoding.type_ids != types for encoding, types in probes):
        single, pair = (
            _template(encoding.tokens, encoding.sequence_ids, types) for encoding, types in probes
        )
        tokens = {token for token in (*single, *pair) if not token.startswith("$")}
        ids = [(name, backend.token_to_id(name)) for name in {t.rsplit(":", 1)[0] for t in tokens}]
        template = processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)
        backend.post_processor = processors.Sequence([*_trimming(backend), template])
    return backend


def _template(tokens: list[str], texts: list[int | None], types: list[int]) -> list[str]:
    """Return the frame around one or two texts, in the notation of `TemplateProcessing`."""
    names = [
        f"{token if text is None else '$' + 'AB'[text]}:{kind}"
        for token, text, kind in zip(tokens, texts, types, strict=True)
    ]
    # A text may be of several tokens and is one place of the frame.
    return [
        name
        for place, name in enumerate(names)
        if texts[place] is None or place == 0 or texts[place] != texts[place - 1]
    ]


def _trimming(backend: Backend) -> list[processors.ByteLevel]:
    """Return the step that leaves spaces out of a token's characters, if the backend has one."""
    step = json.loads(backend.to_str())["post_processor"] or {}
    for part in step.get("processors", [step]):
        if part.get("trim_offsets"):
            space = part.get("add_prefix_space", True)
            return [processors.ByteLevel(trim_offsets=True, add_prefix_space=space)]
    return []
