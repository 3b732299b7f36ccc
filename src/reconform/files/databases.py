"""Rows of queries: by DuckDB, of its databases and of patterns for files, or by Python's SQLite.

A query is one select. It sees its database, read only, or the files of its pattern, and nothing
else: no other file, no variable of Python, no extension that is not part of the library already.
SQLite has types of cells, not of columns: a column is what all of its cells are, whole numbers,
numbers, text or bytes, and text where they are of several kinds.
"""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ..errors import InputError
from ..extras import extra
from ..tables.cells import as_json, plain_schema, plain_table
from .formats import DUCKDB_SUFFIXES, PARQUET_FILES, Layout, Query, quoted

# In the first bytes of a database.
DUCKDB_SIGNATURE, SQLITE_SIGNATURE = b"DUCK", b"SQLite format 3\0"

# What the rows of a pattern are called in a query.
FILES = "files"

# Rows of a batch of DuckDB, and about how many cells; of cells that may be long as many as it works
# on at once.
DUCKDB_ROWS, DUCKDB_CELLS, FEW_ROWS = 1 << 16, 1 << 21, 1 << 11
LONG = {"VARCHAR", "BLOB", "JSON"}

# Rows and cells of a batch of SQLite, and about how many bytes.
SQLITE_ROWS, SQLITE_CELLS, SQLITE_BYTES = 1 << 14, 1 << 20, 1 << 25
# The longest cell of SQLite that is read, less where a row has many.
LONGEST_CELL, SHORT_CELL = 1 << 23, 1 << 16
# So many seconds a database may be locked by others.
PATIENCE = 5.0

# No extension that is not part of the library already.
SETTINGS = {
    "allow_unsigned_extensions": "false",
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",
}

# Types of DuckDB that Arrow gets as bytes, or without their zone.
AS_TEXT = {"BIT", "BIGNUM", "VARINT", "VARIANT", "TIME WITH TIME ZONE"}

# What a query of SQLite that only reads consists of.
READS = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
FIRST_WORD = re.compile(r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)*(\w*)", re.DOTALL)

# What SQLite and DuckDB say after Ctrl-C.
INTERRUPTED = ("interrupted", "query interrupted", "interrupt error: interrupted")

Answer = tuple[Any, Iterator[Any]]


def run_query(query: Query, layout: Layout, folder: Path) -> AbstractContextManager[Answer]:
    """Run a query that only reads; give the schema and the tables of its rows, plain types.

    The library is chosen by the first bytes of the file; temporary files go to the folder.
    """
    start = b""
    if query.of_database:
        with suppress(OSError), open(query.place, "rb") as file:
            start = file.read(16)
        duckdb = DUCKDB_SIGNATURE in start or query.place.lower().endswith(DUCKDB_SUFFIXES)
        if SQLITE_SIGNATURE in start or not duckdb:
            return _by_sqlite(query)
    return _by_duckdb(query, layout, folder)


@contextmanager
def _refusing(
    label: str, errors: type[Exception] | tuple[type[Exception], ...], what: str
) -> Iterator[None]:
    """Pass errors of a library on in our sentence, which begins with what it refuses."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if str(error).strip(".!").lower() in INTERRUPTED:
            raise KeyboardInterrupt from error
        if not isinstance(error, errors):
            raise
        # Without the lines of the query that the message points at.
        line = " ".join(str(error).split("\n\nLINE ")[0].split())
        line += "" if line.endswith((".", "!", "?")) else "."
        raise InputError(label, f"{what}: {line}") from error


def _one_select(query: Query, got: str | None) -> InputError:
    """Say that something else than one query that only reads was given."""
    return InputError(
        query.label,
        "what follows # must be one query that only reads, such as 'select * from readings', or "
        f"the name of a table{'' if got is None else f'; {got}'}.",
    )


def _files_of(query: Query) -> list[str]:
    """Return the files behind a query; refuse a place that is not there."""
    if not query.text:
        raise _one_select(query, "there is nothing")
    files = query.files()
    for path in files:
        if os.path.isdir(path):
            raise InputError(query.label, f"{path} is a folder, not a file.")
        if os.path.isfile(path) and not os.path.getsize(path):
            raise InputError(query.label, f"the file {path} is empty.")
    if not files or not all(map(os.path.exists, files)):
        what = "file" if not query.of_database else "database"
        raise InputError(query.label, f"there is no {what} {query.place}.")
    return files


def _check_different(query: Query, names: list[str]) -> None:
    """Refuse a query that gives a column twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(
            query.label,
            f"the query gives the column {twice[0]!r} more than once. Columns are matched by name: "
            "give it another name, with AS.",
            column=twice[0],
        )


# --- DuckDB --------------------------------------------------------------------------------------


@contextmanager
def _by_duckdb(query: Query, layout: Layout, folder: Path) -> Iterator[Answer]:
    duckdb = extra("duckdb", "sql", f"Reading {query.place}")
    files = _files_of(query)
    with _refusing(query.label, duckdb.Error, f"DuckDB cannot open {query.place}"):
        connection = _connected(duckdb, query, folder)
    with closing(connection):
        with _refusing(query.label, duckdb.Error, f"DuckDB cannot open {query.place}"):
            _close_off(connection, query, files, layout)
        with _refusing(query.label, duckdb.Error, "DuckDB refuses the query"):
            kinds = [each.type.name for each in connection.extract_statements(query.sql)]
            if len(kinds) != 1:
                raise _one_select(query, f"these are {len(kinds)} statements" if kinds else None)
            if kinds[0] != "SELECT":
                raise _one_select(query, f"this is a statement of the kind {kinds[0]}")
            rows = connection.sql(query.sql)
            _check_different(query, rows.columns)
            rows = _with_texts(rows)
            size = max(1, min(DUCKDB_ROWS, DUCKDB_CELLS // len(rows.columns)))
            if any(str(kind) in LONG for kind in rows.types):
                size = min(size, FEW_ROWS)
            # Of older versions it has another name, which newer ones warn about.
            new_name = "to_arrow_reader" in dir(rows)
            read = rows.to_arrow_reader if new_name else rows.fetch_arrow_reader
            batches = _interruptible(connection, lambda: read(size))
            _check_different(query, batches.schema.names)
        yield plain_schema(batches.schema), _duckdb_tables(query, connection, batches, duckdb.Error)


def _connected(duckdb: Any, query: Query, folder: Path) -> Any:
    # What DuckDB cannot keep in memory goes there, not to the database.
    config = {**SETTINGS, "temp_directory": str(folder / "duckdb")}
    place = query.place if query.of_database else ":memory:"
    return duckdb.connect(place, read_only=query.of_database, config=config)


def _close_off(connection: Any, query: Query, files: list[str], layout: Layout) -> None:
    """Let a query see its own rows, and nothing else."""
    connection.execute("set python_enable_replacements = false")
    if not query.of_database:
        paths = ", ".join(_literal(os.path.abspath(path)) for path in files)
        connection.execute(f"set allowed_paths = [{paths}]")
        if files[0].lower().endswith(PARQUET_FILES):
            rows = f"read_parquet([{paths}], union_by_name = true)"
        else:
            rows = f"read_csv([{paths}], union_by_name = true{_dialect(files[0], layout)})"
        connection.execute(f"create temp view {FILES} as select * from {rows}")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _dialect(path: str, layout: Layout) -> str:
    tab = "\t" if path.lower().endswith((".tsv", ".tsv.gz")) else None
    delimiter = layout.delimiter or tab
    words = "" if delimiter is None else f", delim = {_literal(delimiter)}"
    if layout.decimal != ".":
        words += f", decimal_separator = {_literal(layout.decimal)}"
    if layout.missing:
        words += f", nullstr = [{', '.join(map(_literal, ('', *layout.missing)))}]"
    return words


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _with_texts(rows: Any) -> Any:
    """Let DuckDB write cells as text that Arrow would only get the bytes of."""
    kinds = dict(zip(rows.columns, map(str, rows.types), strict=True))
    if not AS_TEXT & set(kinds.values()):
        return rows
    columns = [
        f"cast({quoted(name)} as varchar) as {quoted(name)}" if kind in AS_TEXT else quoted(name)
        for name, kind in kinds.items()
    ]
    return rows.project(", ".join(columns))


def _duckdb_tables(
    query: Query, connection: Any, batches: Any, error: type[Exception]
) -> Iterator[Any]:
    # Arrow wraps what goes wrong while rows are fetched.
    with _refusing(query.label, (error, OSError, pa.ArrowException), "DuckDB stopped"):
        rest = iter(batches)
        while (batch := _interruptible(connection, lambda: next(rest, None))) is not None:
            yield plain_table(batch)


def _interruptible(connection: Any, call: Callable[[], Any]) -> Any:
    """Wait for DuckDB where Ctrl-C is seen, and tell it; fetching rows, it does not look."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        waiting = pool.submit(call)
        try:
            return waiting.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


# --- SQLite --------------------------------------------------------------------------------------


@contextmanager
def _by_sqlite(query: Query) -> Iterator[Answer]:
    with _asked(query, "explain") as steps:
        width = max((row[3] for row in steps if row[1] == "ResultRow"), default=1)
    with _asked(query, width=width) as cursor:
        names = [column[0] for column in cursor.description]
        _check_different(query, names)
        yield pa.schema([(name, pa.null()) for name in names]), _sqlite_tables(query, cursor, names)


@contextmanager
def _refusing_sqlite(label: str, what: str) -> Iterator[None]:
    """Refuse what SQLite refuses; say what to do about long cells and names that are no text."""
    # Before Python 3.12 two statements are a warning, not an error.
    with _refusing(label, (sqlite3.Error, sqlite3.Warning), what):
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


@contextmanager
def _asked(query: Query, before: str = "", width: int = 1) -> Iterator[sqlite3.Cursor]:
    """Ask a query that only reads, perhaps with a word before it; give a cursor for its rows.

    A row of so many columns takes no more than 16 of the longest cells.
    """
    _files_of(query)
    word = FIRST_WORD.match(query.sql)
    if word is None or word[1].lower() not in ("select", "with", "values"):
        raise _one_select(query, None if word is None or not word[1] else f"this is {word[1]!r}")
    refused = []

    def allow(action: int, _: str | None, two: str | None, *__: str | None) -> int:
        fine = action in READS and two != "load_extension"
        if not fine:
            refused.append(action)
        return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY

    uri = f"file:{quote(os.fsencode(os.path.abspath(query.place)))}?mode=ro"
    with _refusing_sqlite(query.label, f"SQLite cannot open {query.place}"):
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=PATIENCE)
    with closing(connection):
        # Python sees Ctrl-C when a function of its own is called; the query is then interrupted.
        connection.set_progress_handler(lambda: None, 100_000)
        # Text that is no UTF-8 is shown by its bytes; nothing is lost.
        connection.text_factory = lambda cell: cell.decode("utf-8", "backslashreplace")
        connection.set_authorizer(allow)
        longest = max(SHORT_CELL, LONGEST_CELL * 16 // max(16, width))
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
        with _refusing_sqlite(query.label, "SQLite refuses the query"):
            try:
                cursor = connection.execute(f"{before} {query.sql}")
            except sqlite3.DatabaseError as error:
                if refused:
                    raise _one_select(query, "this one would do more") from error
                raise
        yield cursor


def _sqlite_tables(query: Query, cursor: sqlite3.Cursor, names: list[str]) -> Iterator[Any]:
    kinds: list[set[type]] = [set() for _ in names]
    with _refusing_sqlite(query.label, "SQLite stopped"):
        while part := _some_rows(cursor, max(1, min(SQLITE_ROWS, SQLITE_CELLS // len(names)))):
            cells = zip(*part, strict=True)
            yield pa.table([_array(*each) for each in zip(kinds, cells, strict=True)], names=names)


def _some_rows(cursor: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
    """Take the next rows: at most so many, and fewer where cells are long."""
    rows: list[tuple[Any, ...]] = []
    size = 0
    while len(rows) < most and size < SQLITE_BYTES and (row := cursor.fetchone()) is not None:
        rows.append(row)
        size += sum(len(cell) for cell in row if isinstance(cell, str | bytes))
    return rows


def _array(kinds: set[type], cells: tuple[Any, ...]) -> Any:
    """Make an array of some cells, of a type that fits the kinds of those before them too."""
    kinds |= set(map(type, cells)) - {type(None)}
    if not kinds:
        return pa.nulls(len(cells))
    if kinds == {int}:
        return pa.array(cells, pa.int64())
    if kinds <= {int, float}:
        return pa.array([None if x is None else float(x) for x in cells], pa.float64())
    if kinds == {bytes}:
        return pa.array(cells, pa.large_binary())
    texts = (c if c is None or isinstance(c, str | bytes) else str(c) for c in cells)
    return pa.array([as_json(cell) for cell in texts], pa.large_string())
