"""Readers of real file formats."""

from taskmix.tasks.readers.base import FileRecord, Reader
from taskmix.tasks.readers.jsons import Jsonl, Mrqa, Squad
from taskmix.tasks.readers.tables import Conll, Csv, Parquet, PlainTsv, Tsv

__all__ = [
    "Conll",
    "Csv",
    "FileRecord",
    "Jsonl",
    "Mrqa",
    "Parquet",
    "PlainTsv",
    "Reader",
    "Squad",
    "Tsv",
]
