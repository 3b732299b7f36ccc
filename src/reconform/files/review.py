"""Review files: unusual reference rows for a person to mark, and the reference without the marked.

A review file is a table in any format: the number of a row, an empty column for the mark, what is
known about the row, a seal of what the row holds, and all its columns as they are in the reference.
The seal is compared with the reference when the marks are read, so that marks are never applied to
other rows. A note beside the file without the marked rows says how many have left, as less is
proven with such a reference.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, IndexArray
from ..atomic import atomic_file
from ..cleaning import BUDGET, Review, staying
from ..errors import InputError
from ..tables import Source
from ..tables.cells import numbers, words
from .formats import FORMATS, Layout
from .reading import default_batch_rows
from .source import open_source
from .writing import free_names, open_output

# The number of the row from 1, the mark, and what is known about the row.
REVIEW_NAMES = ("row", "anomaly", "score", "p_value", "most_unusual", "seal")

YES = ("yes", "y", "1", "1.0", "true", "x")
NO = ("no", "n", "0", "0.0", "false")

# What is added to the name of a cleaned reference for the note beside it.
NOTE = ".cleaned.json"


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A reference without the rows that a person marked.

    Attributes
    ----------
    rows : int
        Of the reference.
    reviewed : int
        Rows of the review file.
    marked : int array
        Positions of the rows that left, from 0, in increasing order.
    before : int
        Rows that had left the reference before.
    """

    rows: int
    reviewed: int
    marked: IndexArray
    before: int = 0

    @property
    def kept(self) -> int:
        """Number of rows that stayed."""
        return self.rows - len(self.marked)


def review_table(
    reference: str | Path,
    layout: Layout,
    seen: Review,
    positions: IndexArray,
    most_unusual: Sequence[str],
) -> Any:
    """Make the table of a review file: some rows of a reference, to be marked."""
    with open_source(reference, layout) as source:
        table = _take(source, positions, of=len(seen))
    added = (
        pa.array(positions + 1),
        pa.nulls(len(positions), pa.string()),
        pa.array(seen.scores[positions]),
        pa.array(seen.p_values[positions]),
        pa.array(most_unusual, pa.string()),
        pa.array(_seals(table), pa.string()),
    )
    names = free_names(REVIEW_NAMES, table.column_names)
    return pa.table([*added, *table.columns], names=[*names, *table.column_names])


def _seals(table: Any) -> list[str]:
    """Say in a few letters, none of which a spreadsheet changes, what every row holds."""
    cells = zip(*(words(column).to_pylist() for column in table.columns), strict=True)
    return [f"s{hashlib.blake2b(repr(row).encode(), digest_size=6).hexdigest()}" for row in cells]


def leave_out(
    reference: str | Path,
    marks: ReviewMarks,
    output: str | Path,
    *,
    budget: float = BUDGET,
    layout: Layout,
    output_layout: Layout,
    overwrite: bool = False,
) -> Cleaned:
    """Write a reference without the rows that are marked in a review file."""
    with open_source(reference, layout) as source:
        if source.is_text and not FORMATS[output_layout.format_of(output)].is_text:
            raise InputError(
                output, f"the cells of {source.label} are text; let this file be CSV or TSV, too."
            )
        rows = _count(source)
        positions = marks.positions(rows, source.label)
        for i, seal in enumerate(_seals(_take(source, positions, of=rows))):
            if seal != marks.seals[i]:
                raise marks.refuse(
                    i,
                    f"row {positions[i] + 1:,} of {source.label} does not hold what it held when "
                    "it was reviewed. If the reference has changed, write a new review file.",
                    marks.seal,
                )
        marked = np.sort(positions[marks.marked()])
        stay = np.zeros(rows, dtype=bool)
        stay[staying(rows, marked, budget)] = True
        names, start = source.schema.names, 0
        with open_output(output, source.schema, layout=output_layout, overwrite=overwrite) as write:
            for part in source.tables(names, default_batch_rows(len(names))):
                stop = start + part.num_rows
                write(part.select(names).filter(pa.array(stay[start:stop])))
                start = stop
            if start != rows:
                raise _changed(source)
            before = left_out_of(reference)
            with atomic_file(f"{output}{NOTE}", overwrite=True) as note:
                note.write_text(json.dumps({"left_out": before + len(marked)}))
    return Cleaned(rows, len(positions), marked, before)


def left_out_of(reference: str | Path) -> int:
    """How many marked rows have left a reference, by the note beside it; 0 where there is none."""
    note = Path(f"{reference}{NOTE}")
    if not note.is_file():
        return 0
    try:
        with note.open("rb") as file:
            count = json.loads(file.read(1000))["left_out"]
    except (ValueError, KeyError, TypeError):
        count = None
    if type(count) is not int or count < 0:
        raise InputError(
            str(note),
            "it is not the note that 'reconform clean' writes beside a reference that marked rows "
            'have left, such as {"left_out": 3}. Write it again, or delete it if no row has left.',
        )
    return count


def read_marks(path: str | Path, layout: Layout) -> ReviewMarks:
    """Read a review file that a person has filled in."""
    with open_source(path, layout) as file:
        names = [*file.schema.names]
        table = pa.concat_tables(file.tables(names, default_batch_rows(len(names))))
        return ReviewMarks(file, table, layout)


class ReviewMarks:
    """The rows of a review file."""

    def __init__(self, source: Source, table: Any, layout: Layout) -> None:
        self.source, self.table, self.layout = source, table, layout
        # The longest seal that is there was written by a review; see `free_names`.
        seals = [name for name in table.column_names if name.endswith("seal")]
        before = max(seals, key=len, default="seal").removesuffix("seal")
        self.row, self.mark, self.seal = (before + name for name in ("row", "anomaly", "seal"))
        for name in (self.row, self.mark, self.seal):
            if name not in table.column_names:
                raise InputError(
                    source.label,
                    f"it lacks the column {name!r} of a review file. Write one with `output`.",
                    column=name,
                )
        self.seals = words(table.column(self.seal)).to_pylist()

    def refuse(self, i: int, message: str, column: str) -> InputError:
        """The error of a row, from 0."""
        line = self.source.line(i)
        where = "" if line is not None else f"row {i + 1:,} of it: "
        return InputError(self.source.label, where + message, line=line, column=column)

    def positions(self, rows: int, reference: str) -> IndexArray:
        """Which rows of the reference these are, from 0."""
        column = self.table.column(self.row)
        values, _ = numbers(column, self.layout, parse=self.source.is_text)
        seen: set[float] = set()
        for i, value in enumerate(values.tolist()):
            if not value.is_integer() or value < 1:
                cell = words(column.slice(i, 1))[0].as_py()
                raise self.refuse(
                    i, f"{self.row!r} must be the number of a row, from 1; got {cell!r}.", self.row
                )
            if value > rows:
                raise self.refuse(
                    i,
                    f"it marks row {value:,.0f}, and {reference} has {rows:,} rows. Has it changed "
                    "since the review? Write a new review file.",
                    self.row,
                )
            if value in seen:
                raise self.refuse(i, f"row {value:,.0f} is there a second time.", self.row)
            seen.add(value)
        return values.astype(np.intp) - 1

    def marked(self) -> BoolArray:
        """Which rows a person calls anomalies."""
        cells = words(self.table.column(self.mark)).to_pylist()
        plain = [(cell or "").strip().lower() for cell in cells]
        if not any(plain):
            raise InputError(
                self.source.label,
                f"its column {self.mark!r} is empty. Write yes beside every row "
                "that is an anomaly, and no beside the others.",
                column=self.mark,
            )
        for i, cell in enumerate(plain):
            if cell and cell not in (*YES, *NO):
                raise self.refuse(
                    i,
                    f"{self.mark!r} must be yes or no (1 or 0, true or false, x or nothing); got "
                    f"{cells[i]!r}.",
                    self.mark,
                )
        return np.array([cell in YES for cell in plain], dtype=bool)


def _count(source: Source) -> int:
    if source.rows is not None:
        return source.rows
    tables = source.tables(source.schema.names[:1], default_batch_rows(1))
    return sum(table.num_rows for table in tables)


def _take(source: Source, positions: IndexArray, *, of: int) -> Any:
    """Some rows of a file, in this order; refuse a file that has another number of rows."""
    names, inside = source.schema.names, np.sort(positions)
    kept, start = [source.schema.empty_table()], 0
    for table in source.tables(names, default_batch_rows(len(names))):
        stop = start + table.num_rows
        here = inside[np.searchsorted(inside, start) : np.searchsorted(inside, stop)]
        kept.append(table.select(names).take(pa.array(here - start)))
        start = stop
    if start != of:
        raise _changed(source)
    return pa.concat_tables(kept).take(pa.array(np.searchsorted(inside, positions)))


def _changed(source: Source) -> InputError:
    return InputError(source.label, "it changed while it was read; run the command again.")
