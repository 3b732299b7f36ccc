"""The scores of the calibration and of the stream so far, in order, however they arrive."""

from __future__ import annotations

import numpy as np

from ..arrays import AnyArray, FloatArray, IntArray, RankArray
from ..compiled import njit

# A node reaches one level higher with probability 1/4; sixteen levels serve 4^16 scores.
LEVELS = 16
REACHES_HIGHER = 0.25


class OrderedScores:
    """A growing multiset of scores that ranks each new one among all before it, in O(log) time.

    A skip list in compiled code, because no dependency has one: a sorted array moves half of
    all scores for every new one.

    Parameters
    ----------
    scores : float array
        Those that are there from the beginning.

    Examples
    --------
    >>> import numpy as np
    >>> ordered = OrderedScores(np.array([3.0, 1.0, 2.0]))
    >>> below, equal = ordered.rank_and_insert(np.array([2.0, 2.0, 9.0]))
    >>> below, equal
    (array([1, 1, 5]), array([1, 2, 0]))
    >>> ordered.scores
    array([3., 1., 2., 2., 2., 9.])
    """

    def __init__(self, scores: FloatArray) -> None:
        self._heights = np.random.default_rng(0)  # they decide about speed, never about a number
        self._scores = np.empty(0)
        self._count = 0
        self._links = np.zeros((LEVELS, 2), dtype=np.int64)
        self._ahead = np.full(LEVELS, np.inf)
        self._end = LEVELS
        self.rank_and_insert(scores)

    def __len__(self) -> int:
        return self._count

    @property
    def scores(self) -> FloatArray:
        """All scores, in the order in which they came."""
        return self._scores[: self._count]

    def rank_and_insert(self, scores: FloatArray) -> tuple[RankArray, RankArray]:
        """Rank scores in turn, each among all that came before it, and keep them.

        Parameters
        ----------
        scores : float array of shape (m,)
            Without NaN.

        Returns
        -------
        below, equal : int arrays of shape (m,)
            How many earlier scores are smaller than this one, and how many are equal to it.
        """
        scores = np.ascontiguousarray(scores, dtype=np.float64)
        heights = np.minimum(self._heights.geometric(1 - REACHES_HIGHER, len(scores)), LEVELS)
        count, end = self._count + len(scores), self._end + int(heights.sum())
        self._scores = _with_room(self._scores, count)
        self._links, self._ahead = _with_room(self._links, end), _with_room(self._ahead, end)
        below, equal = np.empty((2, len(scores)), dtype=np.int64)
        _rank_and_insert(scores, heights, self._links, self._ahead, LEVELS, self._end, below, equal)
        self._scores[self._count : count] = scores
        self._count, self._end = count, end
        return below, equal


def _with_room(array: AnyArray, needed: int) -> AnyArray:
    """Return the array, or a copy of at least twice its length, so that it is seldom copied."""
    if needed <= len(array):
        return array
    longer = np.empty((max(needed, 2 * len(array)), *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


@njit(cache=True, nogil=True)
def _rank_and_insert(
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

    The list is a skip list with counts, on flat arrays. A node is a run of links, one per level of
    its own, and goes by the position of the first. Link ``at`` leads to node ``links[at, 0]``, the
    next that reaches this level (0: there is none), and moves on by ``links[at, 1]`` places;
    ``ahead[at]`` is the score there (infinite: there is none), so that a step looks at neighbours
    in memory. Node 0 stands before all scores and has every level. Finding a place takes O(log n)
    steps in expectation over the heights, in whatever order the scores come.

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
