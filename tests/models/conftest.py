"""A folder with a tiny BERT, which a test may damage."""

import shutil
from pathlib import Path

import pytest

from tiny_encoders import family


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT with two layers and its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny") / "bert"
    family("bert", folder)
    return folder


@pytest.fixture
def folder(tiny_bert: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(tiny_bert, tmp_path / "bert"))
