"""Tables on disk, in and out, in batches.

    formats.py       `FORMATS`, one row per format, and `Layout`, which chooses among them
    text.py          CSV and TSV
    columnar.py      Parquet and Arrow
    source.py        `open_source`: a table that can be read more than once, pipes included
    column_types.py  whatever types a file has, as a few plain ones
    cells.py         from a column of cells to float64: numbers, category codes, missing values
    survey.py        what a table holds column by column, and the sentences that refuse it
    reading.py       `read_reference`, `open_batches`
    labelled.py      `read_labelled`: rows with a column that says which are anomalies
    writing.py       `open_output`: whole or not at all
    spill.py         rows that do not fit into memory, on disk meanwhile
    judge.py         `judge_file`: a file in, a file with p-values and decisions out
    first_pass.py    ranks every row, and counts the ranks
    second_pass.py   writes every row with its results
    judged.py        the result, `FileDiscoveries`
    address.py       ``PLACE#QUERY`` and ``DATABASE#TABLE``
    database.py      what a library does to answer queries and hold tables
    duckdb_files.py  DuckDB: its databases, and patterns for files of rows
    sqlite_files.py  SQLite, by Python's own library
    databases.py     which of them a place belongs to
    snapshot.py      the rows of a query as they were when it ran
    tables.py        tables of databases that are written: whole or not at all

Everything that is wrong with a file is an `InputError`, whose sentence is for the person who ran
the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError
from ..extras import extra, imported_later

extra("pyarrow", None, "reading and writing files")

from .formats import FORMATS, Layout

if TYPE_CHECKING:
    from .labelled import TableOptions, normal_rows, read_labelled
    from .reading import Batches, Table, open_batches, read_reference
    from .writing import CERTIFIED_NAMES, RESULT_NAMES, add_results, check_output, open_output

# Whoever only asks what a file is need not wait for all that can be done with its rows.
_HOMES = {
    "labelled": ("TableOptions", "normal_rows", "read_labelled"),
    "reading": ("Batches", "Table", "open_batches", "read_reference"),
    "writing": ("CERTIFIED_NAMES", "RESULT_NAMES", "add_results", "check_output", "open_output"),
}
__getattr__, __dir__ = imported_later(__name__, _HOMES)

__all__ = [
    "CERTIFIED_NAMES",
    "FORMATS",
    "RESULT_NAMES",
    "Batches",
    "InputError",
    "Layout",
    "Table",
    "TableOptions",
    "add_results",
    "check_output",
    "normal_rows",
    "open_batches",
    "open_output",
    "read_labelled",
    "read_reference",
]
