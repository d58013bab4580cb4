"""Readers of real file formats, one file a format."""

from taskmix.tasks.readers.conll import Conll
from taskmix.tasks.readers.csv import Csv
from taskmix.tasks.readers.jsonl import Jsonl
from taskmix.tasks.readers.mrqa import Mrqa
from taskmix.tasks.readers.parquet import Parquet
from taskmix.tasks.readers.record import FileRecord, Reader
from taskmix.tasks.readers.squad import Squad
from taskmix.tasks.readers.tsv import PlainTsv, Tsv

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
