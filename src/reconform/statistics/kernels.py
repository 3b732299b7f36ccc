"""Compiled loops over rows: paired comparisons of Algorithm 1, and weighted ranks.

The plus comparison: 1 + #{i : c_i <= t_i} with t_i = φ({s_k(x) : k in K_i}), exactly.

Three kernels, one for each shape of φ. Each writes the ranks of its own block of test rows, so
blocks and threads never change a number. `strictly` counts c_i < t_i instead. K_i comes
compressed: row i was held out by ``models[indptr[i]:indptr[i + 1]]``, in increasing order.

Weighted ranks (see `weighted`): all numbers are whole, so that sums are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from ..arrays import (
    FloatArray,
    IndexArray,
    Int32Array,
    IntArray,
    RankArray,
    UInt32Array,
    UInt64Array,
)
from ..compiled import njit

Mask = tuple[UInt64Array, UInt32Array, UInt64Array]

# Test rows whose sums over models are carried at once: their scores stay in the cache.
ROWS_AT_ONCE = 256


def _count_bits(typing_context: Any, word: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


# Bits that are set in a 64-bit word: one instruction of the processor, for which neither NumPy's
# scalars nor numba have a name.
popcount: Any = intrinsic(_count_bits)


@njit(cache=True, nogil=True, inline="always")
def _passes(c: float, t: float, strictly: bool) -> bool:
    """Whether c < t or, unless `strictly`, c = t; never when one of them is NaN."""
    return (c < t) | ((c == t) & (not strictly))


@njit(cache=True, nogil=True)
def count_up_to(ordered: FloatArray | IntArray, t: float, strictly: bool) -> int:
    """Count the entries of an increasing array that are at most t, or below it.

    As `np.searchsorted`, which takes numba seconds to compile.
    """
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if _passes(ordered[middle], t, strictly):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def pack_members(indptr: IndexArray, models: Int32Array, order: IndexArray) -> Mask:
    """Write every K_i, in the given order of rows, as the 64-bit words of its mask.

    Only words with a bit in them are kept, so that the masks never take more room than K_i does,
    whatever the number of models.

    Returns
    -------
    word_indptr, word_index, word_bits : arrays
        Row ``order[j]`` has the words ``word_index[word_indptr[j]:word_indptr[j + 1]]`` of a mask
        over all models, and those words are ``word_bits``.
    """
    word_indptr = np.zeros(len(order) + 1, np.int64)
    for j, i in enumerate(order):
        words, last = 0, -1
        for k in models[indptr[i] : indptr[i + 1]]:
            words += (k >> 6) != last
            last = k >> 6
        word_indptr[j + 1] = word_indptr[j] + words
    word_index = np.empty(word_indptr[-1], np.uint32)
    word_bits = np.zeros(word_indptr[-1], np.uint64)
    for j, i in enumerate(order):
        word, last = word_indptr[j] - 1, -1
        for k in models[indptr[i] : indptr[i + 1]]:
            if (k >> 6) != last:
                last = k >> 6
                word += 1
                word_index[word] = last
            word_bits[word] |= np.uint64(1) << np.uint64(k & 63)
    # An unsigned index needs no check for counting from the end.
    return word_indptr.astype(np.uint64), word_index, word_bits


def order_statistics(
    sizes: IndexArray, level: float | None
) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Between which two order statistics φ of so many scores lies, and where.

    Parameters
    ----------
    sizes : int array of shape (n,)
        Numbers of scores.
    level : float or None
        A quantile, as np.quantile interpolates it; None is np.median, whose last bit may differ
        from that of the quantile 0.5.

    Returns
    -------
    lower, upper, weight : arrays of shape (n,)
        The two order statistics, counted from 0, and the weight of the upper one. A negative
        weight means half of their sum.

    Examples
    --------
    >>> import numpy as np
    >>> order_statistics(np.array([4, 5]), 0.5)
    (array([1, 2]), array([2, 2]), array([0.5, 0. ]))
    """
    if level is None:
        return (sizes - 1) // 2, sizes // 2, np.full(len(sizes), -1.0)
    place = (sizes - 1) * level
    lower = np.floor(place).astype(np.intp)
    weight = place - lower
    return lower, lower + (weight > 0), weight


@njit(cache=True, nogil=True)
def _between(
    row: FloatArray,
    upwards: IndexArray,
    position: UInt32Array,
    members: Int32Array,
    below: int,
    weight: float,
) -> float:
    """t_i from the neighbours of c_i among the scores of K_i, when both exist.

    `below` models score less than c_i; `position` says where each model stands in `upwards`.
    """
    # Distances from c_i wrap around zero: the least is that of the next neighbour upwards, the
    # largest that of the next one downwards. Two integer reductions, which vectorise.
    here = np.uint32(below)
    to_upper, to_lower = np.uint32(0xFFFFFFFF), np.uint32(0)
    for i in range(len(members)):
        distance = np.uint32(position[np.uint32(members[i])] - here)
        to_upper = min(to_upper, distance)
        to_lower = max(to_lower, distance)
    a: float = row[upwards[np.uint32(here + to_lower)]]
    b: float = row[upwards[np.uint32(here + to_upper)]]
    # The arithmetic of np.median and of np.quantile, which c_i was computed with.
    if weight < 0:
        return (a + b) / 2
    if weight < 0.5:
        return a + (b - a) * weight
    return b - (b - a) * (1 - weight)


@njit(cache=True, nogil=True)
def rank_ordered(
    sorted_scores: FloatArray,
    order: IndexArray,
    indptr: IndexArray,
    models: Int32Array,
    masks: Mask,
    lower: IndexArray,
    upper: IndexArray,
    weight: FloatArray,
    scores: FloatArray,
    ascending: IndexArray,
    strictly: bool,
    ranks: RankArray,
) -> None:
    """Rank by an order statistic of K_i, or a point between two neighbours, without computing it.

    c_i <= t_i is a question about counts. Sweep the c_i upwards, and carry the mask of the models
    that score x below the current c_i. With b of them in K_i,

    - b <= lower[i] means that c_i is at most the lower order statistic, hence at most t_i;
    - b > upper[i] means that it is above the upper one, hence above t_i;
    - otherwise it lies between the two, and only then is t_i computed.

    This takes for granted that rounding keeps t_i between its two order statistics: true unless
    their sum or difference is infinite. The caller keeps such rows away.

    Parameters
    ----------
    sorted_scores, order : arrays of shape (n,)
        c_i in increasing order, NaN (half of -inf + inf) last, where no comparison reaches them;
        and the row of `indptr` that each belongs to. At least one.
    indptr, models : int arrays
        K_i.
    masks : tuple of arrays
        K_i, from `pack_members` with the same `order`.
    lower, upper, weight : arrays of shape (n,)
        From `order_statistics`, in the same order.
    scores, ascending : arrays of shape (rows, models)
        Scores of a test row by every model, and the models from smallest to largest score.
    strictly : bool
    ranks : int array of shape (rows,)
        Output.
    """
    word_indptr, word_index, word_bits = masks
    n, (n_rows, n_models) = len(sorted_scores), scores.shape
    # Whichever models are in K_i: with at most `surely` models below c_i it passes, with more than
    # `at_best` it does not, and nothing needs to be counted.
    surely, at_best = n_models, 0
    for j in range(n):
        size = indptr[order[j] + 1] - indptr[order[j]]
        surely = min(surely, lower[j])
        at_best = max(at_best, n_models - size + upper[j])
    mask = np.empty((n_models + 63) // 64, np.uint64)
    position = np.empty(n_models, np.uint32)
    open_cases, open_below = np.empty(n, np.int64), np.empty(n, np.int64)
    for x in range(n_rows):
        row, upwards = scores[x], ascending[x]
        first = count_up_to(sorted_scores, row[upwards[surely]], strictly)
        last = count_up_to(sorted_scores, row[upwards[at_best]], strictly)
        rank, n_open = 1 + first, 0
        mask[:] = 0
        below, next_score = 0, row[upwards[0]]
        # Slices, so that the compiler knows j >= 0 and leaves out checks.
        swept, low, high = sorted_scores[first:last], lower[first:last], upper[first:last]
        edges = word_indptr[first : last + 1]
        for j in range(len(swept)):
            while not _passes(swept[j], next_score, strictly):  # `at_best` stops it
                k = upwards[below]
                mask[k >> 6] |= np.uint64(1) << np.uint64(k & 63)
                below += 1
                next_score = row[upwards[below]]
            inside = 0
            for word in range(edges[j], edges[j + 1]):
                inside += int(popcount(mask[word_index[word]] & word_bits[word]))
            # No branches: which way a comparison goes cannot be predicted.
            rank += inside <= low[j]
            open_cases[n_open], open_below[n_open] = first + j, below
            n_open += (low[j] < inside) & (inside <= high[j])
        if n_open:
            for place in range(n_models):
                position[upwards[place]] = place
        for case in range(n_open):
            j = open_cases[case]
            members = models[indptr[order[j]] : indptr[order[j] + 1]]
            t = _between(row, upwards, position, members, open_below[case], weight[j])
            rank += _passes(sorted_scores[j], t, strictly)
        ranks[x] = rank


@njit(cache=True, nogil=True)
def rank_means(
    calibration: FloatArray,
    indptr: IndexArray,
    models: Int32Array,
    scores: FloatArray,
    strictly: bool,
    ranks: RankArray,
    start: int,
    stop: int,
) -> None:
    """Rank test rows `start` to `stop` by the mean over K_i, summed one model after the other.

    Parameters
    ----------
    calibration : float array of shape (n,)
        c_i.
    indptr, models : int arrays
        K_i.
    scores : float array of shape (models, rows)
    strictly : bool
    start, stop : int
    ranks : int array of shape (rows,)
        Output.
    """
    sums = np.empty(ROWS_AT_ONCE)
    for left in range(start, stop, ROWS_AT_ONCE):
        right = min(left + ROWS_AT_ONCE, stop)
        total, rank = sums[: right - left], ranks[left:right]
        rank[:] = 1
        for i in range(len(calibration)):
            c, members = calibration[i], models[indptr[i] : indptr[i + 1]]
            one = scores[members[0], left:right]
            for x in range(len(total)):
                total[x] = one[x]
            for k in members[1:]:
                one = scores[k, left:right]
                for x in range(len(total)):
                    total[x] += one[x]
            size = float(len(members))
            for x in range(len(total)):
                rank[x] += _passes(c, total[x] / size, strictly)


@njit(cache=True, nogil=True)
def rank_single(
    sorted_scores: FloatArray,
    edges: IndexArray,
    models: Int32Array,
    scores: FloatArray,
    strictly: bool,
    ranks: RankArray,
    start: int,
    stop: int,
) -> None:
    """Rank test rows `start` to `stop` where each c_i belongs to one model: t_i is its score.

    Parameters
    ----------
    sorted_scores : float array of shape (n,)
        c_i grouped by model, in increasing order inside a group.
    edges : int array of shape (groups + 1,)
        Where the groups begin and end.
    models : int array of shape (groups,)
        The model of each group.
    scores : float array of shape (models, rows)
    strictly : bool
    start, stop : int
    ranks : int array of shape (rows,)
        Output.
    """
    rank = ranks[start:stop]
    rank[:] = 1
    for group in range(len(models)):
        held = sorted_scores[edges[group] : edges[group + 1]]
        one = scores[models[group], start:stop]
        if len(held) == 1:  # leave-one-out: straight through memory
            c = held[0]
            for x in range(len(one)):
                rank[x] += _passes(c, one[x], strictly)
        else:
            for x in range(len(one)):
                rank[x] += count_up_to(held, one[x], strictly)


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
    out: IntArray,
    start: int,
    stop: int,
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
    out: IntArray,
    start: int,
    stop: int,
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
