"""What the columns of two tables are used as, where nobody said it.

Numbers are used as they are, text as categories, dates by the hour, the weekday and the month.
Identifiers, free text and empty columns are left out. What is decided is decided from the reference
and the new rows together, where these are a file as well: no row is special to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import BoolArray, FloatArray
from ..assumption.columns import no_repeats
from ..detectors.prepare import FEW_LABELS, Feature, dated
from ..frames import ELAPSED, calendar_parts
from .cells import DATE_FORMATS, TIMES, kind_of, numbers, seconds, texts
from .columnar import Source
from .formats import Layout
from .survey import ColumnSurvey, labels_of

# Chance below which whole numbers that never repeat are taken for an identifier.
RARE = 1e-3
# Cells that are read as dates before all are.
FEW_CELLS = 64
# Texts that are longer on average, and have words, are free text.
LONG_TEXT = 40
# A code for missing values fills this share of a column at least, and lies so far from the others.
LEAST_SHARE, FAR = 0.01, 0.5

FREE_TEXT = (
    "free text: left out (in Python, scikit-learn's TfidfVectorizer in a pipeline makes numbers of "
    "it)"
)


@dataclass(frozen=True)
class Use:
    """What a column is used as.

    Attributes
    ----------
    name : str
    said : str
        In a few words, for people.
    features : tuple of Feature
        None for a column that is left out.
    names_rows : bool
        Whether it is an identifier, which names the rows.
    """

    name: str
    said: str
    features: tuple[Feature, ...] = ()
    names_rows: bool = False


# Rows of each file by which columns are told apart; a large file says the same in its first rows.
MOST_LOOKED_AT, BYTES_LOOKED_AT = 200_000, 1 << 26


@dataclass(frozen=True, eq=False)
class _Both:
    """A column in the reference, and among the new rows if these are known."""

    name: str
    surveys: Sequence[ColumnSurvey]
    cells: Sequence[Any]
    parse: Sequence[bool]
    layout: Layout

    @property
    def natures(self) -> set[str]:
        return {one.nature for one in self.surveys if one.present}

    def first(self, rows: int) -> _Both:
        """The same with the first rows only: most columns of text are soon seen to be no dates."""
        return replace(self, cells=[cells.slice(0, rows) for cells in self.cells])

    def numbers(self) -> list[FloatArray]:
        """The numbers of both."""
        pairs = zip(self.cells, self.parse, strict=True)
        return [numbers(cells, self.layout, parse=parse)[0] for cells, parse in pairs]

    def labels(self) -> list[list[str]]:
        """The different texts of both."""
        pairs = zip(self.cells, self.parse, strict=True)
        found = [texts(cells, self.layout, parse=parse) for cells, parse in pairs]
        return [pc.unique(cells.drop_null()).to_pylist() for cells in found]

    def seconds(self, written: str) -> list[tuple[FloatArray, BoolArray]]:
        """The times of both, and which cells are none."""
        pairs = zip(self.cells, self.parse, strict=True)
        return [seconds(cells, written, self.layout, parse=parse) for cells, parse in pairs]


def _first_rows(source: Source, names: Sequence[str], rows: int) -> Any:
    tables: list[Any] = []
    seen = size = 0
    for table in source.tables(names, rows):
        tables.append(table.select(names))
        seen, size = seen + table.num_rows, size + tables[-1].nbytes
        if seen >= MOST_LOOKED_AT or size >= BYTES_LOOKED_AT:
            break
    return pa.concat_tables(tables or [source.schema.empty_table().select(names)])


def uses_of(
    sources: Sequence[Source],
    surveys: Sequence[dict[str, ColumnSurvey]],
    layout: Layout,
    rows: int,
    *,
    categories: Sequence[str] = (),
    elapsed: Sequence[str] = (),
    named: bool = False,
) -> list[Use]:
    """Say what every column is used as.

    Parameters
    ----------
    sources : sequence of Source
        The reference, and the new rows if they are known.
    surveys : sequence of dict
        What their columns hold.
    layout : Layout
    rows : int
        Of a batch.
    categories, elapsed : sequence of str
        Columns that are labels, and dates of which the time that has passed is used.
    named : bool
        The columns were asked for by name: none is left out as an identifier.
    """
    looked = [
        _first_rows(source, list(found), rows)
        for source, found in zip(sources, surveys, strict=True)
    ]
    uses = []
    for name in surveys[0]:
        where = [k for k, found in enumerate(surveys) if name in found]
        column = _Both(
            name,
            [surveys[k][name] for k in where],
            [looked[k].column(name) for k in where],
            [sources[k].is_text for k in where],
            layout,
        )
        uses.append(_use(column, name in categories, name in elapsed, named))
    # The labels of all reference rows, not of the first ones only.
    names = [use.name for use in uses if use.features and use.features[0].is_category]
    labels = labels_of(sources[0], names, layout, rows)
    return [
        replace(use, features=(Feature(use.name, labels[use.name]),)) if use.name in labels else use
        for use in uses
    ]


def _use(column: _Both, is_label: bool, elapsed: bool, named: bool) -> Use:
    name, natures = column.name, column.natures
    if not natures:
        return Use(name, "empty: left out")
    if is_label:
        return _category(column, named=True)
    if natures <= {"number"} and not elapsed:
        return _number(column, named)
    dates = _date(column, elapsed)
    if dates is not None:
        return dates
    if column.surveys[0].nature == "text":
        return _category(column, named=named)
    if column.surveys[0].nature == "other":
        return Use(name, "neither numbers nor text: left out")
    return Use(name, "number", (Feature(name),))  # with cells that are refused


def _number(column: _Both, named: bool) -> Use:
    name, first = column.name, column.surveys[0]
    values = column.numbers()
    known = [some[np.isfinite(some)] for some in values]
    every = np.concatenate(known)
    never_twice = max(map(no_repeats, known)) < RARE or no_repeats(every) < RARE
    if not named and not first.missing and len(every) > FEW_LABELS and never_twice:
        return Use(name, "id, different in every row: left out", names_rows=True)
    use = Use(name, "number", (Feature(name),))
    whole = first.rows == len(values[0])
    if whole and len(known[0]) and (known[0] == known[0][0]).all():
        return Use(name, f"constant, {known[0][0]:g} in every reference row", use.features)
    code = _code_for_missing(every)
    gaps = f"number, missing in {first.missing:,} rows" if first.missing else "number"
    if code is not None:
        times = int((every == code).sum())
        gaps += (
            f"; {code:g} in {times:,} rows, far from all others: a code for missing? If it is, say "
            f"`missing={code:g}`"
        )
    return Use(name, gaps, use.features)


def _code_for_missing(values: FloatArray) -> float | None:
    """Find a value that lies far from all others and is frequent, such as -200 or 9999."""
    different, counts = np.unique(values, return_counts=True)
    if len(different) < 4:
        return None
    for at, beside, far in ((0, 1, -1), (-1, -2, 0)):
        gap, rest = abs(different[at] - different[beside]), abs(different[beside] - different[far])
        share, code = counts[at] / len(values), float(different[at])
        alone = code < 0 <= different[beside] or set(f"{abs(code):.0f}") in ({"9"}, {"8"})
        frequent = LEAST_SHARE <= share <= 0.5 and counts[at] > 3 * counts[beside]
        if code.is_integer() and alone and frequent and gap >= FAR * rest:
            return code
    return None


def _date(column: _Both, elapsed: bool) -> Use | None:
    """Read a column as dates, if all its cells are; None otherwise."""
    kinds = {kind_of(cells.type) for cells in column.cells}
    if not kinds <= {"time", "text"}:
        return None
    if pa.types.is_duration(column.cells[0].type):
        return Use(column.name, "duration, in seconds", dated(column.name, "typed", [ELAPSED]))
    formats = [
        one
        for one in (DATE_FORMATS if "text" in kinds else ("typed",))
        if not any(wrong.any() for _, wrong in column.first(FEW_CELLS).seconds(one))
        and not any(wrong.any() for _, wrong in column.seconds(one))
    ]
    if not formats:
        return None
    read = [values for values, _ in column.seconds(formats[0])]
    no_date = formats[0] in TIMES or pa.types.is_time(column.cells[0].type)
    parts = [ELAPSED] if elapsed else calendar_parts(read, dated=not no_date)
    if not parts:
        return Use(
            column.name,
            "date: left out, the files cover too short a time to compare hours or weekdays",
        )
    said = " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
    how = "" if formats[0] in ("iso", "typed") else f", written as {formats[0]}"
    return Use(column.name, f"date: {said}{how}", dated(column.name, formats[0], parts))


def _category(column: _Both, *, named: bool) -> Use:
    """A column of labels; one with a different text in most rows is an identifier, or free text."""
    name, every = column.name, column.labels()
    different, present = set().union(*every), sum(len(c) - c.null_count for c in column.cells)
    if not named and len(different) > max(FEW_LABELS, present / 2):
        words = [label for label in different if " " in label.strip()]
        long = sum(map(len, different)) > LONG_TEXT * len(different)
        if long and 2 * len(words) > len(different):
            return Use(name, FREE_TEXT)
        return Use(name, "id, different in most rows: left out", names_rows=True)
    labels = every[0]
    first = column.surveys[0]
    if len(labels) == 1 and not first.missing and first.rows == len(column.cells[0]):
        said = f"constant, {labels[0][:40]!r} in every reference row"
    else:
        said = f"category of {len(labels):,}"
    return Use(name, said, (Feature(name, tuple(labels)),))
