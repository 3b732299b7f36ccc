"""Ensembles of detectors whose full-conformal ranks are comparisons of pairs of rows.

For `KDE` and `Mahalanobis`, whether row i of the reference is at least as anomalous as a new row
has the same answer under the model without row i as under the model on both of them (the theorems
are in docs/guarantees). Such a detector says how to compare; the ranks follow.

A score that is repaired, by adding a term to a sum or a row to a scatter, is that of a fit from
scratch up to its last digits. Which rows are repaired and which are not depends on which one is
new. A tie between scores must not: rounded to a grid that is far coarser than what rounding has
done to them (`on_grid`), tied scores are equal to the bit, but for about one in a million that lies
on an edge of the grid.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ..arrays import FloatArray, IndexArray, RankArray
from ..compiled import njit
from ..ensemble import (
    AugmentedScores,
    Ensemble,
    reference_calibration,
)
from ..statistics.ranks import Calibration, Ranks

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
        at_most, below, scores = self._compare(X, np.arange(len(self.reference.rows)))
        return Ranks(at_most, below if strictly else None, scores)

    def _compare(self, X: FloatArray, rows: IndexArray) -> tuple[RankArray, RankArray, FloatArray]:
        return self.reference.compare(X, rows, self.calibration.scores[rows])

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each of some new rows there, without fitting any model."""
        return self.reference.augmented_scores(X, rows, self.calibration.scores)

    def ranks_within(
        self,
        X: FloatArray,
        groups: IndexArray,
        members: Sequence[IndexArray],
        *,
        together: bool = False,
        strictly: bool = False,
    ) -> Ranks:
        """Compare each new row with the reference rows of its group."""
        at_most, below = np.ones((2, len(X)), dtype=np.int64)
        scores = np.empty(len(X))
        for g in np.unique(groups):
            mine = np.flatnonzero(groups == g)
            at_most[mine], below[mine], scores[mine] = self._compare(X[mine], members[g])
        return Ranks(at_most, below if strictly else None, scores)
