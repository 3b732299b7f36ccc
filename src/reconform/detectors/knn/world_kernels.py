"""All worlds of one new row under kNN: ranks of every row in every world, from neighbour tables.

E_j is the n reference rows and the new row x_j, which comes last. World w: reference E_j without
w, and w among the new rows in place of x_j. Distances are in the reduced form of
`kernels`; tables are sorted and filled up with infinity and -1.

Everything is a look-up in sorted scores of E_j and a few corrections: for rows that lose w as a
neighbour, for rows that gain the new row (full), for neighbours that the new row must do without
(jackknife+).
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray, Int32Array, RankArray
from ...compiled import njit
from ...statistics.conditional_calibration import longest_list
from .kernels import measure_leaf, next_leaf_in_reach, rooted


@njit(cache=True, nogil=True)
def score_row(
    near: FloatArray,
    rows: Int32Array,
    without: int,
    nor: int,
    new: float,
    low: int,
    high: int,
    root: float,
) -> float:
    """Score a row by its sorted neighbours but `without` and `nor`, and one more at `new`."""
    total, taken, t = 0.0, 0, 0
    while taken < high:
        distance = np.inf
        if t < near.size:
            if rows[t] >= 0 and (rows[t] == without or rows[t] == nor):
                t += 1
                continue
            distance = near[t]
        if new < distance:
            distance, new = new, np.inf
        else:
            t += 1
        taken += 1
        if taken >= low:
            total += rooted(distance, root)
    return -(total / (high - low + 1))


@njit(cache=True, nogil=True)
def insert(near: FloatArray, rows: Int32Array, distance: float, row: int) -> None:
    """Insert a neighbour into a sorted table; the last one falls off."""
    t = near.size - 1
    if not distance < near[t]:
        return
    while t > 0 and distance < near[t - 1]:
        near[t], rows[t] = near[t - 1], rows[t - 1]
        t -= 1
    near[t], rows[t] = distance, row


@njit(cache=True, nogil=True)
def holds(rows: Int32Array, row: int, high: int) -> bool:
    """Whether a row is among the first `high` neighbours."""
    for t in range(high):  # noqa: SIM110 - a generator is slow in a kernel
        if rows[t] == row:
            return True
    return False


@njit(cache=True, nogil=True)
def reverse(rows: Int32Array, high: int) -> tuple[RankArray, RankArray]:
    """For every row, which rows have it among their first `high` neighbours, compressed."""
    n = len(rows)
    start = np.zeros(n + 1, dtype=np.int64)
    for e in range(n):
        for t in range(high):
            if rows[e, t] >= 0:
                start[rows[e, t] + 1] += 1
    for e in range(n):
        start[e + 1] += start[e]
    place, whose = start[:-1].copy(), np.empty(start[-1], dtype=np.int64)
    for e in range(n):
        for t in range(high):
            if rows[e, t] >= 0:
                whose[place[rows[e, t]]] = e
                place[rows[e, t]] += 1
    return start, whose


@njit(cache=True, nogil=True)
def within_reach(
    x: FloatArray,
    leaves: FloatArray,
    ids: Int32Array,
    boxes: FloatArray,
    reach: FloatArray,
    node_reach: FloatArray,
    power: float,
) -> tuple[RankArray, FloatArray]:
    """Rows of D within whose reach `x` is, and how far; arguments as in `correct_by_tree`."""
    n_leaves, _, leaf_size = leaves.shape
    waiting = np.empty((64, 3), dtype=np.int64)
    measured = np.empty(leaf_size)
    rows, distances, size = np.empty(16, dtype=np.int64), np.empty(16), 0
    waiting[0, 0], waiting[0, 1], waiting[0, 2] = 0, 0, n_leaves
    leaf, top = next_leaf_in_reach(x, boxes, node_reach, power, waiting, 0)
    while leaf >= 0:
        measure_leaf(x, leaves[leaf], power, measured)
        for slot in range(leaf_size):
            if measured[slot] < reach[leaf, slot]:
                if size == len(rows):
                    rows = np.concatenate((rows, np.empty_like(rows)))
                    distances = np.concatenate((distances, np.empty_like(distances)))
                rows[size], distances[size] = ids[leaf, slot], measured[slot]
                size += 1
        leaf, top = next_leaf_in_reach(x, boxes, node_reach, power, waiting, top)
    return rows[:size], distances[:size]


@njit(cache=True, nogil=True)
def step_up(ranks: RankArray, limits: RankArray, counts: RankArray) -> int:
    """Count what Benjamini-Hochberg finds among these ranks and one more, of rank 0."""
    highest = limits[-1]
    counts[:] = 0
    for rank in ranks:
        if rank <= highest:
            counts[rank] += 1
    return longest_list(counts, limits)


@njit(cache=True, nogil=True)
def _count(
    sigma: float,
    place: int,
    w: int,
    scores: FloatArray,
    losers: RankArray,
    lost: FloatArray,
    least: float,
) -> int:
    """#{e in E_j without w : its score without w is at most sigma}.

    `place` counts all scores up to sigma; the `losers` have w as a neighbour, `lost` are their
    scores without it, and `least` the lowest of these.
    """
    count = place
    if scores[w] <= sigma:
        count -= 1
    if least <= sigma:
        for i in range(losers.size):
            if lost[i] <= sigma < scores[losers[i]]:
                count += 1
    return count


@njit(cache=True, nogil=True)
def all_worlds(
    j: int,
    near: FloatArray,
    rows: Int32Array,
    new_near: FloatArray,
    new_rows: Int32Array,
    to_new: FloatArray,
    from_new: FloatArray,
    start: RankArray,
    reached: RankArray,
    reaching: FloatArray,
    limits: RankArray,
    low: int,
    high: int,
    root: float,
    plus: bool,
) -> tuple[RankArray, RankArray, RankArray]:
    """Rank of w, and length of the list, in every world that can matter for new row j.

    Parameters
    ----------
    j : int
    near, rows : arrays of shape (n, high + 1)
        Neighbours of the rows of D in D.
    new_near, new_rows : arrays of shape (m, high + 2)
        Neighbours of the new rows in D.
    to_new : float array of shape (m,)
        Distances of the new rows to x_j.
    from_new : float array of shape (m,)
        Distances of x_j to the new rows (not the same if a metric is not symmetric).
    start, reached, reaching : arrays
        For every new row i, ``reached[start[i]:start[i + 1]]`` are the rows of D to which it is
        nearer than their last neighbour in `near`, and `reaching` how near.
    limits : int array of shape (m + 1,)
        A list of k rows holds ranks up to ``limits[k]``.
    low, high, root : numbers
        A score is minus the mean of the low-th to the high-th distance; a distance is its
        reduced form to the power of root.
    plus : bool
        Ranks of jackknife+ instead of full.

    Returns
    -------
    worlds, ranks, lengths : int arrays
        Rows w of E_j (n is x_j); the rank of w in its world; and how many rows
        Benjamini-Hochberg finds there if that rank were 0.
    """
    n, m, highest = len(near), len(new_near), limits[-1]
    near, rows = _with_new_row(j, near, rows, new_near, new_rows, start, reached, reaching)
    scores = np.empty(n + 1)
    for e in range(n + 1):
        scores[e] = score_row(near[e], rows[e], -1, -1, np.inf, low, high, root)
    ordered = np.sort(scores)
    at, losing = reverse(rows, high)

    # The other new rows: their neighbours and scores in E_j.
    new_near, new_rows = new_near.copy(), new_rows.copy()
    sigmas = np.empty(m)
    for one in range(m):
        insert(new_near[one], new_rows[one], to_new[one], n)
        sigmas[one] = score_row(new_near[one], new_rows[one], -1, -1, np.inf, low, high, root)

    # No list is longer than that of the smallest ranks that rows have in any world, and so no
    # rank beyond `limits` of that matters.
    counts = np.empty(highest + 1, dtype=np.int64)
    others = np.full(m, highest + 1, dtype=np.int64)
    for one in range(m):
        if one != j:
            others[one] = _least_rank(
                new_near[one], new_rows[one], reached[start[one] : start[one + 1]],
                reaching[start[one] : start[one + 1]], from_new[one], near, rows, scores, ordered,
                highest, low, high, root, plus,
            )  # fmt: skip
    highest = limits[step_up(others, limits, counts)]
    matter = np.flatnonzero(others <= highest)
    others[:] = limits[-1] + 1

    # Without one of its neighbours jackknife+ may rank a row lower by at most `high`.
    most = highest + (high if plus else 0)
    worlds = np.flatnonzero(scores < ordered[most]) if most <= n else np.arange(n + 1)
    if not scores[n] < (ordered[most] if most <= n else np.inf):
        worlds = worlds[:0]  # the actual world does not find x_j, so no other one matters
    ranks = np.empty(len(worlds), dtype=np.int64)
    lengths = np.ones(len(worlds), dtype=np.int64)
    places = np.searchsorted(ordered, sigmas, side="right")
    touching = _touching(
        matter, sigmas, new_rows, start, reached, reaching, from_new, near, rows, low, high, root,
        plus,
    )  # fmt: skip
    lost = np.empty(0)
    for i in range(len(worlds)):
        w = worlds[i]
        losers = losing[at[w] : at[w + 1]]
        if len(losers) > len(lost):
            lost = np.empty(2 * len(losers))
        least = np.inf
        for t in range(len(losers)):
            e = losers[t]
            lost[t] = score_row(near[e], rows[e], w, -1, np.inf, low, high, root)
            least = min(least, lost[t])
        place = np.searchsorted(ordered, scores[w], side="right")
        ranks[i] = place
        if plus:
            ranks[i] = 1 + _count(scores[w], place, w, scores, losers, lost, least)
            ranks[i] -= _spared(scores[w], near[w], rows[w], w, near, rows, scores, low, high, root)
        if ranks[i] > highest:
            continue
        for k in range(len(matter)):
            one = matter[k]
            sigma, place = sigmas[one], places[one]
            if holds(new_rows[one], w, high):
                sigma = score_row(new_near[one], new_rows[one], w, -1, np.inf, low, high, root)
                place = np.searchsorted(ordered, sigma, side="right")
            rank = 1 + _count(sigma, place, w, scores, losers, lost, least)
            touched = touching[0][k], touching[0][k + 1]
            if plus and touched[1] > touched[0]:
                rank -= _spared(
                    sigma, new_near[one], new_rows[one], w, near, rows, scores, low, high, root
                )
            elif not plus:
                for t in range(touched[0], touched[1]):
                    e = touching[1][t]
                    if e == w or (scores[e] > sigma and not holds(rows[e], w, high)):
                        continue
                    before = score_row(near[e], rows[e], w, -1, np.inf, low, high, root)
                    after = score_row(near[e], rows[e], w, -1, touching[2][t], low, high, root)
                    if before <= sigma < after:
                        rank -= 1
            others[one] = rank
        lengths[i] = step_up(others, limits, counts)
    return worlds, ranks, lengths


@njit(cache=True, nogil=True)
def _touching(
    matter: RankArray,
    sigmas: FloatArray,
    new_rows: Int32Array,
    start: RankArray,
    reached: RankArray,
    reaching: FloatArray,
    from_new: FloatArray,
    near: FloatArray,
    rows: Int32Array,
    low: int,
    high: int,
    root: float,
    plus: bool,
) -> tuple[RankArray, RankArray, FloatArray]:
    """Rows of E_j that can be at most a new row in some world, and then have to be looked at.

    For full, those that the new row reaches, with its distance; for jackknife+, its neighbours.
    Compressed, one list per row of `matter`.
    """
    n, size = len(near) - 1, 0
    for one in matter:
        size += high + 1 if plus else start[one + 1] - start[one] + 1
    at = np.zeros(len(matter) + 1, dtype=np.int64)
    which, distances = np.empty(size, dtype=np.int64), np.empty(size)
    size = 0
    for k in range(len(matter)):
        one = matter[k]
        for t in range(high + 1 if plus else start[one + 1] - start[one] + 1):
            if plus:
                e, new = int(new_rows[one, t]), 0.0
            elif t < start[one + 1] - start[one]:
                e, new = int(reached[start[one] + t]), reaching[start[one] + t]
            else:
                e, new = n, from_new[one]
            if e < 0 or not (plus or new < near[e, high]):
                continue
            # Without its nearest neighbour its score is lower than without any other.
            lowest = score_row(near[e], rows[e], rows[e, 0], -1, np.inf, low, high, root)
            if lowest <= sigmas[one]:
                which[size], distances[size] = e, new
                size += 1
        at[k + 1] = size
    return at, which, distances


@njit(cache=True, nogil=True)
def _least_rank(
    own_near: FloatArray,
    own_rows: Int32Array,
    reached: RankArray,
    reaching: FloatArray,
    from_new: float,
    near: FloatArray,
    rows: Int32Array,
    scores: FloatArray,
    ordered: FloatArray,
    highest: int,
    low: int,
    high: int,
    root: float,
    plus: bool,
) -> int:
    """A lower bound for the rank of another new row in any world.

    Its score is never below the one without its nearest neighbour; that of a row of E_j is never
    above the one with all its neighbours and the new row. One of E_j is w, and the new row counts
    as well. Jackknife+ may spare it `high` rows.
    """
    sigma = score_row(own_near, own_rows, own_rows[0], -1, np.inf, low, high, root)
    rank = int(np.searchsorted(ordered, sigma, side="right"))
    if plus:
        return max(rank - high, 0)
    if rank <= highest + reached.size + 1:
        for t in range(reached.size + 1):
            e = reached[t] if t < reached.size else len(rows) - 1
            new = reaching[t] if t < reached.size else from_new
            if scores[e] > sigma or not new < near[e, high]:
                continue
            if score_row(near[e], rows[e], -1, -1, new, low, high, root) > sigma:
                rank -= 1
    return rank


@njit(cache=True, nogil=True)
def _spared(
    sigma: float,
    own_near: FloatArray,
    own_rows: Int32Array,
    w: int,
    near: FloatArray,
    rows: Int32Array,
    scores: FloatArray,
    low: int,
    high: int,
    root: float,
) -> int:
    """How many neighbours a new row is ranked above by its score, and is not without them.

    The new row has the score `sigma` in E_j without w. Jackknife+ compares it with reference row e
    under the model without e, in which its score is lower if e is a neighbour of it.
    """
    count, met, t = 0, 0, 0
    while met < high and t < own_rows.size:
        e = own_rows[t]
        t += 1
        if e == w or e < 0:
            continue
        met += 1
        c = scores[e]
        if holds(rows[e], w, high):
            c = score_row(near[e], rows[e], w, -1, np.inf, low, high, root)
        if c <= sigma and c > score_row(own_near, own_rows, w, e, np.inf, low, high, root):
            count += 1
    return count


@njit(cache=True, nogil=True)
def _with_new_row(
    j: int,
    near: FloatArray,
    rows: Int32Array,
    new_near: FloatArray,
    new_rows: Int32Array,
    start: RankArray,
    reached: RankArray,
    reaching: FloatArray,
) -> tuple[FloatArray, Int32Array]:
    """Neighbours of the rows of E_j in E_j: those in D, x_j where it is nearer, and its own."""
    n, width = near.shape
    every, whose = np.empty((n + 1, width)), np.empty((n + 1, width), dtype=np.int32)
    every[:n], whose[:n] = near, rows
    every[n], whose[n] = new_near[j, :width], new_rows[j, :width]
    for t in range(start[j], start[j + 1]):
        insert(every[reached[t]], whose[reached[t]], reaching[t], n)
    return every, whose
