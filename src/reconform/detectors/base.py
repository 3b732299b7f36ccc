"""The base class of our own detectors.

A detector is complete with two methods, `_fit_rows` and `_score_rows`. Every method of the
package then works for it, by one fit per model. What is quicker may be overridden: `fit_model`, a
lean object per model; `_fit_together`, all models of a plan at once, with the same numbers.

Which features carry the score of a row is a description of the row, not a theorem about it. A
detector of ours that adds up something over the features says how much each adds
(`NativeDetector.attribution`). For every other one, features are replaced one at a time by what is
typical near the row, and the score says which of them matter (`by_replacing`).
"""

from __future__ import annotations

import copy
import numbers
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from ..arrays import FloatArray, IndexArray, IntArray
from ..content import scores_by_content, sorted_by_content
from ..ensemble import Ensemble
from ..ensemble.batch import fit_pooled
from ..ensemble.refitting import (
    Algorithm,
    Model,
    checked_scores,
    fit_full,
    probe_batch_dependence,
    refit,
)
from ..errors import ReconformError, check_count, check_probability, unknown_choice
from ..frames import validated_rows
from ..methods import METHODS, Plan
from ..randomness import root_seed
from .scaled import algorithm_of, fit_scaled
from .scaling import AsTheyAre, Units, scales_of


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much of the score of one row each feature carries.

    Attributes
    ----------
    shares : float array of shape (d,)
        They add up to 1; all 0 where no feature alone makes a difference.
    how : str
        What they are shares of, to follow "Shares are of ".
    """

    shares: FloatArray
    how: str


def in_shares(parts: FloatArray, how: str) -> Attribution | None:
    """Divide parts that are not negative by their sum; None where that is no number.

    Examples
    --------
    >>> in_shares(np.array([3.0, 1.0]), "the distance").shares
    array([0.75, 0.25])
    """
    largest = parts.max(initial=0.0)
    if not np.isfinite(largest) or np.isnan(parts).any():
        return None
    if largest > 0:
        parts = parts / largest  # sums of large numbers overflow
        parts = parts / parts.sum()
    return Attribution(np.asarray(parts), how)


def nearest(x: FloatArray, rows: FloatArray, count: int, power: float = 2.0) -> IndexArray:
    """Find the rows that are nearest to a row, the nearest first.

    Examples
    --------
    >>> nearest(np.array([0.0, 0.0]), np.array([[3.0, 0.0], [1.0, 1.0], [9.0, 9.0]]), 2)
    array([1, 0])
    """
    with np.errstate(over="ignore"):
        far = (np.abs(rows - x) ** power).sum(axis=1)
    first = np.argpartition(far, min(count, len(far)) - 1)[:count]
    return np.asarray(first[np.argsort(far[first], kind="stable")])


def by_differences(
    x: FloatArray, rows: FloatArray, how: str, power: float = 2.0
) -> Attribution | None:
    """Share out the distances of a row to others, raised to a power, among the features."""
    differences = np.abs(rows - x)
    with np.errstate(invalid="ignore"):
        scaled = differences / max(float(differences.max(initial=0.0)), np.finfo(np.float64).tiny)
    return in_shares((scaled**power).sum(axis=0), how)


def distance_in_words(power: float) -> str:
    """Name the sum over features that a Minkowski distance is a root of.

    Examples
    --------
    >>> distance_in_words(2.0), distance_in_words(1.0), distance_in_words(3.0)
    ('the squared distance', 'the distance', 'the distance to the power of 3')
    """
    words = {1.0: "the distance", 2.0: "the squared distance"}
    return words.get(float(power), f"the distance to the power of {power:g}")


def nth_nearest(k: int) -> str:
    """Name a neighbour.

    Examples
    --------
    >>> nth_nearest(1), nth_nearest(2), nth_nearest(11), nth_nearest(23)
    ('the nearest', 'the 2nd nearest', 'the 11th nearest', 'the 23rd nearest')
    """
    if k == 1:
        return "the nearest"
    ending = {1: "st", 2: "nd", 3: "rd"}.get(k % 10, "th") if k % 100 not in (11, 12, 13) else "th"
    return f"the {k}{ending} nearest"


REPLACED = (
    "what the score rises by when one feature alone is set to its median among the nearest normal "
    "rows"
)


def by_replacing(as_it_is: float, replaced: FloatArray) -> Attribution | None:
    """Share out the rise of a score among the features that were replaced one at a time.

    Parameters
    ----------
    as_it_is : float
        Score of the row, small = anomalous.
    replaced : float array of shape (d,)
        Its score with each feature replaced; `as_it_is` where a feature is typical already.

    Returns
    -------
    Attribution or None
        Features without which the row would score lower still have no share. None where scores
        are infinite.

    Examples
    --------
    >>> by_replacing(-9.0, np.array([-3.0, -7.0, -9.5])).shares
    array([0.75, 0.25, 0.  ])
    """
    with np.errstate(invalid="ignore"):
        rises = replaced - as_it_is
    return in_shares(np.maximum(rises, 0.0), REPLACED)


# Up to this many rows separate leave-one-out fits are cheap, and they vary less from seed to seed.
SHARE_ABOVE = 1000


def rows_drawn(max_samples: Any, n_rows: int, *, auto: int) -> int:
    """Work out how many of `n_rows` rows `max_samples` asks for: never more than there are.

    Examples
    --------
    >>> [rows_drawn(given, 100, auto=8) for given in ("auto", 500, 0.255)]
    [8, 100, 25]
    """
    if isinstance(max_samples, str):
        if max_samples != "auto":
            raise unknown_choice("max_samples", max_samples, ["auto"])
        return min(auto, n_rows)
    if isinstance(max_samples, numbers.Integral):
        return min(check_count("max_samples", max_samples, least=1), n_rows)
    if not isinstance(max_samples, numbers.Real) or not 0 < float(max_samples) <= 1:
        raise ReconformError(
            "max_samples must be 'auto', a number of rows, or a share in (0, 1]; "
            f"got {max_samples!r}."
        )
    drawn = int(float(max_samples) * n_rows)
    if drawn < 1:
        raise ReconformError(
            f"max_samples={max_samples!r} of {n_rows} training rows is less than one row; "
            "give a larger share, or a number of rows."
        )
    return drawn


def wants_sharing(share: Any, n_rows: int) -> bool:
    """Say whether leave-one-out models on so many rows are to share their draws.

    Examples
    --------
    >>> wants_sharing("auto", 1000), wants_sharing("auto", 1001), wants_sharing(True, 10)
    (False, True, True)
    """
    if isinstance(share, bool | np.bool_):
        return bool(share)
    if not isinstance(share, str) or share != "auto":
        raise ReconformError(f"share must be 'auto', True or False; got {share!r}.")
    return n_rows > SHARE_ABOVE


class NativeDetector(OutlierMixin, BaseEstimator, ABC):
    """A scikit-learn outlier detector that also fits all models of a plan.

    Attributes
    ----------
    offset_ : float
        `score_samples` below it is an outlier; set so that a share `contamination` of the
        training rows is.
    units_ : int array
        Exponents of the scales, for a detector that scales.
    n_features_in_ : int
    feature_names_in_ : array of str
    """

    contamination: float = 0.1

    # What `ConformalDetector` asks of any detector.
    accepts_nan = False
    frozen = False
    # Whether lists compare new rows with each other, and the plans that such a detector fits.
    uses_batch = False
    chooses = False
    # Compiled code, for which threads are quicker than joblib's processes.
    in_threads = False
    # Whether all rows are learned from at no cost, where others of a choice take a part of them.
    counts_all = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True  # as an array
        return tags

    @abstractmethod
    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        """Fit one model on validated rows, drawing from `seed` only; set fitted attributes."""

    @abstractmethod
    def _score_rows(self, X: FloatArray) -> FloatArray:
        """Score validated rows, each by itself; small = anomalous."""

    def _training_scores(self, X: FloatArray) -> FloatArray:
        """Score the training rows, all alike; for `offset_` and full-conformal ranks."""
        return self._score_rows(X)

    def _offset_scores(self, X: FloatArray) -> FloatArray:
        """Score the training rows for `offset_`, if that is to be done otherwise."""
        return self._training_scores(X)

    def _fit_together(
        self, X: FloatArray, plan: Plan, seeds: Sequence[np.random.SeedSequence], verbose: int
    ) -> Ensemble | None:
        """Fit all models of a plan quicker than one by one; None where there is no quicker way."""
        return None

    def _units(self) -> Units | None:
        """In which units the rows of a model are measured before it is fitted; None: as they are.

        A parameter `scale` asks for it, and all other methods of a detector are then
        told only of rows that are measured, by an object with ``scale="none"``.
        """
        scales = scales_of(self)
        return None if isinstance(scales, AsTheyAre) else scales

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """Say which features carry the score of a row, by the training rows; see `attribution`."""
        return None

    @classmethod
    def has_shortcut(cls) -> bool:
        """Whether some plans are fitted quicker than model by model."""
        return cls._fit_together is not NativeDetector._fit_together

    @classmethod
    def takes(cls, detector: Any) -> bool:
        """Whether an object of another library is the same algorithm, for `from_pyod`."""
        return False

    @classmethod
    def from_pyod(cls, detector: Any) -> Self:
        """Make the detector with the parameters of PyOD's; the numbers are the same."""
        given = detector.get_params()
        return cls(**{name: given[name] for name in cls._get_param_names() if name in given})

    @property
    def name(self) -> str:
        """What to call it in messages."""
        return type(self).__name__

    # --- all models of a plan --------------------------------------------------------------------

    def fit_plan(
        self,
        X: FloatArray,
        plan: Plan,
        seeds: Sequence[np.random.SeedSequence],
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Ensemble:
        """Fit all models of a plan.

        The numbers are those of separate fits with these seeds. Where models share draws to save
        work, each has the law of a separate fit.

        Parameters
        ----------
        X : float array of shape (n, d)
            Validated rows.
        plan : Plan
        seeds : sequence of SeedSequence
            One per resampled model, and a last one for A(D), for models that share draws and for
            full-conformal ranks.
        n_jobs : int, optional
            Threads or jobs; by default the detector's own parameter.
        verbose : int
            With 1, show a progress bar where it takes long.

        Returns
        -------
        Ensemble
        """
        wanted = "takes_choice" if self.chooses else "augments"
        if self.uses_batch and not getattr(plan.row, wanted):
            rows = [row for row in METHODS.values() if getattr(row, wanted)]
            possible = " or ".join(f"`method={row.name!r}`" for row in rows)
            raise ReconformError(
                f"detector {self.name} compares new rows with each other, which works with "
                f"{possible} only. Use that, or `detector='knn'`, which compares with reference "
                "rows only."
            )
        X = np.ascontiguousarray(X, dtype=np.float64)
        algorithm: Self = clone(self)
        n_jobs = getattr(self, "n_jobs", None) if n_jobs is None else n_jobs
        if hasattr(algorithm, "n_jobs"):
            algorithm.n_jobs = n_jobs
        if plan.row.fits_batch:
            return fit_pooled(algorithm, X, seeds[-1])
        if algorithm._units() is not None:
            return fit_scaled(algorithm, X, plan, seeds, n_jobs=n_jobs, verbose=verbose)
        together = algorithm._fit_together(X, plan, seeds, verbose)
        if together is not None:
            return together
        if plan.row.augments:
            return fit_full(algorithm, X, seeds[-1], n_jobs=n_jobs, verbose=verbose)
        return refit(algorithm, X, plan, seeds, n_jobs=n_jobs, verbose=verbose)

    def for_pool(
        self, reference: FloatArray, X: FloatArray
    ) -> tuple[Algorithm, FloatArray, FloatArray]:
        """Return what is fitted on reference and new rows together, and both as it sees them.

        All that tells new rows from the reference here are their numbers.
        """
        detector: NativeDetector = self._among(len(reference), len(X))
        units = detector._units()
        if units is not None:
            detector, reference, X = units.together(reference, X)
        return algorithm_of(detector), reference, X

    def _among(self, n: int, m: int) -> Self:
        """The detector for one fit on n reference and m new rows, of which some are anomalies.

        By default as it is.
        """
        return self

    def fit_model(self, X: FloatArray, seed: np.random.SeedSequence) -> Model:
        """Fit one model of a plan on validated rows, in the order of their contents."""
        fresh = copy.copy(self)
        fresh.n_features_in_ = X.shape[1]
        fresh._fit_rows(sorted_by_content(X)[0], seed)
        return NativeModel(fresh)

    def check_model(self, model: Model, X: FloatArray) -> None:
        """Refuse a model whose score of a row depends on the rest of the batch."""
        if isinstance(model, NativeModel):  # lean models are covered by the detector's own tests
            probe_batch_dependence(model, X, name=self.name)

    def training_scores(self, model: Model, X: FloatArray) -> FloatArray:
        """Score the rows that a model was fitted on, all alike; equal rows score alike."""
        if not isinstance(model, NativeModel):
            return model.score_samples(X)
        rows, order = sorted_by_content(X)
        scores = checked_scores(model.detector._training_scores(rows), len(X), name=self.name)
        return scores_by_content(X, order, scores)

    # --- explanations ----------------------------------------------------------------------------

    def attribution(self, x: FloatArray, reference: FloatArray) -> Attribution | None:
        """Say which features carry the score of a row: a description, not a theorem.

        Parameters
        ----------
        x : float array of shape (d,)
            A validated row.
        reference : float array of shape (n, d)
            Validated rows that a model is, or could have been, fitted on.

        Returns
        -------
        Attribution or None
            None where the score is no sum over features: replacing them one at a time then says
            more (`reconform.detectors.base.by_replacing`).
        """
        ways = self._units()
        if ways is None:
            return self._carried(x, reference)
        units = ways.of(reference)
        rows, row = ways.measure(reference, units), ways.measure(x[None], units)[0]
        found = ways.plain(units).attribution(row, rows)
        if found is None:
            return None
        columns = ways.columns(units, len(x))
        parts = np.zeros(len(x))
        np.add.at(parts, columns, found.shares)
        return in_shares(parts, found.how)

    # --- scikit-learn's interface ----------------------------------------------------------------

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
        rows = validated_rows(self, X, ensure_min_samples=2, ensure_all_finite=self._finite)
        rows = self._measured(rows, reset=True)
        self._fit_rows(rows, root_seed(getattr(self, "random_state", None)))
        # Numbers whose squares overflow have infinite scores, between which there is no quantile.
        largest = np.finfo(np.float64).max
        scores = np.clip(self._offset_scores(rows), -largest, largest)
        self.offset_ = float(np.quantile(scores, self.contamination))
        return self

    def score_samples(self, X: npt.ArrayLike) -> FloatArray:
        """Score rows; small = anomalous.

        Parameters
        ----------
        X : array-like or frame of shape (m, d)

        Returns
        -------
        float array of shape (m,)
        """
        check_is_fitted(self, "offset_")
        rows = validated_rows(self, X, reset=False, ensure_all_finite=self._finite)
        return self._score_rows(self._measured(rows, reset=False))

    @property
    def _finite(self) -> str | bool:
        """What numbers scikit-learn's check lets pass."""
        return "allow-nan" if self.accepts_nan else True

    def _measured(self, X: FloatArray, *, reset: bool) -> FloatArray:
        """Rows in the units of the model; with `reset`, the units are learned from them."""
        units = self._units()
        if units is None:
            return X
        if reset:
            self.units_ = units.of(X)
        return units.measure(X, self.units_)

    def decision_function(self, X: npt.ArrayLike) -> FloatArray:
        """Return `score_samples` minus `offset_`: negative for outliers."""
        return np.asarray(self.score_samples(X) - self.offset_)

    def predict(self, X: npt.ArrayLike) -> IntArray:
        """Return +1 for normal rows and -1 for outliers."""
        return np.where(self.decision_function(X) >= 0, 1, -1).astype(np.int64)


class ModelDetector(NativeDetector):
    """A detector whose models are lean objects: all that it has to say is how to fit one."""

    _fitted: Any

    @abstractmethod
    def _model(self, X: FloatArray) -> Any:
        """Fit one model, with `score_samples` and `training_scores`; nothing is drawn."""

    def fit_model(self, X: FloatArray, seed: np.random.SeedSequence) -> Model:
        """Fit one model of a plan."""
        model: Model = self._model(X)
        return model

    def training_scores(self, model: Any, X: FloatArray) -> FloatArray:
        """Score the rows that a model was fitted on, all alike."""
        scores: FloatArray = model.training_scores(X)
        return scores

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        self._fitted = self._model(X)

    def _score_rows(self, X: FloatArray) -> FloatArray:
        scores: FloatArray = self._fitted.score_samples(X)
        return scores

    def _training_scores(self, X: FloatArray) -> FloatArray:
        return self.training_scores(self._fitted, X)


@dataclass(frozen=True, eq=False)
class NativeModel:
    """One model of a plan: a fitted copy of the detector, asked without validating rows again.

    Attributes
    ----------
    detector : NativeDetector
        `_fit_rows` has been called; `offset_`, which no plan needs, is not set.
    """

    detector: NativeDetector

    @property
    def in_threads(self) -> bool:
        """As the detector says."""
        return self.detector.in_threads

    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous; refuse what is not one number per row."""
        scores = self.detector._score_rows(X)
        return checked_scores(scores, len(X), name=self.detector.name)
