"""A model on D and x for every new row x, of parts that are drawn: trees, or sets of spheres.

A part takes the rows with the smallest hashes. So the model on D and x is the one on D, but for the
few parts whose last row has a larger hash than x: x enters these, and only they are made anew. The
sums of a row over all parts are integers, so what was added can be taken away again, and ranks are
those of a fit on D and x, bit for bit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray, UInt64Array
from ..content import Contents, entries
from ..ensemble import AugmentedScores, Ensemble, blocks_of, ranked_in_parts
from ..statistics.ranks import Ranks

# Rows that are ranked at a time even where the reference has fewer.
LEAST_AT_ONCE = 64


class EnteredEnsemble(Ensemble):
    """A model on D and x for every new row x, by the parts that x enters.

    Attributes
    ----------
    reference : float array of shape (n, d)
        D.
    totals : int array of shape (n,)
        Sums of the rows of D over the parts of the model on D.
    sign : int
        1 if a large sum is normal, -1 if it is anomalous.
    n_jobs : int or None
        Threads for ranking.
    """

    reference: FloatArray
    totals: IntArray
    sign: int
    n_jobs: int | None

    @abstractmethod
    def limits_of_parts(self) -> tuple[UInt64Array, UInt64Array, Int32Array]:
        """Streams of the parts, and hash and number of their last rows; -1 where all rows enter."""

    @abstractmethod
    def sums_of(self, X: FloatArray) -> IntArray:
        """Sums of rows by the model on D."""

    @abstractmethod
    def sums_with(self, new: FloatArray, X: FloatArray, totals: IntArray) -> IntArray:
        """Sums of rows X by the models on D and a new row, (new, X); `totals` by that on D."""

    @abstractmethod
    def scores_of(self, sums: IntArray) -> FloatArray:
        """Scores from sums, small = anomalous."""

    @cached_property
    def contents(self) -> Contents:
        """Those of D; a new row's key counts the equal rows among them."""
        return Contents.of(self.reference, n_jobs=self.n_jobs)

    def entries(self, X: FloatArray) -> tuple[UInt64Array, BoolArray, UInt64Array]:
        """Words of new rows, the parts that each enters, and its hashes in all parts."""
        streams, limits, last = self.limits_of_parts()
        words, keys = self.contents.keys_of_new(X)
        enters = np.empty((len(X), len(streams)), dtype=bool)
        hashes = np.empty(enters.shape, dtype=np.uint64)
        entries(streams, limits, last, self.contents.words, keys, words, enters, hashes)
        return words, enters, hashes

    @cached_property
    def _sorted(self) -> IntArray:
        return np.sort(self.sign * self.totals)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all by the model on D and x; there are no variants."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        parts = len(self.limits_of_parts()[0])
        return ranked_in_parts(X, 2 * parts, lambda some: self._ranks(some, strictly))

    def _ranks(self, X: FloatArray, strictly: bool) -> Ranks:
        n, own = len(self.reference), self.sums_of(X)
        at_most = 1 + np.searchsorted(self._sorted, self.sign * own, side="right")
        below = 1 + np.searchsorted(self._sorted, self.sign * own, side="left")
        entering = np.flatnonzero(self.entries(X)[1].any(axis=1))
        step = max(LEAST_AT_ONCE, n)
        for first in range(0, len(entering), step):
            for some in blocks_of(entering[first : first + step], 2 * n):
                new, every = X[some], np.arange(len(some))
                together = np.vstack([self.reference, new]), np.append(self.totals, own[some])
                sums = self.sign * self.sums_with(new, *together)
                mine = sums[every, n + every]
                own[some] = self.sign * mine
                at_most[some] = 1 + (sums[:, :n] <= mine[:, None]).sum(axis=1)
                below[some] = 1 + (sums[:, :n] < mine[:, None]).sum(axis=1)
        return Ranks(at_most, below if strictly else None, self.scores_of(own))

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by the model on D and each of some new rows, as `Ensemble` says."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        n, everything = len(self.reference), np.vstack([self.reference, X])
        totals = np.append(self.totals, self.sums_of(X))
        for block in blocks_of(rows, len(everything)):
            scores = self.scores_of(self.sums_with(X[block], everything, totals))
            mine = scores[np.arange(len(block)), n + block]
            yield AugmentedScores(block, np.column_stack([scores[:, :n], mine]), scores[:, n:])
