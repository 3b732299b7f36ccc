"""All models of a plan from one search: leave-one-out by correction, any plan by a table.

A resampled model of `KNN` is only a way to count the rows of D, so its score for a row follows
from the row's neighbours in D. Distances are taken from the same search and added up in the same
order as a separate fit would, so the scores are the same to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from ...arrays import BoolArray, FloatArray, Int32Array, RankArray
from ...ensemble import ranks_by_scores
from ...methods import Plan
from ...parallel import run_blocks
from ...statistics.aggregation import reduction
from ...statistics.ranks import BLOCK_BYTES, Calibration, Ranks, calibrate, ranks_among
from .kernels import walk
from .search import Search, worthwhile_jobs

Multiplicity = npt.NDArray[np.unsignedinteger[Any]]


def neighbours_averaged(method: str, n_neighbors: int) -> tuple[int, int]:
    """Say the mean of which distances, from the low-th to the high-th smallest, is the score.

    Examples
    --------
    >>> [neighbours_averaged(method, 4) for method in ("largest", "mean", "median")]
    [(4, 4), (1, 4), (2, 3)]
    """
    if method == "largest":
        return n_neighbors, n_neighbors
    if method == "mean":
        return 1, n_neighbors
    return (n_neighbors + 1) // 2, n_neighbors // 2 + 1


def score_table(distances: FloatArray, low: int, high: int) -> FloatArray:
    """Score rows from the sorted distances to their neighbours, small = strange.

    Examples
    --------
    >>> import numpy as np
    >>> score_table(np.array([[1.0, 2.0, 6.0]]), 1, 3)
    array([-3.])
    """
    total = np.zeros(len(distances))
    for t in range(low - 1, high):  # in order: NumPy's own sum depends on the shape
        total += distances[:, t]
    return -(total / (high - low + 1))


def score_without_each(distances: FloatArray, low: int, high: int) -> FloatArray:
    """Score rows without their first, second, ... high-th neighbour: (rows, high).

    Examples
    --------
    >>> import numpy as np
    >>> score_without_each(np.array([[1.0, 2.0, 6.0]]), 1, 2)
    array([[-4. , -3.5]])
    """
    without = np.arange(high)
    total = np.zeros((len(distances), high))
    for t in range(low - 1, high):
        total += np.where(without <= t, distances[:, t + 1, None], distances[:, t, None])
    return -(total / (high - low + 1))


@dataclass(frozen=True, eq=False)
class KNNModel:
    """One model: rows to search in, and which distances make the score."""

    search: Search
    low: int
    high: int
    n_jobs: int | None

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = strange."""
        distances, _ = self.search.nearest(X, self.high, n_jobs=self.n_jobs)
        return score_table(distances, self.low, self.high)


@dataclass(eq=False)
class LeaveOneOut:
    """All n leave-one-out models in one search.

    Without row i a test row has another score only if i is one of its neighbours, and then it is
    the score with the next neighbour in its place. So ranks are one look-up and a few corrections.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : KNNModel
        A(D), which has all that the other models need: they are kept whatever the variant.
    """

    plan: Plan
    calibration: Calibration
    full: KNNModel

    retained = True
    shares_draws = False

    @classmethod
    def fit(cls, full: KNNModel, X: FloatArray, plan: Plan) -> Self:
        """Score every row by its neighbours other than itself."""
        own = np.arange(plan.n, dtype=np.int32)
        distances, _ = full.search.nearest(X, full.high, own=own, n_jobs=full.n_jobs)
        scores = score_table(distances, full.low, full.high)
        return cls(plan, calibrate(plan, scores[:, None], reduction(plan.aggregate)), full)

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        t, rows, without = self._scores(X)
        scores = np.tile(t, (self.plan.n, 1))
        np.put_along_axis(scores, rows.T, without.T, axis=0)
        return scores

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.full.score_samples(X)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows by one look-up of their score, corrected for their neighbours."""
        variant = self.plan.variant if variant is None else variant
        # The median over all models is the score that all but a few of them share.
        shared = self.plan.aggregate == "median" and self.plan.n > 2 * self.full.high
        if variant == "pooled" and not shared:
            jobs = self.full.n_jobs
            return ranks_by_scores(self, X, variant=variant, strictly=strictly, n_jobs=jobs)
        t, rows, without = self._scores(X)
        c = self.calibration.scores[rows]

        def count(strictly: bool) -> RankArray:
            ranks = ranks_among(self.calibration.sorted_scores, t, strictly=strictly)
            if variant == "plus":
                compare = np.less if strictly else np.less_equal
                ranks -= compare(c, t[:, None]).sum(axis=1)
                ranks += compare(c, without).sum(axis=1)
            return ranks

        return Ranks(count(False), count(True) if strictly else None, t)

    def _scores(self, X: FloatArray) -> tuple[FloatArray, Int32Array, FloatArray]:
        """Scores by A(D), the neighbours that matter, and the scores without each of them."""
        low, high = self.full.low, self.full.high
        distances, rows = self.full.search.nearest(X, high + 1, n_jobs=self.full.n_jobs)
        t = score_table(distances, low, high)
        return t, rows[:, :high], score_without_each(distances, low, high)


def tabulate(plan: Plan, high: int) -> tuple[Multiplicity, int]:
    """Write the models of a plan as multiplicities, and guess how many neighbours they need.

    Parameters
    ----------
    plan : Plan
    high : int
        A model's score depends on this many neighbours; so no row counts more often.

    Returns
    -------
    multiplicity : unsigned int array of shape (n, K)
    width : int
        Among so many neighbours nearly every model finds enough: the sum of their multiplicities
        is `high` even three standard deviations below its mean.
    """
    dtype = np.uint8 if high < 256 else np.uint32
    multiplicity: Multiplicity = np.empty((plan.n, plan.n_models), dtype=dtype)
    width = 0.0
    for k in range(plan.n_models):
        counts = np.minimum(plan.multiplicity(k), high)
        multiplicity[:, k] = counts
        mean, spread = float(counts.mean()), 3.0 * float(counts.std())
        root = (spread + np.sqrt(spread**2 + 4.0 * mean * high)) / (2.0 * mean)
        width = max(width, root**2)
    return multiplicity, min(int(np.ceil(width)), plan.n - 1)


@dataclass(eq=False)
class OneTable:
    """All models of a plan, from one table of neighbours in D.

    Attributes
    ----------
    plan : Plan
    calibration : Calibration
    full : KNNModel
        A(D).
    multiplicity : unsigned int array of shape (n, K), or None
        How often each model has each row; None after a basic fit, which needs A(D) only.
    width : int
        Neighbours to look up at first.
    """

    plan: Plan
    calibration: Calibration
    full: KNNModel
    multiplicity: Multiplicity | None
    width: int

    shares_draws = False

    @classmethod
    def fit(
        cls, full: KNNModel, X: FloatArray, plan: Plan, multiplicity: Multiplicity, width: int
    ) -> Self:
        """Score every row by the models that held it out."""
        own = np.arange(plan.n, dtype=np.int32)
        scores = _score_by_table(full, X, own, multiplicity, width)
        held_out = [scores[held, k] for k, held in enumerate(plan.held_out)]
        calibration = calibrate(plan, held_out, reduction(plan.aggregate))
        return cls(
            plan, calibration, full, None if plan.variant == "basic" else multiplicity, width
        )

    @property
    def retained(self) -> bool:
        """Whether the resampled models are there."""
        return self.multiplicity is not None

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of every resampled model, (models, rows)."""
        assert self.multiplicity is not None
        nobody = np.full(len(X), -1, dtype=np.int32)
        return _score_by_table(self.full, X, nobody, self.multiplicity, self.width).T

    def full_scores(self, X: FloatArray) -> FloatArray:
        """Scores of A(D)."""
        return self.full.score_samples(X)

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows through the scores of all models."""
        jobs = self.full.n_jobs
        return ranks_by_scores(self, X, variant=variant, strictly=strictly, n_jobs=jobs)


def _score_by_table(
    full: KNNModel, X: FloatArray, own: Int32Array, multiplicity: Multiplicity, width: int
) -> FloatArray:
    """Score rows by every model that was not fitted on them: (rows, models).

    Where the table ends too early for some model, say because all rows near a row were held out
    together, the row is completed from a table twice as wide.
    """
    scores = np.empty((len(X), multiplicity.shape[1]))
    step = max(1, BLOCK_BYTES // (16 * width))
    for first in range(0, len(X), step):
        block = slice(first, first + step)
        table = full.search.nearest(X[block], width, own=own[block], n_jobs=full.n_jobs)
        short = _walk(full, table, own[block], multiplicity, scores[block])
        left = first + np.flatnonzero(short)
        if len(left):
            widest = len(multiplicity) - int((own[left] >= 0).any())
            scores[left] = _score_by_table(
                full, X[left], own[left], multiplicity, min(2 * width, widest)
            )
    return scores


def _walk(
    full: KNNModel,
    table: tuple[FloatArray, Int32Array],
    own: Int32Array,
    multiplicity: Multiplicity,
    scores: FloatArray,
) -> BoolArray:
    """Write the scores of one block of rows; return where the table was too short."""
    short = np.zeros(len(scores), dtype=np.bool_)

    def kernel(start: int, stop: int) -> None:
        walk(*table, own, multiplicity, full.low, full.high, start, stop, scores, short)

    jobs = worthwhile_jobs(full.n_jobs, scores.size * table[0].shape[1])
    run_blocks(kernel, len(scores), n_jobs=jobs)
    return short
