"""Rows and ranks between two passes over a file: in memory while they are few, then on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import FloatArray, IntArray, RankArray
from ..statistics.ranks import Ranks
from ..whole import blamed_on_temporary_files, check_room
from .column_types import varies
from .formats import Source

# Ranks and scores wait in memory up to this size, and beyond on disk.
SPILL_BYTES = 1 << 24

T = TypeVar("T")

# Rows are stored in record batches of at least so many, or so many bytes.
STORED_AT_ONCE = 1 << 14
PIECE_BYTES = 1 << 26
_NO_SIZES = np.empty(0, dtype=np.int64)

# A table that is not larger, on disk and as Arrow holds it, is read once and stays in memory.
REMEMBERED_BYTES = SPILL_BYTES


def row_sizes(table: Any) -> IntArray:
    """Bytes of every row of a table: of its texts and bytes exactly, of other cells on average."""
    sizes = np.full(table.num_rows, 8 * table.num_columns, dtype=np.int64)
    for column in table.columns:
        if varies(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        elif pa.types.is_nested(column.type) and table.num_rows:
            sizes += column.nbytes // table.num_rows
    return sizes


class CachedSource:
    """A source that is read once if it is small; a larger one is read again for every pass.

    Parameters
    ----------
    source : Source
    columns : sequence of str
        All columns that any of the passes will ask for.
    """

    def __init__(self, source: Source, columns: Sequence[str]) -> None:
        self._source = source
        self._columns = list(columns)
        self._small = source.path.stat().st_size <= REMEMBERED_BYTES
        self._tables: list[Any] | None = None
        self.path = source.path
        self.label = source.label
        self.schema = source.schema
        self.rows = source.rows
        self.is_text = source.is_text

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables with these columns at least, from memory where they are there."""
        if self._tables is not None:
            yield from self._tables
            return
        if not self._small:
            yield from self._source.tables(columns, rows)
            return
        seen: list[Any] = []
        size = 0
        for table in self._source.tables(self._columns, rows):
            if self._small:
                seen.append(table)
                size += table.nbytes
                if size > REMEMBERED_BYTES:  # it was compressed
                    self._small = False
                    seen.clear()
            yield table
        if self._small:
            self._tables = seen

    def line(self, row: int) -> int | None:
        """Line of a row (from 0) in a text file, from 1."""
        return self._source.line(row)


class Spill:
    """Numbers of every part of the rows, in order: in memory while they are few, then on disk.

    Ranks wait as ranks and scores; what else there is to know of them is counted before.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPILL_BYTES)  # noqa: SIM115
        self._shapes: list[tuple[int, int]] = []
        self._ranks = False

    def close(self) -> None:
        """Give up the disk."""
        self._file.close()

    def add(self, part: FloatArray | Ranks) -> None:
        """Append the numbers of a part, (numbers, rows)."""
        self._ranks = isinstance(part, Ranks)
        numbers = np.array([part.at_most, part.scores]) if isinstance(part, Ranks) else part
        self._shapes.append((numbers.shape[0], numbers.shape[1]))
        with blamed_on_temporary_files():
            self._file.write(np.ascontiguousarray(numbers, dtype=np.float64).tobytes())
        check_room(self._file.tell(), "what is kept of every row")

    def __iter__(self) -> Iterator[Any]:
        self._file.seek(0)
        for shape in self._shapes:
            numbers = np.frombuffer(self._file.read(8 * shape[0] * shape[1])).reshape(shape)
            if self._ranks:  # whole numbers far below 2**53
                yield Ranks(numbers[0].astype(np.int64), None, numbers[1])
            else:
                yield numbers

    def ranks(self) -> Callable[[int], tuple[RankArray, FloatArray]]:
        """Return what gives the ranks and scores of the next rows, of so many or of those left."""
        parts, left = iter(self), Ranks(np.empty(0, dtype=np.int64), None, np.empty(0))

        def take(rows: int) -> tuple[RankArray, FloatArray]:
            nonlocal left
            some, scores = [left.at_most], [left.scores]
            while sum(map(len, some)) < rows and (part := next(parts, None)) is not None:
                some.append(part.at_most)
                scores.append(part.scores)
            at_most, raw = np.concatenate(some), np.concatenate(scores)
            left = Ranks(at_most[rows:], None, raw[rows:])
            return at_most[:rows], raw[:rows]

        return take

    def each(self, work: Callable[[Any], Any]) -> Spill:
        """As `Parts` has it."""
        made = Spill()
        for part in self:
            made.add(work(part))
        return made

    def total(self, work: Callable[[Any], T], merge: Callable[[T, T], T]) -> T:
        """As `Parts` has it."""
        return reduce(merge, map(work, self))


class RowStore:
    """Rows to be taken in any order after the last of them was added: a few of them stay in memory.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._pending: list[Any] = []
        self._writer: Any = None
        self._parts: list[Any] | None = None
        self._sizes: list[IntArray] = []

    def __enter__(self) -> RowStore:
        self._stack = ExitStack()
        return self

    def __exit__(self, *exception: object) -> None:
        with blamed_on_temporary_files():
            self._stack.close()

    def add(self, table: Any) -> None:
        """Append rows; a few of them wait for more."""
        self._pending.append(table)
        self._sizes.append(row_sizes(table))
        if (
            sum(waiting.num_rows for waiting in self._pending) >= STORED_AT_ONCE
            or sum(waiting.nbytes for waiting in self._pending) >= PIECE_BYTES
        ):
            with blamed_on_temporary_files():
                if self._writer is None:
                    self._create()
                self._writer.write_table(pa.concat_tables(self._pending).combine_chunks())
            self._pending = []

    def _create(self) -> None:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="reconform-"))
        self._path = str(Path(folder, "rows.arrow"))
        self._sink = self._stack.enter_context(pa.OSFile(self._path, "wb"))
        self._writer = pa.ipc.new_file(self._sink, self._schema)

    def _open(self) -> list[Any]:
        """Finish writing; return the parts that the rows are in."""
        parts = []
        if self._writer is not None:
            with blamed_on_temporary_files():
                self._writer.close()
                self._sink.close()
            reader = pa.ipc.open_file(self._stack.enter_context(pa.memory_map(self._path)))
            batches = map(reader.get_batch, range(reader.num_record_batches))
            parts = [pa.Table.from_batches([batch]) for batch in batches]
        if self._pending:
            parts.append(pa.concat_tables(self._pending).combine_chunks())
        return parts

    def pieces(self, rows: IntArray) -> Iterator[Any]:
        """Yield rows by their positions in the store, in this order, in tables of bounded size."""
        sizes = np.concatenate([*self._sizes, _NO_SIZES])
        full = np.cumsum(sizes[rows]) // PIECE_BYTES
        for part in np.split(rows, np.flatnonzero(np.diff(full)) + 1):
            yield self.take(part)

    def take(self, rows: IntArray) -> Any:
        """Return rows by their positions in the store, in this order."""
        if not len(rows):
            return pa.Table.from_batches([], self._schema)
        if self._parts is None:
            self._parts = self._open()
        if len(self._parts) == 1:
            return self._parts[0].take(pa.array(rows))
        # Part by part in ascending order, and then into the order that was asked for.
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        edges = np.cumsum([0, *(part.num_rows for part in self._parts)])
        taken = []
        for part, (low, high) in enumerate(pairwise(np.searchsorted(ascending, edges))):
            if low < high:
                taken.append(self._parts[part].take(pa.array(ascending[low:high] - edges[part])))
        together = taken[0] if len(taken) == 1 else pa.concat_tables(taken).combine_chunks()
        if (order[:-1] < order[1:]).all():
            return together
        back = np.empty(len(rows), dtype=np.intp)
        back[order] = np.arange(len(rows))
        return together.take(back)
