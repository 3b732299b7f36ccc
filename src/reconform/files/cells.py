"""From a column of cells to float64: numbers, category codes, NaN for what is missing.

Every cell is judged by itself. What a cell means never depends on the cells around it, so a table
gives the same matrix whatever batches it is read in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..prepare import UNSEEN, Feature, describe
from .plain import as_json, is_text, python_value
from .source import Layout

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

# What the usual programs write for a missing value.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"


def kind_of(type: Any) -> str:
    """Sort Arrow's types: ``"number"``, ``"text"``, ``"time"``, or ``"other"``.

    Examples
    --------
    >>> import pyarrow as pa
    >>> [kind_of(t) for t in (pa.bool_(), pa.string(), pa.timestamp("s"), pa.binary())]
    ['number', 'text', 'time', 'other']
    """
    types = pa.types
    if (
        types.is_integer(type)
        or types.is_floating(type)
        or types.is_boolean(type)
        or types.is_decimal(type)
        or types.is_null(type)
    ):
        return "number"
    if is_text(type):
        return "text"
    return "time" if types.is_temporal(type) else "other"


# Columns are read together up to this many cells.
BLOCK_CELLS = 1 << 16

# The times that calendars are made for, in seconds: the years 1 to 9999.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_799
UNITS = {"s": 1, "ms": 10**3, "us": 10**6}


def words(column: Any) -> Any:
    """Read a column of any plain type as text that says what the cells are.

    Examples
    --------
    >>> import pyarrow as pa
    >>> words(pa.array([0, 10**15], pa.timestamp("s"))).to_pylist()
    ['1970-01-01 00:00:00', '1000000000000000 s since 1970']
    >>> words(pa.array([[1, 2], None])).to_pylist()
    ['[1, 2]', None]
    """
    type = column.type
    kind = kind_of(type)
    if kind == "text":
        return column
    if kind == "number" or pa.types.is_time(type) or pa.types.is_duration(type):
        return pc.cast(column, pa.string())
    if pa.types.is_date(type):
        days = pa.types.is_date32(type)
        seconds = pc.cast(pc.cast(column, pa.int32() if days else pa.int64()), pa.int64())
        seconds = pc.multiply(seconds, 86_400) if days else pc.divide(seconds, 1000)
        return _in_calendar(pc.cast(column, pa.string()), seconds, "s", 1)
    if pa.types.is_timestamp(type):
        if type.unit == "ns":  # of which no calendar runs out
            return pc.cast(column, pa.string())
        ticks = pc.cast(column, pa.int64())
        return _in_calendar(pc.cast(column, pa.string()), ticks, type.unit, UNITS[type.unit])
    cells = pa.array([as_json(value) for value in to_python(column)], pa.large_string())
    return pa.chunked_array([cells]) if isinstance(column, pa.ChunkedArray) else cells


def _in_calendar(texts: Any, ticks: Any, unit: str, per_second: int) -> Any:
    """Replace texts of times that no calendar has, which Arrow gets wrong, by the numbers."""
    inside = pc.and_(
        pc.greater_equal(ticks, pa.scalar(FIRST_SECOND * per_second, pa.int64())),
        pc.less_equal(ticks, pa.scalar(LAST_SECOND * per_second, pa.int64())),
    )
    if pc.all(inside).as_py() is not False:
        return texts
    bare = pc.binary_join_element_wise(pc.cast(ticks, pa.string()), f"{unit} since 1970", " ")
    return pc.if_else(inside, texts, bare)


def to_python(column: Any) -> list[Any]:
    """Return cells as values of Python; as text where Python has no such value.

    Examples
    --------
    >>> import pyarrow as pa
    >>> to_python(pa.chunked_array([pa.array([10**15], pa.timestamp("s"))]))
    ['1000000000000000 s since 1970']
    """
    try:
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, OverflowError, ValueError):
        if pa.types.is_temporal(column.type):
            return list(words(column).to_pylist())
        values = [python_value(cell) for cell in column]
    return values


def numbers(column: Any, layout: Layout, *, parse: bool) -> tuple[FloatArray, BoolArray]:
    """Read a column as numbers.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    layout : Layout
        The decimal sign, and what means missing.
    parse : bool
        Whether text is to be read as numbers, as in a text file. In a Parquet or Arrow file a
        column of text is meant as text.

    Returns
    -------
    values : float array
        NaN where the cell is missing or not a number.
    strange : bool array
        Where the cell is not missing and not a number.

    Examples
    --------
    >>> import pyarrow as pa
    >>> numbers(pa.chunked_array([["1.5", " true", "n/a", "red"]]), Layout(), parse=True)
    (array([1.5, 1. , nan, nan]), array([False, False, False,  True]))
    """
    kind = kind_of(column.type)
    if kind == "number":
        return _to_float(column), np.zeros(len(column), dtype=bool)
    if kind != "text" or not parse:
        return np.full(len(column), np.nan), _to_bool(pc.is_valid(column))
    if layout.decimal == "." and not layout.missing:
        try:
            return _to_float(column), np.zeros(len(column), dtype=bool)
        except pa.ArrowInvalid:  # some cell is missing, padded, a truth value, or no number
            pass
    cells = texts(column, layout, parse=True)
    if layout.decimal == ",":
        # A point is then no decimal sign: 1.500 may well mean one thousand and a half.
        cells = pc.replace_substring(pc.replace_substring(cells, ".", "·"), ",", ".")
    lower = pc.utf8_lower(cells)
    cells = pc.if_else(pc.equal(lower, "true"), "1", cells)
    cells = pc.if_else(pc.equal(lower, "false"), "0", cells)
    is_number = pc.match_substring_regex(cells, NUMBER)
    values = _to_float(pc.if_else(is_number, cells, pa.scalar(None, cells.type)))
    return values, _to_bool(pc.fill_null(pc.invert(is_number), False))


def texts(column: Any, layout: Layout, *, parse: bool) -> Any:
    """Read a column as labels; null where the cell is missing.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    layout : Layout
    parse : bool
        Whether the cells come from a text file, where some texts mean "missing".

    Returns
    -------
    pyarrow.ChunkedArray of strings
    """
    cells = words(column)
    if not parse:
        return cells
    cells = pc.utf8_trim_whitespace(cells)
    gone = pc.is_in(cells, value_set=pa.array([*MISSING, *layout.missing], cells.type))
    return pc.if_else(gone, pa.scalar(None, cells.type), cells)


def codes(column: Any, labels: Sequence[str], layout: Layout, *, parse: bool) -> FloatArray:
    """Read a column as the positions of its labels; `UNSEEN` for a label that is not listed.

    Examples
    --------
    >>> import pyarrow as pa
    >>> column = pa.chunked_array([["red", "blue", "", "mauve"]])
    >>> codes(column, ("blue", "red"), Layout(), parse=True)
    array([ 1.,  0., nan, -1.])
    """
    cells = texts(column, layout, parse=parse)
    found = pc.index_in(cells, value_set=pa.array(labels, cells.type))
    values = _to_float(pc.fill_null(found, int(UNSEEN)))
    values[_to_bool(pc.is_null(cells))] = np.nan
    return values


def blocks(columns: Sequence[Any]) -> Iterator[tuple[list[int], Any]]:
    """Put short columns of one type end to end: a call per column is slow in wide tables.

    Parameters
    ----------
    columns : sequence of pyarrow.ChunkedArray
        Of the same length.

    Yields
    ------
    positions : list of int
        Of the columns in a block.
    cells : pyarrow.ChunkedArray
        What they hold, one column after the other.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"a": [1, 2], "b": ["x", "y"], "c": [3, 4]})
    >>> [(where, cells.to_pylist()) for where, cells in blocks(table.columns)]
    [([0, 2], [1, 2, 3, 4]), ([1], ['x', 'y'])]
    """
    by_type: dict[Any, list[int]] = {}
    for j, column in enumerate(columns):
        by_type.setdefault(column.type, []).append(j)
    width = max(1, BLOCK_CELLS // max(1, len(columns[0]))) if columns else 1
    for type, positions in by_type.items():
        for start in range(0, len(positions), width):
            block = positions[start : start + width]
            chunks = [chunk for j in block for chunk in columns[j].chunks]
            yield block, pa.chunked_array(chunks, type)


def all_numbers(
    columns: Sequence[Any], layout: Layout, *, parse: bool
) -> tuple[FloatArray, BoolArray]:
    """Read columns as numbers, as `numbers` does; a row of the results for each of them."""
    shape = (len(columns), len(columns[0]) if columns else 0)
    values, strange = np.empty(shape), np.empty(shape, dtype=bool)
    for where, cells in blocks(columns):
        of_block = numbers(cells, layout, parse=parse)
        values[where], strange[where] = (part.reshape(len(where), -1) for part in of_block)
    return values, strange


def matrix(
    table: Any, features: Sequence[Feature], layout: Layout, *, parse: bool
) -> tuple[FloatArray, bool]:
    """Read the columns of the features, by name, into a matrix.

    Returns
    -------
    X : float array of shape (rows, features)
    strange : bool
        Whether some cell of a column of numbers is not a number.
    """
    X = np.empty((table.num_rows, len(features)))
    plain = [j for j, feature in enumerate(features) if feature.labels is None]
    strange = False
    if plain:
        columns = [table.column(features[j].name) for j in plain]
        values, marks = all_numbers(columns, layout, parse=parse)
        X[:, plain] = values.T
        strange = bool(marks.any())
    for j, feature in enumerate(features):
        if feature.labels is not None:
            X[:, j] = codes(table.column(feature.name), feature.labels, layout, parse=parse)
    return X, strange


class Fingerprint:
    """A digest of a table as the detector sees it: equal for the same rows in any format.

    Examples
    --------
    >>> import numpy as np
    >>> whole = Fingerprint([Feature("x")]).add(np.array([[1.0], [2.0]])).hexdigest()
    >>> parts = Fingerprint([Feature("x")]).add(np.array([[1.0]])).add(np.array([[2.0]]))
    >>> parts.hexdigest() == whole
    True
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        self._digest = hashlib.sha256(json.dumps(describe(features)).encode())

    def add(self, X: FloatArray) -> Fingerprint:
        """Add rows."""
        # Little-endian, and one NaN: the same digest on every machine.
        rows = np.ascontiguousarray(np.where(np.isnan(X), np.nan, X), dtype="<f8")
        self._digest.update(rows.data)
        return self

    def hexdigest(self) -> str:
        """SHA-256 in hexadecimal."""
        return self._digest.hexdigest()


def _to_float(column: Any) -> FloatArray:
    # Not `safe`: an integer beyond 2^53 is rounded, as everywhere in floating point.
    values = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return np.array(values, dtype=np.float64)


def _to_bool(column: Any) -> BoolArray:
    return np.asarray(column.to_numpy(), dtype=bool)
