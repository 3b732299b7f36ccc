"""Frames of pandas, Polars and Arrow: columns by name, rows by position, and what tells rows apart.

A detector that can read frames (a pipeline with a ColumnTransformer, say) gets them as they are.
What the package itself has to know about rows, which are equal, in which order they are drawn, how
they compare with others, it reads from numbers (`numbers_of`): a number stands for itself, any
other cell for the code of what it says.
"""

from __future__ import annotations

import hashlib
import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import BoolArray, FloatArray, IndexArray
from .errors import ReconformError, listed, nearest, warn_once
from .extras import extra

# Column types of pandas, Polars and Arrow that are times, by how their names start.
TIMES = ("date", "time", "duration", "month_day_nano_interval", "period")

# What pandas calls columns of objects that are numbers.
NUMBERS = ("integer", "floating", "mixed-integer-float", "boolean", "decimal")


def label_code(label: str) -> float:
    """Code of a label: a hash of its text, so that it is the same whichever rows are new.

    Examples
    --------
    >>> 1.0 <= label_code("mauve") == label_code("mauve") <= 2.0**48
    True
    """
    digest = hashlib.blake2b(label.encode("utf-8", "surrogatepass"), digest_size=6).digest()
    return 1.0 + int.from_bytes(digest, "little")


class Library(ABC):
    """What is done to the frames of one library.

    Attributes
    ----------
    package : str
        What to import.
    """

    package: str

    @property
    def module(self) -> Any:
        """The library."""
        return extra(self.package, None, f"a frame of {self.package}")

    @abstractmethod
    def names(self, frame: Any) -> list[Any]:
        """Return the names of the columns."""

    @abstractmethod
    def types(self, frame: Any) -> list[str]:
        """Return the types of the columns, as they print."""

    @abstractmethod
    def select(self, frame: Any, names: Sequence[str]) -> Any:
        """Return some columns, in this order."""

    @abstractmethod
    def take(self, frame: Any, rows: slice | IndexArray) -> Any:
        """Return some rows, in this order."""

    @abstractmethod
    def mix(self, frame: Any, rows: IndexArray) -> Any:
        """Return a frame whose cell (i, j) is cell (rows[i, j], j) of this one."""

    @abstractmethod
    def join(self, frames: Sequence[Any]) -> Any:
        """Put frames with the same columns below each other."""

    @abstractmethod
    def column(self, frame: Any, j: int) -> Column:
        """Read a column."""

    @abstractmethod
    def cells(self, frame: Any, j: int) -> Any:
        """The cells of a column as the library holds them."""

    @abstractmethod
    def make(self, columns: Mapping[str, Any], labels: Any = None) -> Any:
        """Make a frame of arrays; `labels` are those of the rows, where there are any."""


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


class _Pandas(Library):
    package = "pandas"

    def names(self, frame: Any) -> list[Any]:
        return list(frame.columns)

    def types(self, frame: Any) -> list[str]:
        return [str(kind) for kind in frame.dtypes]

    def select(self, frame: Any, names: Sequence[str]) -> Any:
        return frame[list(names)]

    def take(self, frame: Any, rows: slice | IndexArray) -> Any:
        # Without the index: models are functions of what rows hold.
        return frame.iloc[rows].reset_index(drop=True)

    def mix(self, frame: Any, rows: IndexArray) -> Any:
        cells = [frame.iloc[places, j].reset_index(drop=True) for j, places in enumerate(rows.T)]
        return self.module.concat(cells, axis=1)

    def join(self, frames: Sequence[Any]) -> Any:
        return self.module.concat(frames, ignore_index=True)

    def column(self, frame: Any, j: int) -> Column:
        cells = frame.iloc[:, j]
        types = self.module.api.types
        if cells.dtype == object:  # of what it holds, the type says nothing
            is_number = types.infer_dtype(cells, skipna=True) in NUMBERS
        else:
            is_number = types.is_numeric_dtype(cells.dtype)
        if is_number and not types.is_complex_dtype(cells.dtype):
            return Column(cells.to_numpy(dtype=np.float64, na_value=np.nan))
        try:
            places, labels = self.module.factorize(cells)
        except TypeError:  # cells that cannot be told apart by a hash, such as lists
            return _labelled([None if value is None else repr(value) for value in cells])
        return Column(None, list(labels), places)

    def cells(self, frame: Any, j: int) -> Any:
        return frame.iloc[:, j]

    def make(self, columns: Mapping[str, Any], labels: Any = None) -> Any:
        return self.module.DataFrame(dict(columns), index=labels)


class _Polars(Library):
    package = "polars"

    def names(self, frame: Any) -> list[Any]:
        return list(frame.columns)

    def types(self, frame: Any) -> list[str]:
        return [str(kind) for kind in frame.dtypes]

    def select(self, frame: Any, names: Sequence[str]) -> Any:
        return frame.select(list(names))

    def take(self, frame: Any, rows: slice | IndexArray) -> Any:
        return frame[rows]

    def mix(self, frame: Any, rows: IndexArray) -> Any:
        return self.module.DataFrame(
            [frame.to_series(j).gather(places) for j, places in enumerate(rows.T)]
        )

    def join(self, frames: Sequence[Any]) -> Any:
        return self.module.concat(frames, how="vertical_relaxed")

    def column(self, frame: Any, j: int) -> Column:
        cells = frame.to_series(j)
        if cells.dtype.is_numeric() or cells.dtype == self.module.Boolean:
            values = cells.cast(self.module.Float64).to_numpy()
            return Column(np.array(values, dtype=np.float64))
        if cells.dtype == self.module.Object:
            return _labelled([None if value is None else repr(value) for value in cells.to_list()])
        return _arrow_column(cells.to_arrow())

    def cells(self, frame: Any, j: int) -> Any:
        return frame.to_series(j)

    def make(self, columns: Mapping[str, Any], labels: Any = None) -> Any:
        return self.module.DataFrame(dict(columns))


class _Arrow(Library):
    package = "pyarrow"

    def names(self, frame: Any) -> list[Any]:
        return list(frame.column_names)

    def types(self, frame: Any) -> list[str]:
        return [str(kind) for kind in frame.schema.types]

    def select(self, frame: Any, names: Sequence[str]) -> Any:
        return frame.select(list(names))

    def take(self, frame: Any, rows: slice | IndexArray) -> Any:
        if isinstance(rows, slice):
            start, stop, _ = rows.indices(frame.num_rows)
            return frame.slice(start, max(0, stop - start))
        return frame.take(self.module.array(rows))

    def mix(self, frame: Any, rows: IndexArray) -> Any:
        cells = [frame.column(j).take(self.module.array(places)) for j, places in enumerate(rows.T)]
        return self.module.table(cells, schema=frame.schema)

    def join(self, frames: Sequence[Any]) -> Any:
        return self.module.concat_tables(frames, promote_options="permissive")

    def column(self, frame: Any, j: int) -> Column:
        return _arrow_column(frame.column(j))

    def cells(self, frame: Any, j: int) -> Any:
        return frame.column(j)

    def make(self, columns: Mapping[str, Any], labels: Any = None) -> Any:
        return self.module.table(dict(columns))


def _arrow_column(cells: Any) -> Column:
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = pa.types
    is_number = kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal
    if any(check(cells.type) for check in is_number) or kinds.is_null(cells.type):
        # Not `safe`: an integer beyond 2^53 is rounded, as everywhere in floating point.
        return Column(np.array(pc.cast(cells, pa.float64(), safe=False).to_numpy(False)))
    if kinds.is_dictionary(cells.type):
        cells = pc.cast(cells, cells.type.value_type)
    return _labelled([value if value is None else str(value) for value in cells.to_pylist()])


def _labelled(words: Sequence[str | None]) -> Column:
    labels = list(dict.fromkeys(word for word in words if word is not None))
    at = {label: place for place, label in enumerate(labels)}
    return Column(
        None, labels, np.array([-1 if word is None else at[word] for word in words], dtype=np.intp)
    )


LIBRARIES: dict[str, Library] = {
    library.package: library for library in (_Pandas(), _Polars(), _Arrow())
}


def library_of(X: Any) -> Library | None:
    """Return whose frame it is; None for anything else.

    Examples
    --------
    >>> import pandas as pd
    >>> library_of(pd.DataFrame({"x": [1.0]})).package
    'pandas'
    >>> library_of([[1.0]]) is None
    True
    """
    package = type(X).__module__.partition(".")[0]
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return LIBRARIES["pandas"]
    if package == "polars" and hasattr(X, "to_series") and hasattr(X, "columns"):
        return LIBRARIES["polars"]
    return LIBRARIES["pyarrow"] if package == "pyarrow" and hasattr(X, "column_names") else None


def frame_as_it_is(X: Any) -> Any:
    """Return a frame that can be indexed: a record batch of Arrow as a table; refuse lazy ones."""
    package, kind = type(X).__module__.partition(".")[0], type(X).__name__
    if package == "polars" and kind == "LazyFrame":
        raise ReconformError("X is a LazyFrame, which holds no rows yet; give X.collect().")
    if package == "pyarrow" and kind == "RecordBatch":
        import pyarrow as pa

        return pa.Table.from_batches([X])
    return X


def are_records(X: Any) -> bool:
    """Whether X is one row as a dict, or a list of such rows.

    Examples
    --------
    >>> are_records({"x": 1.0}), are_records([{"x": 1.0}]), are_records([[1.0]])
    (True, True, False)
    """
    if isinstance(X, list | tuple):
        return bool(X) and isinstance(X[0], Mapping)
    return isinstance(X, Mapping)


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
    return LIBRARIES[package].make(columns)


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
    library = library_of(X)
    names = [] if library is None else library.names(X)
    return names if names and all(isinstance(name, str) for name in names) else None


def time_columns(X: Any) -> list[str]:
    """Return the names of the columns of a frame that hold dates or times.

    Examples
    --------
    >>> import pandas as pd
    >>> time_columns(pd.DataFrame({"x": [1.0], "when": pd.to_datetime(["2024-01-01"])}))
    ['when']
    """
    library = library_of(X)
    if library is None:
        return []
    found = []
    for j, (name, kind) in enumerate(zip(library.names(X), library.types(X), strict=True)):
        said = kind.lower()
        if said.startswith(TIMES) or (said == "object" and _holds_times(library.column(X, j))):
            found.append(str(name))
    return found


def _holds_times(column: Column) -> bool:
    """Whether the first cell is a date or a time of Python or NumPy."""
    import datetime

    times = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)
    return bool(column.labels) and isinstance(column.labels[0], times)


def text_columns(X: Any) -> list[str]:
    """Return the names of the columns of a frame that hold no numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> text_columns(pd.DataFrame({"x": [1.0, 2.0], "colour": ["red", "blue"]}))
    ['colour']
    """
    library = library_of(X)
    if library is None:
        return []
    names = library.names(X)
    return [str(names[j]) for j in range(len(names)) if library.column(X, j).values is None]


def missing_columns(X: Any) -> list[str]:
    """Return the names of the columns of a frame in which numbers are missing.

    Examples
    --------
    >>> import pandas as pd
    >>> missing_columns(pd.DataFrame({"x": [1.0, None], "y": [1.0, 2.0]}))
    ['x']
    """
    library = library_of(X)
    if library is None:
        return []
    read = ((name, library.column(X, j).values) for j, name in enumerate(library.names(X)))
    return [str(name) for name, values in read if values is not None and np.isnan(values).any()]


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
    library, found = library_of(X), []
    for j in np.flatnonzero(large.any(axis=0)).tolist():
        cells = X[:, j] if library is None else library.cells(X, j)
        cells = np.asarray(cells)[large[:, j]]
        whole = (x for x in cells.tolist() if isinstance(x, int))
        if any(x != int(float(x)) for x in whole):
            found.append(str(j if library is None else library.names(X)[j]))
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
    have, library = names_of(X), library_of(X)
    if have is None or library is None or have == list(names):
        return X
    twice = sorted({name for name in names if have.count(name) > 1})
    if twice:
        raise ReconformError(f"X has more than one column {listed(twice)}; give each another name.")
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
    return library.select(X, names)


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
        library = library_of(self.frame)
        assert library is not None
        return FrameRows(library.take(self.frame, rows), self.numbers[rows])

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
    library = library_of(frame)
    assert library is not None
    read = [(library.column(frame, j), listed) for j, listed in enumerate(labels)]
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
    library = library_of(reference.frame)
    assert library is not None
    return FrameRows(
        library.join([reference.frame, row.frame]), np.vstack([reference.numbers, row.numbers])
    )


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
    library = library_of(X.frame)
    assert library is not None
    return FrameRows(library.mix(X.frame, rows), numbers)


def frame_of(package: str, X: FloatArray, names: Sequence[str]) -> FrameRows:
    """Make the frame of a library from numbers, as a reader of files has them."""
    columns = {name: X[:, j] for j, name in enumerate(names)}
    return FrameRows(LIBRARIES[package].make(columns), X)
