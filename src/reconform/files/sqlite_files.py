"""SQLite, by Python's own library: queries that only read, and tables that are written.

SQLite has types of cells, not of columns: a column is what all of its cells are, whole numbers,
numbers, text or bytes, and text where they are of several kinds.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ..errors import InputError
from .address import Query, TableName, check_different, quoted
from .column_types import as_json, is_text, kind_of, words
from .database import Answer, Database, check_place_of, one_select, refusing
from .formats import Layout

SIGNATURE = b"SQLite format 3\0"

BATCH_ROWS = 1 << 14

# The longest cell that is read, less where a row has many; and about how much at once.
LONGEST_CELL, SHORT_CELL = 1 << 23, 1 << 16
BATCH_BYTES = 1 << 25

# So many seconds a database may be locked by others.
PATIENCE = 5.0

# Before Python 3.12 two statements are a warning, not an error.
ERRORS = (sqlite3.Error, sqlite3.Warning)

# What a query that only reads consists of.
READS = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
FIRST_WORD = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", re.DOTALL)


class SQLite(Database):
    """The rows of a query by SQLite."""

    title = "SQLite"

    @contextmanager
    def run(self, query: Query, layout: Layout, folder: Path) -> Iterator[Answer]:
        """Run a query that only reads."""
        with _asked(query, "explain") as steps:
            width = max((row[3] for row in steps if row[1] == "ResultRow"), default=1)
        with _asked(query, width=width) as cursor:
            names = [column[0] for column in cursor.description]
            check_different(query, names)
            columns = [_Column() for _ in names]
            schema = pa.schema([(name, pa.null()) for name in names])
            yield schema, _tables(query, cursor, names, columns)

    def tables_read(self, query: Query, layout: Layout) -> set[str]:
        """Name the tables whose pages SQLite would open."""
        with (
            _refusing(query.label, f"{self.title} refuses the query"),
            _asked(query, "explain") as cursor,
        ):
            opened = {row[3] for row in cursor if row[1] == "OpenRead"}
            cursor.connection.set_authorizer(None)
            roots = cursor.connection.execute("select rootpage, tbl_name from sqlite_master")
            return {name.lower() for root, name in roots if root in opened}

    @contextmanager
    def _writing(self, table: TableName, place: Path) -> Iterator[Any]:
        with (
            _refusing(table.address, f"{self.title} cannot write the table"),
            closing(_connect(place, "rwc")) as connection,
        ):
            # Views go on to name the table that has the name, not the one that had it.
            connection.execute("pragma legacy_alter_table = on")
            yield connection

    def _kind(self, connection: Any, table: TableName) -> str | None:
        schema = "" if table.schema is None else f"{quoted(table.schema)}."
        found = connection.execute(
            f"select type from {schema}sqlite_master "
            "where type in ('table', 'view') and lower(name) = lower(?)",
            [table.name],
        ).fetchone()
        return None if found is None else str(found[0])

    def _create(self, connection: Any, table: TableName, schema: Any, rows: Iterator[Any]) -> None:
        columns = ", ".join(f"{quoted(field.name)} {_affinity(field.type)}" for field in schema)
        connection.execute(f"create table {table.quoted} ({columns})")
        marks = ", ".join("?" * len(schema))
        insert = f"insert into {table.quoted} values ({marks})"
        for part in rows:
            cells = [_cells(column) for column in part.columns]
            connection.executemany(insert, zip(*cells, strict=True))


@contextmanager
def _refusing(label: str, what: str) -> Iterator[None]:
    """Refuse what SQLite refuses; say what to do about long cells and names that are no text."""
    with refusing(label, ERRORS, what):
        try:
            yield
        except sqlite3.DataError as error:
            if "too big" not in str(error):
                raise
            raise InputError(
                label,
                f"a cell is longer than {LONGEST_CELL:,} bytes, or {SHORT_CELL:,} where there are "
                "very many columns: this is too large. Name the columns that matter in the query.",
            ) from error
        except UnicodeError as error:
            raise InputError(
                label,
                f"a name in the database, or the query, is not UTF-8 text ({error}). Rename the "
                "column, or name those that matter in the query.",
            ) from error


def _connect(place: str | Path, mode: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(os.path.abspath(place)))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=PATIENCE)
    # Python sees Ctrl-C when a function of its own is called; the query ends with "interrupted".
    connection.set_progress_handler(lambda: None, 100_000)
    return connection


# --- reading -------------------------------------------------------------------------------------


@contextmanager
def _asked(query: Query, before: str = "", width: int = 1) -> Iterator[sqlite3.Cursor]:
    """Ask a query that only reads, perhaps with a word before it; give a cursor for its rows.

    A row of so many columns takes no more than 16 of the longest cells.
    """
    check_place_of(query)
    word = FIRST_WORD.match(query.sql)
    if word is None or word[1].lower() not in ("select", "with", "values"):
        raise one_select(query, None if word is None or not word[1] else f"this is {word[1]!r}")
    refused = []

    def allow(action: int, _: str | None, two: str | None, *__: str | None) -> int:
        fine = action in READS and two != "load_extension"
        if not fine:
            refused.append(action)
        return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

    with _refusing(query.label, f"SQLite cannot open {query.place}"):
        connection = _connect(query.place, "ro")
    with closing(connection):
        # Text that is no UTF-8 is shown by its bytes; nothing is lost.
        connection.text_factory = lambda cell: cell.decode("utf-8", "backslashreplace")
        connection.set_authorizer(allow)
        longest = max(SHORT_CELL, LONGEST_CELL * 16 // max(16, width))
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        with _refusing(query.label, "SQLite refuses the query"):
            try:
                cursor = connection.execute(f"{before} {query.sql}")
            except sqlite3.DatabaseError as error:
                if refused:
                    raise one_select(query, "this one would do more") from error
                raise
        yield cursor


class _Column:
    """What the cells of a column have been so far."""

    def __init__(self) -> None:
        self.kinds: set[type] = set()

    def array(self, cells: tuple[Any, ...]) -> Any:
        """Make an array of some cells, of a type that fits those before them too."""
        self.kinds |= set(map(type, cells)) - {type(None)}
        kinds = self.kinds
        if not kinds:
            return pa.nulls(len(cells))
        if kinds == {int}:
            return pa.array(cells, pa.int64())
        if kinds <= {int, float}:
            return pa.array([None if x is None else float(x) for x in cells], pa.float64())
        if kinds == {bytes}:
            return pa.array(cells, pa.large_binary())
        return pa.array([_as_text(cell) for cell in cells], pa.large_string())


def _as_text(cell: Any) -> str | None:
    return as_json(cell) if cell is None or isinstance(cell, str | bytes) else str(cell)


def _tables(
    query: Query, cursor: sqlite3.Cursor, names: list[str], columns: list[_Column]
) -> Iterator[Any]:
    with _refusing(query.label, "SQLite stopped"):
        while part := _some_rows(cursor, max(1, min(BATCH_ROWS, (1 << 20) // len(names)))):
            cells = zip(*part, strict=True)
            yield pa.table(
                [column.array(each) for column, each in zip(columns, cells, strict=True)],
                names=names,
            )


def _some_rows(cursor: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
    """Take the next rows: at most so many, and fewer where cells are long."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    while len(rows) < most and size < BATCH_BYTES and (row := cursor.fetchone()) is not None:
        rows.append(row)
        size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
    return rows


# --- writing -------------------------------------------------------------------------------------


def _affinity(type: Any) -> str:
    """How a column is declared; one of exact numbers without a type, which would round them."""
    types = pa.types
    if types.is_integer(type) or types.is_boolean(type):
        return "" if types.is_uint64(type) else "integer"
    if types.is_floating(type) or types.is_null(type):
        return "real"
    if types.is_decimal(type):
        return ""
    return "blob" if types.is_binary(type) or types.is_large_binary(type) else "text"


def _cells(column: Any) -> list[Any]:
    """Cells as SQLite takes them."""
    affinity = _affinity(column.type)
    if not affinity:
        return [_exact(cell) for cell in column.to_pylist()]
    if affinity == "blob" or kind_of(column.type) == "number" or is_text(column.type):
        return list(column.to_pylist())
    return list(words(column).to_pylist())


def _exact(number: int | Decimal | None) -> int | float | str | None:
    """A number as SQLite has it; the text of one that would be rounded.

    Examples
    --------
    >>> [_exact(Decimal(text)) for text in ("12.00", "0.1", "12345678901234567.125")]
    [12, 0.1, '12345678901234567.125']
    """
    if number is None:
        return None
    whole = int(number)
    if number == whole:
        return whole if abs(whole) < 2**63 else str(whole)
    return float(number) if Decimal(repr(float(number))) == number else str(number)
