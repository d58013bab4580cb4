"""A policy as a batch sampler over any data sets: the core of every integration."""

from bursar.mixing.decisions import Decisions
from bursar.mixing.mixed import Item, Mixed, collate_by
from bursar.mixing.mixer import Key, Mixer, Shard
from bursar.mixing.orders import BatchOrder, ItemOrder
from bursar.mixing.streams import Streams
from bursar.mixing.tally import RandomState, Settled, Tally

__all__ = [
    "BatchOrder",
    "Decisions",
    "Item",
    "ItemOrder",
    "Key",
    "Mixed",
    "Mixer",
    "RandomState",
    "Settled",
    "Shard",
    "Streams",
    "Tally",
    "collate_by",
]
