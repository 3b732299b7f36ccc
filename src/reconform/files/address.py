"""Addresses of rows that are no file of their own: ``PLACE#QUERY`` and ``DATABASE#TABLE``.

A place is a database, or a pattern for files of rows. A file whose name happens to hold a ``#`` is
that file. Nothing is opened here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError

DUCKDB_SUFFIXES = (".duckdb", ".ddb")
SQLITE_SUFFIXES = (".sqlite", ".sqlite3", ".db")
DATABASES = (*DUCKDB_SUFFIXES, *SQLITE_SUFFIXES)
PARQUET_FILES = (".parquet", ".pq")
TEXT_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz")

# What the rows of a pattern are called in a query.
FILES = "files"

LONGEST_SHOWN = 80

# The name of a table, perhaps in a schema. Others are quoted, in a query.
TABLE = re.compile(r"(?:(?P<schema>[\w$-]+)\.)?(?P<name>[\w$-]+)")


@dataclass(frozen=True)
class Query:
    """Rows by a query, or all rows of a table.

    Attributes
    ----------
    address : str
        As it was given.
    place : str
        A database, or a pattern such as ``lake/*.parquet``.
    text : str
        SQL, or the name of a table.
    """

    address: str
    place: str
    text: str

    @property
    def of_database(self) -> bool:
        """Whether the place is a database, and not files of rows."""
        return is_database(self.place)

    @property
    def table(self) -> TableName | None:
        """The table that is read whole; None for SQL."""
        named = TABLE.fullmatch(self.text)
        return None if named is None else TableName(self.address, self.place, **named.groupdict())

    @property
    def sql(self) -> str:
        """The query."""
        return self.text if self.table is None else f"select * from {self.table.quoted}"

    @property
    def label(self) -> str:
        """What to call it in messages: the query in one line, cut short."""
        line = " ".join(self.text.split())
        return f"{self.place}#{line if len(line) <= LONGEST_SHOWN else line[:LONGEST_SHOWN] + '…'}"

    @property
    def name(self) -> str:
        """A short name: that of the table, or of the file."""
        return self.table.name if self.table is not None else Path(self.place).stem.strip("*?")


@dataclass(frozen=True)
class TableName:
    """A table of a database.

    Attributes
    ----------
    address : str
        As it was given.
    place : str
        The database.
    schema : str or None
    name : str
    """

    address: str
    place: str
    schema: str | None
    name: str

    @property
    def quoted(self) -> str:
        """The table in SQL."""
        return self.beside(self.name)

    def beside(self, name: str) -> str:
        """Another table in the same schema, in SQL."""
        return ".".join(quoted(part) for part in (self.schema, name) if part is not None)


def quoted(name: str) -> str:
    """Write a name in SQL, whatever is in it.

    Examples
    --------
    >>> print(quoted('the "hot" ones'))
    "the ""hot"" ones"
    """
    return '"' + name.replace('"', '""') + '"'


def query_of(path: str | Path) -> Query | None:
    """Read an address; None for the name of a file.

    Examples
    --------
    >>> query_of("new.csv")
    >>> query_of("lake/*.parquet#select * from files where a > 1").place
    'lake/*.parquet'
    >>> print(query_of("plant.duckdb#flagged").sql)
    select * from "flagged"
    """
    address = os.fspath(path)
    cuts = [found.start() for found in re.finditer("#", address)]
    cuts = [at for at in cuts if is_database(address[:at]) or is_file_of_rows(address[:at])]
    if not cuts or os.path.lexists(address):
        return None
    # Folders may have the sign in their names, and so may a query.
    at = next((at for at in cuts if os.path.isfile(address[:at])), cuts[0])
    return Query(address, address[:at], address[at + 1 :].strip())


def table_of(path: str | Path) -> TableName | None:
    """Read the address of a table to write; None for the name of a file."""
    query = query_of(path)
    if query is None:
        return None
    if not query.of_database:
        raise InputError(
            query.label,
            f"tables are written to databases ({', '.join(DATABASES)}); {query.place} is none.",
        )
    if query.table is None:
        raise InputError(
            query.label,
            "what follows # must be the name of a table to write: letters, digits, _, - and $, "
            "with a schema and a point before it if there is one.",
        )
    return query.table


def is_database(place: str | Path) -> bool:
    """Whether a name is that of a database."""
    return os.fspath(place).lower().endswith(DATABASES)


def is_file_of_rows(place: str | Path) -> bool:
    """Whether a name or pattern is that of files of rows which a query can read."""
    return os.fspath(place).lower().endswith((*PARQUET_FILES, *TEXT_FILES))


def check_different(query: Query, names: Sequence[str]) -> None:
    """Refuse a query that gives a column twice."""
    twice = sorted({name for name in names if list(names).count(name) > 1})
    if twice:
        raise InputError(
            query.label,
            f"the query gives the column {twice[0]!r} more than once. Columns are matched by name: "
            "give it another name, with AS.",
            column=twice[0],
        )


def label_of(path: str | Path) -> str:
    """What to call a file or a query in messages."""
    query = query_of(path)
    return os.fspath(path) if query is None else query.label


def noted(path: str | Path, label: str) -> str:
    """What a result says that it was made of: a query in full, a file as messages call it."""
    return label if query_of(path) is None else os.fspath(path)


def called(path: str | Path) -> str:
    """What to call it in a title, without its folder.

    Examples
    --------
    >>> called("data/new.csv"), called("data/plant.duckdb#readings")
    ('new.csv', 'plant.duckdb#readings')
    """
    query = query_of(path)
    if query is None:
        return Path(path).name
    return Path(query.place).name + query.label.removeprefix(query.place)
