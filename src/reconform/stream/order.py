"""The scores of the calibration and of the stream so far, in order, however they arrive."""

from __future__ import annotations

import numpy as np

from ..aggregation import FloatArray
from ..kernels.skiplist import rank_and_insert
from ..pvalues import RankArray

# A node reaches one level higher with probability 1/4; sixteen levels serve 4^16 scores.
LEVELS = 16
REACHES_HIGHER = 0.25


class OrderedScores:
    """A growing multiset of scores that ranks each new one among all before it, in O(log) time.

    A skip list in compiled code. Sorted lists of Python's own (`bisect.insort`) move half of all
    scores for every new one; `sortedcontainers` would do, with ten times the time and twice the
    memory, and would be one more dependency.

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
    >>> len(ordered)
    6
    """

    def __init__(self, scores: FloatArray) -> None:
        self._used = 1  # the head
        self._heights = np.random.default_rng(0)  # they decide about speed, never about a number
        self._keys = np.empty(1)
        self._first = np.array([0, LEVELS], dtype=np.int64)
        self._links = np.zeros(LEVELS, dtype=np.int64)
        self._spans = np.zeros(LEVELS, dtype=np.int64)
        self.rank_and_insert(scores)

    def __len__(self) -> int:
        return self._used - 1

    @property
    def scores(self) -> FloatArray:
        """All scores, in the order in which they came."""
        return self._keys[1 : self._used]

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
        self._make_room(self._used + len(scores))
        below, equal = np.empty((2, len(scores)), dtype=np.int64)
        rank_and_insert(
            np.ascontiguousarray(scores, dtype=np.float64),
            self._keys,
            self._first,
            self._links,
            self._spans,
            self._used,
            below,
            equal,
        )
        self._used += len(scores)
        return below, equal

    def _make_room(self, needed: int) -> None:
        """Let the arrays hold so many nodes; they double, so that each score moves O(1) times."""
        have = len(self._keys)
        if needed <= have:
            return
        more = max(needed, 2 * have) - have
        heights = np.minimum(self._heights.geometric(1 - REACHES_HIGHER, more), LEVELS)
        self._first = np.append(self._first, self._first[-1] + np.cumsum(heights))
        links = np.zeros(int(heights.sum()), dtype=np.int64)
        self._keys = np.append(self._keys, np.empty(more))
        self._links = np.append(self._links, links)
        self._spans = np.append(self._spans, links)
