"""`Database`: what a library does to answer queries and hold tables, and how it refuses them."""

from __future__ import annotations

import glob
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar

from ..errors import InputError
from .address import Query, TableName, quoted
from .formats import Layout

# Of a table that is replaced, until the run has ended well.
OLD = "reconform_old_"

Answer = tuple[Any, Iterator[Any]]


class Database(ABC):
    """A library that runs queries and writes tables.

    Whatever its own errors say is passed on in an `InputError`.
    """

    title: ClassVar[str]

    @abstractmethod
    def run(self, query: Query, layout: Layout, folder: Path) -> AbstractContextManager[Answer]:
        """Run a query that only reads; give the schema and the tables of its rows, plain types.

        Parameters
        ----------
        query : Query
        layout : Layout
        folder : Path
            For temporary files.
        """

    @abstractmethod
    def tables_read(self, query: Query, layout: Layout) -> set[str]:
        """Name the tables that a query reads, as far as that can be known, in lower case."""

    @abstractmethod
    def _writing(self, table: TableName, place: Path) -> AbstractContextManager[Any]:
        """Connect to a database, or make one, to write a table; errors become sentences."""

    @abstractmethod
    def _kind(self, connection: Any, table: TableName) -> str | None:
        """``"table"``, ``"view"``, or None where there is nothing of this name."""

    @abstractmethod
    def _create(self, connection: Any, table: TableName, schema: Any, rows: Iterator[Any]) -> None:
        """Create a table and fill it."""

    def check(self, table: TableName, place: Path, *, overwrite: bool) -> None:
        """Refuse a table that cannot be written: try it, and take it back."""
        with self._writing(table, place) as connection:
            connection.execute("begin")
            if self._may_take_name(connection, table, overwrite=overwrite):
                self._rename(connection, table, table.name, _other_name())
            connection.execute(f"create table {table.quoted} (x integer)")
            connection.execute("rollback")

    def put(
        self,
        table: TableName,
        schema: Any,
        rows: Iterator[Any],
        *,
        place: Path,
        overwrite: bool,
        keep_old: bool,
    ) -> str | None:
        """Write a table in one transaction.

        Parameters
        ----------
        table : TableName
        schema : pyarrow.Schema
        rows : iterator of pyarrow.Table
        place : Path
            The database, under the name that it has now.
        overwrite : bool
            Replace a table that exists.
        keep_old : bool
            Keep this under another name, for `take_back`.

        Returns
        -------
        str or None
            The other name.
        """
        old = None
        with self._writing(table, place) as connection:
            connection.execute("begin")
            if self._may_take_name(connection, table, overwrite=overwrite):
                if keep_old:
                    old = _other_name()
                    self._rename(connection, table, table.name, old)
                else:
                    connection.execute(f"drop table {table.quoted}")
            self._create(connection, table, schema, rows)
            connection.execute("commit")
        return old

    def take_back(self, table: TableName, old: str | None) -> None:
        """Remove a table that was put; bring back the one that it replaced."""
        with self._writing(table, Path(table.place)) as connection:
            connection.execute("begin")
            connection.execute(f"drop table {table.quoted}")
            if old is not None:
                self._rename(connection, table, old, table.name)
            connection.execute("commit")

    def forget(self, table: TableName, old: str) -> None:
        """Remove the table that was replaced."""
        with self._writing(table, Path(table.place)) as connection:
            connection.execute(f"drop table {table.beside(old)}")

    def _may_take_name(self, connection: Any, table: TableName, *, overwrite: bool) -> bool:
        """Whether a table is to be replaced; refuse what may not be."""
        kind = self._kind(connection, table)
        if kind == "view":
            raise InputError(table.address, "it is a view, not a table; choose another name.")
        if kind is not None and not overwrite:
            raise InputError(
                table.address,
                "the table exists already; replace it with `overwrite=True`, or choose another "
                "name.",
            )
        return kind is not None

    def _rename(self, connection: Any, table: TableName, name: str, new: str) -> None:
        connection.execute(f"alter table {table.beside(name)} rename to {quoted(new)}")


def _other_name() -> str:
    return f"{OLD}{secrets.token_hex(8)}"


# What SQLite and DuckDB say after Ctrl-C.
INTERRUPTED = ("interrupted", "query interrupted", "interrupt error: interrupted")


@contextmanager
def refusing(
    label: str, errors: type[Exception] | tuple[type[Exception], ...], what: str
) -> Iterator[None]:
    """Pass errors of a library on in our sentence.

    Parameters
    ----------
    label : str
        What was given.
    errors : type or tuple of types
        Of the library.
    what : str
        Beginning of the sentence, such as "DuckDB refuses the query".
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if str(error).strip(".!").lower() in INTERRUPTED:
            raise KeyboardInterrupt from error
        if not isinstance(error, errors):
            raise
        raise InputError(label, f"{what}: {_one_line(str(error))}") from error


def _one_line(message: str) -> str:
    """The message without the lines of the query that it points at, as a sentence."""
    line = " ".join(message.split("\n\nLINE ")[0].split())
    return line if line.endswith((".", "!", "?")) else f"{line}."


def one_select(query: Query, got: str | None) -> InputError:
    """Say that something else than one query that only reads was given."""
    return InputError(
        query.label,
        "what follows # must be one query that only reads, such as 'select * from readings', or "
        f"the name of a table{'' if got is None else f'; {got}'}.",
    )


def check_place_of(query: Query) -> list[str]:
    """Return the files behind a query; refuse a database that is not there."""
    if not query.text:
        raise one_select(query, "there is nothing")
    files = files_behind(query)
    for path in files:
        if os.path.isdir(path):
            raise InputError(query.label, f"{path} is a folder, not a file.")
        if os.path.isfile(path) and not os.path.getsize(path):
            raise InputError(query.label, f"the file {path} is empty.")
    if not files or not all(map(os.path.exists, files)):
        what = "file" if not query.of_database else "database"
        raise InputError(query.label, f"there is no {what} {query.place}.")
    return files


def files_behind(query: Query) -> list[str]:
    """The database of a query, or the files that its pattern stands for, sorted."""
    if query.of_database or os.path.exists(query.place):
        return [query.place]
    return sorted(glob.glob(query.place, recursive=True))
