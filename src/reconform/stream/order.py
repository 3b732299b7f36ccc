"""The scores of the calibration and of the stream so far, in order, however they arrive."""

from __future__ import annotations

import numpy as np

from ..arrays import AnyArray, FloatArray, RankArray
from .skiplist import rank_and_insert

# A node reaches one level higher with probability 1/4; sixteen levels serve 4^16 scores.
LEVELS = 16
REACHES_HIGHER = 0.25


class OrderedScores:
    """A growing multiset of scores that ranks each new one among all before it, in O(log) time.

    A skip list in compiled code, because nothing at hand does this: a sorted array moves half of
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
        rank_and_insert(scores, heights, self._links, self._ahead, LEVELS, self._end, below, equal)
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
