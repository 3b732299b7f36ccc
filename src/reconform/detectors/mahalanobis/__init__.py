"""The distance to the mean, measured by the scatter of the rows.

One model, and one per new row, from one fit on the reference.

The scatter of N rows is S = sum (e - mean)(e - mean)', and a row is scored by minus its squared
distance to the mean in the inverse of S + ridge I. The ridge is a fixed number, as if rows at
distance sqrt(ridge) had been added along every axis: it is there for constant features and for
more features than rows.

Let w be the rows as they look when S + ridge I of D is the identity and the mean of D the origin,
a = |w_i|^2 for a row of D, b = |w_x|^2 for the new row, p their product. Row i is at least as
anomalous as x among the N = n + 1 rows of D and x exactly if

    N (a - b) + 2 (b - p) + n (a b - p^2) >= 0,

so a rank costs n products (docs/guarantees.md has the proof). Differences that rounding could have
made count as ties, against the new row.

How far the rounding of w can have gone is estimated from the condition of the scatter
(`Whitened.doubt`). Where it could matter, w is found in more digits (`precise`): in sweeps against
fractions no rank was lower than that of exact arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np

from ...arrays import FloatArray, IndexArray, RankArray
from ...content import sorted_by_content
from ...ensemble import AugmentedScores, Ensemble, augmented_blocks
from ...errors import ReconformError, is_number
from ...methods import Plan
from ...parallel import run_blocks
from ...records import (
    FLOAT,
    JOBS,
    ROWS,
    Array,
    DetectorRecord,
    Maybe,
    Record,
    check_reference,
    require,
)
from ..base import Attribution, ModelDetector, in_shares
from ..one_more import Comparing, ComparingFull
from ..scaling import Units, WithExponent, nearest_exponents
from . import kernels
from .precise import LARGEST, PreciseModel, digits_for, shortened

# Two scores whose difference is less than this part of the terms it is made of are tied.
TIE = 2.0**-30

# What rounding may do to a row as it is seen, as a part of its length; a root of the scatter that
# is worse than the first is taken once more, unless it is worse than the second; where more than
# the third is left, digits are added.
GOOD_ROOT, WORST_ROOT, GOOD_ENOUGH = 2.0**-36, 2.0**-4, 2.0**-34
EPSILON = 2.0**-53

# A row that leaves less than this of its own direction to the others is left out in more digits:
# the formula would subtract nearly equal numbers. There are at most as many as features.
LEAST_LEFT = 2.0**-30

# New rows of which rounding takes more than this are compared with each other in more digits.
FAR = 2.0**-27

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


def _rounding(factor: FloatArray, n: int, wide: bool) -> tuple[float, float]:
    """How far rounding moves rows as a root R of the scatter sees them, and the condition of R.

    The first as part of their length; for the second, columns are brought to one length unless they
    share a rounding.
    """
    inverse, condition = np.eye(len(factor)), np.inf
    with np.errstate(all="ignore"):
        lengths = np.sqrt((factor * factor).sum(axis=0))
        lengths = np.full(len(factor), lengths.max(initial=0.0)) if wide else lengths
        if (np.diag(factor) > lengths * EPSILON).all():
            kernels.solve(factor / lengths, inverse, 0, len(factor))
            condition = float(np.sqrt((inverse * inverse).sum()))
        return float(np.sqrt(n) + len(factor)) * EPSILON * condition**2, condition


def _bounded(X: FloatArray) -> FloatArray:
    """Take numbers whose squares are too large for the largest that are not."""
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
        gaps = model._gaps(rows)
        kernels.factorise(gaps, ridge, factor)
        if GOOD_ROOT < _rounding(factor, n, basis is not None)[0] < WORST_ROOT:
            # The scatter of rows as this root sees them is nearly the identity, and so its own
            # root is a precise correction ("CholeskyQR2").
            seen = np.vstack([gaps[:, :size], np.sqrt(ridge) * np.eye(size)])
            kernels.solve(factor, seen, 0, len(seen))
            again = np.zeros((size, size))
            kernels.factorise(seen, 0.0, again)
            factor[:] = np.einsum("ij,jk->ik", again, factor)
        return model

    def _gaps(self, rows: FloatArray) -> FloatArray:
        """Rows less the mean, in the directions of the model."""
        if self.basis is None:
            return rows - self.mean
        gaps = np.empty((len(rows), len(self.basis) + 1))
        kernel = partial(kernels.project, rows, self.mean, self.basis, self.ridge, gaps)
        run_blocks(kernel, len(rows), n_jobs=self.n_jobs, work=rows.size * len(self.basis))
        return gaps

    def whiten(self, X: FloatArray) -> FloatArray:
        """Return rows as they look when the scatter is the identity and the mean the origin."""
        seen = self._gaps(_bounded(X))
        kernel = partial(kernels.solve, self.factor, seen)
        run_blocks(kernel, len(X), n_jobs=self.n_jobs, work=len(X) * self.factor.size)
        return seen

    def whole(self, X: FloatArray, seen: FloatArray) -> FloatArray:
        """Return rows as `whiten` has seen them, with all that they have beyond the basis.

        That is more than its length where two rows are multiplied that are not the model's own.
        """
        if self.basis is None:
            return seen
        rows, rest = _bounded(X), np.empty(X.shape)
        kernel = partial(kernels.rest_of, rows, self.mean, self.basis, self.ridge, rest)
        run_blocks(kernel, len(rows), n_jobs=self.n_jobs, work=rows.size * len(self.basis))
        return np.hstack([seen[:, :-1], rest])

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous."""
        squares = kernels.squares_of(self.whiten(X))
        # No number only with a factor that no fit has made: as far away as can be.
        return np.where(np.isnan(squares), -np.inf, -squares)


@dataclass(frozen=True, eq=False)
class Whitened(Comparing):
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
    >>> D.compare(np.array([[1.5], [5.0], [2.0]]), np.arange(3), D.held_out_scores())[0]
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
    def doubt(self) -> tuple[float, float]:
        """What rounding may do to rows as the model sees them: a part of their length, and more.

        The first by the condition of the scatter, the second because rows lie far from zero.
        """
        largest, factor = np.abs(self.rows).max(axis=0, initial=0.0), self.model.factor
        if not len(factor):  # all rows are equal
            return 0.0, 0.0
        n, wide = len(self.rows), self.model.basis is not None
        part, condition = _rounding(factor, n, wide)
        if not part < WORST_ROOT:
            return np.inf, np.inf
        if part > GOOD_ROOT:  # taken twice
            part = EPSILON * (4.0 * (np.sqrt(n) + len(factor)) + len(factor) * condition)
        if wide:
            return part, 8.0 * EPSILON * float(np.linalg.norm(largest)) / np.sqrt(self.ridge)
        lengths = np.sqrt((factor * factor).sum(axis=0))
        return part, 2.0 * EPSILON * float(np.linalg.norm(largest / lengths)) * condition

    @cached_property
    def _is_precise(self) -> bool:
        """Whether doubles would lose what matters."""
        if np.abs(self.rows).max(initial=0.0) > LARGEST:
            return True
        part, more = self.doubt
        usual = np.sqrt(max(1, len(self.model.factor)) / len(self.rows))  # length of a row seen
        return not max(part, more / usual) <= GOOD_ENOUGH

    def _precise(self, X: FloatArray) -> PreciseModel:
        """Return the model with digits for these rows as well; the last one is kept."""
        sizes = np.abs(np.vstack([self.rows, X])).max(axis=0, initial=0.0)
        digits = digits_for(sizes, len(self.rows) + 1, self.ridge)
        kept = self._kept
        if not kept or kept[0].digits < digits:
            kept[:] = [PreciseModel(sorted_by_content(self.rows)[0], self.ridge, digits)]
        return kept[0]

    @cached_property
    def _with_more_digits(self) -> Whitened:
        other = replace(self)
        vars(other)["_is_precise"] = True  # as if it had been asked
        return other

    @cached_property
    def _kept(self) -> list[PreciseModel]:
        return []

    def whiten(self, X: FloatArray) -> FloatArray:
        """Return rows as the model sees them."""
        if self._is_precise:
            return shortened(self._precise(X).whiten(X))
        return self.model.whiten(X)

    @cached_property
    def squares(self) -> FloatArray:
        """Squared lengths of the rows of D as the model sees them."""
        return kernels.squares_of(self._seen)

    @cached_property
    def _seen(self) -> FloatArray:
        return self.whiten(self.rows)

    @cached_property
    def _by_feature(self) -> FloatArray:
        return np.ascontiguousarray(self._seen.T)

    @cached_property
    def _left(self) -> FloatArray:
        """What a row leaves of its own direction to the others: 1 at the mean."""
        n = len(self.rows)
        return 1.0 - n / (n - 1.0) * self.squares

    @cached_property
    def _apart(self) -> IndexArray:
        """Rows that leave too little to the others for the formulas."""
        return np.flatnonzero(self._left < LEAST_LEFT)

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows by A(D)."""
        return -kernels.squares_of(self.whiten(X))

    def held_out_scores(self) -> FloatArray:
        """Score every row of D by the model without it, c_i: (n,)."""
        k, a = len(self.rows) / (len(self.rows) - 1.0), self.squares
        scores = -k * k * a / np.maximum(self._left, LEAST_LEFT)
        if len(self._apart):
            rows = self.rows[self._apart]
            precise = self._precise(rows)
            scores[self._apart] = precise.held_out_scores(precise.whiten(rows))
        return scores

    def compare(
        self, X: FloatArray, rows: IndexArray, c: FloatArray
    ) -> tuple[RankArray, RankArray, FloatArray]:
        """Compare new rows with some rows of D, both with the new row there.

        Parameters
        ----------
        X : float array of shape (m, d)
        rows : int array
            Those of D to compare with.

        Returns
        -------
        at_most, below : int arrays of shape (m,)
            1 + the rows that score at most as much, and 1 + those that score less.
        scores : float array of shape (m,)
            Those of A(D).
        """
        apart = np.isin(rows, self._apart)
        seen, n = self.whiten(X), len(self.rows)
        b, (others, a) = kernels.squares_of(seen), self._some(rows[~apart])
        at_most, below = np.ones((2, len(X)), dtype=np.int64)
        more = 0.0 if self._is_precise else 4.0 * self.doubt[1]
        kernel = partial(kernels.rank_rows, seen, b, others, a, n, TIE, more, at_most, below)
        run_blocks(kernel, len(X), n_jobs=self.n_jobs, work=len(X) * n)
        if apart.any():
            precise = self._precise(X)
            not_above, lower = precise.compare(
                precise.whiten(self.rows[rows[apart]]), precise.whiten(X)
            )
            at_most += not_above
            below += lower
        return at_most, below, -b

    def augmented_scores(
        self, X: FloatArray, rows: IndexArray, c: FloatArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows by the models with one new row more, for some new rows.

        Parameters
        ----------
        X : float array of shape (m, d)
        rows : int array
            Which of them join, one at a time.

        Yields
        ------
        AugmentedScores
        """
        if not self._is_precise and np.abs(X).max(initial=0.0) > LARGEST:
            return (yield from self._with_more_digits.augmented_scores(X, rows, c))
        seen, n = self.whiten(X), len(self.rows)
        whole = seen if self._is_precise else self.model.whole(X, seen)
        new = seen, kernels.squares_of(seen), whole, kernels.squares_of(whole)
        left = np.maximum(self._left, LEAST_LEFT)
        D = self._seen, self.squares, self._by_feature, left
        kernel = partial(kernels.augmented_scores, *new, np.ascontiguousarray(whole.T), *D)
        # New rows of which doubles keep too little to tell them from each other.
        part = EPSILON if self._is_precise else max(EPSILON, self.doubt[0])
        far = np.flatnonzero(part * np.sqrt(new[3]) > FAR)
        far = far if self._is_precise or len(far) > 1 else far[:0]
        apart = self._apart
        for augmented in augmented_blocks(
            kernel, rows, n, len(X), n_jobs=self.n_jobs, work_per_row=n
        ):
            if len(apart) or len(far):
                self._mend(augmented, X, apart, far)
            yield augmented

    def _mend(
        self, augmented: AugmentedScores, X: FloatArray, apart: IndexArray, far: IndexArray
    ) -> None:
        """Put the scores of rows right that the formulas in doubles do not give."""
        precise, n = self._precise(X), len(self.rows)
        joined, distant = precise.whiten(X[augmented.rows]), precise.whiten(X[far])
        at = np.flatnonzero(np.isin(augmented.rows, far))
        augmented.own[at, n] = kernels.all_on_grid(precise.scores(joined[at])[None])[0]
        others = precise.scores_with(distant, joined[at], held_out=False)
        augmented.others[np.ix_(at, far)] = kernels.all_on_grid(others).T
        alike = (X[augmented.rows][:, None] == self.rows[apart]).all(axis=2)
        own = precise.scores_with(precise.whiten(self.rows[apart]), joined, held_out=True)
        own = kernels.all_on_grid(own).T
        augmented.own[:, apart] = np.where(alike, augmented.own[:, n, None], own)

    def _some(self, rows: IndexArray) -> tuple[FloatArray, FloatArray]:
        """Rows of D as the model sees them, feature by feature, and their squared lengths."""
        if len(rows) == len(self.rows):  # all of them, in order
            return self._by_feature, self.squares
        return np.ascontiguousarray(self._by_feature[:, rows]), self.squares[rows]


class FullMahalanobis(ComparingFull):
    """A model on D and x for every new row x, by one more row in the scatter."""


# More features take too long to decorrelate for one row, and larger numbers have no squares.
MOST_DECORRELATED = 1_000
LARGEST_SQUARED = 1e100


# A learned ridge weighs so much of the scatter at least, and leaves so much of it.
LEAST_SHARE = 2.0**-20
LARGEST_EXPONENT = 49


class RidgeUnits(WithExponent):
    """The exponents of the scales, and that of a ridge by Ledoit and Wolf's rule.

    Their estimate of a covariance is a mean of that of the rows and of one without any relations,
    whose share is larger the less sure the first is. A ridge does the same.

    Examples
    --------
    >>> import numpy as np
    >>> units, X = RidgeUnits(Mahalanobis("auto")), np.random.default_rng(0).normal(size=(40, 100))
    >>> units.of(X), units.plain(units.of(X + X[:, :1]))
    (array([10]), Mahalanobis(ridge=8.0))
    """

    parameter = "ridge"

    def exponent(self, X: FloatArray) -> int:
        """By the rows in the order of their contents: sums do not depend on how they came."""
        rows = sorted_by_content(X)[0]
        n, d = rows.shape
        size = int(np.frexp(np.abs(rows).max(initial=0.0))[1])
        gaps = np.ldexp(rows, -size)
        gaps -= gaps.mean(axis=0)
        squares = (gaps * gaps).sum(axis=1)
        products = gaps @ gaps.T if n < d else gaps.T @ gaps
        mean, square = squares.sum() / (n * d), (products * products).sum() / n**2
        unsure = ((squares * squares).sum() / n - square) / (n * d)
        apart = square / d - mean * mean  # what the variances differ by from all being equal
        share = np.clip(unsure / apart if apart > 0 else 1.0, LEAST_SHARE, 1.0 - LEAST_SHARE)
        exponent = int(nearest_exponents(n * mean * share / (1.0 - share))) + 2 * size
        return int(np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT))


class Mahalanobis(ModelDetector):
    """Distance to the mean, in the units of the scatter; one fit serves all models of full.

    Finds rows that break the linear relations among the features, even where each feature by
    itself is ordinary.

    Parameters
    ----------
    ridge : float or "auto", default=1.0
        Added to the scatter (the *sum* of squares and products about the mean) along every axis,
        as if rows at distance sqrt(ridge) from the mean had been added there. It keeps the
        distance finite for constant features and for more features than rows. Stated in the units
        of the rescaled features, or of the features themselves with ``scale="none"``. With
        ``"auto"`` a power of two near to what Ledoit and Wolf's shrinkage adds, for the rows of a
        model: for many features and few rows.
    scale : {"none", "robust", "direction"}, default="none"
        Take features as they are; or divide every feature by a power of two near to its spread
        among the rows of a model (the distance of the quartiles), so that the ridge means the same
        for all of them; or divide every row by its length as well, as cosine distances do.
    contamination : float, default=0.1
        Share of the training rows that `predict` calls outliers. Has no influence on conformal
        p-values.
    n_jobs : int or None, default=None
        Threads, as in joblib. Inside a `ConformalDetector` its own `n_jobs` counts, if it has one.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier; set so that a share `contamination` of the
        training rows is.
    n_features_in_ : int
    feature_names_in_ : array of str

    See Also
    --------
    reconform.ConformalDetector

    Notes
    -----
    `score_samples` is minus the squared distance: small = anomalous. Nothing is random. A fit on
    n rows of d features takes about n d^2 + d^3 / 3 operations, with d > n about 2 n^2 d.

    Scores that differ by less than a part in 10^9 of their terms are tied in full-conformal
    ranks, so that rounding cannot break a tie in favour of a new row.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.mahalanobis import Mahalanobis
    >>> x = np.random.default_rng(0).normal(size=200)
    >>> model = Mahalanobis().fit(np.column_stack([x, x + 0.1]))
    >>> model.predict([[1.5, 1.6], [1.0, -1.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        ridge: float | str = 1.0,
        scale: str = "none",
        *,
        contamination: float = 0.1,
        n_jobs: int | None = None,
    ) -> None:
        self.ridge = ridge
        self.scale = scale
        self.contamination = contamination
        self.n_jobs = n_jobs

    in_threads = True

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        if plan.row.augments:
            return FullMahalanobis.fit(self._whitened(X))
        return None  # a fit of its own for each model is quick

    def _model(self, X: FloatArray) -> MahalanobisModel:
        return MahalanobisModel.fit(X, self._ridge(), n_jobs=self.n_jobs)

    def training_scores(self, model: Any, X: FloatArray) -> FloatArray:
        """Score the rows that a model was fitted on."""
        # Each by the others: in the order of scores with it, and of the size of new rows' scores.
        return self._whitened(X).held_out_scores()

    def _offset_scores(self, X: FloatArray) -> FloatArray:
        return self._score_rows(X)  # as `predict` will score them

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """By a root of the squared distance with one term for every feature.

        The features are decorrelated by the transformation that changes them least (Garthwaite and
        Koch 2016, "Evaluating the contributions of individual variables to a quadratic form",
        Aust. N. Z. J. Stat. 58): the squares of what they become add up to the squared distance.
        """
        if len(x) > MOST_DECORRELATED or np.abs(np.vstack([rows, x])).max() > LARGEST_SQUARED:
            return None
        mean = rows.mean(axis=0)
        scatter = (rows - mean).T @ (rows - mean) + self._ridge() * np.eye(len(x))
        spread = np.sqrt(np.diag(scatter))
        values, vectors = np.linalg.eigh(scatter / np.outer(spread, spread))
        root = (vectors / np.sqrt(np.maximum(values, np.finfo(np.float64).eps))) @ vectors.T
        parts = (root @ ((x - mean) / spread)) ** 2
        return in_shares(parts, "the squared distance, after the features are decorrelated")

    def _units(self) -> Units | None:
        return RidgeUnits(self) if self._is_learned else super()._units()

    @property
    def _is_learned(self) -> bool:
        return isinstance(self.ridge, str) and self.ridge == "auto"

    def _whitened(self, X: FloatArray) -> Whitened:
        return Whitened(X, self._ridge(), self.n_jobs)

    def _ridge(self) -> float:
        given = 2.0 ** int(self.units_[-1]) if self._is_learned else self.ridge
        if not is_number(given) or not valid_ridge(float(given)):
            raise ReconformError(
                f"`ridge` must be 'auto' or a number between {LEAST_RIDGE:g} and "
                f"{LARGEST_RIDGE:g}; got {given!r}."
            )
        return float(given)


def _check_model(model: MahalanobisModel, d: int) -> None:
    require(model.mean.shape == (d,), "the mean has the wrong shape")
    size = d
    if model.basis is not None:
        size = len(model.basis)
        require(model.basis.shape[1] == d and size < d, "the basis has the wrong shape")
        require((np.abs(model.basis) <= 2.0).all(), "a direction is longer than 1")
    require(model.factor.shape == (size, size), "the factor has the wrong shape")
    finite = np.isfinite(model.mean).all() and np.isfinite(model.factor).all()
    require(finite, "a mean or a factor is not finite")
    require((np.diagonal(model.factor) > 0).all(), "a factor has no inverse")
    require(valid_ridge(model.ridge), f"the ridge is {model.ridge}")


def _check_whitened(reference: Whitened, d: int) -> None:
    n, columns = reference.rows.shape
    require(n >= 2 and columns == d, "the reference has the wrong shape")
    require(np.isfinite(reference.rows).all(), "a row is not finite")
    require(valid_ridge(reference.ridge), f"the ridge is {reference.ridge}")


MODEL = Record(
    "MahalanobisModel",
    MahalanobisModel,
    {
        "mean": Array("f8", ndim=1),
        "basis": Maybe(ROWS),
        "factor": ROWS,
        "ridge": FLOAT,
        "n_jobs": JOBS,
    },
    _check_model,
)
WHITENED = Record(
    "Whitened", Whitened, {"rows": ROWS, "ridge": FLOAT, "n_jobs": JOBS}, _check_whitened
)


def _check_full(ensemble: FullMahalanobis, d: int) -> None:
    check_reference(len(ensemble.reference.rows), ensemble)


MAHALANOBIS_RECORD = DetectorRecord(
    "Mahalanobis",
    {"_fitted": MODEL},
    models=(MODEL,),
    ensembles=(Record("FullMahalanobis", FullMahalanobis, {"reference": WHITENED}, _check_full),),
)
