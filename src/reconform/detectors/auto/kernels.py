"""How many of the other new rows a detector would find: compiled code."""

from __future__ import annotations

import numpy as np
from numba import njit

from ...arrays import FloatArray, IndexArray, IntArray, RankArray
from ...statistics.worlds import longest_list


@njit(cache=True, nogil=True)
def weigh(
    own: FloatArray,
    others: FloatArray,
    rows: IndexArray,
    limits: RankArray,
    start: int,
    stop: int,
    evidence: IntArray,
    ranks: RankArray,
) -> None:
    """Weigh what a detector finds among the other new rows, for some new rows.

    Parameters
    ----------
    own, others, rows : arrays of shape (b, n + 1), (b, m) and (b,)
        As in `reconform.ensemble.Sight`.
    limits : int array of shape (levels, m + 1)
    start, stop : int
        Which of the rows.
    evidence, ranks : int arrays of shape (b,)
        Written: the lengths of the lists, added up over the levels, and the rank of x_j in E.
    """
    n = own.shape[1] - 1
    highest = min(int(limits[:, -1].max()), n + 1)
    counts = np.empty(highest + 1, dtype=np.int64)
    for r in range(start, stop):
        mine = own[r, n]
        rank_of_mine = 0
        for i in range(n + 1):
            rank_of_mine += own[r, i] <= mine
        ranks[r] = rank_of_mine
        # Ranks up to `highest` are told apart by the scores up to that place.
        if highest <= n:
            low = np.sort(np.partition(own[r], highest)[: highest + 1])
        else:
            low = np.sort(own[r])
        counts[:] = 0
        # Most rows score higher than all of these, and one look says so.
        edge = low[-1] if highest <= n else np.inf
        for other in range(others.shape[1]):
            if other != rows[r] and not (highest <= n and others[r, other] >= edge):
                rank = np.searchsorted(low, others[r, other], side="right")
                if rank <= highest:
                    counts[rank] += 1
        evidence[r] = 0
        for level in range(len(limits)):
            evidence[r] += longest_list(counts, limits[level])
