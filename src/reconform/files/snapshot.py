"""The rows of a query as they were when it ran: on disk, and read as often as needed.

A query runs once, however often its rows are read: a table that changes meanwhile changes nothing,
rows are in one order, and the database is free again before anything is judged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..whole import blamed_on_temporary_files, check_room, stops_by_exception
from .address import Query
from .column_types import is_text, words
from .columnar import ArrowSource
from .databases import database_for
from .formats import Layout


class Snapshot:
    """Rows in Arrow files of a folder, as a `Source`.

    Rows are added first, all of them, and read then. SQLite learns the type of a column from its
    cells: where one does not fit those before it, a file of wider types begins.

    Parameters
    ----------
    folder : Path
        Temporary, and empty.
    label : str
        What to call it in messages.
    schema : pyarrow.Schema
        Of plain types.
    """

    is_text = False

    def __init__(self, folder: Path, label: str, schema: Any) -> None:
        self.label = label
        self.schema = schema
        self.rows = 0
        self._bytes = 0
        self._folder = folder
        self._files: list[ArrowSource] = []
        self._stack = ExitStack()
        self._begin()

    @property
    def path(self) -> Path:
        """The first of the files."""
        return self._folder / "0.arrow"

    def _begin(self) -> None:
        self._end()
        with blamed_on_temporary_files():
            path = str(self._folder / f"{len(self._files)}.arrow")
            sink = self._stack.enter_context(pa.OSFile(path, "wb"))
            self._writer = self._stack.enter_context(pa.ipc.new_file(sink, self.schema))

    def _end(self) -> None:
        with blamed_on_temporary_files():
            self._stack.close()

    def add(self, table: Any) -> None:
        """Append rows."""
        if table.schema != self.schema:
            if self.rows:
                self._close_file()
            self.schema = table.schema
            self._begin()
        with blamed_on_temporary_files():
            self._writer.write_table(table)
        self.rows += table.num_rows
        self._bytes += table.nbytes
        check_room(self._bytes, f"{self.label}: the table")

    def _close_file(self) -> None:
        self._end()
        self._files.append(ArrowSource(self._folder / f"{len(self._files)}.arrow", self.label))

    def fill(self, tables: Iterable[Any]) -> Snapshot:
        """Append all of some tables, and say that this was the last."""
        try:
            for table in tables:
                self.add(table)
        except BaseException:
            with suppress(OSError):
                self._end()
            raise
        return self.finish()

    def finish(self) -> Snapshot:
        """Say that all rows are there."""
        self._close_file()
        return self

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of at most `rows` rows."""
        wanted = pa.schema([self.schema.field(name) for name in columns])
        for file in self._files:
            for table in file.tables(columns, rows):
                yield table if table.schema == wanted else _widened(table, wanted)

    def line(self, row: int) -> int | None:
        """Return None: there are no lines."""
        return None


def _widened(table: Any, schema: Any) -> Any:
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if is_text(field.type):
            column = words(column)
        columns.append(pc.cast(column, field.type, safe=False))
    return pa.table(columns, schema=schema)


def take_snapshot(query: Query, layout: Layout, stack: ExitStack) -> Snapshot:
    """Run a query and keep its rows until the stack is closed."""
    database = database_for(query)
    stack.enter_context(stops_by_exception())
    with blamed_on_temporary_files():
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reconform-")))
    with database.run(query, layout, folder) as (schema, tables):
        return Snapshot(folder, query.label, schema).fill(tables)
