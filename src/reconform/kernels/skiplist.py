"""Order statistics of a growing multiset: a skip list with counts, on flat arrays.

Node 0 is the head, before all scores; it has every level. Node k holds ``keys[k]`` and the links
``first[k]`` to ``first[k + 1]``, one per level of its own. A link leads to the next node of that
level or higher (0: there is none) and its span says how many nodes it moves on. Finding a place
takes O(log n) links in expectation over the heights, whatever the order of the scores.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@njit(cache=True, nogil=True)
def rank_and_insert(
    scores: FloatArray,
    keys: FloatArray,
    first: IntArray,
    links: IntArray,
    spans: IntArray,
    used: int,
    below: IntArray,
    equal: IntArray,
) -> None:
    """Count, for each score in turn, the earlier ones below and equal to it; then put it in.

    Parameters
    ----------
    scores : float array of shape (m,)
        Without NaN.
    keys, first, links, spans : arrays
        The list, with room for m more nodes whose heights are laid out in `first`.
    used : int
        Nodes in use, the head included.
    below, equal : int arrays of shape (m,)
        The answers.
    """
    levels = first[1] - first[0]
    before = np.empty(levels, dtype=np.int64)  # on each level the last node below the score
    passed = np.empty(levels, dtype=np.int64)  # and its position
    for j in range(len(scores)):
        score = scores[j]
        node, position = 0, 0
        for level in range(levels - 1, -1, -1):
            follower = links[first[node] + level]
            while follower != 0 and keys[follower] < score:
                position += spans[first[node] + level]
                node = follower
                follower = links[first[node] + level]
            before[level], passed[level] = node, position
        below[j] = position
        equal[j] = 0
        if follower != 0 and keys[follower] == score:  # ties: go down once more, past them
            node, after = 0, 0
            for level in range(levels - 1, -1, -1):
                follower = links[first[node] + level]
                while follower != 0 and keys[follower] <= score:
                    after += spans[first[node] + level]
                    node = follower
                    follower = links[first[node] + level]
            equal[j] = after - position
        new = used + j
        keys[new] = score
        height = first[new + 1] - first[new]
        for level in range(levels):
            link = first[before[level]] + level
            if level < height:
                own = first[new] + level
                links[own] = links[link]
                spans[own] = spans[link] - (position - passed[level])
                links[link] = new
                spans[link] = position - passed[level] + 1
            else:
                spans[link] += 1
