"""All leave-one-out models, and one model per new row, from sums over the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...ensemble import Sight, left_out_calibration, reference_calibration
from ...methods import Plan
from ...statistics.ranks import Calibration
from ..comparing import ComparingFull, ComparingLeaveOneOut
from .model import KDEModel


@dataclass(eq=False)
class LeaveOneOutKDE(ComparingLeaveOneOut):
    """All leave-one-out models, or some of them: sums without one of their terms.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : KDEModel
        A(D), which has all that the other models need: they are kept whatever the variant.
    own : float array
        Log-sums of the rows that are left out, each by the other rows.
    """

    plan: Plan
    calibration: Calibration
    full: KDEModel
    own: FloatArray

    @property
    def n_jobs(self) -> int | None:
        """Threads of A(D)."""
        return self.full.n_jobs

    @classmethod
    def fit(cls, full: KDEModel, plan: Plan) -> Self:
        """Score every row that is left out by the other rows."""
        assert plan.left_out is not None
        own = full.own_sums(plan.left_out)
        scores = own + full.constant(fewer=1)
        return cls(plan, left_out_calibration(plan, scores), full, own)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        return self.full.sums_without_each(X, self.left_out) + self.full.constant(fewer=1)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.full.score_samples(X)

    def compare(self, X: FloatArray, rows: IndexArray) -> tuple[RankArray, RankArray, FloatArray]:
        """Compare new rows with some of the reference, by their sums."""
        return self.full.compare(X, rows, self.own[np.searchsorted(self.left_out, rows)])

    def see_with_each(self, X: FloatArray, rows: IndexArray) -> Iterator[Sight]:
        """Score all rows with each of some new rows there, by one term more in every sum."""
        every = self.full.own_sums(np.arange(len(self.full.rows)))
        return self.full.see_with_each(X, rows, every)


@dataclass(eq=False)
class FullKDE(ComparingFull):
    """A model on D and x for every new row x, without fitting any.

    Attributes
    ----------
    calibration : Calibration
        Leave-one-out scores of D without any new row, for showing.
    full : KDEModel
        A(D).
    own : float array of shape (n,)
        Log-sums of the rows of D, each by the other rows.

    Examples
    --------
    >>> import numpy as np
    >>> full = FullKDE.fit(KDEModel(np.array([[0.0], [1.0], [3.0]]), bandwidth=1.0))
    >>> full.ranks(np.array([[0.5], [9.0]])).at_most
    array([4, 1])
    """

    calibration: Calibration
    full: KDEModel
    own: FloatArray

    @classmethod
    def fit(cls, full: KDEModel) -> Self:
        """Score every row of D by the others."""
        own = full.own_sums(np.arange(len(full.rows)))
        return cls(reference_calibration(own + full.constant(fewer=1)), full, own)

    def compare(self, X: FloatArray, rows: IndexArray) -> tuple[RankArray, RankArray, FloatArray]:
        """Compare new rows with some of the reference, by their sums."""
        return self.full.compare(X, rows, self.own[rows])

    def see_with_each(self, X: FloatArray, rows: IndexArray) -> Iterator[Sight]:
        """Score all rows with each of some new rows there, by one term more in every sum."""
        return self.full.see_with_each(X, rows, self.own)
