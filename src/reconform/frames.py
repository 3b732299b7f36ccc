"""Rows from outside: frames of any library, through narwhals, and arrays of float64.

A detector that can read frames (a pipeline with a ColumnTransformer, say) gets them as they are.
What the package itself has to know about rows, which are equal, in which order they are drawn, how
they compare with others, it reads from numbers (`numbers_of`): a number stands for itself, any
other cell for the code of what it says.

One check serves every estimator (`validated_rows`). NumPy would turn masked cells, dates and times
into numbers without a word; here they are missing, or refused.
"""

from __future__ import annotations

import datetime
import hashlib
import numbers
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from .arrays import BoolArray, FloatArray, IndexArray
from .errors import ReconformError, blame_input, listed, nearest, warn_once
from .extras import extra

# Whose frames results and the rows of files are written as.
PACKAGES = ("pandas", "polars", "pyarrow")

# Python's and NumPy's own kinds of times; pandas' scalars are among them.
TIMES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)

# Times that narwhals has no type for: of pandas and of Arrow.
MORE_TIMES = ("Period", "MonthDayNano")

# Cells that are numbers.
REAL = (numbers.Real, np.bool_, Decimal)


def label_code(label: str) -> float:
    """Code of a label: a hash of its text, so that it is the same whichever rows are new.

    Examples
    --------
    >>> 1.0 <= label_code("mauve") == label_code("mauve") <= 2.0**48
    True
    """
    digest = hashlib.blake2b(label.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return 1.0 + int.from_bytes(digest, "little")


@dataclass(frozen=True, eq=False)
class Column:
    """A column: its numbers, or which label each of its cells has.

    Attributes
    ----------
    values : float array or None
        NaN where a number is missing; None if the cells are no numbers.
    labels : list
        The different cells of a column that holds no numbers.
    places : int array
        Which of them each row has; -1 where the cell is missing.
    """

    values: FloatArray | None
    labels: Sequence[Any] = ()
    places: npt.NDArray[np.integer] | None = None

    @property
    def words(self) -> list[str]:
        """The labels as text; of a column of numbers, its different numbers."""
        return [label if isinstance(label, str) else str(label) for label in self._labelled.labels]

    @property
    def rows_by_label(self) -> list[int]:
        """How many rows have each of the labels."""
        places = self._labelled.places
        assert places is not None
        counts = np.bincount(places[places >= 0], minlength=len(self._labelled.labels))
        return [int(count) for count in counts]

    def codes(self) -> FloatArray:
        """Return the codes of labels, NaN for missing.

        Examples
        --------
        >>> codes = Column(None, ["red", "blue"], np.array([0, 1, -1])).codes()
        >>> codes[:2] == [label_code("red"), label_code("blue")], bool(np.isnan(codes[2]))
        (array([ True,  True]), True)
        """
        codes = [label_code(word) for word in self.words]
        return np.array([*codes, np.nan])[self._labelled.places]

    @property
    def _labelled(self) -> Column:
        """The column with its numbers as labels: 3.0 is written as 3, as in a file."""
        if self.values is None:
            return self
        different, places = np.unique(self.values, return_inverse=True)
        whole = [int(x) if float(x).is_integer() else x for x in different.tolist()]
        gone = np.isnan(different)
        return Column(
            None,
            [x for x, missing in zip(whole, gone, strict=True) if not missing],
            np.where(gone[places], -1, places),
        )


def read_column(cells: nw.Series[Any]) -> Column:
    """Read a column of a frame: its numbers, or else its labels.

    Examples
    --------
    >>> import pandas as pd
    >>> read_column(nw.from_native(pd.Series([1, None], dtype="Int64"), series_only=True)).values
    array([ 1., nan])
    """
    kind = cells.dtype
    if kind.is_numeric():
        array = cells.to_numpy()
        if array.dtype.kind in "fiu":  # an integer beyond 2^53 is rounded
            return Column(np.array(array, dtype=np.float64))
    values = [None if is_missing(cell) else cell for cell in cells.to_list()]
    # Of what they hold, the types Object and Unknown say nothing.
    may_be_numbers = kind.is_numeric() or kind in (nw.Boolean, nw.Object, nw.Unknown)
    if may_be_numbers and all(isinstance(cell, (*REAL, type(None))) for cell in values):
        return Column(np.array(values, dtype=np.float64))
    places: dict[Any, int] = {}
    try:
        found = [-1 if cell is None else places.setdefault(cell, len(places)) for cell in values]
    except TypeError:  # cells that cannot be told apart by a hash, such as lists
        places = {}
        words = (None if cell is None else repr(cell) for cell in values)
        found = [-1 if word is None else places.setdefault(word, len(places)) for word in words]
    return Column(None, list(places), np.array(found, dtype=np.intp))


def is_missing(cell: object) -> bool:
    """Whether a cell holds nothing: None, NaN, or what pandas writes in their place."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float) and cell != cell


def opened(X: Any) -> nw.DataFrame[Any] | None:
    """Return a frame as narwhals sees it; None for anything else.

    Examples
    --------
    >>> import pandas as pd
    >>> opened(pd.DataFrame({"x": [1.0]})).columns
    ['x']
    >>> opened([[1.0]]) is None
    True
    """
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.DuplicateError:
        names = list(X.columns)
        twice = sorted({str(name) for name in names if names.count(name) > 1})
        raise ReconformError(
            f"X has more than one column {listed(twice)}; give each another name."
        ) from None
    return frame if isinstance(frame, nw.DataFrame) else None


def package_of(X: Any) -> str | None:
    """Return the library whose frame it is, and None for anything else."""
    frame = opened(X)
    if frame is None:
        return None
    package = frame.implementation.value
    return package if package in PACKAGES else "pandas"


def frame_as_it_is(X: Any) -> Any:
    """Return a frame that can be indexed, and anything else as it is.

    What hands its rows over in Arrow's way (`__arrow_c_stream__`: a record batch, a relation of
    DuckDB) and rows that are dicts become a table of Arrow. What computes its rows, or has them
    once only, is refused.
    """
    if are_records(X):
        return frame_of_records(X, list(X if isinstance(X, Mapping) else X[0]))
    if issparse(X):
        return dense(X)
    lazy = nw.from_native(X, pass_through=True) if opened(X) is None else None
    if isinstance(lazy, nw.LazyFrame) and not lazy.implementation.is_duckdb():
        way_out = "compute" if lazy.implementation.is_dask() else "collect"
        raise ReconformError(
            f"X is a {type(X).__name__}, which holds no rows yet; give X.{way_out}()."
        )
    import pyarrow as pa

    if isinstance(X, pa.RecordBatchReader):
        raise ReconformError(
            "X is a RecordBatchReader, which can be read once only; give X.read_all()."
        )
    streams = hasattr(X, "__arrow_c_stream__") and not nw.dependencies.is_into_series(X)
    return pa.table(X) if lazy is not None and streams else X


# Cells of a sparse matrix that become an array: one gigabyte.
MOST_DENSE = 1 << 27


def dense(X: Any) -> FloatArray:
    """Return the rows of a sparse matrix as an array; refuse what would take too much memory."""
    rows, columns = X.shape
    if rows * columns > MOST_DENSE:
        raise ReconformError(
            f"X is sparse, and {rows:,} rows of {columns:,} columns would take "
            f"{rows * columns / 2**27:.0f} GB as an array; make fewer columns of them, for example "
            "by sklearn.decomposition.TruncatedSVD."
        )
    array: FloatArray = X.toarray()
    return array


def make_frame(package: str, columns: Mapping[str, Any], labels: Any = None) -> Any:
    """Make a frame of arrays; `labels` are those of the rows, which only pandas has."""
    module = extra(package, None, f"a frame of {package}")
    if package == "pandas":
        return module.DataFrame(dict(columns), index=labels)
    return (module.table if package == "pyarrow" else module.DataFrame)(dict(columns))


def are_records(X: Any) -> bool:
    """Whether X is one row as a dict, or a list of such rows.

    Examples
    --------
    >>> are_records({"x": 1.0}), are_records([{"x": 1.0}]), are_records([[1.0]])
    (True, True, False)
    """
    if isinstance(X, list | tuple):
        return bool(X) and isinstance(X[0], Mapping)
    return isinstance(X, Mapping) and not hasattr(X, "nnz")  # a sparse matrix of keys


def frame_of_records(
    records: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    names: Sequence[str],
    package: str = "pyarrow",
) -> Any:
    """Make a frame of rows that are dicts, as a queue or a parser of JSON hands them over.

    Every row must have every column, so that what becomes of a row does not depend on the rows
    around it; None is a missing value. Other keys are not looked at.

    Parameters
    ----------
    records : dict or sequence of dicts
        One row, or rows.
    names : sequence of str
        The columns of the reference.
    package : {"pandas", "polars", "pyarrow"}
        Whose frame to make.

    Examples
    --------
    >>> frame_of_records([{"x": 1, "y": 2.5}, {"y": None, "x": 3}], ["x", "y"]).to_pydict()
    {'x': [1.0, 3.0], 'y': [2.5, nan]}
    """
    if not names:
        raise ReconformError(
            "the rows are dicts, and the reference had no names of columns to match them with; fit "
            "on a frame, or give the rows as an array."
        )
    rows = [records] if isinstance(records, Mapping) else list(records)
    for place, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ReconformError(
                f"row {place} is {type(row).__name__}, and others are dicts; give all rows as "
                "dicts."
            )
        gone = [name for name in names if name not in row]
        if gone:
            raise ReconformError(
                f"row {place} lacks {'the keys' if len(gone) > 1 else 'the key'} {listed(gone)} of "
                f"the reference.{nearest(gone[0], [str(key) for key in row])} Write None where a "
                "value is missing."
            )
    columns = {name: _record_column(name, [row[name] for row in rows]) for name in names}
    return make_frame(package, columns)


def _record_column(name: str, values: list[Any]) -> Any:
    """The cells of a column: numbers where all of them are, otherwise text."""
    if {type(value) for value in values} <= {float, int}:
        return np.array(values, dtype=np.float64)
    for value in values:
        if isinstance(value, list | tuple | dict | set | np.ndarray):
            raise ReconformError(
                f"the key {name!r} holds a {type(value).__name__}; give one value per row and key."
            )
    if all(value is None or isinstance(value, numbers.Real | np.bool_) for value in values):
        return np.array([np.nan if value is None else float(value) for value in values])
    if any(isinstance(value, str) for value in values):
        return [None if value is None else str(value) for value in values]
    return values


def names_of(X: Any) -> list[str] | None:
    """Return the column names of a frame; None where they are not all text, or X is no frame."""
    frame = opened(X)
    names = [] if frame is None else list(frame.columns)
    return names if names and all(isinstance(name, str) for name in names) else None


def columns_of(X: Any) -> dict[Any, nw.Series[Any]]:
    """Return the columns of a frame by name; of anything else, none."""
    frame = opened(X)
    return {} if frame is None else dict(zip(frame.columns, frame.iter_columns(), strict=True))


def time_columns(X: Any) -> list[str]:
    """Return the names of the columns of a frame that hold dates or times.

    Examples
    --------
    >>> import pandas as pd
    >>> time_columns(pd.DataFrame({"x": [1.0], "when": pd.to_datetime(["2024-01-01"])}))
    ['when']
    """
    return [str(name) for name, cells in columns_of(X).items() if holds_times(cells)]


def holds_times(cells: nw.Series[Any]) -> bool:
    """Whether the type says so, or else the first cell that is there."""
    if cells.dtype not in (nw.Object, nw.Unknown):
        return cells.dtype.is_temporal()
    first = next((cell for cell in cells.to_list() if not is_missing(cell)), None)
    return isinstance(first, TIMES) or type(first).__name__ in MORE_TIMES


def rounded_sentence(names: Sequence[str]) -> str:
    """Say that whole numbers are rounded.

    Examples
    --------
    >>> rounded_sentence(["id"])[:72]
    "whole numbers beyond 2^53 in the column 'id' are rounded to floating poi"
    """
    where = "columns" if len(names) > 1 else "the column"
    return (
        f"whole numbers beyond 2^53 in {where} {listed(names)} are rounded to floating point: "
        "detectors do not tell neighbours among them apart."
    )


def rounded_columns(X: Any, rows: FloatArray) -> list[str]:
    """Name the columns of integers that are no longer exact as float64.

    Parameters
    ----------
    X : array or frame
    rows : float array
        The same as float64.

    Examples
    --------
    >>> X = np.array([[2**53 + 1, 5]])
    >>> rounded_columns(X, X.astype(float))
    ['0']
    """
    large = np.abs(rows) >= 2.0**53
    columns, found = list(columns_of(X).items()), []
    for j in np.flatnonzero(large.any(axis=0)).tolist():
        name, cells = columns[j] if columns else (j, X[:, j])
        whole = (x for x in np.asarray(cells)[large[:, j]].tolist() if isinstance(x, int))
        if any(x != int(float(x)) for x in whole):
            found.append(str(name))
    return found


def by_name(X: Any, names: Sequence[str], *, whose: object) -> Any:
    """Return the columns of a frame that were there at `fit`, in that order.

    Parameters
    ----------
    X : frame or anything else
        What has no column names is returned as it is.
    names : sequence of str
        Of the reference.
    whose : object
        Who asks: told once of columns that are not looked at.

    Examples
    --------
    >>> import pandas as pd
    >>> by_name(pd.DataFrame({"b": [1], "a": [2]}), ["a", "b"], whose=None)
       a  b
    0  2  1
    """
    have, frame = names_of(X), opened(X)
    if have is None or frame is None or have == list(names):
        return X
    gone = [name for name in names if name not in have]
    if gone:
        raise ReconformError(
            f"X lacks {'the columns' if len(gone) > 1 else 'the column'} {listed(gone)} of the "
            f"reference.{nearest(gone[0], have)} It has {listed(have)}; columns are matched by "
            "name, in any order."
        )
    more = [name for name in have if name not in set(names)]
    if more:
        warn_once(
            whose,
            "columns",
            f"X has {'columns' if len(more) > 1 else 'a column'} that the reference did not have, "
            f"{listed(more)}: not looked at.",
            UserWarning,
        )
    return frame.select(list(names)).to_native()


class FrameRows:
    """Rows of a frame for detectors that read frames, and the numbers that tell them apart.

    It is indexed like an array of rows. As an array (`numpy.asarray`) it is the numbers.

    Parameters
    ----------
    frame : frame of pandas, Polars or Arrow
        What a detector is given.
    numbers : float array of shape (m, d)
        As `numbers_of` reads them from the frame.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"x": [1.0, 2.0], "colour": ["red", "red"]})
    >>> rows = FrameRows(frame, numbers_of(frame, [None, ["red"]]))
    >>> len(rows), rows[1].frame["x"].tolist(), np.asarray(rows)[1, 0].tolist()
    (2, [2.0], 2.0)
    """

    def __init__(self, frame: Any, numbers: FloatArray) -> None:
        self.frame = frame
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = self.numbers.shape
        return rows, columns

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> FloatArray:
        return np.array(self.numbers, dtype=dtype, copy=copy)

    def __getitem__(self, rows: int | slice | IndexArray | BoolArray) -> FrameRows:
        if isinstance(rows, int | np.integer):
            rows = slice(int(rows), int(rows) + 1 or None)
        elif not isinstance(rows, slice):
            rows = np.arange(len(self))[np.asarray(rows)]
        # Without the index of pandas: models are functions of what rows hold.
        taken = nw.maybe_reset_index(nw.from_native(self.frame, eager_only=True)[rows])
        return FrameRows(taken.to_native(), self.numbers[rows])

    def __iter__(self) -> Iterator[FrameRows]:
        return (self[i] for i in range(len(self)))


def numbers_of(frame: Any, labels: Sequence[Sequence[str] | None]) -> FloatArray:
    """Return what tells the rows of a frame apart: numbers, and codes of labels.

    Parameters
    ----------
    frame : frame of pandas, Polars or Arrow
    labels : sequence
        Its known labels for every category, None for a column of numbers: there a cell that is no
        number has the code of a label, too.

    Returns
    -------
    float array of shape (m, d)
        NaN where a cell is missing.
    """
    columns = nw.from_native(frame, eager_only=True).iter_columns()
    read = [(read_column(cells), listed) for cells, listed in zip(columns, labels, strict=True)]
    largest = np.finfo(np.float64).max
    return np.column_stack(
        [
            column.codes() if listed is not None or column.values is None else column.values
            for column, listed in read
        ]
    ).clip(-largest, largest)


def stacked(reference: Any, row: Any) -> Any:
    """Put a row below the rows of a reference: arrays, or `FrameRows`."""
    if not isinstance(reference, FrameRows):
        return np.vstack([reference, row])
    above, below = (nw.from_native(rows.frame, eager_only=True) for rows in (reference, row))
    if package_of(reference.frame) != "pandas":  # which brings columns to one type by itself
        kinds = zip(above.columns, above.schema.values(), below.schema.values(), strict=True)
        cast = [
            nw.col(name).cast(nw.Float64 if a.is_numeric() and b.is_numeric() else nw.String)
            for name, a, b in kinds
            if a != b
        ]
        above, below = above.with_columns(*cast), below.with_columns(*cast)
    frame = nw.maybe_reset_index(nw.concat([above, below]))
    return FrameRows(frame.to_native(), np.vstack([reference.numbers, row.numbers]))


def mixed(X: Any, rows: IndexArray) -> Any:
    """Return rows whose cell (i, j) is cell (rows[i, j], j) of others: arrays, or `FrameRows`.

    Examples
    --------
    >>> mixed(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0, 1], [1, 0]]))
    array([[1., 4.],
           [3., 2.]])
    """
    numbers: FloatArray = np.take_along_axis(np.asarray(X), rows, axis=0)
    if not isinstance(X, FrameRows):
        return numbers
    columns = nw.from_native(X.frame, eager_only=True).iter_columns()
    cells = zip(columns, rows.T, strict=True)
    frames = [nw.maybe_reset_index(column[places].to_frame()) for column, places in cells]
    return FrameRows(nw.concat(frames, how="horizontal").to_native(), numbers)


# --- arrays of float64 ----------------------------------------------------------------------------


def unmasked(X: Any) -> Any:
    """Write the masked cells of a masked array as NaN: they are missing, whatever lies below.

    Examples
    --------
    >>> import numpy as np
    >>> unmasked(np.ma.masked_array([[1.0, 99.0]], mask=[[False, True]]))
    array([[ 1., nan]])
    """
    if isinstance(X, list | tuple) and any(isinstance(row, np.ma.MaskedArray) for row in X):
        X = np.ma.array(X)
    if not isinstance(X, np.ma.MaskedArray):
        return X
    return np.ma.filled(X.astype(np.float64), np.nan) if np.ma.is_masked(X) else X.data


def validated_rows(estimator: Any, X: Any, *, reset: bool = True, **checks: Any) -> FloatArray:
    """Return rows as float64, checked by scikit-learn for `estimator`, or say what is wrong.

    Parameters
    ----------
    estimator : object
        What the rows are for; with `reset` it takes note of their columns. Otherwise the columns
        of a frame are matched to those by name, in any order.
    X : array-like or frame
    reset : bool
    **checks
        As `sklearn.utils.validation.validate_data` takes them.

    Returns
    -------
    float array of shape (m, d)
    """
    if not reset and hasattr(estimator, "feature_names_in_"):
        X = by_name(frame_as_it_is(X), estimator.feature_names_in_.tolist(), whose=estimator)
    X = checked_rows(X)
    with blame_input():
        try:
            rows: FloatArray = validate_data(
                estimator, X, reset=reset, dtype=np.float64, order="C", **checks
            )
        except ValueError as error:
            sentence = _reason(X, str(error))
            if sentence is None:
                raise
            raise ReconformError(sentence) from error
    exact = rounded_columns(X, rows) if hasattr(X, "dtype") or package_of(X) is not None else []
    if exact:
        sentence = f"X: {rounded_sentence(exact)} Leave identifiers out."
        warn_once(estimator, "rounded", sentence, UserWarning)
    return rows


def _reason(X: Any, error: str) -> str | None:
    """Say what is wrong with rows where scikit-learn says it for other people."""
    strange = "could not convert" in error or "Cannot cast" in error
    gaps = error.startswith("Input X contains NaN")
    if not strange and not gaps:
        return None
    read = [(str(name), read_column(cells).values) for name, cells in columns_of(X).items()]
    if strange:
        text = [name for name, values in read if values is None]
        return text_sentence(text) if text else None
    columns = [name for name, values in read if values is not None and np.isnan(values).any()]
    where = f" in {'columns' if len(columns) > 1 else 'the column'} {listed(columns)}"
    return (
        f"Input X contains NaN: values are missing{where if columns else ''}, and this detector "
        "takes none. Impute them with Prepare(detector), or in a pipeline that ends in the "
        "detector, or leave these rows out."
    )


def checked_rows(X: Any) -> Any:
    """Return rows without masks; refuse dates and times.

    Parameters
    ----------
    X : array-like or frame

    Returns
    -------
    array-like or frame

    Examples
    --------
    >>> import numpy as np
    >>> checked_rows(np.array([["2024-01-01"]], dtype="datetime64[D]"))
    Traceback (most recent call last):
        ...
    reconform.errors.ReconformError: X holds dates or times (datetime64[D]), and detectors take
    numbers: leave them out, or turn them into numbers that mean something, such as the hour of the
    day.
    """
    X = frame_as_it_is(unmasked(X))
    times = _times(X)
    if times:
        refuse_times(times)
    return X


# Parts of the calendar: seconds of a turn, and from when on they are counted (Monday, 1 January).
YEAR = 365.2425 * 86_400
TURNS = {"hour": (86_400.0, 0.0), "weekday": (604_800.0, 345_600.0), "month": (YEAR, 0.0)}
ELAPSED = "elapsed"
CALENDAR = (ELAPSED, *(f"{part} ({wave})" for part in TURNS for wave in ("sin", "cos")))


def calendar_part(seconds: FloatArray, part: str) -> FloatArray:
    """Read a part of the calendar from seconds since 1970, as a point on a circle.

    Examples
    --------
    >>> six, noon = 6 * 3600.0, 12 * 3600.0
    >>> calendar_part(np.array([0.0, six, noon]), "hour (cos)").round(3) + 0.0
    array([ 1.,  0., -1.])
    """
    if part == ELAPSED:
        return seconds
    turn, start = TURNS[part[: -len(" (sin)")]]
    angle = 2 * np.pi * ((seconds - start) % turn) / turn
    return np.asarray(np.sin(angle) if part.endswith("(sin)") else np.cos(angle))


def without_calendar(X: FloatArray, names: Sequence[str]) -> FloatArray:
    """Return rows with 0 in the columns made of a time, which follow its order by themselves.

    Examples
    --------
    >>> without_calendar(np.array([[2.0, 5.0]]), ["x", "when: hour (cos)"])
    array([[2., 0.]])
    """
    made = [name.rpartition(": ")[2] in CALENDAR for name in names]
    return np.where(made, 0.0, X) if any(made) else X


# The turns of a part, such as weeks for the weekday, that rows must cover to be compared by it.
FEWEST_TURNS = 4


def calendar_parts(times: Sequence[FloatArray], *, dated: bool = True) -> list[str]:
    """Say by which parts of the calendar rows can be compared.

    The hour where there are times of several days, the weekday from some weeks on, the month from
    some years on, in the reference and among the new rows alike: before that they only say which
    rows are later.

    Parameters
    ----------
    times : sequence of float arrays
        Seconds since 1970 of the reference, and of the new rows if these are known; NaN where
        there is no time.
    dated : bool
        Whether they have a date, too.

    Examples
    --------
    >>> calendar_parts([np.arange(0.0, 86_400 * 30, 3600), np.arange(0.0, 86_400 * 5, 3600)])
    ['hour']
    """
    known = [some[np.isfinite(some)] for some in times]
    if not all(map(len, known)):
        return []
    clock = len(np.unique(known[0] % 86_400)) > 1
    if not dated:
        return ["hour"] if clock else []
    span = min(float(some.max() - some.min()) for some in known)
    parts = [part for part, (turn, _) in TURNS.items() if span >= FEWEST_TURNS * turn - 86_400]
    return [part for part in parts if clock or part != "hour"]


def wall_clock(cell: Any) -> Any:
    """A time as the clock on the wall has it."""
    cell = cell.to_timestamp() if hasattr(cell, "to_timestamp") else cell
    return cell.replace(tzinfo=None) if isinstance(cell, datetime.datetime) else cell


def refuse_times(which: str, error: Exception | None = None) -> NoReturn:
    """Say that dates and times are no numbers.

    Parameters
    ----------
    which : str
        The columns that hold them, or the type of an array of them.
    error : Exception, optional
        What came of it.
    """
    raise ReconformError(
        f"X holds dates or times ({which}), and detectors take numbers: leave them out, or turn "
        "them into numbers that mean something, such as the hour of the day."
    ) from error


def text_sentence(columns: Sequence[str]) -> str:
    """Say that text is no number, and what takes it."""
    return (
        f"X holds text in {'columns' if len(columns) > 1 else 'the column'} {listed(columns)}, and "
        "this detector takes numbers. Encode text as categories with Prepare(detector), or with a "
        "ColumnTransformer in a pipeline that ends in the detector, or leave it out."
    )


def _times(X: Any) -> str:
    """Names of the columns that hold times, or the type of an array of them."""
    if package_of(X) is not None:
        return listed(time_columns(X))
    array = X if isinstance(X, np.ndarray) else np.asarray(0.0)
    if isinstance(X, list | tuple) and len(X):
        with suppress(ValueError):  # ragged: scikit-learn says it
            array = np.asarray(X[0])  # the first row tells what the others are
    if array.dtype.kind in "mM":
        return str(array.dtype)
    row = array[0] if array.ndim > 1 and len(array) else array
    if array.dtype == object and any(isinstance(cell, TIMES) for cell in np.ravel(row)):
        place = next(j for j, cell in enumerate(np.ravel(row)) if isinstance(cell, TIMES))
        return f"column {place}"
    return ""
