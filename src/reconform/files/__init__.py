"""Tables on disk, in and out, in batches.

    formats.py    `FORMATS`, one row per format; `Layout`, which chooses among them; `open_output`
    text.py       CSV and TSV
    columnar.py   Parquet and Arrow
    source.py     `open_source`: a table that can be read more than once, pipes included
    reading.py    `read_reference`, `read_labelled`: a reference in memory
    batches.py    `open_batches`: new rows, and units made of them
    lines.py      rows that arrive as lines
    judge.py      `judge_file`: a file in, a file with p-values and decisions out
    result.py     writes every row with its results; `FileDiscoveries`

Everything that is wrong with a file is an `InputError`, whose sentence is for the person who ran
the command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import InputError
from ..extras import extra, imported_later

extra("pyarrow", None, "reading and writing files")

from .formats import (
    CERTIFIED_NAMES,
    FORMATS,
    RESULT_NAMES,
    Layout,
    add_results,
    check_output,
    open_output,
)

if TYPE_CHECKING:
    from .batches import Batches, open_batches
    from .reading import Table, TableOptions, normal_rows, read_labelled, read_reference

# Whoever only asks what a file is need not wait for all that can be done with its rows.
_HOMES = {
    "batches": ("Batches", "open_batches"),
    "reading": ("Table", "TableOptions", "normal_rows", "read_labelled", "read_reference"),
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
