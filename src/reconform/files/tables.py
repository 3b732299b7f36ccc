"""Tables of databases that are written: whole, or not at all, and together with other outputs."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from ..errors import InputError, ReconformError
from ..whole import (
    blamed_on,
    blamed_on_temporary_files,
    check_apart,
    check_place,
    together,
    whole_file,
)
from .address import Query, TableName, query_of, table_of
from .database import files_behind
from .databases import database_for
from .formats import Layout
from .snapshot import Snapshot

ROWS_AT_ONCE = 1 << 16


def check_table(table: TableName, *, overwrite: bool) -> None:
    """Refuse a table that cannot be written, before any work is done for it."""
    place, database = table.place, database_for(table)
    if not os.path.exists(place):
        check_place(place, overwrite=False)
        with _folder() as folder:
            database.check(table, folder / "new", overwrite=False)
        return
    if not os.path.isfile(place):
        raise InputError(table.address, f"{place} is not a file.")
    for path in (place, os.path.dirname(os.path.realpath(place))):
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{table.address}: {path} cannot be written to.")
    database.check(table, Path(place), overwrite=overwrite)


@contextmanager
def open_table(
    table: TableName, schema: Any, *, overwrite: bool = False
) -> Iterator[Callable[[Any], None]]:
    """Open a table for rows of one schema; it appears when the block ends well.

    Rows wait on disk. In a database that exists the table is then written in one transaction; a
    database that does not is written like any other file.

    Parameters
    ----------
    table : TableName
    schema : pyarrow.Schema
    overwrite : bool
        Replace a table that exists, and nothing else.

    Yields
    ------
    callable
        Writes an Arrow table.
    """
    check_table(table, overwrite=overwrite)
    with together() as group, ExitStack() as stack:
        folder = stack.enter_context(_folder())
        rows = Snapshot(folder, table.address, schema)
        if not os.path.exists(table.place):
            draft = stack.enter_context(whole_file(table.place))
            yield rows.add
            # DuckDB takes no empty file for a database, and the draft must stay the same file.
            _put(folder / "new", table, rows.finish())
            with blamed_on(table.place, draft):
                shutil.copyfile(folder / "new", draft)
            return
        yield rows.add
        rows.finish()
        group.add(_TableDraft(table, folder, rows, overwrite, stack.pop_all()))


@contextmanager
def _folder() -> Iterator[Path]:
    with blamed_on_temporary_files():
        made = tempfile.TemporaryDirectory(prefix="reconform-")
    with made as folder:
        yield Path(folder)


def _put(
    place: Path,
    table: TableName,
    rows: Snapshot,
    *,
    overwrite: bool = False,
    keep_old: bool = False,
) -> str | None:
    tables = rows.tables(rows.schema.names, ROWS_AT_ONCE)
    return database_for(table).put(
        table, rows.schema, tables, place=place, overwrite=overwrite, keep_old=keep_old
    )


class _TableDraft:
    """Rows that are to be a table of a database which exists; of the kind that `whole` joins."""

    turn = 2

    def __init__(
        self, table: TableName, folder: Path, rows: Snapshot, overwrite: bool, stack: ExitStack
    ) -> None:
        self.path: str | Path = table.address
        self.temporary = folder
        self._stack = stack  # removes the folder
        self._table = table
        self._rows = rows
        self._overwrite = overwrite
        self._old: str | None = None
        self._appeared = False

    def appear(self, *, keep_old: bool) -> None:
        place = Path(self._table.place)
        self._old = _put(
            place, self._table, self._rows, overwrite=self._overwrite, keep_old=keep_old
        )
        self._appeared = True

    def undo(self) -> None:
        if self._appeared:
            with suppress(InputError):
                database_for(self._table).take_back(self._table, self._old)
                self._old = None

    def discard(self) -> None:
        if self._old is not None:
            with suppress(InputError):
                database_for(self._table).forget(self._table, self._old)
        with suppress(OSError):
            self._stack.close()


# --- outputs and inputs --------------------------------------------------------------------------


def check_separate(
    outputs: Mapping[str, str | Path], inputs: Mapping[str, str | Path], layout: Layout
) -> None:
    """Refuse outputs that would replace an input or each other: files, and tables of databases.

    Parameters
    ----------
    outputs, inputs : mapping of str to path
        Keys say what each is, for the message.
    layout : Layout
        With which queries are read.
    """
    tables = {what: table_of(path) for what, path in outputs.items()}
    places = {
        what: path if (t := tables[what]) is None else t.place for what, path in outputs.items()
    }
    check_apart(places, {})
    for name, path in inputs.items():
        query = query_of(path)
        for what, place in places.items():
            table = tables[what]
            if query is not None and table is not None and _same_database(query, table):
                _check_tables(what, table, name, query, layout)
            else:
                for file in [path] if query is None else files_behind(query):
                    check_apart({what: place}, {name: file})


def _same_database(query: Query, table: TableName) -> bool:
    with suppress(OSError):
        return query.of_database and os.path.samefile(query.place, table.place)
    return False


def _check_tables(what: str, table: TableName, name: str, query: Query, layout: Layout) -> None:
    try:
        tables = database_for(query).tables_read(query, layout)
    except ReconformError:  # reading it will say what is wrong
        return
    if table.name.lower() in tables:
        raise ReconformError(
            f"{what} {table.address}: {name} {query.label} reads this table; an output must have a "
            "table of its own."
        )
