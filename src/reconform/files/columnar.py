"""Parquet and Arrow files: formats whose columns have types.

The footer of a file may say anything. What a reader makes room for is in the header of every page
of Parquet, and before every compressed buffer of Arrow, so that a few kilobytes can ask for
gigabytes: what pages and batches would take in memory is looked up before they are read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import InputError
from ..tables import Source
from ..tables.cells import arrow_can, plain_schema, plain_tables, words

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


class ParquetSource(Source):
    """A Parquet file."""

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        self._metadata: Any = None
        self._texts: list[str] = []
        self._checked: set[str] = set()
        with _open_as(label, "Parquet"):
            small = path.stat().st_size <= SMALL_FILE
            self._content = pa.py_buffer(path.read_bytes()) if small else None
            file = self._open()
            self._metadata = file.metadata
            self.rows = file.metadata.num_rows
            # A cell that stands in many rows is in memory once: see `plain_tables`.
            leaves = map(self._metadata.schema.column, range(len(self._metadata.schema)))
            self._texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
            file = self._open()  # which may hold the same text by another type
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


class ArrowSource(Source):
    """An Arrow IPC file, which is also Feather, or an Arrow IPC stream."""

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
    return arrow_can(lambda: pq.write_table(table, pa.BufferOutputStream()))


def _parquet_schema(schema: Any) -> Any:
    """Columns of types that Parquet does not have are written as text."""
    for i, column in enumerate(schema):
        if not _parquet_holds(column.type):
            schema = schema.set(i, column.with_type(pa.large_string()))
    return schema


# A page may be larger only if it is large in the file, too; so may the lists of a column.
MOST_BYTES, MOST_VALUES = 1 << 27, 1 << 26
MOST_TIMES = 100

# With what an Arrow file begins, and a stream does not; and a message of either.
ARROW, CONTINUES = b"ARROW1", b"\xff\xff\xff\xff"

# Bytes that a header is looked for in; the statistics that it may hold are short.
HEADER = 1 << 16


def check_pages(label: str, file: IO[bytes], metadata: Any, columns: Sequence[str]) -> None:
    """Refuse pages of some columns that are small in the file and huge in memory."""
    paths = [metadata.schema.column(j).path for j in range(len(metadata.schema))]
    wanted = set(columns)
    leaves = [j for j, path in enumerate(paths) if path.split(".")[0] in wanted]
    for group in range(metadata.num_row_groups):
        chunks = metadata.row_group(group)
        # Whatever the codec: to ask for one that Arrow does not know ends the process.
        for j in leaves if chunks.num_rows else ():
            _check_chunk(label, file, chunks.column(j))


def _check_chunk(label: str, file: IO[bytes], chunk: Any) -> None:
    starts = (chunk.dictionary_page_offset, chunk.data_page_offset)
    place = min(start for start in starts if start is not None)
    end = place + chunk.total_compressed_size
    values = 0
    while place < end:
        file.seek(place)
        fields, length = _struct(file.read(min(HEADER, end - place)), 0)
        size, stored = _whole(fields, 2), _whole(fields, 3)
        values += max(_whole(fields.get(part), 1) for part in (5, 8))
        few = MOST_TIMES * max(1, stored)
        if stored < 0 or size > max(MOST_BYTES, few) or values > max(MOST_VALUES, MOST_TIMES * few):
            name = chunk.path_in_schema.split(".")[0]
            raise InputError(
                label,
                f"the column {name!r} is too large: {stored:,} bytes of the file would be "
                f"{size:,} bytes, or {values:,} values, in memory. Leave the column out, or write "
                "the file with smaller pages.",
                column=name,
            )
        place += length + stored


def check_batches(label: str, content: memoryview) -> None:
    """Refuse compressed batches of an Arrow file that are small in the file and huge in memory."""
    is_file = bytes(content[: len(ARROW)]) == ARROW
    for metadata, body in _batches(content) if is_file else _messages(content):
        size = _uncompressed(metadata, body)
        if size > max(MOST_BYTES, MOST_TIMES * len(body)):
            raise InputError(
                label,
                f"it is too large: {len(body):,} bytes of the file would be {size:,} bytes in "
                "memory. Write it in smaller batches, or without compression.",
            )


def _batches(content: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Metadata and body of what the footer of a file lists: dictionaries and batches."""
    size = struct.unpack_from("<i", content, len(content) - 10)[0]
    footer = bytes(content[len(content) - 10 - size : len(content) - 10])
    root = struct.unpack_from("<I", footer)[0]
    for blocks in (_target(footer, _field(footer, root, number)) for number in (2, 3)):
        for i in range(0 if blocks is None else struct.unpack_from("<I", footer, blocks)[0]):
            place, length, stored = struct.unpack_from("<qi4xq", footer, (blocks or 0) + 4 + 24 * i)
            start = place + (8 if content[place : place + 4] == CONTINUES else 4)
            body = place + length
            yield bytes(content[start:body]), content[body : body + stored]


def _messages(content: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Metadata and body of the messages of a stream."""
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(content)):
        body = memoryview(b"" if message.body is None else message.body)
        yield message.metadata.to_pybytes(), body.cast("B")


def _uncompressed(metadata: bytes, body: memoryview) -> int:
    """Bytes of the buffers of a message when they are no longer compressed; 0 if they are not."""
    message = struct.unpack_from("<I", metadata)[0]
    kind = _field(metadata, message, 1)
    batch = _target(metadata, _field(metadata, message, 2))
    if kind is None or batch is None or metadata[kind] not in (2, 3):
        return 0
    if metadata[kind] == 2:  # a dictionary, which is a batch within
        batch = _target(metadata, _field(metadata, batch, 1))
    if batch is None or _field(metadata, batch, 3) is None:
        return 0
    buffers = _target(metadata, _field(metadata, batch, 2))
    if buffers is None:
        return 0
    size = 0
    for i in range(struct.unpack_from("<I", metadata, buffers)[0]):
        offset, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * i)
        if length >= 8:
            size += max(0, struct.unpack_from("<q", body, offset)[0])
    return size


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Where a field of a table of FlatBuffers is; None if it has its default."""
    names = table - struct.unpack_from("<i", metadata, table)[0]
    if names < 0 or 4 + 2 * number >= struct.unpack_from("<H", metadata, names)[0]:
        return None
    offset = struct.unpack_from("<H", metadata, names + 4 + 2 * number)[0]
    return table + offset if offset else None


def _target(metadata: bytes, place: int | None) -> int | None:
    return None if place is None else place + int(struct.unpack_from("<I", metadata, place)[0])


def _whole(fields: Any, number: int) -> int:
    """An integer among the fields of a header; 0 where there is none."""
    value = fields.get(number) if isinstance(fields, dict) else None
    return value if isinstance(value, int) else 0


def _struct(content: bytes, place: int) -> tuple[dict[int, Any], int]:
    """Read a struct in the compact protocol of Thrift, of which integers are kept; and its end."""
    fields: dict[int, Any] = {}
    number = 0
    while head := content[place]:
        step, kind = head >> 4, head & 15
        place += 1
        if step:
            number += step
        else:
            number, place = _integer(content, place)
        if kind in (4, 5, 6):
            fields[number], place = _integer(content, place)
        elif kind == 12:
            fields[number], place = _struct(content, place)
        elif kind in (3, 7):  # a byte, and a number of eight
            place += 1 if kind == 3 else 8
        elif kind == 8:
            length, place = _varint(content, place)
            place += length
        elif kind not in (1, 2):  # true and false have no bytes
            raise pa.ArrowInvalid(f"a page header with a field of kind {kind}")
    return fields, place + 1


def _varint(content: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while (byte := content[place]) & 0x80:
        number |= (byte & 0x7F) << shift
        shift, place = shift + 7, place + 1
    return number | byte << shift, place + 1


def _integer(content: bytes, place: int) -> tuple[int, int]:
    number, place = _varint(content, place)
    return (number >> 1) ^ -(number & 1), place
