"""Sums of Gaussian kernels, as logarithms, over all rows or over all but one.

Rows are measured in bandwidths and held feature by feature, in the order of their contents, so
that no sum depends on how they came. The exponent of a pair of rows is -|e - l|^2 / 2. Sums are
taken relative to their largest term, as the terms themselves underflow far from all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from ...arrays import FloatArray, IndexArray, RankArray

# Terms below exp(-42) of the largest one do not change a sum of less than a million in 12 digits.
SMALLEST = -42.0


@njit(cache=True, nogil=True)
def _exponents_of(x: FloatArray, rows: FloatArray, exponents: FloatArray) -> None:
    """Exponents of the kernels between one row and all others."""
    exponents[:] = 0.0
    for j in range(len(rows)):
        for row in range(len(exponents)):
            gap = rows[j, row] - x[j]
            exponents[row] += gap * gap
    for row in range(len(exponents)):
        exponents[row] *= -0.5


@njit(cache=True, nogil=True)
def _log_sum(exponents: FloatArray, without: Any) -> float:
    """Log of the sum of the exponentials of all but one of the exponents; -1 for all."""
    largest = -np.inf
    for row in range(len(exponents)):
        if row != without and exponents[row] > largest:
            largest = exponents[row]
    total = 0.0
    for row in range(len(exponents)):
        if row != without and exponents[row] - largest > SMALLEST:
            total += np.exp(exponents[row] - largest)
    return float(largest + np.log(total))


@njit(cache=True, nogil=True)
def log_sums(
    X: FloatArray, own: IndexArray, rows: FloatArray, start: int, stop: int, sums: FloatArray
) -> None:
    """Add up the kernels of rows `start` to `stop`, each without the row that is its own.

    Parameters
    ----------
    X : float array of shape (m, d)
    own : int array of shape (m,)
        Which of `rows` to leave out, -1 for none.
    rows : float array of shape (d, n)
    start, stop : int
    sums : float array of shape (m,)
        Written: logarithms.
    """
    exponents = np.empty(rows.shape[1])
    for q in range(start, stop):
        _exponents_of(X[q], rows, exponents)
        sums[q] = _log_sum(exponents, own[q])


@njit(cache=True, nogil=True)
def _log_sums_without(
    x: FloatArray,
    rows: FloatArray,
    left_out: IndexArray,
    exponents: FloatArray,
    terms: FloatArray,
    without: FloatArray,
) -> float:
    """Log-sums of one row without each of some rows, and with all of them.

    Taking a term from the sum loses no digits as long as the largest one stays; where that is left
    out, the others are added up again.
    """
    _exponents_of(x, rows, exponents)
    first = 0
    for row in range(len(exponents)):
        if exponents[row] > exponents[first]:
            first = row
    largest = exponents[first]
    total = 0.0
    for row in range(len(exponents)):
        gap = exponents[row] - largest
        terms[row] = np.exp(gap) if gap > SMALLEST else 0.0
        total += terms[row]
    for at in range(len(left_out)):
        if left_out[at] == first:
            without[at] = _log_sum(exponents, first)
        else:
            without[at] = largest + np.log(total - terms[left_out[at]])
    return float(largest + np.log(total))


@njit(cache=True, nogil=True)
def log_sums_without_each(
    X: FloatArray,
    rows: FloatArray,
    left_out: IndexArray,
    start: int,
    stop: int,
    sums: FloatArray,
) -> None:
    """Log-sums of rows `start` to `stop` without each of some rows: (count, m)."""
    n = rows.shape[1]
    exponents, terms, without = np.empty(n), np.empty(n), np.empty(len(left_out))
    for q in range(start, stop):
        _log_sums_without(X[q], rows, left_out, exponents, terms, without)
        for at in range(len(left_out)):
            sums[at, q] = without[at]


@njit(cache=True, nogil=True)
def rank_rows(
    X: FloatArray,
    rows: FloatArray,
    left_out: IndexArray,
    c: FloatArray,
    tie: float,
    start: int,
    stop: int,
    at_most: RankArray,
    below: RankArray,
    sums: FloatArray,
) -> None:
    """Compare c with the log-sums of new rows `start` to `stop` without the same rows.

    Parameters
    ----------
    X : float array of shape (m, d)
    rows : float array of shape (d, n)
        D, feature by feature.
    left_out : int array of shape (count,)
        Rows of D to compare with.
    c : float array of shape (count,)
        Their own log-sums, without themselves.
    tie : float
        Log-sums that differ by less than this, or this part of them, are tied.
    start, stop : int
    at_most, below : int arrays of shape (m,)
        Added to: rows that score at most as much, and rows that score less.
    sums : float array of shape (m,)
        Written: log-sums over all of D.
    """
    n = rows.shape[1]
    exponents, terms, without = np.empty(n), np.empty(n), np.empty(len(left_out))
    for q in range(start, stop):
        sums[q] = _log_sums_without(X[q], rows, left_out, exponents, terms, without)
        for at in range(len(left_out)):
            margin = tie * max(1.0, abs(without[at]))
            at_most[q] += c[at] <= without[at] + margin
            below[q] += c[at] < without[at] - margin
