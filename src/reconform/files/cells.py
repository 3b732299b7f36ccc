"""From a column of cells to float64: numbers, category codes, NaN for what is missing.

Every cell is judged by itself. What a cell means never depends on the cells around it, so a table
gives the same matrix whatever batches it is read in.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import BoolArray, FloatArray
from ..detectors.prepare import Feature, describe
from ..frames import label_code
from .column_types import blocks, kind_of, words
from .formats import Layout

# What the usual programs write for a missing value.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
# Beyond it, not every whole number is a float64; longer ones than this are not numbers of rows.
EXACT = 2.0**53
WHOLE = re.compile(r"[+-]?[0-9]{16,300}")
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"


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
    unreadable : bool array
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


def codes(column: Any, layout: Layout, *, parse: bool) -> FloatArray:
    """Read a column as the codes of its labels; NaN where a cell is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> column = pa.chunked_array([["red", "", "red"]])
    >>> codes(column, Layout(), parse=True) == label_code("red")
    array([ True, False,  True])
    """
    cells = texts(column, layout, parse=parse)
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    coded = cells.dictionary_encode()
    known = [label_code(label) for label in coded.dictionary.to_pylist()]
    places = pc.fill_null(coded.indices, len(known)).to_numpy(zero_copy_only=False)
    values: FloatArray = np.array([*known, np.nan])[places]
    return values


def all_numbers(
    columns: Sequence[Any], layout: Layout, *, parse: bool
) -> tuple[FloatArray, BoolArray]:
    """Read columns as numbers, as `numbers` does; a row of the results for each of them."""
    shape = (len(columns), len(columns[0]) if columns else 0)
    values, unreadable = np.empty(shape), np.empty(shape, dtype=bool)
    for where, cells in blocks(columns):
        of_block = numbers(cells, layout, parse=parse)
        values[where], unreadable[where] = (part.reshape(len(where), -1) for part in of_block)
    return values, unreadable


def matrix(
    table: Any, features: Sequence[Feature], layout: Layout, *, parse: bool
) -> tuple[FloatArray, bool]:
    """Read the columns of the features, by name, into a matrix.

    Returns
    -------
    X : float array of shape (rows, features)
    unreadable : bool
        Whether some cell of a column of numbers is neither a number nor missing.
    """
    X = np.empty((table.num_rows, len(features)))
    if not table.num_rows:
        return X, False
    plain = [j for j, feature in enumerate(features) if feature.labels is None]
    unreadable = False
    if plain:
        columns = [table.column(features[j].name) for j in plain]
        values, marks = all_numbers(columns, layout, parse=parse)
        X[:, plain] = values.T
        unreadable = bool(marks.any())
    for j, feature in enumerate(features):
        if feature.labels is not None:
            X[:, j] = codes(table.column(feature.name), layout, parse=parse)
    return X, unreadable


def rounded(table: Any, features: Sequence[Feature], X: FloatArray, *, parse: bool) -> list[str]:
    """Name the columns with whole numbers beyond 2^53 that are rounded in the matrix of a table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"id": [2**53 + 1, 5], "x": [1e300, 2.0]})
    >>> features = [Feature("id"), Feature("x")]
    >>> rounded(table, features, matrix(table, features, Layout(), parse=False)[0], parse=False)
    ['id']
    """
    large = np.abs(X) >= EXACT
    found = []
    for j in np.flatnonzero(large.any(axis=0)).tolist():
        column = table.column(features[j].name)
        whole = pa.types.is_integer(column.type) or (parse and kind_of(column.type) == "text")
        if whole and features[j].labels is None:
            cells = words(column.filter(pa.array(large[:, j]))).to_pylist()
            digits = (cell.strip() for cell in cells)
            if any(WHOLE.fullmatch(cell) and int(cell) != int(float(cell)) for cell in digits):
                found.append(features[j].name)
    return found


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
