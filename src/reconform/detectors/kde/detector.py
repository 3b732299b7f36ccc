"""KDE: the lower the density of the other rows where a row lies, the more anomalous."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import FloatArray
from ...ensemble import Ensemble
from ...errors import ReconformError, is_number
from ...methods import Plan
from ..attribution import Attribution, in_shares
from ..base import NativeDetector
from ..scaling import check_scale
from ..units import Units
from .bandwidth import KernelUnits
from .ensembles import FullKDE, LeaveOneOutKDE
from .model import LARGEST_BANDWIDTH, LEAST_BANDWIDTH, KDEModel, valid_bandwidth


class KDE(NativeDetector):
    """Density of Gaussian kernels around the rows, with every resampled model from the same sums.

    Parameters
    ----------
    bandwidth : float or "auto", default="auto"
        Standard deviation of the kernels, in the units of the rescaled features, or of the
        features themselves with ``scale="none"``. By default a power of two near to Silverman's
        rule for the rows of a model.
    scale : {"none", "robust"}, default="none"
        Take features as they are; or divide every feature by a power of two near to its spread
        among the rows of a model (the distance of the quartiles). With ``"none"`` and a bandwidth
        that is a number jackknife+ has the ranks of full, and is exact.
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

    Scores that differ by less than a part in 10^9 are tied in leave-one-out and full-conformal
    ranks, so that rounding cannot break a tie in favour of a new row.

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
        check_scale(self.scale)
        return KernelUnits(self) if self._checked_bandwidth() is None else super()._units()

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        if plan.row.augments:
            return FullKDE.fit(self._model(X))
        if plan.left_out is not None:
            return LeaveOneOutKDE.fit(self._model(X), plan)
        return None  # there is nothing to fit

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        self._fitted = self._model(X)

    def _score_rows(self, X: FloatArray) -> FloatArray:
        return self._fitted.score_samples(X)

    def _training_scores(self, X: FloatArray) -> FloatArray:
        model = self._model(X)
        return model.own_sums(np.arange(len(X))) + model.constant(fewer=1)

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
