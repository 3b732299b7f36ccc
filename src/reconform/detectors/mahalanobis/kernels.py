"""Mean, scatter and its factor; rows as they look through it; and the comparison of two rows.

Every sum is taken in one order, feature after feature and row after row, by loops of our own: a
library's matrix product may take another order for another shape, or with more threads. So equal
rows look equal to the bit, whichever kernel asks.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...compiled import njit
from ..one_more import on_grid

# A row of which less than this part is not in the directions of the rows before it adds no
# direction of its own, only rounding.
NO_DIRECTION = 2.0**-45


@njit(cache=True, nogil=True)
def mean_of(X: FloatArray, mean: FloatArray) -> None:
    """Take the mean of rows; written to `mean`."""
    n = len(X)
    mean[:] = 0.0
    for i in range(n):
        mean += X[i]
    mean /= n
    # What rounding left over, so that a mean far from zero is as precise as the rows are.
    rest = np.zeros(len(mean))
    for i in range(n):
        rest += X[i] - mean
    mean += rest / n


@njit(cache=True, nogil=True)
def _take_out(direction: FloatArray, left: FloatArray) -> float:
    """Take a direction out of a row; return how much of it there was."""
    share = 0.0
    for j in range(len(left)):
        share += direction[j] * left[j]
    for j in range(len(left)):
        left[j] -= share * direction[j]
    return share


@njit(cache=True, nogil=True)
def _length(row: FloatArray) -> float:
    square = 0.0
    for value in row:
        square += value * value
    return float(np.sqrt(square))


@njit(cache=True, nogil=True)
def span(X: FloatArray, mean: FloatArray, basis: FloatArray) -> int:
    """Find directions, orthogonal and of length 1, that make up all rows less their mean.

    Parameters
    ----------
    X : float array of shape (n, d)
    mean : float array of shape (d,)
    basis : float array of shape (n, d)
        Written, as many rows as there are directions.

    Returns
    -------
    int
        Directions.
    """
    count = 0
    for i in range(len(X)):
        left = X[i] - mean
        whole = _length(left)
        for _ in range(2):  # once more, for what rounding put back
            for k in range(count):
                _take_out(basis[k], left)
        own = _length(left)
        if own > NO_DIRECTION * whole:
            basis[count] = left / own
            count += 1
    return count


@njit(cache=True, nogil=True)
def project(
    X: FloatArray,
    mean: FloatArray,
    basis: FloatArray,
    ridge: float,
    seen: FloatArray,
    start: int,
    stop: int,
) -> None:
    """See rows `start` to `stop` in the directions of a basis, and in one more for the rest.

    Beyond the basis there is no scatter but the ridge, so the length of the rest, divided by the
    root of the ridge, is all that matters of it.
    """
    for i in range(start, stop):
        left = X[i] - mean
        for k in range(len(basis)):
            seen[i, k] = _take_out(basis[k], left)
        seen[i, len(basis)] = _length(left) / np.sqrt(ridge)


@njit(cache=True, nogil=True)
def rest_of(
    X: FloatArray,
    mean: FloatArray,
    basis: FloatArray,
    ridge: float,
    rest: FloatArray,
    start: int,
    stop: int,
) -> None:
    """See what rows `start` to `stop` have beyond a basis, of which `project` takes the length."""
    for i in range(start, stop):
        left = X[i] - mean
        for k in range(len(basis)):
            _take_out(basis[k], left)
        rest[i] = left / np.sqrt(ridge)


@njit(cache=True, nogil=True)
def factorise(gaps: FloatArray, ridge: float, factor: FloatArray) -> None:
    """Write the upper triangular R with R'R = scatter + ridge I into an array of zeros.

    Parameters
    ----------
    gaps : float array of shape (n, r)
        Rows less their mean.
    ridge : float
        Positive.
    factor : float array of shape (r, r)
        Written.
    """
    size = len(factor)
    for i in range(len(gaps)):
        for j in range(size):
            for k in range(j, size):
                factor[j, k] += gaps[i, j] * gaps[i, k]
    for j in range(size):
        factor[j, j] += ridge
    for k in range(size):
        # No pivot of scatter + ridge I is below the ridge; rounding may have made one.
        pivot = np.sqrt(max(factor[k, k], ridge))
        factor[k, k] = pivot
        for j in range(k + 1, size):
            factor[k, j] /= pivot
        for j in range(k + 1, size):
            share = factor[k, j]
            for q in range(j, size):
                factor[j, q] -= share * factor[k, q]


@njit(cache=True, nogil=True)
def solve(factor: FloatArray, seen: FloatArray, start: int, stop: int) -> None:
    """Replace rows `start` to `stop` by w with R'w = row: |w|^2 is the squared distance."""
    size = len(factor)
    for i in range(start, stop):
        for k in range(size):
            seen[i, k] /= factor[k, k]
            share = seen[i, k]
            for j in range(k + 1, size):
                seen[i, j] -= share * factor[k, j]


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
    more: float,
    at_most: RankArray,
    below: RankArray,
    start: int,
    stop: int,
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
    more : float
        So is one that is less than this, in units of the new row.
    start, stop : int
    at_most, below : int arrays of shape (m,)
        Added to: rows that score at most as much, and rows that score less.
    """
    products = np.empty(len(a))
    share, twice = n / (n + 1.0), 2.0 / (n + 1.0)
    for q in range(start, stop):
        _products(rows, seen[q], products)
        least = more * (1.0 + b[q])
        for i in range(len(a)):
            p = products[i]
            gap = (a[i] - b[q]) + twice * (b[q] - p) + share * (a[i] * b[q] - p * p)
            margin = tie * (a[i] + b[q] + share * (a[i] * b[q] + p * p)) + least
            at_most[q] += gap >= -margin
            below[q] += gap > margin


@njit(cache=True, nogil=True)
def all_on_grid(scores: FloatArray) -> FloatArray:
    """Round all scores to the grid on which those of `augmented_scores` are."""
    rounded = np.empty(scores.shape)
    for i in range(scores.shape[0]):
        for j in range(scores.shape[1]):
            rounded[i, j] = on_grid(scores[i, j], 0.0)
    return rounded


# --- all rows with a new one ---------------------------------------------------------------------

# Where less than this is left of a square without the direction of the new row, it is not found by
# subtraction: about half of the digits would be lost.
LEAST_ACROSS = 2.0**-20


@njit(cache=True, nogil=True)
def _square_with(
    square: float, p: float, b: float, n: int, row: FloatArray, joined: FloatArray
) -> float:
    """Squared distance of a row by the model on n rows and a new one.

    The mean of n + 1 rows is w_x / (n + 1), and their scatter the identity and a part
    n / (n + 1) of w_x w_x'. The row is taken along w_x, where that counts, and across, where it
    does not: no large numbers are subtracted.

    Parameters
    ----------
    square, p, b : float
        Squared length of the row, its product with the new one, squared length of that.
    n : int
        Rows without the new one.
    row, joined : float arrays
        Both rows.
    """
    if b == 0.0:
        return square
    along = p / b
    across = square - along * p
    if across < LEAST_ACROSS * square:
        across = 0.0
        for j in range(len(row)):
            left = row[j] - along * joined[j]
            across += left * left
    shift = along - 1.0 / (n + 1.0)
    return across + shift * (shift * (b / (1.0 + n / (n + 1.0) * b)))


@njit(cache=True, nogil=True)
def augmented_scores(
    seen: FloatArray,
    b: FloatArray,
    whole: FloatArray,
    whole_squares: FloatArray,
    whole_by_feature: FloatArray,
    rows: FloatArray,
    a: FloatArray,
    by_feature: FloatArray,
    left: FloatArray,
    block: IndexArray,
    own: FloatArray,
    others: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Score D and all new rows with one new row there: ``block[start:stop]``, one after another.

    A row of D is scored by the model on the others and the new row. What it leaves of its own
    direction to these, 1 - (n + 1) / n times its square by the model on all of them, is a ratio of
    determinants, those with and without it, and a sum of parts that are not negative.

    Parameters
    ----------
    seen, b : float arrays of shape (m, r) and (m,)
        New rows as the model of D sees them, and their squared lengths.
    whole, whole_squares, whole_by_feature : float arrays of shape (m, q), (m,) and (q, m)
        The same, with all that they have beyond the directions of D: for their products.
    rows, a, by_feature, left : float arrays of shape (n, r), (n,), (r, n) and (n,)
        D, its squared lengths, and what the rows leave of their own directions to the others,
        1 - n a / (n - 1).
    block : int array of shape (b,)
    start, stop : int
    own, others : float arrays of shape (b, n + 1) and (b, m)
        Written, as `reconform.ensemble.AugmentedScores` has them.
    """
    n, m = len(a), len(b)
    products, between = np.empty(n), np.empty(m)
    # With n + 1 rows, and with n - 1.
    more, k, step = (n + 1.0) / n, n / (n - 1.0), 1.0 / (n - 1.0)
    for at in range(start, stop):
        j = block[at]
        mine, bj = own[at], b[j]
        mine[n] = on_grid(-bj, 0.0)
        _products(by_feature, seen[j], products)
        for i in range(n):
            p = products[i]
            if a[i] == bj and p == bj:  # equal rows score alike
                mine[i] = mine[n]
                continue
            shift = p + step * a[i]
            square = max(0.0, bj + 2.0 * step * p + step * step * a[i])
            without = left[i] + left[i] * square / k + shift * shift
            leaves = without / (1.0 + n / (n + 1.0) * bj)
            distance = _square_with(a[i], p, bj, n, rows[i], seen[j])
            mine[i] = on_grid(-more * more * distance / leaves, 0.0)
        _products(whole_by_feature, whole[j], between)
        for other in range(m):
            square = _square_with(
                whole_squares[other], between[other], whole_squares[j], n, whole[other], whole[j]
            )
            others[at, other] = on_grid(-square, 0.0)
