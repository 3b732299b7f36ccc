"""One model, and the reference as its model sees it: all leave-one-out and full models follow.

The scatter of N rows is S = sum (e - mean)(e - mean)', and a row is scored by minus its squared
distance to the mean in the inverse of S + ridge I. The ridge is a fixed number, as if rows at
distance sqrt(ridge) had been added along every axis: it is there for constant features and for
more features than rows.

Let w be the rows as they look when S + ridge I of D is the identity and the mean of D the origin,
a = |w_i|^2 for a row of D, b = |w_x|^2 for the new row, p their product. Row i is at least as
anomalous as x among the N = n + 1 rows of D and x exactly if

    N (a - b) + 2 (b - p) + n (a b - p^2) >= 0,

and the same comparison decides whether c_i <= t_i under the model without row i: jackknife+ and
full-conformal ranks are the same, and jackknife+ is exact (docs/guarantees.md has the proof). So a
rank costs n products. Differences that rounding could have made count as ties, against the new row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...content import sorted_by_content
from ...ensemble import Sight, sights
from ...parallel import run_blocks
from ...statistics.ranks import LEAST_PAIRS
from . import kernels

# Numbers beyond it are taken for it, so that no sum of squares overflows.
LARGEST = 2.0**400

# Two scores whose difference is less than this part of the terms it is made of are tied. It is
# far above what rounding does to data that are not extremely ill-conditioned.
TIE = 2.0**-30

# A row that leaves less than this of its own direction to the others is left out by a fit of its
# own: the formula would subtract nearly equal numbers. There are at most as many as features.
LEAST_LEFT = 2.0**-30

# The ridge lies between these, as squares of bounded numbers over it must be finite, too.
LEAST_RIDGE, LARGEST_RIDGE = 1e-15, 1e15


def valid_ridge(ridge: float) -> bool:
    """Whether a number can be a ridge.

    Examples
    --------
    >>> valid_ridge(1.0), valid_ridge(0.0)
    (True, False)
    """
    return LEAST_RIDGE <= ridge <= LARGEST_RIDGE


def _bounded(X: FloatArray) -> FloatArray:
    return np.require(np.clip(X, -LARGEST, LARGEST), dtype=np.float64, requirements=["C", "W"])


@dataclass(frozen=True, eq=False)
class MahalanobisModel:
    """One model: where the rows lie, and how they are spread.

    Attributes
    ----------
    mean : float array of shape (d,)
    basis : float array of shape (r, d) or None
        With more features than rows, the directions in which the rows differ from each other.
    factor : float array of shape (r, r) or (d, d)
        Upper triangular R, with R'R the scatter plus the ridge, in these directions.
    ridge : float
    n_jobs : int or None
        Threads; never changes a number.

    Examples
    --------
    >>> import numpy as np
    >>> model = MahalanobisModel.fit(np.array([[0.0], [2.0]]), ridge=1.0)
    >>> model.score_samples(np.array([[1.0], [4.0]]))
    array([-0., -3.])
    """

    mean: FloatArray
    basis: FloatArray | None
    factor: FloatArray
    ridge: float
    n_jobs: int | None = None

    in_threads = True

    @classmethod
    def fit(cls, X: FloatArray, ridge: float, *, n_jobs: int | None = None) -> Self:
        """Fit a model; the same numbers in whatever order the rows are."""
        rows = _bounded(sorted_by_content(X)[0])
        n, d = rows.shape
        mean, basis = np.empty(d), None
        kernels.mean_of(rows, mean)
        if d > n:
            directions = np.empty((n, d))
            basis = directions[: kernels.span(rows, mean, directions)].copy()
        size = d if basis is None else len(basis)
        factor = np.zeros((size, size))
        model = cls(mean, basis, factor, ridge, n_jobs)
        kernels.factorise(model._gaps(rows), ridge, factor)
        return model

    def _gaps(self, rows: FloatArray) -> FloatArray:
        """Rows less the mean, in the directions of the model."""
        mean, basis, ridge = self.mean, self.basis, self.ridge
        if basis is None:
            gaps = np.empty(rows.shape)
            kernels.centre(rows, mean, 0, len(rows), gaps)
            return gaps
        wide, gaps = basis, np.empty((len(rows), len(basis) + 1))

        def kernel(start: int, stop: int) -> None:
            kernels.project(rows, mean, wide, ridge, start, stop, gaps)

        run_blocks(kernel, len(rows), n_jobs=self._jobs(rows.size * len(basis)))
        return gaps

    def see(self, X: FloatArray) -> FloatArray:
        """Return rows as they look when the scatter is the identity and the mean the origin."""
        seen = self._gaps(_bounded(X))

        def kernel(start: int, stop: int) -> None:
            kernels.solve(self.factor, start, stop, seen)

        run_blocks(kernel, len(X), n_jobs=self._jobs(len(X) * self.factor.size))
        return seen

    def see_whole(self, X: FloatArray) -> FloatArray:
        """Return rows as `see` does, with all that they have beyond the basis.

        That is more than its length where two rows are multiplied that are not the model's own.
        """
        seen, basis = self.see(X), self.basis
        if basis is None:
            return seen
        rows, rest = _bounded(X), np.empty(X.shape)

        def kernel(start: int, stop: int) -> None:
            kernels.rest_of(rows, self.mean, basis, self.ridge, start, stop, rest)

        run_blocks(kernel, len(rows), n_jobs=self._jobs(rows.size * len(basis)))
        return np.hstack([seen[:, :-1], rest])

    def _jobs(self, work: int) -> int | None:
        return self.n_jobs if work >= LEAST_PAIRS else 1

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        squares = kernels.squares_of(self.see(X))
        # No number only with a factor that no fit has made: as far away as can be.
        return np.where(np.isnan(squares), -np.inf, -squares)


@dataclass(frozen=True, eq=False)
class Whitened:
    """The reference, and how it looks to the model fitted on all of it.

    Attributes
    ----------
    rows : float array of shape (n, d)
        D.
    ridge : float
    n_jobs : int or None

    Examples
    --------
    >>> import numpy as np
    >>> D = Whitened(np.array([[0.0], [1.0], [2.0]]), ridge=1.0)
    >>> D.compare(np.array([[1.5], [5.0], [2.0]]), np.arange(3))[0]
    array([3, 1, 3])
    """

    rows: FloatArray
    ridge: float
    n_jobs: int | None = None

    @cached_property
    def model(self) -> MahalanobisModel:
        """A(D)."""
        return MahalanobisModel.fit(self.rows, self.ridge, n_jobs=self.n_jobs)

    @cached_property
    def squares(self) -> FloatArray:
        """Squared lengths of the rows of D as the model sees them."""
        return kernels.squares_of(self._seen)

    @cached_property
    def _seen(self) -> FloatArray:
        return self.model.see(self.rows)

    @cached_property
    def _by_feature(self) -> FloatArray:
        return np.ascontiguousarray(self._seen.T)

    @cached_property
    def _left(self) -> FloatArray:
        """What a row leaves of its own direction to the others: 1 at the mean."""
        n = len(self.rows)
        return 1.0 - n / (n - 1.0) * self.squares

    def _apart(self, left_out: IndexArray) -> Iterator[tuple[int, MahalanobisModel]]:
        """Models that have to be fitted: where they stand in `left_out`, and they themselves."""
        for at in np.flatnonzero(self._left[left_out] < LEAST_LEFT):
            rows = np.delete(self.rows, left_out[at], axis=0)
            yield int(at), MahalanobisModel.fit(rows, self.ridge, n_jobs=self.n_jobs)

    def held_out_scores(self, left_out: IndexArray) -> FloatArray:
        """Score rows of D, each by the model without it, c_i: (count,)."""
        k, a = len(self.rows) / (len(self.rows) - 1.0), self.squares[left_out]
        scores = -k * k * a / np.maximum(self._left[left_out], LEAST_LEFT)
        for at, model in self._apart(left_out):
            scores[at] = model.score_samples(self.rows[left_out[at], None])[0]
        return scores

    def scores_without_each(self, X: FloatArray, left_out: IndexArray) -> FloatArray:
        """Score rows by models without one row of D, t_i: (count, m)."""
        seen, scores = self.model.see(X), np.empty((len(left_out), len(X)))
        b, (rows, a), n = kernels.squares_of(seen), self._some(left_out), len(self.rows)
        left = np.maximum(self._left[left_out], LEAST_LEFT)

        def kernel(start: int, stop: int) -> None:
            kernels.score_without_each(seen, b, rows, a, left, n, start, stop, scores)

        run_blocks(kernel, len(X), n_jobs=self._jobs(len(X)))
        for at, model in self._apart(left_out):
            scores[at] = model.score_samples(X)
        return scores

    def compare(
        self, X: FloatArray, left_out: IndexArray
    ) -> tuple[RankArray, RankArray, FloatArray]:
        """Rank rows: full-conformal and jackknife+ at once.

        Parameters
        ----------
        X : float array of shape (m, d)
        left_out : int array
            The rows of D to compare with.

        Returns
        -------
        at_most, below : int arrays of shape (m,)
            1 + #{c_i <= t_i}, and 1 + #{c_i < t_i}.
        scores : float array of shape (m,)
            Those of A(D).
        """
        seen = self.model.see(X)
        b, (rows, a), n = kernels.squares_of(seen), self._some(left_out), len(self.rows)
        at_most, below = np.ones((2, len(X)), dtype=np.int64)

        def kernel(start: int, stop: int) -> None:
            kernels.rank_rows(seen, b, rows, a, n, TIE, start, stop, at_most, below)

        run_blocks(kernel, len(X), n_jobs=self._jobs(len(X)))
        return at_most, below, -b

    def see_with_each(self, X: FloatArray, rows: IndexArray) -> Iterator[Sight]:
        """Score all rows by the models with one new row more, for some new rows.

        Parameters
        ----------
        X : float array of shape (m, d)
        rows : int array
            Which of them join, one at a time.

        Yields
        ------
        Sight
        """
        seen, whole, n = self.model.see(X), self.model.see_whole(X), len(self.rows)
        new = seen, kernels.squares_of(seen), whole, kernels.squares_of(whole)
        left = np.maximum(self._left, LEAST_LEFT)
        D = self._seen, self.squares, self._by_feature, left
        kernel = partial(kernels.see_with_each, *new, np.ascontiguousarray(whole.T), *D)
        # Rows that leave too little to the others, by models without them; once for all new rows.
        apart = []
        for i, model in self._apart(np.arange(n)):
            scores = _with_each(model, n - 1, self.rows[i], X[rows])
            apart.append((i, (X[rows] == self.rows[i]).all(axis=1), scores))
        done = 0
        for sight in sights(kernel, rows, n, len(X), n_jobs=self._jobs(len(rows))):
            block = slice(done, done + len(sight.rows))
            for i, equal, scores in apart:
                sight.own[:, i] = np.where(equal[block], sight.own[:, n], scores[block])
            done = block.stop
            yield sight

    def _some(self, left_out: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Rows of D as the model sees them, feature by feature, and their squared lengths."""
        if len(left_out) == len(self.rows):  # all of them, in order
            return self._by_feature, self.squares
        return np.ascontiguousarray(self._by_feature[:, left_out]), self.squares[left_out]

    def _jobs(self, m: int) -> int | None:
        return self.n_jobs if m * len(self.rows) >= LEAST_PAIRS else 1


def _with_each(model: MahalanobisModel, n: int, row: FloatArray, new: FloatArray) -> FloatArray:
    """Score a row by models on the n rows of this one and a new row, for every new row."""
    scores, seen = np.empty(len(new)), model.see_whole(np.vstack([row, new]))
    kernels.score_with_each(seen[0], seen[1:], n, scores)
    return scores
