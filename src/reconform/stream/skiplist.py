"""Order statistics of a growing multiset: a skip list with counts, on flat arrays.

A node is a run of links, one per level of its own, and goes by the position of the first. Link
``at`` leads to node ``links[at, 0]``, the next that reaches this level (0: there is none), and
moves on by ``links[at, 1]`` places; ``ahead[at]`` is the score there (infinite: there is none), so
that a step looks at neighbours in memory. Node 0 stands before all scores and has every level.
Finding a place takes O(log n) steps in expectation over the heights, in whatever order the scores
come.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ..arrays import FloatArray, IntArray


@njit(cache=True, nogil=True)
def rank_and_insert(
    scores: FloatArray,
    heights: IntArray,
    links: IntArray,
    ahead: FloatArray,
    levels: int,
    end: int,
    below: IntArray,
    equal: IntArray,
) -> None:
    """Count, for each score in turn, the earlier ones below and equal to it; then put it in.

    Parameters
    ----------
    scores : float array of shape (m,)
        Without NaN.
    heights : int array of shape (m,)
        Levels of the new nodes, 1 .. levels.
    links : int array of shape (room, 2)
    ahead : float array of shape (room,)
        The list, with room for the new nodes.
    levels : int
        The number of levels of node 0, the head.
    end : int
        Where the new nodes go.
    below, equal : int arrays of shape (m,)
        The answers.
    """
    before = np.empty(levels, dtype=np.int64)  # on each level the last link below the score
    passed = np.empty(levels, dtype=np.int64)  # and how many scores lie before it
    for j in range(len(scores)):
        score = scores[j]
        node, position = 0, 0
        for level in range(levels - 1, -1, -1):
            while ahead[node + level] < score:
                position += links[node + level, 1]
                node = links[node + level, 0]
            before[level], passed[level] = node + level, position
        below[j], equal[j] = position, 0
        if links[node, 0] != 0 and ahead[node] == score:  # ties: go down again, past them
            node, after = 0, 0
            for level in range(levels - 1, -1, -1):
                while links[node + level, 0] != 0 and ahead[node + level] <= score:
                    after += links[node + level, 1]
                    node = links[node + level, 0]
            equal[j] = after - position
        for level in range(levels):
            at = before[level]
            if level < heights[j]:
                moved = position - passed[level]
                links[end + level, 0], links[end + level, 1] = links[at, 0], links[at, 1] - moved
                ahead[end + level] = ahead[at]
                links[at, 0], links[at, 1] = end, moved + 1
                ahead[at] = score
            else:
                links[at, 1] += 1
        end += heights[j]
