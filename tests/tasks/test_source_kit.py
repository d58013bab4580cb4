"""Every source of the library passes the suite that it ships, with every reader and shape."""

import gzip
import json
from pathlib import Path
from struct import pack
from typing import ClassVar

import numpy as np
import pytest

from taskmix.tasks.catalogue.digits import DigitsSource
from taskmix.tasks.catalogue.multimnist import MultiMnistSource
from taskmix.tasks.hub import HubSource
from taskmix.tasks.parts import hold_out, some_rows
from taskmix.tasks.readers import Conll, Csv, Jsonl, Mrqa, Parquet, Squad, Tsv
from taskmix.tasks.shapes import Choices, Questions, Texts, Words
from taskmix.tasks.sources import FileSource
from taskmix.testing import SourceConformance


class OfFiles(SourceConformance):
    """A file of one content, and one of another."""

    reader: ClassVar
    shape: ClassVar
    suffix = ""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path
        for name, last in (("rows", "x"), ("others", "y")):
            (tmp_path / f"{name}{self.suffix}").write_bytes(self.content(last))

    def content(self, last):
        """A file's bytes; `last` stands for something in its last row."""
        return self.text(last).encode()

    def make(self):
        return FileSource(self.folder / f"rows{self.suffix}", self.reader, self.shape)

    def other(self):
        return FileSource(self.folder / f"others{self.suffix}", self.reader, self.shape)


class TestTsv(OfFiles):
    reader = Tsv()
    shape = Texts("text", label="label", unlabelled="-", broken=True)

    def text(self, last):
        return f"text\tlabel\none\ta\nbroken\nnone\t-\ntwo\tb\nthree\t{last}\n"


class TestCsv(OfFiles):
    reader = Csv()
    shape = Texts("text", "pair", "label", holds="number")

    def text(self, last):
        return f'text,pair,label\n"a, b",c,1\n"two\nlines",d,2\n{last},e,3\n'


class TestGzippedJsonl(OfFiles):
    reader = Jsonl()
    shape = Choices("text", ("one", "two"))
    suffix = ".gz"

    def content(self, last):
        rows = [{"text": str(i), "one": "a", "two": last, "label": i % 2} for i in range(4)]
        return gzip.compress("\n".join(map(json.dumps, rows)).encode(), mtime=0)


class TestParquet(OfFiles):
    reader = Parquet()
    shape = Texts("text", label="label")

    def content(self, last):
        import pyarrow as pa
        from pyarrow import parquet

        sink = pa.BufferOutputStream()
        table = pa.table({"text": ["one", "two", "three"], "label": ["a", "b", last]})
        parquet.write_table(table, sink)
        return sink.getvalue().to_pybytes()


class TestConll(OfFiles):
    reader = Conll()
    shape = Words()

    def text(self, last):
        return f"The\tO\ncat\tB\n\nIt\tO\n\nsat\t{last}\n"


class TestSquad(OfFiles):
    reader = Squad()
    shape = Questions()

    def text(self, last):
        asked = [
            {"id": str(i), "question": "what?", "answers": [{"text": "cat", "answer_start": 4}]}
            for i in range(3)
        ]
        paragraph = {"context": f"The cat {last}", "qas": asked}
        return json.dumps({"data": [{"paragraphs": [paragraph, paragraph]}]})


class TestMrqa(OfFiles):
    """Questions of one context share its line: places ascend, but not strictly."""

    reader = Mrqa()
    shape = Questions()

    def text(self, last):
        asked = [
            {
                "qid": f"{i}{last}",
                "question": "what?",
                "detected_answers": [{"text": "cat", "char_spans": [[4, 6]]}],
            }
            for i in range(3)
        ]
        line = json.dumps({"context": "The cat sat", "qas": asked})
        return "\n".join([json.dumps({"header": {}}), line, line])


class TestHeldOut(TestTsv):
    """What is left of a source, and what was held out of it."""

    def make(self):
        return hold_out(super().make(), 0.34)[0]

    def other(self):
        return hold_out(super().make(), 0.34)[1]


class TestSomeRows(TestTsv):
    def make(self):
        return some_rows(super().make(), 2)

    def other(self):
        return some_rows(super().other(), 2)


class TestHub(SourceConformance):
    def make(self, last="x"):
        from datasets import Dataset

        rows = Dataset.from_dict({"text": ["one", "two", "three"], "label": ["a", "b", last]})
        shape = Texts("text", label="label")
        return HubSource("mine, split train", shape, lambda: (rows, shape))

    def other(self):
        return self.make("y")


class TestDigits(SourceConformance):
    def make(self):
        return DigitsSource("larger", "train")

    def other(self):
        return DigitsSource("larger", "dev")


class TestMultiMnist(SourceConformance):
    @pytest.fixture(autouse=True)
    def _files(self, tmp_path):
        rng = np.random.default_rng(3)
        self.images, self.labels = tmp_path / "images", tmp_path / "labels"
        write_idx(self.images, rng.integers(256, size=(24, 28, 28)))
        write_idx(self.labels, np.arange(24) % 10)

    def make(self):
        return MultiMnistSource(self.images, self.labels, "left", "train")

    def other(self):
        return MultiMnistSource(self.images, self.labels, "left", "train", seed=1)


def write_idx(path: Path, array: np.ndarray) -> None:
    header = bytes([0, 0, 8, array.ndim]) + pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(header + array.astype(np.uint8).tobytes())
