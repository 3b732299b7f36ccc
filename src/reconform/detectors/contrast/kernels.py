"""Ranks by contrast, and the guard against clusters: compiled code.

All distances are squared and come from one formula, and scores are made of them by roots,
quotients and products, each rounded correctly, in one order. So a score is a symmetric function of
the rows to the last bit, and whether ranks are exact is no matter of rounding.
"""

from __future__ import annotations

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, RankArray
from ...compiled import njit
from ..knn.kernels import measure_leaf


@njit(cache=True, nogil=True)
def _with(near: FloatArray, k: int, new: float) -> float:
    """Return the k-th smallest of sorted values and a new one."""
    if new >= near[k - 1]:
        return float(near[k - 1])
    return max(float(near[k - 2]), new) if k > 1 else new


@njit(cache=True, nogil=True)
def _without(near: FloatArray, k: int, gone: float) -> float:
    """Return the k-th smallest of sorted values when one of them is gone.

    Which of several equal values it was makes no difference.
    """
    return float(near[k] if gone <= near[k - 1] else near[k - 1])


@njit(cache=True, nogil=True)
def _score(
    to_reference: FloatArray,
    to_new: FloatArray,
    ks: RankArray,
    joined: float,
    gone: float,
    contrast: bool,
) -> float:
    """Score a row: the product over k of d_k(new rows) / d_k(reference rows)^2, small = anomalous.

    As normal as can be where a k-th reference row is a copy, whatever the rest.

    Parameters
    ----------
    to_reference, to_new : float arrays of shape (width,), (width + 1,)
        Squared distances to the nearest reference and new rows, sorted.
    ks : int array
        In increasing order.
    joined : float
        Squared distance of one more reference row; infinity for none.
    gone : float
        Squared distance of a new row that does not count; infinity for none.
    contrast : bool
        Without it new rows do not matter: the product of 1 / d_k(reference rows)^2.
    """
    score = 1.0
    for k in ks:
        square = _with(to_reference, k, joined)
        if square == 0.0:
            return np.inf
        if square == np.inf:  # distances overflow
            score = 0.0
            continue
        score *= (np.sqrt(_without(to_new, k, gone)) if contrast else 1.0) / square
        if score == np.inf:
            return score
    return score


@njit(cache=True, nogil=True)
def rank_alone(
    new: FloatArray,
    reference: FloatArray,
    d_in_d: FloatArray,
    t_in_d: FloatArray,
    ks: RankArray,
    at_most: RankArray,
    below: RankArray,
    start: int,
    stop: int,
) -> None:
    """Rank new rows ``start`` to ``stop`` by their distance to reference rows, each by itself.

    Parameters
    ----------
    new : float array of shape (m, d)
    reference : float array of shape (d, n)
        D, feature by feature.
    d_in_d, t_in_d : float arrays of shape (n, width), (m, width)
        Squared distances to the nearest rows of D, sorted; no row is its own neighbour.
    ks : int array
    start, stop : int
    at_most, below : int arrays of shape (m,)
        Written.
    """
    distances, nothing = np.empty(reference.shape[1]), np.empty(0)
    for j in range(start, stop):
        measure_leaf(new[j], reference, 2.0, distances)
        at_most[j], below[j] = 1, 1
        mine = _score(t_in_d[j], nothing, ks, np.inf, np.inf, False)
        for i in range(len(distances)):
            s = _score(d_in_d[i], nothing, ks, distances[i], np.inf, False)
            at_most[j] += s <= mine
            below[j] += s < mine


@njit(cache=True, nogil=True)
def _smallest(values: FloatArray, place: int) -> float:
    """What would stand at a place if the values, which are moved, were sorted.

    NumPy's own selection takes seconds to compile.
    """
    low, high = 0, len(values) - 1
    while low < high:
        edge = values[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while values[left] < edge:
                left += 1
            while edge < values[right]:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left, right = left + 1, right - 1
        if place <= right:
            high = right
        elif place >= left:
            low = left
        else:
            break
    return float(values[place])


@njit(cache=True, nogil=True)
def _typical(distances: FloatArray, d_in_d: FloatArray, own: float, reaches: FloatArray) -> float:
    """Median over D and a new row of the distance to the last neighbour in the table."""
    n, width = d_in_d.shape
    for i in range(n):
        reaches[i] = _with(d_in_d[i], width, distances[i])
    reaches[n] = own
    return _smallest(reaches, n // 2)


@njit(cache=True, nogil=True)
def _has_clusters(
    to_others: FloatArray,
    j: int,
    t_in_d: FloatArray,
    t_in_t: FloatArray,
    typical: float,
    limits: FloatArray,
) -> bool:
    """Say whether too many new rows other than j have companions.

    Only rows among normal rows are looked at: those whose last reference neighbour in the table
    is not farther than is typical for reference rows. A row has c companions if its c-th new
    neighbour is strictly nearer than its first reference row. Row j counts as a reference row.

    Parameters
    ----------
    to_others : float array of shape (m,)
        Squared distances of new row j to all new rows.
    j : int
    t_in_d, t_in_t : float arrays of shape (m, width), (m, width + 1)
        Squared distances of new rows to reference and to other new rows, sorted.
    typical : float
    limits : float array of shape (width, m + 1)
        As `reconform.statistics.companions.guard_limits` gives them.
    """
    width = t_in_d.shape[1]
    inside = 0
    accompanied = np.zeros(width, dtype=np.int64)
    for other in range(len(to_others)):
        joined = to_others[other]
        if other == j or _with(t_in_d[other], width, joined) > typical:
            continue
        inside += 1
        first = min(t_in_d[other, 0], joined)
        for c in range(1, width + 1):
            if _without(t_in_t[other], c, joined) >= first:
                break
            accompanied[c - 1] += 1
    return bool(np.any(accompanied > limits[:, inside]))


@njit(cache=True, nogil=True)
def _measure(
    j: int,
    new: FloatArray,
    new_by_feature: FloatArray,
    reference: FloatArray,
    d_in_d: FloatArray,
    t_in_d: FloatArray,
    t_in_t: FloatArray,
    limits: FloatArray,
    to_reference: FloatArray,
    to_new: FloatArray,
    reaches: FloatArray,
) -> bool:
    """Measure the distances of new row j to all rows; say whether new rows come in clusters."""
    measure_leaf(new[j], reference, 2.0, to_reference)
    measure_leaf(new[j], new_by_feature, 2.0, to_new)
    if not len(limits):
        return False
    typical = _typical(to_reference, d_in_d, t_in_d[j, -1], reaches)
    return _has_clusters(to_new, j, t_in_d, t_in_t, typical, limits)


@njit(cache=True, nogil=True)
def rank_batch(
    new: FloatArray,
    rows: IndexArray,
    new_by_feature: FloatArray,
    reference: FloatArray,
    d_in_d: FloatArray,
    t_in_d: FloatArray,
    d_in_t: FloatArray,
    t_in_t: FloatArray,
    ks: RankArray,
    limits: FloatArray,
    at_most: RankArray,
    below: RankArray,
    clustered: BoolArray,
    start: int,
    stop: int,
) -> None:
    """Rank some new rows by contrast, or alone where there are clusters.

    Parameters
    ----------
    new : float array of shape (m, d)
        All new rows.
    rows : int array of shape (r,)
        Which of them to rank, from ``start`` to ``stop``.
    new_by_feature : float array of shape (d, m)
        All new rows, feature by feature.
    reference : float array of shape (d, n)
        D, feature by feature.
    d_in_d, t_in_d : float arrays of shape (n, width), (m, width)
        Squared distances to the nearest rows of D, sorted; no row is its own neighbour.
    d_in_t, t_in_t : float arrays of shape (n, width + 1), (m, width + 1)
        To the nearest new rows.
    ks : int array
    limits : float array of shape (width, m + 1)
        As `reconform.statistics.companions.guard_limits` gives them; without rows for no guard.
    start, stop : int
    at_most, below, clustered : arrays of shape (r,)
        Written; `clustered` where new rows do not matter, as there are clusters among them.
    """
    n, m = reference.shape[1], len(new)
    to_reference, to_new, reaches = np.empty(n), np.empty(m), np.empty(n + 1)
    for r in range(start, stop):
        j = rows[r]
        clustered[r] = _measure(
            j, new, new_by_feature, reference, d_in_d, t_in_d, t_in_t, limits,
            to_reference, to_new, reaches,
        )  # fmt: skip
        at_most[r], below[r] = 1, 1
        contrast = not clustered[r]
        mine = _score(t_in_d[j], t_in_t[j], ks, np.inf, np.inf, contrast)
        for i in range(n):
            s = _score(d_in_d[i], d_in_t[i], ks, to_reference[i], to_reference[i], contrast)
            at_most[r] += s <= mine
            below[r] += s < mine


@njit(cache=True, nogil=True)
def augmented_batch(
    new: FloatArray,
    rows: IndexArray,
    new_by_feature: FloatArray,
    reference: FloatArray,
    d_in_d: FloatArray,
    t_in_d: FloatArray,
    d_in_t: FloatArray,
    t_in_t: FloatArray,
    ks: RankArray,
    limits: FloatArray,
    use: bool,
    own: FloatArray,
    others: FloatArray,
    clustered: BoolArray,
    start: int,
    stop: int,
) -> None:
    """Score D and all new rows with new row j among D and not among the new ones, for some j.

    Parameters
    ----------
    new, rows, new_by_feature, reference, d_in_d, t_in_d, d_in_t, t_in_t, ks, limits, start, stop
        As in `rank_batch`.
    use : bool
        Whether to look at new rows at all.
    own, others, clustered : arrays of shape (r, n + 1), (r, m) and (r,)
        Written.
    """
    n, m = reference.shape[1], len(new)
    to_reference, to_new, reaches = np.empty(n), np.empty(m), np.empty(n + 1)
    for r in range(start, stop):
        j = rows[r]
        clustered[r] = _measure(
            j, new, new_by_feature, reference, d_in_d, t_in_d, t_in_t, limits,
            to_reference, to_new, reaches,
        )  # fmt: skip
        contrast = use and not clustered[r]
        for i in range(n):
            joined = to_reference[i]
            own[r, i] = _score(d_in_d[i], d_in_t[i], ks, joined, joined, contrast)
        own[r, n] = _score(t_in_d[j], t_in_t[j], ks, np.inf, np.inf, contrast)
        for i in range(m):
            others[r, i] = _score(t_in_d[i], t_in_t[i], ks, to_new[i], to_new[i], contrast)
