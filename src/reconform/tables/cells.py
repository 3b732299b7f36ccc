"""Columns and their cells: a few plain types, each of which can be said as text and as numbers.

Whatever types a file has come in as a few: text that others hold as views, dictionaries or runs as
text, a value in a wrapper as the value, a time in a zone that nobody knows as a time in UTC. Arrays
are checked before they are touched: a damaged file may hold offsets that point anywhere.

Every cell is judged by itself. What a cell means never depends on the cells around it, so a table
gives the same matrix whatever batches it is read in: numbers, category codes, NaN for what is
missing.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import BoolArray, FloatArray
from ..frames import (
    REAL,
    calendar_part,
    columns_of,
    holds_times,
    is_missing,
    label_code,
    wall_clock,
)
from . import Feature, Written, describe

# What the usual programs write for a missing value.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
# Beyond it, not every whole number is a float64; longer ones than this are not numbers of rows.
EXACT = 2.0**53
WHOLE = re.compile(r"[+-]?[0-9]{16,300}")
# Numbers as people and spreadsheets write them: 1,565.00 or 1,234,567 or 12.5 %, where it is clear.
MINUS = "\u2212"
WRITTEN = (
    r"^[+-]?[0-9]{1,3}(,[0-9]{3})+\.[0-9]+ ?%?$|^[+-]?[0-9]{1,3}(,[0-9]{3}){2,} ?%?$"
    r"|^[+-]?[0-9]+(\.[0-9]+)? ?%$"
)
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?(?i:inf|infinity)$"


@lru_cache(maxsize=1024)
def plain_type(type: Any) -> Any:
    """Return the type that a column of some type comes in as.

    Examples
    --------
    >>> import pyarrow as pa
    >>> plain_type(pa.string_view()), plain_type(pa.dictionary(pa.int8(), pa.float32()))
    (DataType(large_string), DataType(float))
    >>> plain_type(pa.timestamp("ms", "Mars/Olympus"))
    TimestampType(timestamp[ms, tz=UTC])
    """
    types = pa.types
    if isinstance(type, pa.BaseExtensionType):
        return plain_type(type.storage_type)
    if types.is_dictionary(type) or types.is_run_end_encoded(type):
        return plain_type(type.value_type)
    if types.is_string_view(type):
        return pa.large_string()
    if types.is_binary_view(type):
        return pa.large_binary()
    if types.is_timestamp(type) and type.tz is not None:
        known = arrow_can(lambda: pc.cast(pa.array([0], type), pa.string()))
        return type if known else pa.timestamp(type.unit, "UTC")
    if types.is_union(type):  # of which Arrow can do next to nothing
        return pa.large_string()
    return _plain_nested(type) if types.is_nested(type) else type


def is_text(type: Any) -> bool:
    """Whether the cells of a plain type are text."""
    return bool(pa.types.is_string(type) or pa.types.is_large_string(type))


def varies(type: Any) -> bool:
    """Whether cells of a plain type are texts or bytes of any length."""
    return is_text(type) or bool(pa.types.is_binary(type) or pa.types.is_large_binary(type))


def plain_schema(schema: Any) -> Any:
    """Return the schema that tables of some schema come in with.

    Any column may have missing values, and what pandas noted of its index is left out: it no
    longer fits the columns that are written.
    """
    return pa.schema([(field.name, plain_type(field.type)) for field in schema])


def plain_table(batch: Any) -> Any:
    """Return a record batch as a table of plain types.

    Examples
    --------
    >>> import pyarrow as pa
    >>> colours = pa.array(["red", "red", None]).dictionary_encode()
    >>> plain_table(pa.record_batch({"colour": colours})).to_pydict()
    {'colour': ['red', 'red', None]}
    """
    target, bare = plain_schema(batch.schema), batch.replace_schema_metadata()
    if bare.schema.equals(target, check_metadata=True) and arrow_can(
        lambda: bare.validate(full=True)
    ):
        return pa.Table.from_batches([bare])  # nothing to do, for all columns at once
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns.append(_plain(column))
        except pa.ArrowException as error:
            raise pa.ArrowInvalid(f"the column {name!r}: {error}") from error
    return pa.table(columns, schema=target)


def as_table(frame: Any) -> Any:
    """Return a frame of any library as a table of plain types.

    Examples
    --------
    >>> import pandas as pd
    >>> as_table(pd.DataFrame({"x": [1, "a"], "y": pd.Categorical([2, None])})).to_pydict()
    {'x': ['1', 'a'], 'y': ['2', None]}
    """
    columns = columns_of(frame)
    arrays = [_as_array(cells) for cells in columns.values()]
    return plain_table(pa.record_batch(arrays, names=list(map(str, columns))))


def _as_array(cells: Any) -> Any:
    """The cells of a column of a frame; of several kinds, or of labels by type, as text."""
    labels = isinstance(cells.dtype, nw.Categorical | nw.Enum)
    times = cells.dtype in (nw.Object, nw.Unknown) and holds_times(cells)
    if not labels and not times:
        try:
            whole = cells.to_arrow()
            return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole
        except (pa.ArrowException, TypeError):
            pass
    values = [None if is_missing(cell) else cell for cell in cells.to_list()]
    if times:
        values = [None if cell is None else wall_clock(cell) for cell in values]
    elif not labels and all(isinstance(cell, (*REAL, type(None))) for cell in values):
        return pa.array(np.array(values, dtype=np.float64))
    try:
        return pa.array([None if x is None else str(x) for x in values] if labels else values)
    except (pa.ArrowException, TypeError):
        return pa.array([None if x is None else str(x) for x in values], pa.string())


# Cells that are written once in a file and stand in many rows are spread out piece by piece.
PIECE_BYTES, MOST_SPREAD = 1 << 26, 1 << 28


def plain_tables(batch: Any) -> Iterator[Any]:
    """Yield a record batch as `plain_table` does, in pieces that stay small."""
    longest = 1 + sum(_longest_shared(column) for column in batch.columns)
    rows = max(1, PIECE_BYTES // longest)
    for start in range(0, batch.num_rows, rows):
        yield plain_table(batch.slice(start, rows))


def _shared(column: Any) -> Any:
    """The cells that rows share, of a column where they do; otherwise None."""
    if pa.types.is_dictionary(column.type):
        return column.dictionary
    return column.values if pa.types.is_run_end_encoded(column.type) else None


def _longest_shared(column: Any) -> int:
    """Bytes of the longest cell that many rows may share; of a nested one, no less than this."""
    if isinstance(column.type, pa.BaseExtensionType):
        return _longest_shared(column.storage)
    cells = _shared(column)
    if cells is None:
        return _spread(column) // max(1, len(column)) if pa.types.is_nested(column.type) else 0
    if varies(cells.type):
        return max(0, pc.max(pc.binary_length(cells)).as_py() or 0)
    return 0 if pa.types.is_primitive(cells.type) else int(cells.nbytes)


def _spread(column: Any) -> int:
    """No less than the bytes of nested cells when those that are shared are spread out."""
    types, type = pa.types, column.type
    parts: list[Any] = []
    size = 0
    if types.is_struct(type):
        parts = [column.field(i) for i in range(type.num_fields)]
    elif types.is_list_view(type) or types.is_large_list_view(type):
        size = len(column) * int(column.values.nbytes)
    elif types.is_map(type):
        parts = [column.keys, column.items]
    elif types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        parts = [column.values]
    elif _shared(column) is not None:
        size = len(column) * _longest_shared(column)
    size += sum(map(_spread, parts))
    if size > MOST_SPREAD:
        raise pa.ArrowInvalid(f"nested cells of the type {type} that are too large to be read")
    return size


def as_json(value: Any) -> str | None:
    r"""Write a value of Python, however nested, as text; None where there is none.

    Examples
    --------
    >>> as_json({"a": [1, None]}), as_json(b"caf\xe9")
    ('{"a": [1, null]}', 'caf\\xe9')
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return json.dumps(value, default=_as_json_part, ensure_ascii=False)


def _as_json_part(value: Any) -> str:
    return str(as_json(value)) if isinstance(value, bytes) else str(value)


def python_value(cell: Any) -> Any:
    """Return a cell as a value of Python; its type, where somewhere within Python has none."""
    try:
        return cell.as_py()
    except (pa.ArrowException, OverflowError, ValueError):
        return f"<{cell.type}>"


def arrow_can(call: Callable[[], Any]) -> bool:
    """Whether Arrow does something without an error."""
    try:
        call()
    except pa.ArrowException:
        return False
    return True


def _plain_nested(type: Any) -> Any:
    """Make the parts of a nested type plain; where Arrow cannot cast to that, it is text."""
    types = pa.types

    def part(field: Any) -> Any:
        return field.with_type(plain_type(field.type))

    target = type
    if types.is_struct(type):
        target = pa.struct([part(type.field(i)) for i in range(type.num_fields)])
    elif types.is_map(type):
        key, item = plain_type(type.key_type), plain_type(type.item_type)
        target = pa.map_(key, item, type.keys_sorted)
    elif types.is_fixed_size_list(type):
        target = pa.list_(part(type.value_field), type.list_size)
    elif types.is_list(type):
        target = pa.list_(part(type.value_field))
    elif types.is_large_list(type):
        target = pa.large_list(part(type.value_field))
    elif types.is_list_view(type) or types.is_large_list_view(type):
        # Arrow's casts of these are not to be relied on.
        return type if part(type.value_field) == type.value_field else pa.large_string()
    if target == type or arrow_can(lambda: pa.array([], type).cast(target)):
        return target
    return pa.large_string()


def _plain(column: Any) -> Any:
    types, type = pa.types, column.type
    if isinstance(type, pa.BaseExtensionType):
        return _plain(column.storage)
    if types.is_dictionary(type):
        column.indices.validate(full=True)
        return _plain(column.dictionary).take(column.indices)  # which checks that they are inside
    if types.is_run_end_encoded(type):
        column.run_ends.validate(full=True)
        rows = np.arange(column.offset, column.offset + len(column))
        runs = np.searchsorted(column.run_ends.to_numpy(), rows, side="right")
        return _plain(column.values).take(pa.array(runs))
    target = plain_type(type)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        if "UTF8" not in str(error) or not is_text(target):
            raise
        # Nothing is lost: what is no text is written as its bytes, and different cells stay so.
        cells = column.cast(pa.large_binary(), safe=False).to_pylist()
        return pa.array([as_json(cell) for cell in cells], target)
    if target == type:
        return column
    if types.is_nested(type) and is_text(target):
        return pa.array([as_json(python_value(cell)) for cell in column], target)
    return column.cast(target)


# --- what a plain column says --------------------------------------------------------------------


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


def blocks(columns: Sequence[Any]) -> Iterator[tuple[list[int], Any]]:
    """Put short columns of one type end to end: a call per column is slow in wide tables.

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
            # `chunks` of a column takes ten times as long.
            some = (columns[j] for j in block)
            chunks = [column.chunk(i) for column in some for i in range(column.num_chunks)]
            yield block, pa.chunked_array(chunks, type)


def labels_in(cells: Any) -> Callable[[int, str], str | None]:
    """Look labels up in an Arrow table, by the position of a row and the name of a column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> labels_in(pa.table({"colour": ["red", None]}))(0, "colour")
    'red'
    """

    def look_up(i: int, name: str) -> str | None:
        word: str | None = words(cells.column(name).slice(i, 1))[0].as_py()
        return word

    return look_up


# --- what a detector sees ------------------------------------------------------------------------


def numbers(column: Any, layout: Written) -> tuple[FloatArray, BoolArray]:
    """Read a column as numbers, NaN where there is none, and mark cells that are no numbers.

    Text is parsed if it comes from a text file; in a Parquet or Arrow file it is meant as text.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from reconform.tables import TYPED
    >>> numbers(pa.chunked_array([["1.5", " true", "n/a", "red"]]), Written())
    (array([1.5, 1. , nan, nan]), array([False, False, False,  True]))
    """
    values, unreadable = _numbers(column, layout)
    for text in layout.missing:  # -200 is -200.0, too
        if re.match(NUMBER, text):
            values[values == float(text)] = np.nan
    return values, unreadable


def _numbers(column: Any, layout: Written) -> tuple[FloatArray, BoolArray]:
    kind = kind_of(column.type)
    if kind == "number":
        return _to_float(column), np.zeros(len(column), dtype=bool)
    if kind != "text" or layout.typed:
        return np.full(len(column), np.nan), _to_bool(pc.is_valid(column))
    if layout.decimal == "." and not layout.missing:
        try:
            return _to_float(column), np.zeros(len(column), dtype=bool)
        except pa.ArrowInvalid:  # some cell is missing, padded, a truth value, or no number
            pass
    cells = texts(column, layout)
    if layout.decimal == ",":
        # A point is then no decimal sign: 1.500 may well mean one thousand and a half.
        cells = pc.replace_substring(pc.replace_substring(cells, ".", "·"), ",", ".")
    else:
        cells = pc.replace_substring(cells, MINUS, "-")
        bare = pc.replace_substring_regex(cells, "[, %]", "")
        cells = pc.if_else(pc.match_substring_regex(cells, WRITTEN), bare, cells)
    lower = pc.utf8_lower(cells)
    cells = pc.if_else(pc.equal(lower, "true"), "1", cells)
    cells = pc.if_else(pc.equal(lower, "false"), "0", cells)
    is_number = pc.match_substring_regex(cells, NUMBER)
    values = _to_float(pc.if_else(is_number, cells, pa.scalar(None, cells.type)))
    return values, _to_bool(pc.fill_null(pc.invert(is_number), False))


def texts(column: Any, layout: Written) -> Any:
    """Read a column as labels; null where the cell is missing."""
    cells = words(column)
    if layout.typed:
        return cells
    cells = pc.utf8_trim_whitespace(cells)
    gone = pc.is_in(cells, value_set=pa.array([*MISSING, *layout.missing], cells.type))
    return pc.if_else(gone, pa.scalar(None, cells.type), cells)


# How dates are written: as ISO 8601 has it, with a type of their own, or as people do.
_DAYS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y/%m/%d", "%d-%m-%Y", "%d.%m.%y", "%m/%d/%y")
# Of these alone no row is known to come before another.
TIMES = ("%H:%M:%S", "%H:%M", "%H.%M.%S")
DATE_FORMATS = (
    "iso",
    *(f"{day} {time}" for day in _DAYS for time in TIMES),
    *_DAYS,
    *TIMES,
    *("%Y%m%dT%H%M%S", "%d-%b-%Y", "%d %b %Y", "%b %d, %Y"),
)
_ISO = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.,][0-9]{1,9})?)?)?$"
_ZONE = r"(:[0-9]{2}([.,][0-9]+)?) ?(Z|UTC|[+-][0-9]{2}:?[0-9]{2})$"


def seconds(column: Any, written: str, layout: Written) -> tuple[FloatArray, BoolArray]:
    """Read dates as seconds since 1970 on the clock of the wall, and mark what are none.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from reconform.tables import TYPED
    >>> cells = pa.chunked_array([["1970-01-02T00:00:01+02:00", "", "soon"]])
    >>> seconds(cells, "iso", Written())
    (array([86401.,    nan,    nan]), array([False, False,  True]))
    """
    if kind_of(column.type) == "time":
        return _typed_seconds(column), np.zeros(len(column), dtype=bool)
    if kind_of(column.type) != "text":
        return np.full(len(column), np.nan), _to_bool(pc.is_valid(column))
    cells = texts(column, layout)
    there = _to_bool(pc.is_valid(cells))
    if written == "iso":
        cells = pc.replace_substring_regex(cells, _ZONE, r"\1")
        cells = pc.replace_substring(cells, ",", ".")
        cells = pc.replace_substring_regex(cells, r"(\.[0-9]{6})[0-9]+$", r"\1")
        fits = pc.match_substring_regex(cells, _ISO)
        cells = pc.if_else(fits, cells, pa.scalar(None, cells.type))
        try:
            times = pc.cast(cells, pa.timestamp("us"))
        except pa.ArrowInvalid:  # a day that no calendar has
            times = pa.array(map(_day_and_time, cells.to_pylist()), pa.timestamp("us"))
    else:
        times = pc.strptime(cells, written, "us", error_is_null=True)
    values = _typed_seconds(times)
    return values, there & np.isnan(values)


def _day_and_time(cell: str | None) -> datetime.datetime | None:
    """One date as ISO 8601 has it; None for a day that no calendar has."""
    with suppress(ValueError, TypeError):
        return datetime.datetime.fromisoformat(cell)  # type: ignore[arg-type]
    return None


def _typed_seconds(column: Any) -> FloatArray:
    """Seconds of a column of times, dates or durations."""
    types, type = pa.types, column.type
    if types.is_timestamp(type) and type.tz is not None:
        column = pc.local_timestamp(column)
    if types.is_date(type):
        column, unit = pc.cast(column, pa.timestamp("ms")), "ms"
    elif types.is_interval(type):
        return np.full(len(column), np.nan)
    else:
        unit = type.unit
    ticks = pc.cast(pc.cast(column, pa.int32()) if types.is_time32(type) else column, pa.int64())
    per = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
    values = pc.cast(ticks, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(values, dtype=np.float64) / per


def codes(column: Any, layout: Written) -> FloatArray:
    """Read a column as the codes of its labels; NaN where a cell is missing.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from reconform.tables import TYPED
    >>> column = pa.chunked_array([["red", "", "red"]])
    >>> codes(column, Written()) == label_code("red")
    array([ True, False,  True])
    """
    cells = texts(column, layout)
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    coded = cells.dictionary_encode()
    known = [label_code(label) for label in coded.dictionary.to_pylist()]
    places = pc.fill_null(coded.indices, len(known)).to_numpy(zero_copy_only=False)
    values: FloatArray = np.array([*known, np.nan])[places]
    return values


def all_numbers(columns: Sequence[Any], layout: Written) -> tuple[FloatArray, BoolArray]:
    """Read columns as numbers, as `numbers` does; a row of the results for each of them."""
    shape = (len(columns), len(columns[0]) if columns else 0)
    values, unreadable = np.empty(shape), np.empty(shape, dtype=bool)
    for where, cells in blocks(columns):
        of_block = numbers(cells, layout)
        values[where], unreadable[where] = (part.reshape(len(where), -1) for part in of_block)
    return values, unreadable


def matrix(table: Any, features: Sequence[Feature], layout: Written) -> tuple[FloatArray, bool]:
    """Read the features into a matrix; say whether a cell is neither a number nor missing."""
    X = np.empty((table.num_rows, len(features)))
    if not table.num_rows:
        return X, False
    plain = [j for j, f in enumerate(features) if f.labels is None and f.made is None]
    unreadable = False
    if plain:
        columns = [table.column(features[j].name) for j in plain]
        values, marks = all_numbers(columns, layout)
        X[:, plain] = values.T
        unreadable = bool(marks.any())
    times: dict[tuple[str, str], tuple[FloatArray, BoolArray]] = {}
    for j, feature in enumerate(features):
        if feature.made is not None:
            column, written, part = feature.made
            if (column, written) not in times:
                read = seconds(table.column(column), written, layout)
                times[column, written] = read
                unreadable = unreadable or bool(read[1].any())
            X[:, j] = calendar_part(times[column, written][0], part)
        elif feature.labels is not None:
            X[:, j] = codes(table.column(feature.name), layout)
    return X, unreadable


def rounded(table: Any, features: Sequence[Feature], X: FloatArray, layout: Written) -> list[str]:
    """Name the columns with whole numbers beyond 2^53 that are rounded in the matrix of a table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from reconform.tables import TYPED
    >>> table = pa.table({"id": [2**53 + 1, 5], "x": [1e300, 2.0]})
    >>> features = [Feature("id"), Feature("x")]
    >>> rounded(table, features, matrix(table, features, TYPED)[0], TYPED)
    ['id']
    """
    large = np.abs(X) >= EXACT
    found = []
    for j in np.flatnonzero(large.any(axis=0)).tolist():
        column = table.column(features[j].column)
        parsed = not layout.typed and kind_of(column.type) == "text"
        whole = parsed or pa.types.is_integer(column.type)
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
