"""All leave-one-out models, and one model per new row, from one fit on the reference."""

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
from .model import Whitened


@dataclass(eq=False)
class LeaveOneOutMahalanobis(ComparingLeaveOneOut):
    """All leave-one-out models, or some of them, by rank-one changes of the one on all rows.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    reference : Whitened
        D. It has all that the models need: they are kept whatever the variant.
    """

    plan: Plan
    calibration: Calibration
    reference: Whitened

    @property
    def n_jobs(self) -> int | None:
        """Threads of the reference."""
        return self.reference.n_jobs

    @classmethod
    def fit(cls, reference: Whitened, plan: Plan) -> Self:
        """Score every row that is left out by the model without it."""
        assert plan.left_out is not None
        scores = reference.held_out_scores(plan.left_out)
        return cls(plan, left_out_calibration(plan, scores), reference)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        return self.reference.scores_without_each(X, self.left_out)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.reference.scores(X)

    def compare(self, X: FloatArray, rows: IndexArray) -> tuple[RankArray, RankArray, FloatArray]:
        """Compare new rows with some of the reference, by one inequality."""
        return self.reference.compare(X, rows)

    def see_with_each(self, X: FloatArray, rows: IndexArray) -> Iterator[Sight]:
        """Score all rows with each of some new rows there, by one more row in the scatter."""
        return self.reference.see_with_each(X, rows)


@dataclass(eq=False)
class FullMahalanobis(ComparingFull):
    """A model on D and x for every new row x, without fitting any.

    Attributes
    ----------
    calibration : Calibration
        Leave-one-out scores of D without any new row, for showing.
    reference : Whitened
        D.

    Examples
    --------
    >>> import numpy as np
    >>> full = FullMahalanobis.fit(Whitened(np.array([[0.0], [1.0], [2.0]]), ridge=1.0))
    >>> full.ranks(np.array([[1.5], [5.0], [2.0]])).at_most
    array([3, 1, 3])
    """

    calibration: Calibration
    reference: Whitened

    @classmethod
    def fit(cls, reference: Whitened) -> Self:
        """Score every row of D by the others."""
        every = np.arange(len(reference.rows))
        return cls(reference_calibration(reference.held_out_scores(every)), reference)

    def compare(self, X: FloatArray, rows: IndexArray) -> tuple[RankArray, RankArray, FloatArray]:
        """Compare new rows with some of the reference, by one inequality."""
        return self.reference.compare(X, rows)

    def see_with_each(self, X: FloatArray, rows: IndexArray) -> Iterator[Sight]:
        """Score all rows with each of some new rows there, by one more row in the scatter."""
        return self.reference.see_with_each(X, rows)
