"""Full-conformal ensembles without refits: a model on D and x for every new row x.

*Of parts that are drawn*, trees or sets of spheres. A part takes the rows with the smallest hashes.
So the model on D and x is the one on D, but for the few parts whose last row has a larger hash than
x: x enters these, and only they are made anew. The sums of a row over all parts are integers, so
what was added can be taken away again, and ranks are those of a fit on D and x, bit for bit.

*By comparisons of pairs of rows.* For `KDE` and `Mahalanobis`, whether row i of the reference is at
least as anomalous as a new row has the same answer under the model without row i as under the model
on both of them (the theorems are in docs/guarantees). Such a detector says how to compare.

A score that is repaired, by adding a term to a sum or a row to a scatter, is that of a fit from
scratch up to its last digits. Which rows are repaired and which are not depends on which one is
new. A tie between scores must not: rounded to a grid that is far coarser than what rounding has
done to them (`on_grid`), tied scores are equal to the bit, but for about one in a million that lies
on an edge of the grid.

"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from ..arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray, RankArray, UInt64Array
from ..compiled import njit
from ..content import Contents, entries
from ..ensemble import (
    AugmentedScores,
    Ensemble,
    Within,
    blocks_of,
    ranked_in_parts,
    reference_calibration,
)
from ..statistics.ranks import Calibration, Ranks

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


# 30 binary digits are kept: steps are about a part in 10^9, the ties of `compare`.
_CUT = 2.0**23 + 1.0
_STEPS = 1.5 * 2.0**22

# Numbers beyond it would overflow on the way, and none is finer than any grid.
_LARGEST = 2.0**990


@njit(cache=True, nogil=True)
def on_grid(value: float, least: float) -> float:
    """Round a number to 30 binary digits, or to those of `least` where that is larger.

    Examples
    --------
    >>> on_grid(0.1, 0.0) == on_grid(0.1 + 1e-15, 0.0)
    True
    >>> abs(on_grid(0.1, 0.0) - 0.1) < 1e-10, on_grid(1e-12, 0.0) > 0.0, on_grid(1e-12, 1.0)
    (True, True, 0.0)
    """
    if abs(value) < least:
        return (value + _STEPS * least) - _STEPS * least
    if not abs(value) < _LARGEST:
        return value
    # Veltkamp: what the large product cannot hold is cut off, rounded.
    large = value * _CUT
    return large - (large - value)


class Comparing(ABC):
    """The reference, and the model fitted on all of it."""

    rows: FloatArray
    n_jobs: int | None

    @abstractmethod
    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows by A(D)."""

    @abstractmethod
    def held_out_scores(self) -> FloatArray:
        """Score every row of D by the model without it, c_i: (n,)."""

    @abstractmethod
    def compare(
        self, X: FloatArray, rows: IndexArray, c: FloatArray
    ) -> tuple[RankArray, RankArray, FloatArray]:
        """Return 1 + #{c_i <= t_i} and 1 + #{c_i < t_i} over some rows of D, and scores by A(D)."""

    @abstractmethod
    def augmented_scores(
        self, X: FloatArray, rows: IndexArray, c: FloatArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows with each of some new rows there, without fitting any model.

        The scores are those of refits (`ensemble.refitting.OneModel`) up to a part in 10^9, on a
        grid (`on_grid`), and rows of D that equal the new one have its score to the bit. The c_i
        are those of all rows of D.
        """


@dataclass(eq=False)
class ComparingFull(Ensemble):
    """A model on D and x for every new row x, without fitting any."""

    calibration: Calibration
    reference: Comparing

    @classmethod
    def fit(cls, reference: Comparing) -> Self:
        """Score every row of D by the others."""
        return cls(reference_calibration(reference.held_out_scores()), reference)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all of them scored with x there; there are no variants."""
        return self._compare(X, np.arange(len(self.reference.rows)), strictly=strictly)

    def _compare(self, X: FloatArray, rows: IndexArray, *, strictly: bool) -> Ranks:
        found = self.reference.compare(X, rows, self.calibration.scores[rows])
        at_most, below, scores = found
        return Ranks(at_most, below if strictly else None, scores)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each of some new rows there, without fitting any model."""
        return self.reference.augmented_scores(X, rows, self.calibration.scores)

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Compare each new row with the reference rows of its group."""
        parts = []
        for g in np.unique(within.groups):
            mine = np.flatnonzero(within.groups == g)
            found = self._compare(X[mine], within.members[g], strictly=within.strictly)
            parts.append((mine, found))
        return Ranks.joined(len(X), parts)
