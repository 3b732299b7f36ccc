"""All leave-one-out models, and one model per new row, from sums over the reference.

A row is scored by the logarithm of the density that Gaussian kernels around the rows of the model
add up to. Whether row i of D is at least as anomalous as the new row x, among D and x, is a
comparison of two sums that both contain the kernel of i and x. Without it they are the scores of
i and of x under the model without row i: with one bandwidth, jackknife+ and full-conformal ranks
are the same, and jackknife+ is exact (docs/guarantees.md). So one comparison answers both, and it
is made without the common kernel: next to a near-copy of an outlier it would hide all others.
Differences that rounding could have made count as ties, against the new row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...content import sorted_by_content
from ...ensemble import (
    AugmentedScores,
    augmented_blocks,
    left_out_calibration,
    reference_calibration,
)
from ...methods import Plan
from ...parallel import run_blocks
from ...statistics.ranks import LEAST_PAIRS, Calibration
from ..comparing import ComparingFull, ComparingLeaveOneOut
from . import kernels

# Numbers of bandwidths beyond it are taken for it, so that no sum of squares overflows.
LARGEST = 2.0**400

# Two log-sums that differ by less than this, or this part of them, are tied.
TIE = 2.0**-30

LEAST_BANDWIDTH, LARGEST_BANDWIDTH = 2.0**-400, 2.0**400


def valid_bandwidth(bandwidth: float) -> bool:
    """Whether a number can be a bandwidth.

    Examples
    --------
    >>> valid_bandwidth(0.5), valid_bandwidth(0.0)
    (True, False)
    """
    return LEAST_BANDWIDTH <= bandwidth <= LARGEST_BANDWIDTH


@dataclass(frozen=True, eq=False)
class KDEModel:
    """Rows, and the bandwidth of the kernels around them.

    Attributes
    ----------
    rows : float array of shape (n, d)
    bandwidth : float
    n_jobs : int or None
        Threads; never changes a number.

    Examples
    --------
    >>> import numpy as np
    >>> model = KDEModel(np.array([[0.0], [1.0], [3.0]]), bandwidth=1.0)
    >>> np.exp(model.score_samples(np.array([[0.0]]))).round(3)
    array([0.215])
    >>> every = np.arange(3)
    >>> model.compare(np.array([[0.5], [9.0]]), every, model.own_sums(every))[0]
    array([4, 1])
    """

    rows: FloatArray
    bandwidth: float
    n_jobs: int | None = None

    in_threads = True

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows by the logarithm of the density, small = anomalous."""
        return self._log_sums(X, np.full(len(X), -1)) + self.constant()

    def own_sums(self, left_out: IndexArray) -> FloatArray:
        """Log-sums of rows of the model, each without its own kernel: (count,)."""
        return self._log_sums(self.rows[left_out], self._place[left_out])

    def sums_without_each(self, X: FloatArray, left_out: IndexArray) -> FloatArray:
        """Log-sums of rows, without each of some rows of the model: (count, m)."""
        queries, rows, places = self._in_bandwidths(X), self._ordered, self._place[left_out]
        sums = np.empty((len(left_out), len(X)))

        def kernel(start: int, stop: int) -> None:
            kernels.log_sums_without_each(queries, rows, places, start, stop, sums)

        run_blocks(kernel, len(X), n_jobs=self._jobs(len(X)))
        return sums

    def compare(
        self, X: FloatArray, left_out: IndexArray, own: FloatArray
    ) -> tuple[RankArray, RankArray, FloatArray]:
        """Rank rows: full-conformal and jackknife+ at once.

        Parameters
        ----------
        X : float array of shape (m, d)
        left_out : int array
            The rows of the model to compare with.
        own : float array
            Their `own_sums`.

        Returns
        -------
        at_most, below : int arrays of shape (m,)
            1 + #{c_i <= t_i}, and 1 + #{c_i < t_i}.
        scores : float array of shape (m,)
            Those of this model.
        """
        queries, rows, places = self._in_bandwidths(X), self._ordered, self._place[left_out]
        at_most, below = np.ones((2, len(X)), dtype=np.int64)
        sums = np.empty(len(X))

        def kernel(start: int, stop: int) -> None:
            kernels.rank_rows(queries, rows, places, own, TIE, start, stop, at_most, below, sums)

        run_blocks(kernel, len(X), n_jobs=self._jobs(len(X)))
        return at_most, below, sums + self.constant()

    def augmented_scores(
        self, X: FloatArray, rows: IndexArray, own: FloatArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows by the models with one new row more, for some new rows.

        Parameters
        ----------
        X : float array of shape (m, d)
        rows : int array
            Which of them join, one at a time.
        own : float array of shape (n,)
            `own_sums` of all rows of the model.

        Yields
        ------
        AugmentedScores
        """
        queries, sums = self._in_bandwidths(X), self._log_sums(X, np.full(len(X), -1))
        new = queries, np.ascontiguousarray(queries.T), sums
        constants = self.constant(), self.constant(fewer=-1)
        kernel = partial(
            kernels.augmented_scores, *new, self._ordered, own[self._order], *constants
        )
        jobs = self._jobs(len(rows))
        return augmented_blocks(
            kernel, rows, len(self.rows), len(X), n_jobs=jobs, order=self._order
        )

    def constant(self, fewer: int = 0) -> float:
        """What makes a log-sum the logarithm of a density, over so many rows less."""
        n, d = self.rows.shape
        width = math.log(self.bandwidth) + 0.5 * math.log(2.0 * math.pi)
        return -math.log(n - fewer) - float(d) * width

    @cached_property
    def _order(self) -> IndexArray:
        return sorted_by_content(self.rows)[1]

    @cached_property
    def _place(self) -> IndexArray:
        """Where each row stands in the order of contents."""
        place = np.empty(len(self.rows), dtype=np.intp)
        place[self._order] = np.arange(len(self.rows))
        return place

    @cached_property
    def _ordered(self) -> FloatArray:
        """The rows in bandwidths, by content, feature by feature."""
        return np.ascontiguousarray(self._in_bandwidths(self.rows[self._order]).T)

    def _in_bandwidths(self, X: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.ascontiguousarray(np.clip(X / self.bandwidth, -LARGEST, LARGEST))

    def _log_sums(self, X: FloatArray, own: IndexArray) -> FloatArray:
        queries, rows, sums = self._in_bandwidths(X), self._ordered, np.empty(len(X))

        def kernel(start: int, stop: int) -> None:
            kernels.log_sums(queries, own, rows, start, stop, sums)

        run_blocks(kernel, len(X), n_jobs=self._jobs(len(X)))
        return sums

    def _jobs(self, m: int) -> int | None:
        return self.n_jobs if m * self.rows.size >= LEAST_PAIRS else 1


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

    def compare(self, X: FloatArray, rows: IndexArray) -> tuple[RankArray, RankArray, FloatArray]:
        """Compare new rows with some of the reference, by their sums."""
        return self.full.compare(X, rows, self.own[np.searchsorted(self.left_out, rows)])

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each of some new rows there, by one term more in every sum."""
        every = self.full.own_sums(np.arange(len(self.full.rows)))
        return self.full.augmented_scores(X, rows, every)


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

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows with each of some new rows there, by one term more in every sum."""
        return self.full.augmented_scores(X, rows, self.own)
