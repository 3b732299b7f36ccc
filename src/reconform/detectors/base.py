"""What our own detectors share: a scikit-learn outlier detector that also fits whole plans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted

from ..arrays import FloatArray, IntArray
from ..ensemble import Ensemble
from ..errors import check_probability
from ..inputs import validated_rows
from ..methods import Plan
from ..randomness import root_seed


class NativeDetector(OutlierMixin, BaseEstimator, ABC):
    """Base of `KNN`, `IForest` and `INNE`.

    A subclass fits one model (`_fit_rows`), scores rows with it (`_score_rows`), and fits all
    models of a plan together (`fit_plan`), with the same numbers.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier; set so that a share `contamination` of the
        training rows is.
    n_features_in_ : int
    feature_names_in_ : array of str
    """

    contamination: float

    @abstractmethod
    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        """Fit one model on validated rows and store its fitted attributes."""

    @abstractmethod
    def _score_rows(self, X: FloatArray) -> FloatArray:
        """Score validated rows, small = strange."""

    @abstractmethod
    def fit_plan(
        self,
        X: FloatArray,
        plan: Plan,
        seeds: Sequence[np.random.SeedSequence],
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Ensemble:
        """Fit all models of a plan together.

        Parameters
        ----------
        X : float array of shape (n, d)
            Validated rows.
        plan : Plan
        seeds : sequence of SeedSequence
            One per resampled model, and a last one for A(D).
        n_jobs, verbose : int
            Threads, and a progress bar.

        Returns
        -------
        Ensemble
        """

    # What the estimator asks of any detector at the door.
    accepts_nan = False
    frozen = False

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return type(self).__name__

    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Fit one model.

        Parameters
        ----------
        X : array-like or frame of shape (n, d)
        y : ignored

        Returns
        -------
        NativeDetector
            Itself.
        """
        check_probability("contamination", self.contamination)
        rows = validated_rows(self, X, ensure_min_samples=2)
        self._fit_rows(rows, root_seed(getattr(self, "random_state", None)))
        # Numbers whose squares overflow have infinite scores, between which there is no quantile.
        largest = np.finfo(np.float64).max
        scores = np.clip(self._training_scores(rows), -largest, largest)
        self.offset_ = float(np.quantile(scores, self.contamination))
        return self

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Score rows; small = strange.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)

        Returns
        -------
        float array of shape (m,)
        """
        check_is_fitted(self, "offset_")
        rows = validated_rows(self, X, reset=False)
        return self._score_rows(rows)

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Return `score_samples` minus `offset_`: negative for outliers."""
        return np.asarray(self.score_samples(X) - self.offset_)

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Return +1 for normal rows and -1 for outliers."""
        return np.where(self.decision_function(X) >= 0, 1, -1).astype(np.int64)

    def _training_scores(self, X: FloatArray) -> FloatArray:
        """Scores of the training rows, from which the offset is taken."""
        return self._score_rows(X)
