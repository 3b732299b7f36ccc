"""Rows from outside as an array of float64: one check for every estimator.

NumPy would turn masked cells, dates and times into numbers without a word; here they are missing,
or refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from .arrays import FloatArray
from .errors import ReconformError, blame_input

# Column types of Arrow and Polars that are times, by how their names start.
TIMES = ("date", "time", "duration", "month_day_nano_interval")
MOST_NAMED = 6


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


def validated_rows(estimator: Any, X: Any, **checks: Any) -> FloatArray:
    """Return rows as float64, checked by scikit-learn for `estimator`, or say what is wrong.

    Parameters
    ----------
    estimator : object
        What the rows are for; with ``reset=True``, the default, it takes note of their columns.
    X : array-like or frame
    **checks
        As `sklearn.utils.validation.validate_data` takes them.

    Returns
    -------
    float array of shape (m, d)
    """
    X = checked_rows(X)
    with blame_input():
        rows: FloatArray = validate_data(estimator, X, dtype=np.float64, order="C", **checks)
    return rows


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
    X = unmasked(X)
    times = _times(X)
    if times:
        more = f" and {len(times) - MOST_NAMED} more" if len(times) > MOST_NAMED else ""
        raise ReconformError(
            f"X holds dates or times ({', '.join(times[:MOST_NAMED])}{more}), and detectors take "
            "numbers: leave them out, or turn them into numbers that mean something, such as the "
            "hour of the day."
        )
    return X


def _times(X: Any) -> list[str]:
    """Names of the columns that hold times, or the type of an array of them."""
    if hasattr(X, "column_names"):  # Arrow
        columns = zip(X.column_names, X.schema.types, strict=True)
    elif hasattr(X, "dtypes") and hasattr(X, "columns"):  # pandas, Polars
        columns = zip(X.columns, X.dtypes, strict=True)
    else:
        array = X if isinstance(X, np.ndarray) else _first_row(X)
        return [str(array.dtype)] if array.dtype.kind in "mM" else []
    return [repr(name) for name, type in columns if str(type).lower().startswith(TIMES)]


def _first_row(X: Any) -> Any:
    """The first row of a list, which tells what the others are."""
    return np.asarray(X[0] if isinstance(X, list | tuple) and len(X) else 0.0)
