"""Batch samplers that mix data sets by a policy: the core of every integration."""

from taskmix.mixing.decisions import Decisions
from taskmix.mixing.learnability import LearnabilityOrder, PromptLearnability
from taskmix.mixing.mixed import Item, Mixed, collate_by
from taskmix.mixing.mixer import Key, Mixer, Shard
from taskmix.mixing.orders import BatchOrder, ItemOrder
from taskmix.mixing.streams import Streams
from taskmix.mixing.tally import RandomState, Scorer, Settled, Tally

__all__ = [
    "BatchOrder",
    "Decisions",
    "Item",
    "ItemOrder",
    "Key",
    "LearnabilityOrder",
    "Mixed",
    "Mixer",
    "PromptLearnability",
    "RandomState",
    "Scorer",
    "Settled",
    "Shard",
    "Streams",
    "Tally",
    "collate_by",
]
