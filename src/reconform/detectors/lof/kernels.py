"""Local outlier factors, and their repair when a row joins: compiled code.

Rows stand in the order of their contents, and of neighbours at equal distances the one that stands
first is nearer. Sums run over neighbours in that order, in a fit as in a repair, so that both give
the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, Int32Array, RankArray
from ...compiled import njit
from ..knn.kernels import box_distance, measure_leaf

# scikit-learn adds it to the mean reach of a row, which is zero among copies.
SMALL = 1e-10

# --- neighbours ----------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def settle(
    queries: FloatArray,
    own: Int32Array,
    leaves: FloatArray,
    ids: Int32Array,
    boxes: FloatArray,
    least: RankArray,
    tied: RankArray,
    squares: FloatArray,
    rows: Int32Array,
    start: int,
    stop: int,
) -> None:
    """Let the first of the rows at the last distance be the neighbours, for some of the queries.

    A search promises distances, and not which of several rows at the last one it returns.

    Parameters
    ----------
    queries : float array of shape (m, d)
    own : int array of shape (m,)
        A row that is not a neighbour of the query; -1 for none.
    leaves, ids, boxes : arrays
        The tree, as `reconform.detectors.knn.search.build_tree` makes it.
    least : int array of shape (nodes,)
        The first row in every node.
    tied : int array
        The queries with more rows at their last distance than are in the table.
    start, stop : int
        Which of `tied`.
    squares, rows : arrays of shape (m, width)
        The table, sorted. Rows at the last distance are written anew.
    """
    n_leaves, _, leaf_size = leaves.shape
    width = rows.shape[1]
    waiting = np.empty((64, 3), dtype=np.int64)
    measured = np.empty(leaf_size)
    for at in range(start, stop):
        q = tied[at]
        x, last = queries[q], squares[q, width - 1]
        first_slot = np.searchsorted(squares[q], last)
        places = rows[q, first_slot:]
        places[:] = np.iinfo(np.int32).max
        waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, 0, n_leaves
        top = 0
        while top >= 0:
            node, first, end = waiting[top, 0], waiting[top, 1], waiting[top, 2]
            top -= 1
            if least[node] > places[-1] or box_distance(x, boxes[node], 2.0) > last:
                continue
            if end - first > 1:
                middle = (first + end) // 2
                left, right = node + 1, node + 2 * (middle - first)
                # The one with the first rows on top.
                at_left = top + 2 if least[left] <= least[right] else top + 1
                at_right = 2 * top + 3 - at_left
                waiting[at_left, 0], waiting[at_right, 0] = left, right
                waiting[at_left, 1], waiting[at_right, 1] = first, middle
                waiting[at_left, 2], waiting[at_right, 2] = middle, end
                top += 2
                continue
            measure_leaf(x, leaves[first], 2.0, measured)
            for slot in range(leaf_size):
                row = ids[first, slot]
                if measured[slot] != last or row < 0 or row == own[q] or row > places[-1]:
                    continue
                place = len(places) - 1
                while place > 0 and places[place - 1] > row:
                    places[place] = places[place - 1]
                    place -= 1
                places[place] = row


@njit(cache=True, nogil=True)
def _is_before(square: float, position: int, other: float, row: int) -> bool:
    """Say whether a new row at this distance and place among the contents is before a neighbour."""
    return square < other or (square == other and position <= row)


class Neighbours(NamedTuple):
    """The nearest other rows of the rows of D, and the model on D.

    Squares, distances and rows have shape (n, width), sorted; where there are not as many, row n
    at infinity. Row o is among the k neighbours of ``near_to[indptr[o]:indptr[o + 1]]``. Reach,
    density and scores are those of every row among the others; zero where there are fewer than k.
    """

    squares: FloatArray
    distances: FloatArray
    rows: Int32Array
    indptr: RankArray
    near_to: Int32Array
    reach: FloatArray
    density: FloatArray
    scores: FloatArray


# --- scores --------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _density(rows: Int32Array, distances: FloatArray, reach: FloatArray) -> float:
    """Density of a row from its sorted neighbours."""
    total = 0.0
    for t in range(len(rows)):
        total += max(distances[t], reach[rows[t]])
    return 1.0 / (total / len(rows) + SMALL)


@njit(cache=True, nogil=True)
def _factor(total: float, k: int, density: float) -> float:
    """Score from the sum of the neighbours' densities and the row's own.

    A density is zero where distances overflow. A row that is as thin as all its neighbours then
    has the score of a row like its neighbours.
    """
    if density == 0.0:
        return -1.0 if total == 0.0 else -np.inf
    return -((total / k) / density)


@njit(cache=True, nogil=True)
def _score(rows: Int32Array, density: FloatArray, own: float) -> float:
    """Score of a row from its sorted neighbours and its own density."""
    total = 0.0
    for t in range(len(rows)):
        total += density[rows[t]]
    return _factor(total, len(rows), own)


@njit(cache=True, nogil=True)
def fit_scores(
    rows: Int32Array, distances: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Reach, density and score of every row of D, from its k neighbours in D."""
    n, k = rows.shape
    reach = distances[:, k - 1].copy()
    density, scores = np.empty(n), np.empty(n)
    for e in range(n):
        density[e] = _density(rows[e], distances[e], reach)
    for e in range(n):
        scores[e] = _score(rows[e], density, density[e])
    return reach, density, scores


@njit(cache=True, nogil=True)
def score_new(
    rows: Int32Array, distances: FloatArray, k: int, reach: FloatArray, density: FloatArray
) -> FloatArray:
    """Score new rows by the model on D, from the first k of their sorted neighbours."""
    scores = np.empty(len(rows))
    for q in range(len(rows)):
        own = _density(rows[q, :k], distances[q, :k], reach)
        scores[q] = _score(rows[q, :k], density, own)
    return scores


# --- what changes --------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _spread(found: Int32Array, count: int, mark: BoolArray, near: Neighbours) -> int:
    """Add to a list of marked rows those that have one of them as a neighbour; return how many."""
    total, indptr, near_to = count, near.indptr, near.near_to
    for at in range(count):
        o = found[at]
        for e in near_to[indptr[o] : indptr[o + 1]]:
            if not mark[e]:
                mark[e] = True
                found[total] = e
                total += 1
    return total


# --- a row joins: full-conformal ----------------------------------------------------------------


class New(NamedTuple):
    """New rows, where each belongs among the contents of D, and their k neighbours in D."""

    X: FloatArray
    positions: RankArray
    squares: FloatArray
    distances: FloatArray
    rows: Int32Array


class Repairs(NamedTuple):
    """Room for repairs, which are made in place and undone; the new row is number n."""

    square: FloatArray
    reach: FloatArray
    density: FloatArray
    slot: Int32Array
    mark: BoolArray
    found: Int32Array
    list_distances: FloatArray
    list_rows: Int32Array


@njit(cache=True, nogil=True)
def _insert(
    square: float,
    position: int,
    number: int,
    squares: FloatArray,
    distances: FloatArray,
    rows: Int32Array,
    list_distances: FloatArray,
    list_rows: Int32Array,
) -> None:
    """Write the sorted neighbours of a row when a new row is before the last of them."""
    place = len(rows) - 1
    while place > 0 and _is_before(square, position, squares[place - 1], rows[place - 1]):
        list_rows[place] = rows[place - 1]
        list_distances[place] = distances[place - 1]
        place -= 1
    list_rows[place] = number
    list_distances[place] = np.sqrt(square)
    list_rows[:place] = rows[:place]
    list_distances[:place] = distances[:place]


@njit(cache=True, nogil=True)
def _room(near: Neighbours) -> Any:
    """Room for repairs of a graph, filled in with what holds without any new row."""
    n, k = near.rows.shape
    reach, density = np.empty(n + 1), np.empty(n + 1)
    reach[:n], density[:n] = near.reach, near.density
    slot, mark = np.full(n, -1, dtype=np.int32), np.zeros(n, dtype=np.bool_)
    lists = np.empty((n, k)), np.empty((n, k), dtype=np.int32)
    return Repairs(np.empty(n), reach, density, slot, mark, np.empty(n, dtype=np.int32), *lists)


@njit(cache=True, nogil=True)
def _join(new: New, q: int, by_feature: FloatArray, near: Neighbours, room: Repairs) -> int:
    """Let new row q join D; return how many rows have another score, which are listed as found.

    Rows that it is near to have other neighbours (`slot` says which of the lists these are), rows
    that have those as neighbours another density, and rows that have these another score.
    """
    n, k = near.rows.shape
    # As locals: numba counts references wherever a field is read.
    squares, distances, rows = near.squares, near.distances, near.rows
    square, reach, density, slot, mark, found, list_distances, list_rows = room
    position, lists = new.positions[q], 0
    measure_leaf(new.X[q], by_feature, 2.0, square)
    for i in range(n):
        if not _is_before(square[i], position, squares[i, k - 1], rows[i, k - 1]):
            continue
        _insert(
            square[i], position, n, squares[i], distances[i], rows[i],
            list_distances[lists], list_rows[lists],
        )  # fmt: skip
        slot[i] = lists
        mark[i] = True
        found[lists] = i
        lists += 1
    for at in range(lists):
        reach[found[at]] = list_distances[at, k - 1]
    reach[n] = new.distances[q, k - 1]
    changed = _spread(found, lists, mark, near)
    for e in found[:changed]:
        if slot[e] >= 0:
            density[e] = _density(list_rows[slot[e]], list_distances[slot[e]], reach)
        else:
            density[e] = _density(rows[e], distances[e], reach)
    density[n] = _density(new.rows[q], new.distances[q], reach)
    return int(_spread(found, changed, mark, near))


@njit(cache=True, nogil=True)
def _score_joined(
    e: int, rows: Int32Array, slot: Int32Array, list_rows: Int32Array, density: FloatArray
) -> float:
    """Score of a row of D with the new row there."""
    return float(_score(list_rows[slot[e]] if slot[e] >= 0 else rows[e], density, density[e]))


@njit(cache=True, nogil=True)
def _undo(touched: int, near: Neighbours, room: Repairs) -> None:
    """Take back what `_join` changed."""
    _, reach, density, slot, mark, found, _, _ = room
    fitted_reach, fitted_density = near.reach, near.density
    for e in found[:touched]:
        slot[e], mark[e] = -1, False
        reach[e], density[e] = fitted_reach[e], fitted_density[e]


@njit(cache=True, nogil=True)
def rank_full(
    new: New,
    by_feature: FloatArray,
    near: Neighbours,
    ordered: FloatArray,
    at_most: RankArray,
    below: RankArray,
    t: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Rank new rows ``start`` to ``stop`` among D, all scored with the new row there.

    `by_feature` is D, (d, n), and `ordered` its scores in increasing order.
    """
    room, rows, scores = _room(near), near.rows, near.scores
    _, _, density, slot, _, found, _, list_rows = room
    for q in range(start, stop):
        touched = _join(new, q, by_feature, near, room)
        mine = _score(new.rows[q], density, float(density[-1]))
        t[q] = mine
        at_most[q] = 1 + np.searchsorted(ordered, mine, side="right")
        below[q] = 1 + np.searchsorted(ordered, mine, side="left")
        for e in found[:touched]:
            s = _score_joined(e, rows, slot, list_rows, density)
            at_most[q] += int(s <= mine) - int(scores[e] <= mine)
            below[q] += int(s < mine) - int(scores[e] < mine)
        _undo(touched, near, room)


@njit(cache=True, nogil=True)
def augmented_full(
    new: New,
    new_by_feature: FloatArray,
    copies: RankArray,
    runs: RankArray,
    by_feature: FloatArray,
    near: Neighbours,
    block: IndexArray,
    own: FloatArray,
    others: FloatArray,
    start: int,
    stop: int,
) -> None:
    """Score D and all new rows with one new row there: ``block[start:stop]``, one after another.

    Written to ``own[b, n + 1]`` and ``others[b, m]``, as `reconform.ensemble.AugmentedScores` has
    them. ``copies[q]`` rows of D equal new row q and stand from its position on; `runs` says where
    rows of D that equal each other begin and end.
    """
    (n, k), m = near.rows.shape, len(new.X)
    room = _room(near)
    gaps, rows_of = np.empty(m), near.rows
    _, reach, density, slot, _, found, _, list_rows = room
    new_squares, new_distances, new_rows = new.squares, new.distances, new.rows
    with_new = np.empty(k), np.empty(k, dtype=np.int32)
    for at in range(start, stop):
        q = block[at]
        position = new.positions[q]
        touched = _join(new, q, by_feature, near, room)
        mine = own[at]
        mine[:n] = near.scores
        for e in found[:touched]:
            mine[e] = _score_joined(e, rows_of, slot, list_rows, density)
        mine[n] = _score(new_rows[q], density, float(density[n]))
        # Equal rows score alike, as `reconform.content.scores_by_content` has it.
        for run in range(len(runs)):
            mine[runs[run, 0] : runs[run, 1]] = mine[runs[run, 0] : runs[run, 1]].min()
        if copies[q]:
            least = min(mine[position], mine[n])
            mine[position : position + copies[q]], mine[n] = least, least
        measure_leaf(new.X[q], new_by_feature, 2.0, gaps)
        for other in range(m):
            squares, distances, rows = new_squares[other], new_distances[other], new_rows[other]
            if _is_before(gaps[other], position, squares[k - 1], rows[k - 1]):
                _insert(gaps[other], position, n, squares, distances, rows, *with_new)
                distances, rows = with_new
            others[at, other] = _score(rows, density, _density(rows, distances, reach))
        _undo(touched, near, room)
