"""Review files: unusual reference rows for a person to mark, and the reference without the marked.

A review file is a table in any format: the number of a row, an empty column for the mark, what is
known about the row, and all its columns as they are in the reference. These are compared with the
reference when the marks are read, so that marks are never applied to other rows. A note beside the
file without the marked rows says how many have left, as less is proven with such a reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..arrays import BoolArray, FloatArray, IndexArray
from ..atomic import atomic_file
from ..cleaning import BUDGET, staying
from ..detectors.prepare import Feature
from ..errors import InputError
from .cells import numbers, words
from .formats import FORMATS, Layout, Source
from .reading import Batches, default_batch_rows
from .source import open_source
from .survey import survey
from .text import safe_text
from .writing import open_output

# The number of the row from 1, the mark, and what is known about the row.
REVIEW_NAMES = ("row", "anomaly", "score", "p_value", "most_unusual")

YES = ("yes", "y", "1", "1.0", "true", "x")
NO = ("no", "n", "0", "0.0", "false")

# What is added to the name of a cleaned reference for the note beside it.
NOTE = ".cleaned.json"

# A spreadsheet keeps 15 digits of a number.
DIGITS = 1e-14


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


@dataclass(frozen=True, eq=False)
class Shown:
    """Rows of a reference that a person looks at.

    Attributes
    ----------
    positions : int array of shape (k,)
        Of the rows, from 0, in the order in which they are shown.
    scores, p_values : float arrays of shape (k,)
        NaN for rows that left before the others were scored.
    most_unusual : list of str
        What is unusual about each of them.
    marks : list of str
        What a person has said of them so far; empty where nothing.
    """

    positions: IndexArray
    scores: FloatArray
    p_values: FloatArray
    most_unusual: list[str]
    marks: list[str]


def review_table(
    reference: str | Path, layout: Layout, shown: Shown, *, rows: int, prefix: str = ""
) -> Any:
    """Make the table of a review file: some rows of a reference, to be marked."""
    with open_source(reference, layout) as source:
        table = _take(source, source.schema.names, shown.positions, of=rows)
    added = (
        pa.array(shown.positions + 1),
        pa.array([mark or None for mark in shown.marks], pa.string()),
        pa.array(shown.scores, from_pandas=True),
        pa.array(shown.p_values, from_pandas=True),
        pa.array(shown.most_unusual, pa.string()),
    )
    names = [prefix + name for name in REVIEW_NAMES]
    return pa.table([*added, *table.columns], names=[*names, *table.column_names])


def leave_out(
    reference: str | Path,
    marks: ReviewMarks,
    output: str | Path,
    *,
    budget: float = BUDGET,
    id_columns: Sequence[str] = (),
    layout: Layout,
    output_layout: Layout,
    overwrite: bool = False,
) -> Cleaned:
    """Write a reference without the rows that are marked in a review file.

    Columns of a text file become numbers in a format that has types, but for the identifiers.
    """
    with open_source(reference, layout) as source:
        rows, positions = _matched(source, layout, marks)
        marked = np.sort(positions[marks.marked()])
        stay = np.zeros(rows, dtype=bool)
        stay[staying(rows, marked, budget)] = True
        typed = source.is_text and not FORMATS[output_layout.format_of(output)].is_text
        batches = _batches(source, layout, id_columns if typed else None)
        shape: Callable[[Any], Any] = batches.typed if typed else lambda table: table
        schema = shape(source.schema.empty_table()).schema
        with open_output(output, schema, layout=output_layout, overwrite=overwrite) as write:
            start = 0
            for part in batches.tables():
                stop = start + part.num_rows
                write(shape(part.filter(pa.array(stay[start:stop]))))
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
    try:
        if not note.is_file():
            return 0
    except (OSError, ValueError):  # a query is not always the name of a file
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


def looked_at(
    reference: str | Path, marks: ReviewMarks, *, layout: Layout, budget: float = BUDGET
) -> tuple[IndexArray, list[str]]:
    """Rows that a person has looked at already, and the marks; refuse those of other rows."""
    with open_source(reference, layout) as source:
        rows, positions = _matched(source, layout, marks)
    staying(rows, positions[marks.marked()], budget)
    answers = marks.answers()
    said = np.array([bool(answer) for answer in answers], dtype=bool)
    return positions[said], [answer for answer in answers if answer]


def read_marks(path: str | Path, layout: Layout, *, prefix: str = "") -> ReviewMarks:
    """Read a review file that a person has filled in."""
    with open_source(path, layout) as file:
        names = [*file.schema.names]
        table = pa.concat_tables(file.tables(names, default_batch_rows(len(names))))
        return ReviewMarks(file, table.select(names), layout, prefix)


class ReviewMarks:
    """The rows of a review file."""

    def __init__(self, source: Source, table: Any, layout: Layout, prefix: str) -> None:
        self.source = source
        self.table = table
        self.layout = layout
        ours = {prefix + name for name in REVIEW_NAMES}
        ours |= {safe_text(name) for name in ours}
        self.row, self.mark = (
            next((shown for shown in (name, safe_text(name)) if shown in table.column_names), name)
            for name in (prefix + REVIEW_NAMES[0], prefix + REVIEW_NAMES[1])
        )
        for name in (self.row, self.mark):
            if name not in table.column_names:
                raise InputError(
                    source.label,
                    f"it lacks the column {name!r} of a review file. Write one with `output`; one "
                    "that was written with a `prefix` is read with the same.",
                    column=name,
                )
        self.others = [name for name in table.column_names if name not in ours]

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
        """Which rows are marked as anomalies."""
        return np.array([answer == "yes" for answer in self.answers()], dtype=bool)

    def answers(self) -> list[str]:
        """What a person says of every row: yes, no, or nothing."""
        cells = words(self.table.column(self.mark)).to_pylist()
        plain = [(cell or "").strip().lower() for cell in cells]
        if not any(plain):
            raise InputError(
                self.source.label,
                f"no cell of its column {self.mark!r} is filled in. Write yes beside every row "
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
        return ["yes" if cell in YES else "no" if cell else "" for cell in plain]


def _matched(source: Source, layout: Layout, given: ReviewMarks) -> tuple[int, IndexArray]:
    """Count the rows and find those of a review; refuse marks of rows of another reference."""
    rows = source.rows
    if rows is None:
        tables = source.tables(source.schema.names[:1], default_batch_rows(1))
        rows = sum(table.num_rows for table in tables)
    positions = given.positions(rows, source.label)
    theirs_by_name = {
        name: shown
        for name in source.schema.names
        for shown in (name, safe_text(name))
        if shown in given.others
    }
    shared = list(theirs_by_name)
    if not shared:
        raise InputError(
            given.source.label,
            f"it has no column of {source.label}, so that nothing tells whether its rows are those "
            "of this file. Keep the columns that identify a row.",
        )
    table = _take(source, shared, positions, of=rows)
    for name in shared:
        ours, theirs = table.column(name), given.table.column(theirs_by_name[name])
        same = _equal(ours, theirs, layout, given.layout, source.is_text, given.source.is_text)
        if not same.all():
            i = int(np.argmin(same))
            now, then = (words(column.slice(i, 1))[0].as_py() for column in (ours, theirs))
            raise given.refuse(
                i,
                f"row {positions[i] + 1:,} of {source.label} has {name!r} {now!r}, and had "
                f"{then!r} when it was reviewed. If the reference has changed, write a new review "
                "file; if a spreadsheet has rewritten the column, delete it from the review file.",
                name,
            )
    return rows, positions


def _equal(
    ours: Any, theirs: Any, layout: Layout, its: Layout, parse: bool, parse_its: bool
) -> BoolArray:
    """Cells that say the same: the same text, the same number, or nothing."""
    texts = [[cell or "" for cell in words(c).to_pylist()] for c in (ours, theirs)]
    written = [{cell.strip(), safe_text(cell).strip()} for cell in texts[0]]
    same = np.array([b.strip() in a for a, b in zip(written, texts[1], strict=True)], dtype=bool)
    a, no_a = numbers(ours, layout, parse=parse)
    b, no_b = numbers(theirs, its, parse=parse_its)
    close = np.isclose(a, b, rtol=DIGITS, atol=0.0, equal_nan=True)
    return np.asarray(same | (close & ~no_a & ~no_b))


def _take(source: Source, names: Sequence[str], positions: IndexArray, *, of: int) -> Any:
    """Some rows of a file, in this order; refuse a file that has another number of rows."""
    inside = np.sort(positions)
    kept, start = [source.schema.empty_table().select(list(names))], 0
    for table in source.tables(names, default_batch_rows(len(names))):
        stop = start + table.num_rows
        here = inside[np.searchsorted(inside, start) : np.searchsorted(inside, stop)]
        kept.append(table.select(list(names)).take(pa.array(here - start)))
        start = stop
    if start != of:
        raise _changed(source)
    return pa.concat_tables(kept).take(pa.array(np.searchsorted(inside, positions)))


def _batches(source: Source, layout: Layout, ids: Sequence[str] | None) -> Batches:
    """All rows in batches; with `ids`, the columns that hold numbers are known as such."""
    names = source.schema.names
    rows = default_batch_rows(len(names))
    features: Iterator[Feature] = iter(())
    if ids is not None:
        found = survey(source, names, layout, rows)
        features = (Feature(n) for n in names if found[n].nature == "number" and n not in ids)
    return Batches(source, tuple(features), layout, allow_missing=True, batch_rows=rows)


def _changed(source: Source) -> InputError:
    return InputError(source.label, "it changed while it was read; run the command again.")
