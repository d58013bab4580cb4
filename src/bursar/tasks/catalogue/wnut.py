"""WNUT 2017, emerging and rare entities (Derczynski et al. 2017), in CoNLL's format."""

from bursar.tasks.catalogue.entry import FilesEntry, Layout
from bursar.tasks.kinds import Tag
from bursar.tasks.metrics import ENTITY_F1
from bursar.tasks.readers import Conll
from bursar.tasks.shapes import Words

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
