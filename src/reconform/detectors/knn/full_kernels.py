"""What a new row changes: it is a new neighbour to some rows of D, and their scores rise.

Distances are in the reduced form of `reconform.detectors.knn.kernels`, before the root is taken, so
that who is nearer is never a matter of rounding. One function scores the new row and the rows of D,
with and without the new one: all n + 1 are treated alike, to the last bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ...arrays import FloatArray, Int32Array, RankArray
from .kernels import box_distance, measure_leaf, rooted


@njit(cache=True, nogil=True)
def _score(near: FloatArray, new: float, low: int, root: float) -> float:
    """Score a row by its sorted neighbours and one more, which may be at infinity."""
    total = 0.0
    for t in range(near.size):
        distance = min(near[t], new)
        new = max(near[t], new)
        if t >= low - 1:
            total += rooted(distance, root)
    return -(total / (near.size - low + 1))


@njit(cache=True, nogil=True)
def score_neighbours(near: FloatArray, low: int, root: float) -> FloatArray:
    """Score rows by the sorted distances to their neighbours, small = strange.

    Parameters
    ----------
    near : float array of shape (m, high)
        In reduced form.
    low : int
        The score is minus the mean of the low-th to the last distance.
    root : float
        A distance is its reduced form to this power.

    Returns
    -------
    float array of shape (m,)
    """
    scores = np.empty(len(near))
    for q in range(len(near)):
        scores[q] = _score(near[q], np.inf, low, root)
    return scores


@njit(cache=True, nogil=True)
def _count_again(
    near: FloatArray, c: float, new: float, low: int, root: float, t: float
) -> tuple[int, int]:
    """Say by how much ranks change, c <= t and c < t, when a row gets a new neighbour."""
    s = _score(near, new, low, root)
    return int(s <= t) - int(c <= t), int(s < t) - int(c < t)


@njit(cache=True, nogil=True)
def correct_by_tree(
    queries: FloatArray,
    t: FloatArray,
    leaves: FloatArray,
    ids: Int32Array,
    boxes: FloatArray,
    reach: FloatArray,
    node_reach: FloatArray,
    near: FloatArray,
    c: FloatArray,
    low: int,
    power: float,
    root: float,
    start: int,
    stop: int,
    at_most: RankArray,
    below: RankArray,
) -> None:
    """Correct ranks of new rows ``start`` to ``stop`` for the rows that they are near to.

    A row of D has a new score only if the new row is nearer than its last neighbour, that is,
    within its reach. A branch of the tree within whose largest reach the new row is not is passed
    over.

    Parameters
    ----------
    queries : float array of shape (m, d)
        The new rows.
    t : float array of shape (m,)
        Their scores.
    leaves, ids, boxes : arrays
        The tree, as `reconform.detectors.knn.search.build_tree` makes it.
    reach : float array of shape (n_leaves, leaf_size)
        The reach of each row in its leaf; nothing is within that of a filler.
    node_reach : float array of shape (2 n_leaves - 1,)
        The largest reach in every node.
    near : float array of shape (n, high)
        Sorted distances of the rows of D to their neighbours in D, in reduced form.
    c : float array of shape (n,)
        Their scores.
    low, power, root : numbers
        As in `score_neighbours`; a distance is (sum of |a - b|^power)^root.
    start, stop : int
    at_most, below : int arrays of shape (m,)
        Ranks of t among c, 1 + #{c <= t} and 1 + #{c < t}; corrected in place.
    """
    n_leaves, _, leaf_size = leaves.shape
    # Nodes to visit: (node, first leaf, last leaf + 1), one per level as in `nearest`.
    waiting = np.empty((64, 3), dtype=np.int64)
    measured = np.empty(leaf_size)
    for q in range(start, stop):
        x = queries[q]
        waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, 0, n_leaves
        top = 0
        while top >= 0:
            node, first, last = waiting[top, 0], waiting[top, 1], waiting[top, 2]
            top -= 1
            if box_distance(x, boxes[node], power) >= node_reach[node]:
                continue
            if last - first > 1:
                middle = (first + last) // 2
                left, right = node + 1, node + 2 * (middle - first)
                waiting[top + 1, 0], waiting[top + 2, 0] = left, right
                waiting[top + 1, 1], waiting[top + 2, 1] = first, middle
                waiting[top + 1, 2], waiting[top + 2, 2] = middle, last
                top += 2
                continue
            measure_leaf(x, leaves[first], power, measured)
            for slot in range(leaf_size):
                if measured[slot] < reach[first, slot]:
                    i = ids[first, slot]
                    more = _count_again(near[i], c[i], measured[slot], low, root, t[q])
                    at_most[q] += more[0]
                    below[q] += more[1]


@njit(cache=True, nogil=True)
def correct_by_rows(
    distances: FloatArray,
    t: FloatArray,
    near: FloatArray,
    c: FloatArray,
    low: int,
    at_most: RankArray,
    below: RankArray,
) -> None:
    """Correct ranks where every distance of a new row to D is at hand.

    Parameters
    ----------
    distances : float array of shape (m, n)
    t, near, c, low, at_most, below
        As in `correct_by_tree`; distances are as they are, without a root to be taken.
    """
    for q in range(len(distances)):
        for i in range(len(c)):
            if distances[q, i] < near[i, -1]:
                more = _count_again(near[i], c[i], distances[q, i], low, 1.0, t[q])
                at_most[q] += more[0]
                below[q] += more[1]
