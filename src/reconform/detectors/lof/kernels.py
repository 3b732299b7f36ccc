"""Local outlier factors, and their repair when a row joins or leaves: compiled code.

Rows stand in the order of their contents, and of neighbours at equal distances the one that stands
first is nearer. Sums run over neighbours in that order, in a fit as in a repair, so that both give
the same bits.
"""

from __future__ import annotations

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
    start: int,
    stop: int,
    squares: FloatArray,
    rows: Int32Array,
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
def _spread(
    found: Int32Array, count: int, mark: BoolArray, indptr: RankArray, near_to: Int32Array
) -> int:
    """Add to a list of marked rows those that have one of them as a neighbour; return how many."""
    total = count
    for at in range(count):
        o = found[at]
        for e in near_to[indptr[o] : indptr[o + 1]]:
            if not mark[e]:
                mark[e] = True
                found[total] = e
                total += 1
    return total


# --- a row joins: full-conformal ----------------------------------------------------------------


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
def _room(
    fitted_reach: FloatArray, fitted_density: FloatArray, k: int
) -> tuple[
    FloatArray, FloatArray, FloatArray, Int32Array, BoolArray, Int32Array, FloatArray, Int32Array
]:
    """Room for repairs, which are made in place and undone: as `_join` takes it."""
    n = len(fitted_reach)
    # The new row is number n.
    reach, density = np.empty(n + 1), np.empty(n + 1)
    reach[:n], density[:n] = fitted_reach, fitted_density
    slot = np.full(n, -1, dtype=np.int32)
    mark = np.zeros(n, dtype=np.bool_)
    found = np.empty(n, dtype=np.int32)
    return (
        np.empty(n), reach, density, slot, mark, found,
        np.empty((64, k)), np.empty((64, k), dtype=np.int32),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _join(
    new: FloatArray,
    position: int,
    new_distances: FloatArray,
    new_rows: Int32Array,
    by_feature: FloatArray,
    squares: FloatArray,
    distances: FloatArray,
    rows: Int32Array,
    indptr: RankArray,
    near_to: Int32Array,
    square: FloatArray,
    reach: FloatArray,
    density: FloatArray,
    slot: Int32Array,
    mark: BoolArray,
    found: Int32Array,
    list_distances: FloatArray,
    list_rows: Int32Array,
) -> tuple[int, FloatArray, Int32Array]:
    """Let one new row join D.

    Rows that it is near to have new neighbours and another reach; these and the rows that have one
    of them as a neighbour another density; these and the rows that have one of those as a neighbour
    another score.

    Parameters
    ----------
    new, position, new_distances, new_rows : arrays and int
        The new row, as in `rank_full`.
    by_feature, squares, distances, rows, indptr, near_to : arrays
        D, as in `rank_full`.
    square : float array of shape (n,)
        Written: squared distances to D.
    reach, density : float arrays of shape (n + 1,)
        Of the model on D; repaired, and that of the new row comes last.
    slot : int array of shape (n,)
        Written: which of the lists has the neighbours of a row; -1 where they stay.
    mark, found : arrays of shape (n,)
        Written: the rows that have another score.
    list_distances, list_rows : arrays of shape (any, k)
        Written: neighbours of the rows that the new one is near to.

    Returns
    -------
    touched : int
        How many rows have another score.
    list_distances, list_rows : arrays
        The lists, in more room if there are many.
    """
    n, k = rows.shape
    measure_leaf(new, by_feature, 2.0, square)
    lists = 0
    for i in range(n):
        if not _is_before(square[i], position, squares[i, k - 1], rows[i, k - 1]):
            continue
        if lists == len(list_rows):
            list_rows = np.concatenate((list_rows, np.empty_like(list_rows)))
            list_distances = np.concatenate((list_distances, np.empty_like(list_distances)))
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
    reach[n] = new_distances[k - 1]
    changed = _spread(found, lists, mark, indptr, near_to)
    for e in found[:changed]:
        if slot[e] >= 0:
            density[e] = _density(list_rows[slot[e]], list_distances[slot[e]], reach)
        else:
            density[e] = _density(rows[e], distances[e], reach)
    density[n] = _density(new_rows, new_distances, reach)
    touched = _spread(found, changed, mark, indptr, near_to)
    return touched, list_distances, list_rows


@njit(cache=True, nogil=True)
def _score_joined(
    e: int, rows: Int32Array, slot: Int32Array, list_rows: Int32Array, density: FloatArray
) -> float:
    """Score of a row of D with the new row there."""
    return float(_score(list_rows[slot[e]] if slot[e] >= 0 else rows[e], density, density[e]))


@njit(cache=True, nogil=True)
def _undo(
    touched: Int32Array,
    fitted_reach: FloatArray,
    fitted_density: FloatArray,
    reach: FloatArray,
    density: FloatArray,
    slot: Int32Array,
    mark: BoolArray,
) -> None:
    """Take back what `_join` changed."""
    for e in touched:
        slot[e], mark[e] = -1, False
        reach[e], density[e] = fitted_reach[e], fitted_density[e]


@njit(cache=True, nogil=True)
def rank_full(
    new: FloatArray,
    positions: RankArray,
    new_distances: FloatArray,
    new_rows: Int32Array,
    by_feature: FloatArray,
    squares: FloatArray,
    distances: FloatArray,
    rows: Int32Array,
    indptr: RankArray,
    near_to: Int32Array,
    fitted_reach: FloatArray,
    fitted_density: FloatArray,
    scores: FloatArray,
    ordered: FloatArray,
    start: int,
    stop: int,
    at_most: RankArray,
    below: RankArray,
    t: FloatArray,
) -> None:
    """Rank new rows ``start`` to ``stop`` among D, all scored with the new row there.

    Parameters
    ----------
    new : float array of shape (m, d)
    positions : int array of shape (m,)
        Where each belongs among the contents of D.
    new_distances, new_rows : arrays of shape (m, k)
        Their neighbours in D.
    by_feature : float array of shape (d, n)
        D.
    squares, distances, rows : arrays of shape (n, k)
        Neighbours of the rows of D in D, as in `reconform.detectors.lof.ensembles.Graph`.
    indptr, near_to, fitted_reach, fitted_density, scores : arrays
        As there.
    ordered : float array of shape (n,)
        The scores in increasing order.
    start, stop : int
    at_most, below, t : arrays of shape (m,)
        Written.
    """
    n, k = rows.shape
    square, reach, density, slot, mark, found, list_distances, list_rows = _room(
        fitted_reach, fitted_density, k
    )
    for q in range(start, stop):
        touched, list_distances, list_rows = _join(
            new[q], positions[q], new_distances[q], new_rows[q], by_feature, squares, distances,
            rows, indptr, near_to, square, reach, density, slot, mark, found, list_distances,
            list_rows,
        )  # fmt: skip
        mine = _score(new_rows[q], density, float(density[n]))
        t[q] = mine
        at_most[q] = 1 + np.searchsorted(ordered, mine, side="right")
        below[q] = 1 + np.searchsorted(ordered, mine, side="left")
        for e in found[:touched]:
            s = _score_joined(e, rows, slot, list_rows, density)
            at_most[q] += int(s <= mine) - int(scores[e] <= mine)
            below[q] += int(s < mine) - int(scores[e] < mine)
        _undo(found[:touched], fitted_reach, fitted_density, reach, density, slot, mark)


@njit(cache=True, nogil=True)
def augmented_full(
    new: FloatArray,
    new_by_feature: FloatArray,
    positions: RankArray,
    copies: RankArray,
    runs: RankArray,
    new_squares: FloatArray,
    new_distances: FloatArray,
    new_rows: Int32Array,
    by_feature: FloatArray,
    squares: FloatArray,
    distances: FloatArray,
    rows: Int32Array,
    indptr: RankArray,
    near_to: Int32Array,
    fitted_reach: FloatArray,
    fitted_density: FloatArray,
    scores: FloatArray,
    block: IndexArray,
    start: int,
    stop: int,
    own: FloatArray,
    others: FloatArray,
) -> None:
    """Score D and all new rows with one new row there: ``block[start:stop]``, one after another.

    Parameters
    ----------
    new, positions, new_distances, new_rows : arrays
        As in `rank_full`.
    new_by_feature : float array of shape (d, m)
    copies : int array of shape (m,)
        How many rows of D equal each new row; they stand from its position on.
    runs : int array of shape (any, 2)
        Where rows of D that equal each other begin and end.
    new_squares : float array of shape (m, k)
    by_feature, squares, distances, rows, indptr, near_to : arrays
        As in `rank_full`.
    fitted_reach, fitted_density, scores : float arrays of shape (n,)
    block : int array of shape (b,)
    start, stop : int
    own, others : float arrays of shape (b, n + 1) and (b, m)
        Written, as `reconform.ensemble.AugmentedScores` has them.
    """
    (n, k), m = rows.shape, len(new)
    square, reach, density, slot, mark, found, list_distances, list_rows = _room(
        fitted_reach, fitted_density, k
    )
    gaps = np.empty(m)
    near_distances, near_rows = np.empty(k), np.empty(k, dtype=np.int32)
    for at in range(start, stop):
        q = block[at]
        touched, list_distances, list_rows = _join(
            new[q], positions[q], new_distances[q], new_rows[q], by_feature, squares, distances,
            rows, indptr, near_to, square, reach, density, slot, mark, found, list_distances,
            list_rows,
        )  # fmt: skip
        mine = own[at]
        mine[:n] = scores
        for e in found[:touched]:
            mine[e] = _score_joined(e, rows, slot, list_rows, density)
        mine[n] = _score(new_rows[q], density, float(density[n]))
        # Equal rows score alike, as `reconform.content.scores_by_content` has it.
        for run in range(len(runs)):
            mine[runs[run, 0] : runs[run, 1]] = mine[runs[run, 0] : runs[run, 1]].min()
        if copies[q]:
            first, last = positions[q], positions[q] + copies[q]
            least = min(mine[first], mine[n])
            mine[first:last], mine[n] = least, least
        measure_leaf(new[q], new_by_feature, 2.0, gaps)
        for other in range(m):
            o_distances, o_rows = new_distances[other], new_rows[other]
            if _is_before(gaps[other], positions[q], new_squares[other, k - 1], o_rows[k - 1]):
                _insert(
                    gaps[other], positions[q], n, new_squares[other], o_distances, o_rows,
                    near_distances, near_rows,
                )  # fmt: skip
                o_distances, o_rows = near_distances, near_rows
            others[at, other] = _score(o_rows, density, _density(o_rows, o_distances, reach))
        _undo(found[:touched], fitted_reach, fitted_density, reach, density, slot, mark)


# --- a row leaves: jackknife+ --------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _without(
    i: int,
    distances: FloatArray,
    indptr: RankArray,
    near_to: Int32Array,
    reach: FloatArray,
    mark: BoolArray,
    found: Int32Array,
) -> int:
    """List the rows whose density is another without row i, and write what reaches become."""
    k = distances.shape[1] - 1
    first = 0
    for e in near_to[indptr[i] : indptr[i + 1]]:
        mark[e] = True
        found[first] = e
        first += 1
        reach[e] = distances[e, k]
    return _spread(found, first, mark, indptr, near_to)


@njit(cache=True, nogil=True)
def _density_without(
    i: int, rows: Int32Array, distances: FloatArray, reach: FloatArray, k: int
) -> float:
    """Density of a row by its first k neighbours other than i."""
    total, met = 0.0, 0
    for t in range(len(rows)):
        if rows[t] != i and met < k:
            total += max(distances[t], reach[rows[t]])
            met += 1
    return 1.0 / (total / k + SMALL)


@njit(cache=True, nogil=True)
def held_out_scores(
    held_out: RankArray,
    rows: Int32Array,
    distances: FloatArray,
    indptr: RankArray,
    near_to: Int32Array,
    fitted_reach: FloatArray,
    fitted_density: FloatArray,
    start: int,
    stop: int,
    c: FloatArray,
) -> None:
    """Score rows of D by the model without them.

    Parameters
    ----------
    held_out : int array of shape (w,)
        The rows, of which ``start`` to ``stop`` are scored.
    rows, distances : arrays of shape (n, k + 1)
    indptr, near_to, fitted_reach, fitted_density : arrays
        As in `reconform.detectors.lof.ensembles.Graph`.
    start, stop : int
    c : float array of shape (w,)
        Written.
    """
    n, k = len(rows), rows.shape[1] - 1
    reach, density = fitted_reach.copy(), fitted_density.copy()
    mark = np.zeros(n, dtype=np.bool_)
    found = np.empty(n, dtype=np.int32)
    for w in range(start, stop):
        i = held_out[w]
        changed = _without(i, distances, indptr, near_to, reach, mark, found)
        for o in rows[i, :k]:
            if mark[o]:
                density[o] = _density_without(i, rows[o], distances[o], reach, k)
        c[w] = _score(rows[i, :k], density, _density(rows[i, :k], distances[i, :k], reach))
        for e in found[:changed]:
            mark[e] = False
            reach[e], density[e] = fitted_reach[e], fitted_density[e]


@njit(cache=True, nogil=True)
def count_changes(
    held_out: RankArray, distances: FloatArray, indptr: RankArray, near_to: Int32Array
) -> RankArray:
    """Count for every row of D the models under which its density is not that of the one on D."""
    n = len(distances)
    reach, mark = np.empty(n), np.zeros(n, dtype=np.bool_)
    found, counts = np.empty(n, dtype=np.int32), np.zeros(n, dtype=np.int64)
    for i in held_out:
        changed = _without(i, distances, indptr, near_to, reach, mark, found)
        for e in found[:changed]:
            counts[e] += 1
            mark[e] = False
    return counts


@njit(cache=True, nogil=True)
def list_changes(
    held_out: RankArray,
    rows: Int32Array,
    distances: FloatArray,
    indptr: RankArray,
    near_to: Int32Array,
    fitted_reach: FloatArray,
    at: RankArray,
    models: Int32Array,
    densities: FloatArray,
) -> None:
    """List the densities that are not those of the model on D, model by model.

    Parameters
    ----------
    held_out, rows, distances, indptr, near_to, fitted_reach : arrays
        As in `held_out_scores`.
    at : int array of shape (n,)
        Where the list of each row begins; raised.
    models, densities : arrays
        Written: the models, in order, under which the density of a row is another, and this.
    """
    n, k = len(rows), rows.shape[1] - 1
    reach = fitted_reach.copy()
    mark = np.zeros(n, dtype=np.bool_)
    found = np.empty(n, dtype=np.int32)
    for w in range(len(held_out)):
        i = held_out[w]
        changed = _without(i, distances, indptr, near_to, reach, mark, found)
        for e in found[:changed]:
            models[at[e]] = w
            densities[at[e]] = _density_without(i, rows[e], distances[e], reach, k)
            at[e] += 1
        for e in found[:changed]:
            mark[e] = False
            reach[e] = fitted_reach[e]


@njit(cache=True, nogil=True)
def _score_without(
    i: int,
    w: int,
    new_rows: Int32Array,
    new_distances: FloatArray,
    rows: Int32Array,
    distances: FloatArray,
    fitted_reach: FloatArray,
    fitted_density: FloatArray,
    edges: RankArray,
    models: Int32Array,
    densities: FloatArray,
) -> float:
    """Score of a new row by model w, without row i, which is one of its neighbours."""
    k = rows.shape[1] - 1
    total, dense = 0.0, 0.0
    for t in range(k + 1):
        o = new_rows[t]
        if o == i:
            continue
        reach = fitted_reach[o]
        for row in rows[o, :k]:
            if row == i:
                reach = distances[o, k]
        total += max(new_distances[t], reach)
        at = edges[o] + np.searchsorted(models[edges[o] : edges[o + 1]], w)
        there = at < edges[o + 1] and models[at] == w
        dense += densities[at] if there else fitted_density[o]
    return _factor(dense, k, 1.0 / (total / k + SMALL))


@njit(cache=True, nogil=True)
def score_by_models(
    new_rows: Int32Array,
    new_distances: FloatArray,
    place: Int32Array,
    rows: Int32Array,
    distances: FloatArray,
    fitted_reach: FloatArray,
    fitted_density: FloatArray,
    edges: RankArray,
    models: Int32Array,
    densities: FloatArray,
    start: int,
    stop: int,
    t: FloatArray,
) -> None:
    """Score new rows ``start`` to ``stop`` by some models without one row each.

    Parameters
    ----------
    new_rows, new_distances : arrays of shape (m, k + 1)
        Neighbours of the new rows in D.
    place : int array of shape (n,)
        Which of the models leaves a row out; -1 for none.
    rows, distances : arrays of shape (n, k + 1)
    fitted_reach, fitted_density : float arrays of shape (n,)
    edges, models, densities : arrays
        The density of row o under ``models[edges[o]:edges[o + 1]]``, as `list_changes` has it.
    start, stop : int
    t : float array of shape (stop - start, w)
        Written.
    """
    k, width = rows.shape[1] - 1, t.shape[1]
    total, reach, density = np.empty(width), np.empty(width), np.empty(width)
    for q in range(start, stop):
        dense = t[q - start]
        total[:], dense[:] = 0.0, 0.0
        for s in range(k):
            o, distance = new_rows[q, s], new_distances[q, s]
            reach[:] = max(distance, fitted_reach[o])
            for i in rows[o, :k]:
                if place[i] >= 0:
                    reach[place[i]] = max(distance, distances[o, k])
            density[:] = fitted_density[o]
            for at in range(edges[o], edges[o + 1]):
                density[models[at]] = densities[at]
            for w in range(width):
                total[w] += reach[w]
                dense[w] += density[w]
        for w in range(width):
            dense[w] = _factor(dense[w], k, 1.0 / (total[w] / k + SMALL))
        for s in range(k):
            i = new_rows[q, s]
            if place[i] >= 0:
                dense[place[i]] = _score_without(
                    i, place[i], new_rows[q], new_distances[q], rows, distances, fitted_reach,
                    fitted_density, edges, models, densities,
                )  # fmt: skip


@njit(cache=True, nogil=True)
def count_models(
    c: FloatArray, t: FloatArray, start: int, at_most: RankArray, below: RankArray
) -> None:
    """Raise the ranks of new rows from `start` on by the numbers of c <= t and of c < t."""
    for q in range(len(t)):
        for w in range(len(c)):
            at_most[start + q] += c[w] <= t[q, w]
            below[start + q] += c[w] < t[q, w]
