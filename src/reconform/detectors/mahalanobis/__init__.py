"""The distance to the mean, measured by the scatter of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays import FloatArray
from ...content import sorted_by_content
from ...ensemble import Ensemble
from ...errors import ReconformError, is_number
from ...methods import Plan
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
from ..scaling import Units, WithExponent, nearest_exponents
from .ensembles import (
    LARGEST_RIDGE,
    LEAST_RIDGE,
    FullMahalanobis,
    MahalanobisModel,
    Whitened,
    valid_ridge,
)

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
    (array([11]), Mahalanobis(ridge=64.0))
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
    """Distance to the mean, in the units of the scatter; every resampled model by one formula.

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
