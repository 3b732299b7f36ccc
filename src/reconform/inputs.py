"""Rows from outside as an array of float64: one check for every estimator.

NumPy would turn masked cells, dates and times into numbers without a word; here they are missing,
or refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from sklearn.utils.validation import validate_data

from .arrays import FloatArray
from .errors import ReconformError, blame_input, listed, warn_once
from .frames import (
    TIMES,
    by_name,
    frame_as_it_is,
    missing_columns,
    package_of,
    rounded_columns,
    rounded_sentence,
    text_columns,
    time_columns,
)


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
    if "could not convert" in error or "Cannot cast" in error:
        text = text_columns(X)
        return text_sentence(text) if text else None
    if not error.startswith("Input X contains NaN"):
        return None
    columns = missing_columns(X)
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
    array = X if isinstance(X, np.ndarray) else _first_row(X)
    if array.dtype.kind in "mM":
        return str(array.dtype)
    row = array[0] if array.ndim > 1 and len(array) else array
    if array.dtype == object and any(isinstance(cell, TIMES) for cell in np.ravel(row)):
        place = next(j for j, cell in enumerate(np.ravel(row)) if isinstance(cell, TIMES))
        return f"column {place}"
    return ""


def _first_row(X: Any) -> Any:
    """The first row of a list, which tells what the others are."""
    if isinstance(X, list | tuple) and len(X):
        try:
            return np.asarray(X[0])
        except ValueError:  # ragged: scikit-learn says it
            pass
    return np.asarray(0.0)
