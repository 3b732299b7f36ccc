"""All leave-one-out models, and one model per new row, from one fit on the reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...ensemble import Ensemble, ResampledEnsemble, reference_calibration
from ...methods import Plan
from ...refitting import OneModel
from ...statistics.aggregation import reduction
from ...statistics.ranks import Calibration, Ranks, calibrate
from ...statistics.worlds import StepUp, Worlds
from .model import Whitened


@dataclass(eq=False)
class LeaveOneOutMahalanobis(ResampledEnsemble):
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

    plus_is_full = True

    @property
    def left_out(self) -> IndexArray:
        """The rows that are left out, one by each model."""
        assert self.plan.left_out is not None
        return self.plan.left_out

    @property
    def n_jobs(self) -> int | None:
        """Threads of the reference."""
        return self.reference.n_jobs

    @classmethod
    def fit(cls, reference: Whitened, plan: Plan) -> Self:
        """Score every row that is left out by the model without it."""
        assert plan.left_out is not None
        scores = reference.held_out_scores(plan.left_out)
        return cls(plan, calibrate(plan, scores[:, None], reduction(plan.aggregate)), reference)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        return self.reference.scores_without_each(X, self.left_out)

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.reference.model.score_samples(X)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows; the paired comparison needs no scores."""
        variant = self.plan.variant if variant is None else variant
        if variant != "plus":
            return super().ranks(X, variant=variant, strictly=strictly)
        at_most, below, scores = self.reference.compare(X, self.left_out)
        return Ranks(at_most, below if strictly else None, scores)

    def worlds(self, X: FloatArray, rows: RankArray, step: StepUp) -> Iterator[tuple[int, Worlds]]:
        """Go through all worlds of some new rows, by one model for each of them."""
        return _one_model(self.reference).worlds(X, rows, step)


@dataclass(eq=False)
class FullMahalanobis(Ensemble):
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

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row x among D, all of them scored with x there; there are no variants."""
        every = np.arange(len(self.reference.rows))
        at_most, below, scores = self.reference.compare(X, every)
        return Ranks(at_most, below if strictly else None, scores)

    def worlds(self, X: FloatArray, rows: RankArray, step: StepUp) -> Iterator[tuple[int, Worlds]]:
        """Go through all worlds of some new rows, by one model for each of them."""
        return _one_model(self.reference).worlds(X, rows, step)


def _one_model(reference: Whitened) -> OneModel:
    from .detector import Mahalanobis  # which imports this module

    nothing_random = np.random.SeedSequence(0)
    detector = Mahalanobis(reference.ridge)
    return OneModel(detector, reference.rows, nothing_random, reference.n_jobs)
