"""`database_for`: which library reads and writes a place."""

from __future__ import annotations

from contextlib import suppress

from .address import DUCKDB_SUFFIXES, Query, TableName
from .database import Database
from .duckdb_files import SIGNATURE as DUCKDB_SIGNATURE
from .duckdb_files import DuckDB
from .sqlite_files import SIGNATURE as SQLITE_SIGNATURE
from .sqlite_files import SQLite

DUCKDB, SQLITE = DuckDB(), SQLite()


def database_for(address: Query | TableName) -> Database:
    """Choose by the first bytes of the file; by its name, where there is none.

    Examples
    --------
    >>> database_for(TableName("", "no-such.duckdb", None, "flagged")).title
    'DuckDB'
    """
    if isinstance(address, Query) and not address.of_database:
        return DUCKDB
    start = b""
    with suppress(OSError), open(address.place, "rb") as file:
        start = file.read(16)
    if SQLITE_SIGNATURE in start:
        return SQLITE
    if DUCKDB_SIGNATURE in start or address.place.lower().endswith(DUCKDB_SUFFIXES):
        return DUCKDB
    return SQLITE
