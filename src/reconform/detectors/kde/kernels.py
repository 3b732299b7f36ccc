"""Sums of Gaussian kernels, as logarithms, over all rows or over all but one.

Rows are measured in bandwidths and held feature by feature, in the order of their contents, so
that no sum depends on how they came. The exponent of a pair of rows is -|e - l|^2 / 2. Sums are
taken relative to their largest term, as the terms themselves underflow far from all rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...compiled import njit
from ..comparing import on_grid

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


# --- all rows with a new one ---------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _log_add(log_sum: float, exponent: float) -> float:
    """Log of a sum with one term more."""
    gap = exponent - log_sum
    if gap <= SMALLEST:
        return log_sum
    if gap >= -SMALLEST:
        return exponent
    return float(max(log_sum, exponent) + np.log1p(np.exp(-abs(gap))))


@njit(cache=True, nogil=True)
def augmented_scores(
    X: FloatArray,
    by_feature: FloatArray,
    sums: FloatArray,
    rows: FloatArray,
    c: FloatArray,
    own_constant: float,
    constant: float,
    block: IndexArray,
    start: int,
    stop: int,
    own: FloatArray,
    others: FloatArray,
) -> None:
    """Score D and all new rows with one new row there: ``block[start:stop]``, one after another.

    Parameters
    ----------
    X, by_feature : float arrays of shape (m, d) and (d, m)
        The new rows.
    sums : float array of shape (m,)
        Their log-sums over D.
    rows : float array of shape (d, n)
        D, feature by feature.
    c : float array of shape (n,)
        Its own log-sums, each without the row itself.
    own_constant, constant : float
        What makes log-sums of n and of n + 1 terms the logarithms of densities.
    block : int array of shape (b,)
    start, stop : int
    own, others : float arrays of shape (b, n + 1) and (b, m)
        Written, as `reconform.ensemble.AugmentedScores` has them.
    """
    n, m = len(c), len(sums)
    exponents, between = np.empty(n), np.empty(m)
    for at in range(start, stop):
        j = block[at]
        mine = own[at]
        mine[n] = on_grid(sums[j] + own_constant, 1.0)
        _exponents_of(X[j], rows, exponents)
        for i in range(n):
            # A sum with one term more is that of a refit up to rounding, as terms are added in
            # another order. A row that equals the new one has the sum over D, as the new one has.
            if exponents[i] == 0.0:
                mine[i] = mine[n]
            else:
                mine[i] = on_grid(_log_add(c[i], exponents[i]) + own_constant, 1.0)
        _exponents_of(X[j], by_feature, between)
        for other in range(m):
            others[at, other] = on_grid(_log_add(sums[other], between[other]) + constant, 1.0)
