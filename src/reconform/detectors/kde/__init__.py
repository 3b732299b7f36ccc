"""Kernel density: how many other rows are near, weighed by a Gaussian kernel.

A bandwidth by rule is a power of two that is learned from the rows of a model, symmetrically. Its
exponent joins those of the scales (`reconform.detectors.scaling`), so that models with another
bandwidth are found, and fitted apart from the others, like those with another scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray, IntArray
from ...ensemble import Ensemble
from ...errors import ReconformError, is_number
from ...methods import Plan
from ...records import FLOAT, JOBS, ROWS, DetectorRecord, Record, check_reference, require
from ..base import Attribution, ModelDetector, in_shares
from ..scaling import (
    OF_NORMAL,
    Units,
    WithExponent,
    nearest_exponents,
    spreads,
    spreads_with,
)
from .model import (
    LARGEST_BANDWIDTH,
    LEAST_BANDWIDTH,
    FullKDE,
    KDEModel,
    valid_bandwidth,
)


def bandwidth_exponents(spread: FloatArray, n: int) -> IntArray:
    """Choose bandwidths that are powers of two, by Silverman's rule for n rows.

    Features without any spread do not count.

    Parameters
    ----------
    spread : float array of shape (..., d)
        Spreads of the features, such as `scaling.spreads_with` gives for every new row.
    n : int
        Rows that the spreads are of.

    Returns
    -------
    int array of shape (...)
        The bandwidth is 2 to this power.

    Examples
    --------
    >>> import numpy as np
    >>> bandwidth_exponents(np.array([[1.3, 1.4], [13.0, 14.0], [0.0, 1.4], [0.0, 0.0]]), 1000)
    array([-2,  2, -2,  0])
    """
    largest = spread.max(axis=-1)
    # Relative to the largest, as squares might overflow.
    relative = spread / np.where(largest > 0, largest, 1.0)[..., None]
    # In order: NumPy's own sum depends on the shape, a running one does not.
    total = np.cumsum(relative**2, axis=-1)[..., -1]
    d = np.maximum((relative > 0).sum(axis=-1), 1.0)
    factor = (4.0 / ((d + 2.0) * n)) ** (1.0 / (d + 4.0)) / OF_NORMAL
    return nearest_exponents(factor * largest * np.sqrt(total / d)).astype(np.int64)


class KernelUnits(WithExponent):
    """The exponents of the scales, and that of the bandwidth.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.kde import KDE
    >>> units = KernelUnits(KDE(scale="robust"))
    >>> X = np.array([[0.0, 50.0], [1.0, 10.0], [2.0, 30.0], [3.0, 90.0]])
    >>> units.of(X)
    array([ 0,  4, -1])
    >>> units.plain(units.of(X))
    KDE(bandwidth=0.5)
    """

    parameter = "bandwidth"

    def exponent(self, X: FloatArray) -> int:
        """By the spreads of measured rows."""
        return int(bandwidth_exponents(spreads(X), len(X)))

    def exponents_with(self, X: FloatArray, new: FloatArray) -> IntArray:
        """By the spreads with one new row."""
        return bandwidth_exponents(spreads_with(X, new), len(X) + 1)


class KDE(ModelDetector):
    """Density of Gaussian kernels around the rows, with one model per new row from the same sums.

    Parameters
    ----------
    bandwidth : float or "auto", default="auto"
        Standard deviation of the kernels, in the units of the rescaled features, or of the
        features themselves with ``scale="none"``. By default a power of two near to Silverman's
        rule for the rows of a model.
    scale : {"none", "robust", "direction"}, default="none"
        Take features as they are; or divide every feature by a power of two near to its spread
        among the rows of a model (the distance of the quartiles). With ``"direction"`` every row
        is divided by its length, too.
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
    `score_samples` is the logarithm of the density (in rescaled units, with ``scale="robust"``):
    small = anomalous. Nothing is random. Every pair of rows is looked at, so time grows with the
    square of the number of rows.

    Scores that differ by less than a part in 10^9 are tied in full-conformal ranks, so that
    rounding cannot break a tie in favour of a new row.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.kde import KDE
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> KDE().fit(X).predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        bandwidth: float | str = "auto",
        scale: str = "none",
        *,
        contamination: float = 0.1,
        n_jobs: int | None = None,
    ) -> None:
        self.bandwidth = bandwidth
        self.scale = scale
        self.contamination = contamination
        self.n_jobs = n_jobs

    in_threads = True

    def _units(self) -> Units | None:
        return KernelUnits(self) if self._checked_bandwidth() is None else super()._units()

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        if plan.row.augments:
            return FullKDE.fit(self._model(X))
        return None  # there is nothing to fit

    def _offset_scores(self, X: FloatArray) -> FloatArray:
        return self._score_rows(X)  # as `predict` will score them

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """By the distances to reference rows, each with its weight in the density."""
        bandwidth = self._checked_bandwidth()
        assert bandwidth is not None  # units state it
        with np.errstate(over="ignore"):
            squares = (((rows - x) / bandwidth) ** 2).sum(axis=1)
        if not np.isfinite(squares.min()):
            return None
        weights = np.exp((squares.min() - squares) / 2)
        parts = weights @ (rows - x) ** 2
        return in_shares(
            parts, "the squared distances to reference rows, weighted as in the density"
        )

    def _model(self, X: FloatArray) -> KDEModel:
        bandwidth = self._checked_bandwidth()
        if bandwidth is None:
            bandwidth = 2.0 ** int(self.units_[-1])  # of a model that stands by itself
        return KDEModel(X, bandwidth, self.n_jobs)

    def _checked_bandwidth(self) -> float | None:
        """Return the bandwidth, None where the rows are to say it; refuse what is neither."""
        given = self.bandwidth
        if isinstance(given, str) and given == "auto":
            return None
        if not is_number(given) or not valid_bandwidth(float(given)):
            raise ReconformError(
                f"`bandwidth` must be 'auto' or a number between {LEAST_BANDWIDTH:.1g} and "
                f"{LARGEST_BANDWIDTH:.1g}; got {given!r}."
            )
        return float(given)


def _check_model(model: KDEModel, d: int) -> None:
    n, columns = model.rows.shape
    require(n >= 1 and columns == d, "rows have the wrong shape")
    require(np.isfinite(model.rows).all(), "a row is not finite")
    require(valid_bandwidth(model.bandwidth), f"the bandwidth is {model.bandwidth}")


MODEL = Record(
    "KDEModel", KDEModel, {"rows": ROWS, "bandwidth": FLOAT, "n_jobs": JOBS}, _check_model
)


def _check_full(ensemble: FullKDE, d: int) -> None:
    check_reference(len(ensemble.reference.rows), ensemble)
    require(len(ensemble.reference.rows) >= 2, "the reference has the wrong shape")


KDE_RECORD = DetectorRecord(
    "KDE",
    {"_fitted": MODEL},
    models=(MODEL,),
    ensembles=(Record("FullKDE", FullKDE, {"reference": MODEL}, _check_full),),
)
