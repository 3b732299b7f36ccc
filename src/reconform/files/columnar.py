"""Parquet and Arrow files: formats whose columns have types."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import InputError
from .column_types import plain_schema, plain_tables, words
from .pages import check_batches, check_pages

# Pages of a column chunk are read through a buffer of this size: a file that is one huge row
# group must not be in memory at once.
PARQUET_BUFFER = 1 << 20

# A Parquet file that is not larger is read at once: in a wide table a read per column is slow.
SMALL_FILE = 1 << 24

# Of headers that are not whole, or point anywhere.
LOST = (struct.error, IndexError, RecursionError)

# Batches of an Arrow file are read one by one. Where they are larger than this the file is mapped
# instead, and the system decides what part of it stays in memory.
LARGE_BATCH = 1 << 28


class ParquetSource:
    """A Parquet file."""

    is_text = False

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        self._metadata: Any = None
        self._texts: list[str] = []
        self._checked: set[str] = set()
        with _open_as(label, "Parquet"):
            small = path.stat().st_size <= SMALL_FILE
            self._content = pa.py_buffer(path.read_bytes()) if small else None
            self._metadata = self._open().metadata
            self.rows: int | None = self._metadata.num_rows
            # A cell that stands in many rows is in memory once: see `plain_tables`.
            leaves = map(self._metadata.schema.column, range(len(self._metadata.schema)))
            self._texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            file = self._open()
            self.schema = plain_schema(file.schema_arrow)
            self._in_memory = file if small else None

    def _open(self) -> Any:
        if self._content is not None:
            place, how = pa.BufferReader(self._content), {}
        else:
            place = pa.OSFile(os.fsencode(self.path))
            how = {"pre_buffer": False, "buffer_size": PARQUET_BUFFER}
        return pq.ParquetFile(place, metadata=self._metadata, read_dictionary=self._texts, **how)

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of at most `rows` rows."""
        with _open_as(self.label, "Parquet"):
            file, wanted = self._in_memory or self._open(), list(columns)
            unchecked = [name for name in wanted if name not in self._checked]
            if unchecked:
                with self.path.open("rb") as raw:
                    check_pages(self.label, raw, self._metadata, unchecked)
                self._checked.update(unchecked)
            if file.metadata.num_row_groups == 1 and file.metadata.num_rows <= rows:
                # As one piece, which takes a third less time where there are very many columns.
                batches = file.read(columns=wanted, use_threads=False).to_batches()
            else:
                batches = file.iter_batches(batch_size=rows, columns=wanted)
            for batch in batches:
                yield from plain_tables(batch)

    def line(self, row: int) -> int | None:
        """Return None: the format has no lines."""
        return None


class ArrowSource:
    """An Arrow IPC file, which is also Feather, or an Arrow IPC stream."""

    is_text = False
    rows: int | None = None

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        with self._reader() as reader:
            self.schema = plain_schema(reader.schema)
        with _open_as(label, "Arrow"), pa.memory_map(os.fsencode(path)) as file:
            check_batches(label, memoryview(file.read_buffer()).cast("B"))

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with _open_as(self.label, "Arrow"), ExitStack() as stack:
            file = stack.enter_context(pa.OSFile(os.fsencode(self.path)))
            try:
                reader = pa.ipc.open_file(file)
            except pa.ArrowInvalid:  # no footer: perhaps a stream
                file.seek(0)
                yield stack.enter_context(pa.ipc.open_stream(file))
                return
            if self.path.stat().st_size > LARGE_BATCH * max(1, reader.num_record_batches):
                reader = pa.ipc.open_file(
                    stack.enter_context(pa.memory_map(os.fsencode(self.path)))
                )
            yield reader

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of at most `rows` rows."""
        with self._reader() as reader:
            if isinstance(reader, pa.RecordBatchFileReader):
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:
                batches = iter(reader)
            for batch in batches:
                wanted = batch.select(list(columns))
                for start in range(0, wanted.num_rows, rows):
                    yield from plain_tables(wanted.slice(start, rows))

    def line(self, row: int) -> int | None:
        """Return None: the format has no lines."""
        return None


@contextmanager
def _open_as(label: str, format: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    # A name that is no text, a number that is too large: Arrow's own errors of a damaged file.
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, *LOST) as error:
        raise InputError(
            label, f"it cannot be read as {format} ({str(error).rstrip('. ')})."
        ) from error


# --- writing -------------------------------------------------------------------------------------


class ParquetWriter:
    """Writes tables of one schema; columns of types that Parquet does not have become text."""

    def __init__(self, sink: Any, schema: Any, label: str) -> None:
        self.label = label
        self.schema = _parquet_schema(schema)
        self.file = pq.ParquetWriter(sink, self.schema)

    def write_table(self, table: Any) -> None:
        """Add the rows of a table."""
        columns = [
            column if column.type == field.type else pc.cast(words(column), field.type)
            for column, field in zip(table.columns, self.schema, strict=True)
        ]
        try:
            self.file.write_table(pa.table(columns, schema=self.schema))
        except pa.ArrowInvalid as error:  # a time that Parquet's units are too small for
            raise InputError(
                self.label,
                f"the rows cannot be written as Parquet ({error}); write .arrow or .csv.",
            ) from error

    def close(self) -> None:
        """Write the end of the file."""
        self.file.close()


@lru_cache(maxsize=1024)
def _parquet_holds(type: Any) -> bool:
    table = pa.table([pa.array([], type)], names=["x"])
    try:
        pq.write_table(table, pa.BufferOutputStream())
    except pa.ArrowException:
        return False
    return True


def _parquet_schema(schema: Any) -> Any:
    """Columns of types that Parquet does not have are written as text."""
    for i, column in enumerate(schema):
        if not _parquet_holds(column.type):
            schema = schema.set(i, column.with_type(pa.large_string()))
    return schema
