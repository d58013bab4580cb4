"""Readers of real file formats, one file a format."""

from bursar.tasks.readers.conll import Conll
from bursar.tasks.readers.csv import Csv
from bursar.tasks.readers.jsonl import Jsonl
from bursar.tasks.readers.mrqa import Mrqa
from bursar.tasks.readers.parquet import Parquet
from bursar.tasks.readers.record import FileRecord, Reader
from bursar.tasks.readers.squad import Squad
from bursar.tasks.readers.tsv import PlainTsv, Tsv

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
