"""Nearest neighbours, exactly: a box tree whose bounds and distances are one formula.

Every distance that is ever compared is the sum over the features, in their order, of |a - b|^p
(the largest |a - b| for p = inf). Rounding is monotone: if a box is nearer to x than a row in it
along every feature, then the *computed* distance to the box is no larger than the computed
distance to the row. So a branch that is cut off never hides a smaller distance, not even one that
is smaller in the last bit only, and equal rows are at equal distances wherever they are met.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...arrays import BoolArray, FloatArray, IndexArray, Int32Array, RankArray
from ...compiled import njit

# pow() is not promised to be monotone, only to be accurate: where it is used, bounds give way.
POW_SLACK = 1.0 - 1e-9


@njit(cache=True, nogil=True)
def box_distance(x: FloatArray, box: FloatArray, power: float) -> float:
    """Return a lower bound, in reduced form, for the distance of `x` to any row in the box."""
    total = 0.0
    for j in range(x.size):
        gap = max(max(box[0, j] - x[j], x[j] - box[1, j]), 0.0)
        if power == 2.0:
            total += gap * gap
        elif power == 1.0:
            total += gap
        elif power == np.inf:
            total = max(total, gap)
        else:
            total += gap**power
    if power == 2.0 or power == 1.0 or power == np.inf:
        return total
    return total * POW_SLACK


@njit(cache=True, nogil=True)
def measure_leaf(x: FloatArray, leaf: FloatArray, power: float, out: FloatArray) -> None:
    """Reduced distances of `x` to the rows of a leaf, which holds them feature by feature."""
    if power == 2.0 or power == 1.0 or power == np.inf:
        # All rows at once, feature after feature: the compiler uses vector instructions, and
        # each row's sum still runs through the features in order.
        out[:] = 0.0
        for j in range(x.size):
            if power == 2.0:
                for row in range(out.size):
                    gap = leaf[j, row] - x[j]
                    out[row] += gap * gap
            elif power == 1.0:
                for row in range(out.size):
                    out[row] += abs(leaf[j, row] - x[j])
            else:
                for row in range(out.size):
                    out[row] = max(out[row], abs(leaf[j, row] - x[j]))
    else:
        # Row by row: a vectorised pow() may differ in the last bit from the scalar one.
        for row in range(out.size):
            total = 0.0
            for j in range(x.size):
                total += abs(leaf[j, row] - x[j]) ** power
            out[row] = total


@njit(cache=True, nogil=True)
def rooted(reduced: float, root: float) -> float:
    """Turn the reduced form of a distance, the sum of powers, into the distance."""
    distance = reduced
    if root == 0.5:
        distance = np.sqrt(reduced)
    elif root != 1.0:
        distance = reduced**root
    return distance


@njit(cache=True, nogil=True)
def _sink(distances: FloatArray, rows: Int32Array, size: int) -> None:
    """Move the top of a heap, largest (distance, row) first, to where it belongs."""
    distance, row, hole = distances[0], rows[0], 0
    while 2 * hole + 1 < size:
        child = 2 * hole + 1
        if child + 1 < size and (
            distances[child + 1] > distances[child]
            or (distances[child + 1] == distances[child] and rows[child + 1] > rows[child])
        ):
            child += 1
        if distance > distances[child] or (distance == distances[child] and row > rows[child]):
            break
        distances[hole], rows[hole] = distances[child], rows[child]
        hole = child
    distances[hole], rows[hole] = distance, row


@njit(cache=True, nogil=True)
def nearest(
    queries: FloatArray,
    own: Int32Array,
    leaves: FloatArray,
    ids: Int32Array,
    boxes: FloatArray,
    power: float,
    root: float,
    distances: FloatArray,
    rows: Int32Array,
    start: int,
    stop: int,
) -> None:
    """Find the nearest rows of queries ``start`` to ``stop``, sorted by distance, then row.

    Parameters
    ----------
    queries : float array of shape (m, d)
    own : int array of shape (m,)
        A row that is not a neighbour of the query, that is, the query itself; -1 for none.
    leaves, ids, boxes : arrays
        The tree, as `reconform.detectors.knn.search.build_tree` makes it.
    power, root : float
        A distance is (sum of |a - b|^power)^root.
    start, stop : int
    distances, rows : arrays of shape (m, width)
        Written. `width` must not exceed the number of rows that can be neighbours.
    """
    n_leaves, _, leaf_size = leaves.shape
    width = distances.shape[1]
    # Nodes to visit: (node, first leaf, last leaf + 1). One waits per level, and a tree that
    # halves its leaves has fewer than 64 levels.
    waiting = np.empty((64, 3), dtype=np.int64)
    bounds = np.empty(64)
    measured = np.empty(leaf_size)
    for q in range(start, stop):
        x = queries[q]
        heap, heap_rows = distances[q], rows[q]
        heap[:] = np.inf
        heap_rows[:] = np.iinfo(np.int32).max
        filled = 0
        waiting[0, 0], waiting[0, 1], waiting[0, 2], bounds[0] = 0, 0, n_leaves, 0.0
        top = 0
        while top >= 0:
            node, first, last, bound = (
                waiting[top, 0],
                waiting[top, 1],
                waiting[top, 2],
                bounds[top],
            )
            top -= 1
            # Behind an equal bound there are equal distances at best, and those change nothing.
            if filled >= width and bound >= heap[0]:
                continue
            if last - first > 1:
                # Nodes are numbered in preorder: a subtree of c leaves has 2c - 1 of them.
                middle = (first + last) // 2
                left, right = node + 1, node + 2 * (middle - first)
                to_left = box_distance(x, boxes[left], power)
                to_right = box_distance(x, boxes[right], power)
                at_left = top + 2 if to_left <= to_right else top + 1  # the nearer one on top
                at_right = 2 * top + 3 - at_left
                waiting[at_left, 0], waiting[at_right, 0] = left, right
                waiting[at_left, 1], waiting[at_right, 1] = first, middle
                waiting[at_left, 2], waiting[at_right, 2] = middle, last
                bounds[at_left], bounds[at_right] = to_left, to_right
                top += 2
                continue
            measure_leaf(x, leaves[first], power, measured)
            for slot in range(leaf_size):
                if filled >= width and measured[slot] >= heap[0]:
                    continue
                row = ids[first, slot]
                if row >= 0 and row != own[q]:
                    heap[0], heap_rows[0] = measured[slot], row
                    _sink(heap, heap_rows, width)
                    filled += 1
        for size in range(width - 1, 0, -1):
            heap[0], heap[size] = heap[size], heap[0]
            heap_rows[0], heap_rows[size] = heap_rows[size], heap_rows[0]
            _sink(heap, heap_rows, size)
        for t in range(width):
            heap[t] = rooted(heap[t], root)


@njit(cache=True, nogil=True)
def squared_distances(
    queries: FloatArray,
    rows: FloatArray,
    candidates: Int32Array,
    out: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Measure proposed neighbours by the formula of `nearest`: out[q, c] = |q - candidate c|^2."""
    for q in range(start, stop):
        for c in range(candidates.shape[1]):
            candidate = rows[candidates[q, c]]
            total = 0.0
            for j in range(candidate.size):
                gap = candidate[j] - queries[q, j]
                total += gap * gap
            out[q, c] = total


@njit(cache=True, nogil=True)
def walk(
    distances: FloatArray,
    rows: Int32Array,
    own: Int32Array,
    multiplicity: npt.NDArray[np.unsignedinteger],
    low: int,
    high: int,
    scores: FloatArray,
    short: BoolArray,
    start: int,
    stop: int,
) -> None:
    """Score queries ``start`` to ``stop`` by every resampled model, from one table of neighbours.

    A model is how often it has each row of D. Its neighbours are met by walking along the sorted
    table and counting every row that often.

    Parameters
    ----------
    distances, rows : arrays of shape (m, width)
        The table, sorted.
    own : int array of shape (m,)
        The query's own row, or -1. Models that were fitted on it are passed over.
    multiplicity : unsigned int array of shape (n, K)
    low, high : int
        The score is minus the mean of the low-th to the high-th smallest distance.
    start, stop : int
    scores : float array of shape (m, K)
        Written; without meaning for models that are passed over.
    short : bool array of shape (m,)
        Set where the table ends before some model has met `high` neighbours.
    """
    n_models = multiplicity.shape[1]
    met = np.empty(n_models, dtype=np.int32)
    total = np.empty(n_models)
    for q in range(start, stop):
        total[:] = 0.0
        met[:] = 0
        if own[q] >= 0:
            for k in range(n_models):
                met[k] = high if multiplicity[own[q], k] > 0 else 0
        fewest = 0
        for t in range(rows.shape[1]):
            counts = multiplicity[rows[q, t]]
            most = 1
            if high > low:
                for k in range(n_models):
                    most = max(most, int(counts[k]))
            # All models abreast and without branches, so that the compiler uses vector
            # instructions. A row that is there twice is added twice, not doubled: that is how a
            # refit on repeated rows adds it.
            for copy in range(min(high - low + 1, most)):
                for k in range(n_models):
                    last = min(met[k] + np.int32(counts[k]), high)
                    added = last - max(met[k], low - 1)
                    total[k] += distances[q, t] if added > copy else 0.0
            fewest = high
            for k in range(n_models):
                met[k] = min(met[k] + np.int32(counts[k]), high)
                fewest = min(fewest, met[k])
            if fewest == high:
                break
        short[q] = fewest < high
        for k in range(n_models):
            scores[q, k] = -(total[k] / (high - low + 1))


# --- full-conformal: what a new row changes ------------------------------------------------------
#
# A new row is a new neighbour to some rows of D, and their scores rise. Distances are in reduced
# form, before the root is taken, so that rounding never decides which row is nearer. One function
# scores the new row and the rows of D, with and without the new one: all n + 1 are treated alike,
# to the last bit.


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
    """Score rows by the sorted distances to their neighbours, small = anomalous.

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
def next_leaf_in_reach(
    x: FloatArray,
    boxes: FloatArray,
    node_reach: FloatArray,
    power: float,
    waiting: RankArray,
    top: int,
) -> tuple[int, int]:
    """Find the next leaf with a row within whose reach `x` may be.

    A branch of the tree within whose largest reach `x` is not is passed over.

    Parameters
    ----------
    x : float array of shape (d,)
    boxes, node_reach, power
        As in `correct_by_tree`.
    waiting : int array of shape (64, 3)
        Nodes to visit: (node, first leaf, last leaf + 1), one per level as in `nearest`.
    top : int
        The last of them; to begin with, the root is the only one.

    Returns
    -------
    leaf, top : int
        The leaf is -1 if there are no more.
    """
    while top >= 0:
        node, first, last = waiting[top, 0], waiting[top, 1], waiting[top, 2]
        top -= 1
        if box_distance(x, boxes[node], power) >= node_reach[node]:
            continue
        if last - first == 1:
            return first, top
        middle = (first + last) // 2
        waiting[top + 1, 0], waiting[top + 2, 0] = node + 1, node + 2 * (middle - first)
        waiting[top + 1, 1], waiting[top + 2, 1] = first, middle
        waiting[top + 1, 2], waiting[top + 2, 2] = middle, last
        top += 2
    return -1, top


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
    at_most: RankArray,
    below: RankArray,
    start: int,
    stop: int,
) -> None:
    """Correct ranks of new rows ``start`` to ``stop`` for the rows that they are near to.

    A row of D has a new score only if the new row is nearer than its last neighbour, that is,
    within its reach.

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
    waiting = np.empty((64, 3), dtype=np.int64)
    measured = np.empty(leaf_size)
    for q in range(start, stop):
        x = queries[q]
        waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, 0, n_leaves
        leaf, top = next_leaf_in_reach(x, boxes, node_reach, power, waiting, 0)
        while leaf >= 0:
            measure_leaf(x, leaves[leaf], power, measured)
            for slot in range(leaf_size):
                if measured[slot] < reach[leaf, slot]:
                    i = ids[leaf, slot]
                    s = _score(near[i], measured[slot], low, root)
                    at_most[q] += int(s <= t[q]) - int(c[i] <= t[q])
                    below[q] += int(s < t[q]) - int(c[i] < t[q])
            leaf, top = next_leaf_in_reach(x, boxes, node_reach, power, waiting, top)


@njit(cache=True, nogil=True)
def _scores_joined(
    distances: FloatArray,
    near: FloatArray,
    c: FloatArray,
    low: int,
    root: float,
    scores: FloatArray,
) -> None:
    """Score rows when one more row joins those that they are measured by.

    Parameters
    ----------
    distances : float array of shape (n,)
        Of the rows to the one that joins, in reduced form.
    near : float array of shape (n, high)
        Sorted distances to their neighbours before.
    c : float array of shape (n,)
        Their scores before.
    low, root : numbers
        As in `score_neighbours`.
    scores : float array of shape (n,)
        Written.
    """
    for i in range(len(c)):
        if distances[i] < near[i, -1]:
            scores[i] = _score(near[i], distances[i], low, root)
        else:
            scores[i] = c[i]


@njit(cache=True, nogil=True)
def augmented_scores(
    new: FloatArray,
    reference_by_feature: FloatArray,
    new_by_feature: FloatArray,
    near: FloatArray,
    c: FloatArray,
    new_near: FloatArray,
    t: FloatArray,
    low: int,
    power: float,
    root: float,
    rows: IndexArray,
    own: FloatArray,
    others: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Score D and all new rows with new row j among D, for some j.

    Parameters
    ----------
    new : float array of shape (m, d)
    rows : int array of shape (b,)
        The new rows j, of which ``start`` to ``stop`` are done.
    reference_by_feature, new_by_feature : float arrays of shape (d, n) and (d, m)
    near, c : float arrays of shape (n, high) and (n,)
        Sorted distances of the rows of D to their neighbours in D, and their scores.
    new_near, t : float arrays of shape (m, high) and (m,)
        The same for the new rows.
    low, power, root : numbers
        As in `correct_by_tree`.
    start, stop : int
    own, others : float arrays of shape (b, n + 1) and (b, m)
        Written.
    """
    n, m = len(c), len(t)
    to_reference, to_new = np.empty(n), np.empty(m)
    for r in range(start, stop):
        x = new[rows[r]]
        measure_leaf(x, reference_by_feature, power, to_reference)
        measure_leaf(x, new_by_feature, power, to_new)
        _scores_joined(to_reference, near, c, low, root, own[r, :n])
        _scores_joined(to_new, new_near, t, low, root, others[r])
        own[r, n] = t[rows[r]]
