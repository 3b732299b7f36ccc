"""DuckDB: its databases, and patterns for Parquet and text files.

A query is one select. It sees its database, read only, or the files of its pattern, and nothing
else: no other file, no variable of Python, no extension that is not part of the library already.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..extras import extra
from .address import FILES, PARQUET_FILES, Query, TableName, check_different, quoted
from .column_types import plain_schema, plain_table, words
from .database import Answer, Database, check_place_of, one_select, refusing
from .formats import Layout

# In the first bytes of a database.
SIGNATURE = b"DUCK"

# Rows of a batch, and about how many cells.
BATCH_ROWS = 1 << 16
BATCH_CELLS = 1 << 21
# Of cells that may be long: as many as DuckDB works on at once.
FEW_ROWS = 1 << 11
LONG = {"VARCHAR", "BLOB", "JSON"}

# What holds in any case. Extensions and the files of others are asked for by `allow_extensions`.
SETTINGS = {"allow_unsigned_extensions": "false", "allow_community_extensions": "false"}
CLOSED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_persistent_secrets": "false",
}

# Types that Arrow gets as bytes, or without their zone.
AS_TEXT = {"BIT", "BIGNUM", "VARINT", "VARIANT", "TIME WITH TIME ZONE"}


class DuckDB(Database):
    """The rows of a query by DuckDB."""

    title = "DuckDB"

    @contextmanager
    def run(self, query: Query, layout: Layout, folder: Path) -> Iterator[Answer]:
        """Run a query that only reads."""
        with _reading(query, layout, folder) as (duckdb, connection):
            refused = f"{self.title} refuses the query"
            with refusing(query.label, duckdb.Error, refused):
                rows = connection.sql(query.sql)
                check_different(query, rows.columns)
                rows = _with_texts(rows)
                size = max(1, min(BATCH_ROWS, BATCH_CELLS // len(rows.columns)))
                if any(str(kind) in LONG for kind in rows.types):
                    size = min(size, FEW_ROWS)
                # Of older versions it has another name, which newer ones warn about.
                new_name = "to_arrow_reader" in dir(rows)
                read = rows.to_arrow_reader if new_name else rows.fetch_arrow_reader
                batches = _interruptible(connection, lambda: read(size))
                check_different(query, batches.schema.names)
            yield plain_schema(batches.schema), _tables(query, connection, batches, duckdb.Error)

    def tables_read(self, query: Query, layout: Layout) -> set[str]:
        """Name the tables in the plan of a query, before it is made quicker."""
        with (
            tempfile.TemporaryDirectory(prefix="reconform-") as folder,
            _reading(query, layout, Path(folder), "explain_output = 'all'") as (duckdb, connection),
            refusing(query.label, duckdb.Error, f"{self.title} refuses the query"),
        ):
            plan = connection.execute(f"explain (format json) {query.sql}").fetchall()
            names = _scanned(json.loads(dict(plan)["logical_plan"]))
            return {name.split(".")[-1].strip('"').lower() for name in names}

    @contextmanager
    def _writing(self, table: TableName, place: Path) -> Iterator[Any]:
        duckdb = _duckdb(table.place)
        with (
            tempfile.TemporaryDirectory(prefix="reconform-") as folder,
            refusing(table.address, duckdb.Error, f"{self.title} cannot write the table"),
            closing(_connect(duckdb, str(place), Path(folder), CLOSED)) as connection,
        ):
            connection.execute("set enable_external_access = false")
            yield connection

    def _kind(self, connection: Any, table: TableName) -> str | None:
        found = connection.execute(
            "select table_type from information_schema.tables where lower(table_name) = lower(?) "
            "and lower(table_schema) = lower(coalesce(?, current_schema())) "
            "and table_catalog = current_database()",
            [table.name, table.schema],
        ).fetchall()
        return None if not found else "view" if found[0][0] == "VIEW" else "table"

    def _create(self, connection: Any, table: TableName, schema: Any, rows: Iterator[Any]) -> None:
        held = _held_schema(schema)
        batches = (batch for part in rows for batch in _held(part, held).to_batches())
        connection.register("reconform_rows", pa.RecordBatchReader.from_batches(held, batches))
        connection.execute(f"create table {table.quoted} as select * from temp.reconform_rows")
        connection.unregister("reconform_rows")


# --- reading -------------------------------------------------------------------------------------


def _duckdb(place: str) -> Any:
    return extra("duckdb", "sql", f"Reading or writing {place}")


@contextmanager
def _reading(
    query: Query, layout: Layout, folder: Path, *settings: str
) -> Iterator[tuple[Any, Any]]:
    """Connect so that one select can be run, and do no more than it must."""
    duckdb = _duckdb(query.place)
    files = check_place_of(query)
    config = {} if layout.allow_extensions else CLOSED
    opened = f"{DuckDB.title} cannot open {query.place}"
    with refusing(query.label, duckdb.Error, opened):
        if query.of_database:
            connection = _connect(duckdb, query.place, folder, config, read_only=True)
        else:
            connection = _connect(duckdb, ":memory:", folder, config)
    with closing(connection):
        with refusing(query.label, duckdb.Error, opened):
            if not query.of_database:
                _name_files(connection, [os.path.abspath(file) for file in files], layout)
            if not layout.allow_extensions:
                connection.execute("set enable_external_access = false")
            for setting in (*settings, "lock_configuration = true"):
                connection.execute(f"set {setting}")
        with refusing(query.label, duckdb.Error, f"{DuckDB.title} refuses the query"):
            statements = connection.extract_statements(query.sql)
        kinds = [statement.type.name for statement in statements]
        if len(kinds) != 1:
            raise one_select(query, f"these are {len(kinds)} statements" if kinds else None)
        if kinds[0] != "SELECT":
            raise one_select(query, f"this is a statement of the kind {kinds[0]}")
        yield duckdb, connection


def _connect(
    duckdb: Any, place: str, folder: Path, settings: dict[str, str], *, read_only: bool = False
) -> Any:
    spill = folder / "duckdb"  # what DuckDB cannot keep in memory goes there, not to the database
    config = {**SETTINGS, **settings, "temp_directory": str(spill)}
    connection = duckdb.connect(place, read_only=read_only, config=config)
    connection.execute("set python_enable_replacements = false")
    return connection


def _name_files(connection: Any, files: list[str], layout: Layout) -> None:
    """Let a query call some files by one name; columns are matched by name."""
    paths = ", ".join(_literal(path) for path in files)
    connection.execute(f"set allowed_paths = [{paths}]")
    if files[0].lower().endswith(PARQUET_FILES):
        rows = f"read_parquet([{paths}], union_by_name = true)"
    else:
        rows = f"read_csv([{paths}], union_by_name = true{_dialect(files[0], layout)})"
    connection.execute(f"create temp view {FILES} as select * from {rows}")


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


def _tables(query: Query, connection: Any, batches: Any, error: type[Exception]) -> Iterator[Any]:
    # Arrow wraps what goes wrong while rows are fetched.
    with refusing(query.label, (error, OSError, pa.ArrowException), f"{DuckDB.title} stopped"):
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


def _scanned(plan: Any) -> Iterator[str]:
    """Names of the tables in a plan."""
    for node in plan:
        table = node.get("extra_info", {}).get("Table")
        if isinstance(table, str):
            yield table
        yield from _scanned(node.get("children", []))


# --- writing -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _held_type(type: Any) -> Any:
    """The type as which DuckDB holds a column; text, if it has none."""
    if pa.types.is_null(type):
        return pa.float64()
    if pa.types.is_float16(type):
        return pa.float32()
    duckdb = _duckdb("a table")
    with closing(duckdb.connect(":memory:")) as connection:
        try:
            connection.register("x", pa.table([pa.array([], type)], names=["x"]))
            connection.execute("create table y as select * from x")
        except (duckdb.Error, pa.ArrowException):
            return pa.large_string()
    return type


def _held_schema(schema: Any) -> Any:
    return pa.schema([(field.name, _held_type(field.type)) for field in schema])


def _held(table: Any, schema: Any) -> Any:
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if column.type != field.type and pa.types.is_large_string(field.type):
            column = words(column)
        columns.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.table(columns, schema=schema)
