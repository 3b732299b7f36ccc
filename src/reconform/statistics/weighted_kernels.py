"""The loops of weighted ranks; see `weighted`. All numbers are whole, so that sums are exact."""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray, IndexArray, IntArray
from ..compiled import njit


@njit(cache=True, nogil=True)
def limit_of(top: int, bottom: int, length: int, total: int) -> int:
    """The whole part of top length total / bottom, without overflow."""
    share, rest = total // bottom, total % bottom
    return top * length * share + (top * length * rest) // bottom


@njit(cache=True, nogil=True)
def weigh_rows(
    own: FloatArray,
    others: FloatArray,
    rows: IndexArray,
    down: IntArray,
    up: IntArray,
    own_down: IntArray,
    own_up: IntArray,
    shift: IntArray,
    top: int,
    bottom: int,
    start: int,
    stop: int,
    out: IntArray,
) -> None:
    """Write what `WeightedRanks` has for rows `start` to `stop` of a block.

    Parameters
    ----------
    own, others, rows
        As in `AugmentedScores`.
    down, up, own_down, own_up, shift
        As in `WholeWeights`; of the rows whose scores are in `own`, in that order.
    top, bottom : int
        a / m.
    start, stop : int
    out : int array of shape (5, m)
        Written.
    """
    n, m = own.shape[1] - 1, len(shift)
    upto = np.empty(n + 2, dtype=np.int64)
    ends = np.empty(n + 1, dtype=np.int64)
    values = np.empty(m, dtype=np.int64)
    for i in range(start, stop):
        j = rows[i]
        order = np.argsort(own[i])
        ordered = own[i][order]
        upto[0], total = 0, own_down[j]
        for k in range(n + 1):
            e = order[k]
            if e == n:
                upto[k + 1] = upto[k] + own_up[j]
            else:
                upto[k + 1] = upto[k] - (-up[e] >> shift[j])
                total += down[e] >> shift[j]
        end = n + 1
        for k in range(n, -1, -1):
            if k < n and ordered[k] != ordered[k + 1]:
                end = k + 1
            ends[k] = end
        places = np.searchsorted(ordered, others[i], side="right")
        count = 0
        for k in range(m):
            if k != j:
                values[count] = upto[places[k]]
                count += 1
        sorted_values = np.sort(values[:count])
        length = 1
        for k in range(2, m + 1):
            if sorted_values[k - 2] <= limit_of(top, bottom, k, total):
                length = k
        limit = limit_of(top, bottom, length, total)
        found = 0
        for k in range(n + 1):
            if upto[ends[k]] <= limit:
                found = upto[ends[k]]
        mine = upto[np.searchsorted(ordered, own[i, n], side="right")]
        out[0, j], out[1, j], out[2, j], out[3, j], out[4, j] = mine, total, length, found, limit


@njit(cache=True, nogil=True)
def weigh_rows_of_one_model(
    rows: IndexArray,
    upto: IntArray,
    ends: IntArray,
    by_score: IntArray,
    place: IntArray,
    tied: IntArray,
    below: IntArray,
    at_most: IntArray,
    new: IntArray,
    totals: IntArray,
    top: int,
    bottom: int,
    start: int,
    stop: int,
    out: IntArray,
) -> None:
    """Write what `WeightedRanks` has for `rows`, from `start` to `stop`, of one model.

    Parameters
    ----------
    rows : int array
        New rows that share a unit of weight.
    upto : int array of shape (n + 1,)
        Weight, rounded up, of the first calibration rows, by increasing score.
    ends : int array of shape (n,)
        Where the ties of a calibration row end.
    by_score : int array of shape (m,)
        Weight of the calibration rows that score at most as much, of the new rows by increasing
        score.
    place, tied : int arrays of shape (m,)
        Where a new row stands among the new rows by score, and where its ties begin.
    below : int array of shape (m,)
        Calibration rows that score less than a new row.
    at_most : int array of shape (m,)
        As `by_score`, in the order of the new rows.
    new, totals : int arrays of shape (m,)
        The weight of every new row, rounded up, and that of E_j, rounded down.
    top, bottom, start, stop, out
        As in `weigh_rows`.
    """
    n, m = len(ends), len(new)
    for i in range(start, stop):
        j = rows[i]
        total = totals[j]
        # The other new rows by score; those that score no less than x_j have its weight as well.
        length, seen = 1, 0
        for k in range(m):
            if k == place[j]:
                continue
            seen += 1
            value = by_score[k] + (new[j] if k >= tied[j] else 0)
            if value <= limit_of(top, bottom, seen + 1, total):
                length = seen + 1
        limit = limit_of(top, bottom, length, total)
        mine = at_most[j] + new[j]
        found = mine if mine <= limit else 0
        # Calibration rows below x_j, without its weight; from x_j on, with it.
        low, high = 0, n
        while low < high:  # how many calibration rows would be found
            middle = (low + high) // 2
            value = upto[ends[middle]] + (new[j] if middle >= below[j] else 0)
            if value <= limit:
                low = middle + 1
            else:
                high = middle
        if low > 0:
            value = upto[ends[low - 1]] + (new[j] if low - 1 >= below[j] else 0)
            found = max(found, value)
        out[0, j], out[1, j], out[2, j], out[3, j], out[4, j] = mine, total, length, found, limit
