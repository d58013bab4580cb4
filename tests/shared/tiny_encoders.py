"""Tiny pretrained encoders of every family, with random weights and their tokenizers."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer as Backend
from tokenizers import models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from taskmix.models.encoders import quiet
from taskmix.models.spec import ModelSpec

LENGTH = 32
LONG = "A small brown dog ran far, far away from home. " * 4
TEXTS = ["The cat sat on a mat.", "Who?", LONG]
PAIRS = ["A cat ran home.", LONG, "Who sat far away?"]


def byte_level(name: str) -> Any:
    """A tokenizer of the kind that RoBERTa, GPT-2 and Qwen2 have."""
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|endoftext|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(TEXTS + PAIRS, trainer)
    model = json.loads(backend.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return getattr(transformers, name)(vocab=model["vocab"], merges=merges)


LETTERS = "abcdefghijklmnopqrstuvwxyz.,?"


def unigram(name: str) -> Any:
    """A tokenizer of the kind that ALBERT and DeBERTa have."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>"]
    pieces = [(token, 0.0) for token in special] + [("▁", -2.0), ("▁far", -1.0)]
    letters = [(letter, -3.0) for letter in LETTERS + LETTERS.upper()[:26]]
    return getattr(transformers, name)(vocab=pieces + letters)


def word_pieces(name: str) -> Any:
    """A tokenizer of the kind that BERT has."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [*special, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    vocab = {token: number for number, token in enumerate(tokens)}
    return getattr(transformers, name)(vocab=vocab)


def generic() -> PreTrainedTokenizerFast:
    """BERT's, saved as a generic fast tokenizer, which says nothing of token types."""
    bert = word_pieces("BertTokenizer")
    special = bert.special_tokens_map
    return PreTrainedTokenizerFast(tokenizer_object=bert.backend_tokenizer, **special)


SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64}
ATTENTION = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 8}
MODERN = {"pad_token_id": 1, "local_attention": 8, "global_attn_every_n_layers": 2}
FUNNEL = {"d_model": 32, "block_sizes": [1, 1], "n_head": 2, "d_head": 16, "d_inner": 64}
FAMILIES: dict[str, tuple[str, dict[str, Any], Any]] = {
    "bert": ("Bert", SIZES, lambda: word_pieces("BertTokenizer")),
    "bert, generic tokenizer": ("Bert", SIZES, generic),
    "distilbert": ("DistilBert", DISTILBERT, lambda: word_pieces("DistilBertTokenizer")),
    "electra": ("Electra", {**SIZES, "embedding_size": 16}, lambda: word_pieces("BertTokenizer")),
    "mpnet": ("MPNet", {**SIZES, "pad_token_id": 0}, lambda: word_pieces("BertTokenizer")),
    "roberta": ("Roberta", SIZES, lambda: byte_level("RobertaTokenizer")),
    "xlm-roberta": ("XLMRoberta", SIZES, lambda: unigram("XLMRobertaTokenizer")),
    "albert": ("Albert", {**SIZES, "embedding_size": 16}, lambda: unigram("AlbertTokenizer")),
    "deberta-v2": (
        "DebertaV2",
        {**SIZES, **ATTENTION},
        lambda: unigram("DebertaV2Tokenizer"),
    ),
    "modernbert": ("ModernBert", {**SIZES, **MODERN}, lambda: byte_level("RobertaTokenizer")),
    "eurobert": ("EuroBert", {**SIZES, "pad_token_id": 1}, lambda: byte_level("RobertaTokenizer")),
    "funnel": ("Funnel", FUNNEL, lambda: word_pieces("FunnelTokenizer")),
    "gpt2": ("GPT2", GPT2, lambda: byte_level("GPT2Tokenizer")),
    "qwen2": (
        "Qwen2",
        {**SIZES, "num_key_value_heads": 1},
        lambda: byte_level("Qwen2Tokenizer"),
    ),
    "llama": (
        "Llama",
        {**SIZES, "num_key_value_heads": 1},
        lambda: byte_level("GPT2Tokenizer"),
    ),
}


def family(name: str, folder: Path) -> ModelSpec:
    """A folder with a tiny encoder of a family, its weights random, and its tokenizer."""
    prefix, sizes, tokenizer = FAMILIES[name]
    with quiet():
        loaded = tokenizer()
        config = getattr(transformers, f"{prefix}Config")(**{**sizes, "vocab_size": len(loaded)})
        torch.manual_seed(1)
        getattr(transformers, f"{prefix}Model")(config).save_pretrained(folder)
        loaded.save_pretrained(folder)
    return ModelSpec(encoder=str(folder), max_length=LENGTH)
