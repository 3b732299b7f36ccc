"""φ of Algorithm 1: how the scores of several models that held out a row become one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays import FloatArray
from ..errors import ReconformError, is_number, unknown_choice

Aggregate = str | float | Callable[..., Any]
Reduction = Callable[[FloatArray], FloatArray]

NAMES = ("median", "mean", "min", "max")


def _sequential_mean(scores: FloatArray) -> FloatArray:
    # np.mean changes its order of summation with the shape of the array, and so the last bit of
    # its result with the chunk size. One model after the other does not.
    total = scores[0].copy()
    for row in scores[1:]:
        total += row
    return np.asarray(total / scores.shape[0], dtype=np.float64)


def _median(scores: FloatArray) -> FloatArray:
    # Sorting short rows is several times quicker than the partition behind np.median. Where the
    # sum of two scores could overflow, np.median's own arithmetic is asked.
    models, rows = scores.shape
    if not np.abs(scores).max(initial=0.0) < np.finfo(np.float64).max / 4:  # also for NaN
        return np.asarray(np.median(scores, axis=0), dtype=np.float64)
    half = models // 2
    medians = np.empty(rows)
    for start in range(0, rows, 1024):
        block = slice(start, start + 1024)
        ordered = np.sort(np.ascontiguousarray(scores[:, block].T), axis=1)
        high = ordered[:, half]
        medians[block] = high if models % 2 else (ordered[:, half - 1] + high) / 2
    return medians


def check_aggregate(aggregate: Aggregate) -> None:
    """Raise unless `aggregate` names an aggregation, is a quantile in [0, 1], or is callable."""
    if isinstance(aggregate, str):
        if aggregate not in NAMES:
            raise unknown_choice("aggregate", aggregate, NAMES)
    elif is_number(aggregate):
        if not 0 <= float(aggregate) <= 1:
            raise ReconformError(f"aggregate as a quantile must lie in [0, 1]; got {aggregate!r}.")
    elif not callable(aggregate):
        raise ReconformError(
            "aggregate must be 'median', 'mean', 'min', 'max', a quantile in [0, 1], or a "
            f"callable; got {aggregate!r}."
        )


def reduction(aggregate: Aggregate) -> Reduction:
    """Return φ as a function from (models, rows) scores to (rows,) scores.

    A callable is either NumPy-like (it has an ``axis`` parameter, as `numpy.median` has) or takes
    the one-dimensional set of scores of one row and returns a number.

    Examples
    --------
    >>> import numpy as np
    >>> scores = np.array([[1.0, 5.0], [2.0, 6.0], [9.0, 7.0]])
    >>> reduction("median")(scores)
    array([2., 6.])
    >>> reduction(0.0)(scores)
    array([1., 5.])
    >>> reduction(lambda s: s.max() - s.min())(scores)
    array([8., 2.])
    """
    check_aggregate(aggregate)
    if aggregate == "median":
        return _median
    if aggregate == "mean":
        return _sequential_mean
    if aggregate == "min":
        return lambda scores: np.asarray(scores.min(axis=0), dtype=np.float64)
    if aggregate == "max":
        return lambda scores: np.asarray(scores.max(axis=0), dtype=np.float64)
    if callable(aggregate):
        return _from_callable(aggregate)
    level = float(aggregate)
    return lambda scores: np.asarray(np.quantile(scores, level, axis=0), dtype=np.float64)


def _from_callable(function: Callable[..., Any]) -> Reduction:
    try:
        numpy_like = "axis" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some built-ins have no signature
        numpy_like = False

    def reduce(scores: FloatArray) -> FloatArray:
        rows = scores.shape[1]
        if numpy_like:
            # NumPy sums a lone column in another order; beside a second one it does not.
            wide = np.ascontiguousarray(scores if rows != 1 else np.repeat(scores, 2, axis=1))
            result = np.asarray(function(wide, axis=0), dtype=np.float64)
        else:
            wide = scores
            result = np.array([function(column) for column in scores.T], dtype=np.float64)
        if result.shape != wide.shape[1:]:
            raise ReconformError(
                "aggregate must turn the scores of one row into one number; for an array of shape "
                f"{wide.shape} it returned shape {result.shape}, expected {wide.shape[1:]}."
            )
        return result[:rows]

    return reduce
