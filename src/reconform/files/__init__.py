"""Tables on disk: CSV, TSV, Parquet and Arrow in and out, in batches.

    source.py     one re-readable table per format: its column names, and its rows in batches
    text.py       the same for CSV and TSV, and what is wrong with one that cannot be read
    plain.py      whatever types a file has, as a few plain ones
    cells.py      from a column of cells to float64: numbers, category codes, missing values
    survey.py     what a table holds column by column, and the sentences that refuse it
    reading.py    `read_reference`, `open_batches`
    writing.py    `open_output`: whole or not at all

Everything that is wrong with a file is an `InputError`, and the text of it is for the person who
ran the command: it names the options of the command line.
"""

from __future__ import annotations

from ..errors import InputError
from ..extras import extra

extra("pyarrow", None, "reading and writing files")

from .reading import Batches, Table, open_batches, read_reference
from .source import FORMATS, Layout
from .writing import RESULT_NAMES, add_results, check_output, open_output

__all__ = [
    "FORMATS",
    "RESULT_NAMES",
    "Batches",
    "InputError",
    "Layout",
    "Table",
    "add_results",
    "check_output",
    "open_batches",
    "open_output",
    "read_reference",
]
