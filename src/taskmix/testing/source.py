"""The conformance kit of sources of rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import fields
from itertools import pairwise
from typing import Any, get_args

import numpy as np

from taskmix.tasks.rows import Row, Source


class SourceConformance(ABC):
    """The properties that every source of rows has, as pytest tests.

    A subclass makes the source, and another one with other content.

    >>> from taskmix.tasks.catalogue.digits import DigitsSource
    >>> class DigitsConform(SourceConformance):
    ...     def make(self):
    ...         return DigitsSource("left", "dev")
    ...     def other(self):
    ...         return DigitsSource("right", "dev")
    >>> DigitsConform().test_another_content_has_another_fingerprint()
    """

    @abstractmethod
    def make(self) -> Source:
        """Return a new source; each has the same rows."""

    @abstractmethod
    def other(self) -> Source:
        """Return a source with other rows; one other label is enough."""

    def test_reading_twice_gives_the_same_rows(self) -> None:
        source = self.make()
        first = _written(source.rows())
        assert _written(source.rows()) == first
        assert _written(self.make().rows()) == first

    def test_two_readings_at_once_do_not_disturb_each_other(self) -> None:
        source = self.make()
        expected = _written(source.rows())
        one, other = source.rows(), source.rows()
        assert iter(one) is one, "expected an iterator: rows are read as they are asked for"
        pairs = [(_fields(row), _fields(same)) for row, same in zip(one, other, strict=True)]
        assert pairs == [(row, row) for row in expected]

    def test_a_reading_that_was_broken_off_leaves_nothing_behind(self) -> None:
        source = self.make()
        expected = _written(source.rows())
        next(source.rows())
        assert _written(source.rows()) == expected

    def test_rows_are_of_one_form_that_kinds_know(self) -> None:
        """There is at least one row, and all have the same type."""
        forms = {type(row) for row in self.make().rows()}
        assert len(forms) == 1, f"expected rows of one form, found {forms}"
        assert forms <= set(get_args(Row))

    def test_places_ascend(self) -> None:
        """`at` is a row's place in its file, from 1; rows of one record may share it."""
        places = [row.at for row in self.make().rows()]
        assert all(type(at) is int for at in places)
        assert places[0] >= 1
        assert all(a <= b for a, b in pairwise(places))

    def test_the_fingerprint_is_stable(self) -> None:
        source = self.make()
        first = source.fingerprint()
        assert first
        list(source.rows())
        assert source.fingerprint() == first
        assert self.make().fingerprint() == first

    def test_another_content_has_another_fingerprint(self) -> None:
        """Encoded splits are cached under it."""
        assert _written(self.other().rows()) != _written(self.make().rows())
        assert self.other().fingerprint() != self.make().fingerprint()

    def test_skips_are_counts_by_rule(self) -> None:
        """The number of records that each documented rule skips; the same each time."""
        source = self.make()
        skips = dict(source.skips())
        assert all(type(rule) is str and count >= 0 for rule, count in skips.items())
        assert dict(source.skips()) == skips

    def test_it_says_where_its_rows_come_from(self) -> None:
        """Error messages about a row begin with it."""
        assert self.make().where.strip()


def _written(rows: Iterator[Row]) -> list[tuple[Any, ...]]:
    return [_fields(row) for row in rows]


def _fields(row: Row) -> tuple[Any, ...]:
    """Return the values of a row, arrays as bytes so that they can be compared."""
    values = (getattr(row, field.name) for field in fields(row))
    return tuple((v.shape, v.tobytes()) if isinstance(v, np.ndarray) else v for v in values)
