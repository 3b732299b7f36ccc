"""Mean, scatter and its factor; rows as they look through it; and the comparison of two rows.

Every sum is taken in one order, feature after feature and row after row, by loops of our own: a
library's matrix product may take another order for another shape, or with more threads. So equal
rows look equal to the bit, whichever kernel asks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...arrays import FloatArray, RankArray


@njit(cache=True, nogil=True)
def fit_mean_and_factor(X: FloatArray, ridge: float, mean: FloatArray, factor: FloatArray) -> None:
    """Fit the mean, and the lower triangular L with L L' = scatter + ridge I.

    Parameters
    ----------
    X : float array of shape (n, d)
    ridge : float
        Positive.
    mean, factor : float arrays of shape (d,) and (d, d)
        Written; `factor` comes as zeros.
    """
    n, d = X.shape
    mean[:] = 0.0
    for i in range(n):
        mean += X[i]
    mean /= n
    # What rounding left over, so that a mean far from zero is as precise as the rows are.
    rest = np.zeros(d)
    for i in range(n):
        rest += X[i] - mean
    mean += rest / n
    for i in range(n):
        gap = X[i] - mean
        for j in range(d):
            for k in range(j + 1):
                factor[j, k] += gap[j] * gap[k]
    for j in range(d):
        factor[j, j] += ridge
    for j in range(d):
        for k in range(j):
            left = factor[j, k]
            for q in range(k):
                left -= factor[j, q] * factor[k, q]
            factor[j, k] = left / factor[k, k]
        left = factor[j, j]
        for q in range(j):
            left -= factor[j, q] * factor[j, q]
        # No pivot of scatter + ridge I is below the ridge; rounding may have made one.
        factor[j, j] = np.sqrt(max(left, ridge))


@njit(cache=True, nogil=True)
def see(
    X: FloatArray, mean: FloatArray, factor: FloatArray, start: int, stop: int, seen: FloatArray
) -> None:
    """Solve L w = x - mean for rows `start` to `stop`: |w|^2 is the squared distance."""
    d = len(mean)
    for i in range(start, stop):
        for j in range(d):
            left = X[i, j] - mean[j]
            for k in range(j):
                left -= factor[j, k] * seen[i, k]
            seen[i, j] = left / factor[j, j]


@njit(cache=True, nogil=True)
def squares_of(seen: FloatArray) -> FloatArray:
    """Squared length of every row."""
    n, d = seen.shape
    squares = np.zeros(n)
    for i in range(n):
        for j in range(d):
            squares[i] += seen[i, j] * seen[i, j]
    return squares


@njit(cache=True, nogil=True)
def _products(rows: FloatArray, x: FloatArray, products: FloatArray) -> None:
    """Products of a row with rows held feature by feature, added up as `squares_of` does."""
    products[:] = 0.0
    for j in range(len(rows)):
        for i in range(len(products)):
            products[i] += rows[j, i] * x[j]


@njit(cache=True, nogil=True)
def rank_rows(
    seen: FloatArray,
    b: FloatArray,
    rows: FloatArray,
    a: FloatArray,
    n: int,
    tie: float,
    start: int,
    stop: int,
    at_most: RankArray,
    below: RankArray,
) -> None:
    """Count the rows of D that are at least as anomalous as new rows `start` to `stop`.

    Parameters
    ----------
    seen, b : float arrays of shape (m, d) and (m,)
        New rows as the model of D sees them, and their squared lengths.
    rows, a : float arrays of shape (d, count) and (count,)
        The rows of D to compare with, feature by feature, and their squared lengths.
    n : int
        Rows of D in all.
    tie : float
        A difference that is less than this part of its terms is a tie.
    start, stop : int
    at_most, below : int arrays of shape (m,)
        Added to: rows that score at most as much, and rows that score less.
    """
    products = np.empty(len(a))
    share, twice = n / (n + 1.0), 2.0 / (n + 1.0)
    for q in range(start, stop):
        _products(rows, seen[q], products)
        for i in range(len(a)):
            p = products[i]
            gap = (a[i] - b[q]) + twice * (b[q] - p) + share * (a[i] * b[q] - p * p)
            margin = tie * (a[i] + b[q] + share * (a[i] * b[q] + p * p))
            at_most[q] += gap >= -margin
            below[q] += gap > margin


@njit(cache=True, nogil=True)
def score_without_each(
    seen: FloatArray,
    b: FloatArray,
    rows: FloatArray,
    a: FloatArray,
    left: FloatArray,
    n: int,
    start: int,
    stop: int,
    scores: FloatArray,
) -> None:
    """Score new rows `start` to `stop` by models without one row of D: (count, m).

    Parameters
    ----------
    seen, b, rows, a, n : arrays and int
        As in `rank_rows`.
    left : float array of shape (count,)
        What the rows of D leave of their own directions to the others, 1 - n a / (n - 1).
    start, stop : int
    scores : float array of shape (count, m)
        Written.
    """
    products = np.empty(len(a))
    k, step = n / (n - 1.0), 1.0 / (n - 1.0)
    for q in range(start, stop):
        _products(rows, seen[q], products)
        for i in range(len(a)):
            p = products[i]
            shift = p + step * a[i]
            square = b[q] + 2.0 * step * p + step * step * a[i]
            scores[i, q] = -(square + k * shift * shift / left[i])
