"""Parquet tables, through pyarrow."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from taskmix.errors import UserError
from taskmix.tasks.readers.lines import check_regular
from taskmix.tasks.readers.record import FileRecord


@dataclass(frozen=True)
class Parquet:
    """Reads Parquet tables; needs the extra `parquet`."""

    def records(self, path: Path) -> Iterator[FileRecord]:
        """Yield the records of a file in order, read batch by batch."""
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise UserError(f"{path}: needs pyarrow; pip install 'taskmix[parquet]'.") from None
        check_regular(path)
        at = 0
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(batch_size=1024):
                    for values in batch.to_pylist():
                        at += 1
                        yield FileRecord(str(path), at, values)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            reason = str(error).splitlines()[0].rstrip(".")
            raise UserError(f"{path}, row {at + 1}: not readable as Parquet ({reason}).") from None
