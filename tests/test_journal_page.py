"""What docs/journal.md says of the journal is so."""

from dataclasses import fields
from pathlib import Path

import pytest

from taskmix.journal import _RECORDS
from taskmix.policies.signals import MEASURED
from taskmix.records import Record

PAGE = (Path(__file__).parents[1] / "docs" / "journal.md").read_text()


@pytest.mark.parametrize("record", _RECORDS, ids=lambda record: record.kind)
def test_every_kind_and_field_of_the_journal_is_on_its_page(record: type[Record]) -> None:
    [row] = [line for line in PAGE.splitlines() if line.startswith(f"| `{record.kind}` |")]
    for field in fields(record):
        assert f"`{field.name}`" in row or field.name in MEASURED, field.name
