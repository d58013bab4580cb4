"""WNUT 2017, emerging and rare entities (Derczynski et al. 2017), in CoNLL's format."""

from taskmix.tasks.catalogue.entry import FilesEntry, Layout
from taskmix.tasks.kinds import Tag
from taskmix.tasks.metrics import ENTITY_F1
from taskmix.tasks.readers import Conll
from taskmix.tasks.shapes import Words

ENTITIES = ("corporation", "creative-work", "group", "location", "person", "product")
LABELS = ("O", *(f"{part}-{entity}" for entity in ENTITIES for part in "BI"))

SIMPLE = {"train": "train.conll", "dev": "dev.conll", "test": "test.conll"}
OFFICIAL = {
    "train": "wnut17train.conll",
    "dev": "emerging.dev.conll",
    "test": "emerging.test.annotated",
}

WNUT = (
    FilesEntry(
        "wnut17",
        Tag(LABELS),
        (ENTITY_F1,),
        (
            Layout(SIMPLE, Conll(), Words(), ("wnut17",), unlabelled=frozenset()),
            Layout(OFFICIAL, Conll(), Words(), ("wnut17", "."), unlabelled=frozenset()),
        ),
    ),
)
