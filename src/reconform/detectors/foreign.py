"""Other people's detectors, turned to one convention: small = anomalous.

The direction of scores follows from the interface, never from the data:

- ``score_samples`` means scikit-learn's convention, large = normal;
- ``decision_function`` of a PyOD detector means large = anomalous, of a scikit-learn outlier
  detector large = normal;
- a bare function ``fit(X) -> score(X)`` says nothing, so `larger_is` must.

Scores that a detector keeps of its own training rows are read only where their direction is known
to be that of the method above: ``decision_scores_`` of PyOD, ``negative_outlier_factor_`` of
scikit-learn.
"""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from ..arrays import FloatArray
from ..content import scores_by_content, sorted_by_content
from ..ensemble import Ensemble
from ..ensemble.batch import fit_pooled
from ..ensemble.refitting import (
    Model,
    allows_nan,
    calibrate_fitted,
    checked_scores,
    fit_full,
    model_seeds,
    probe_batch_dependence,
    refit,
    seed_model,
)
from ..errors import ReconformError, blame_input, unknown_choice
from ..frames import FrameRows
from ..methods import Plan
from .base import NativeDetector

LARGER_IS = ("anomalous", "normal")


@dataclass(frozen=True)
class FittedDetector:
    """A fitted model that scores rows, small = anomalous.

    Attributes
    ----------
    model : object
        The foreign model.
    score_name : str or None
        Its method that scores; None if the model itself is the scoring function.
    sign : int
        +1 if its large scores mean normal, -1 if they mean anomalous.
    name : str
        What to call it in messages.
    """

    model: Any
    score_name: str | None
    sign: int
    name: str

    @blame_input()
    def score_samples(self, X: FloatArray) -> FloatArray:
        """Score rows, small = anomalous; refuse what is not one number per row."""
        score = self.model if self.score_name is None else getattr(self.model, self.score_name)
        rows = X.frame if isinstance(X, FrameRows) else X
        scores = checked_scores(score(rows), len(X), name=self.name)
        return scores if self.sign > 0 else -scores


@dataclass(frozen=True)
class ForeignDetector:
    """An unfitted algorithm A from elsewhere; `fit` makes one model of it.

    Attributes
    ----------
    template : object
        The estimator or function as the user gave it; never fitted itself.
    score_name, sign, name
        As in `FittedDetector`.
    """

    template: Any
    score_name: str | None
    sign: int
    name: str

    @property
    def training_name(self) -> str | None:
        """The fitted attribute with leave-one-out style scores of the training rows, if any.

        Of the same direction as `score_name`, and a matter of the class: a file need not say it.
        """
        inner = _innermost(self.template)
        if self.score_name == "decision_function" and _is_pyod(inner):
            return "decision_scores_"
        if self.score_name == "score_samples" and _is_local_outlier_factor(inner):
            return "negative_outlier_factor_"
        return None

    @property
    def accepts_nan(self) -> bool:
        """Whether the detector says that it can handle missing values."""
        return allows_nan(self.template)

    @property
    def takes_frames(self) -> bool:
        """Whether a frame is given to it as it is: to a pipeline, and to what has seen names."""
        return bool(getattr(_thawed(self.template), "steps", None)) or self.known_names is not None

    @property
    def known_names(self) -> list[str] | None:
        """The columns of the frame that a fitted detector was fitted on."""
        names = getattr(_thawed(self.template), "feature_names_in_", None)
        return None if names is None else [str(name) for name in names]

    @property
    def chooses_columns(self) -> bool:
        """Whether it may leave columns of a frame out, or make something of dates.

        A pipeline that starts with a ColumnTransformer or a function may, and so may a class that
        scikit-learn does not have.
        """
        first = _thawed(self.template)
        while getattr(first, "steps", None):
            first = _thawed(first.steps[0][1])
        of_others = type(first).__module__.partition(".")[0] not in ("sklearn", "pyod", "builtins")
        return of_others or any(
            hasattr(first, part) for part in ("transformers", "transformer_list", "func")
        )

    @property
    def frozen(self) -> bool:
        """Whether the detector was frozen, that is, must not be fitted again."""
        return _is_frozen(self.template)

    @blame_input()
    def fit_model(self, X: FloatArray, seed: np.random.SeedSequence) -> FittedDetector:
        """Fit a fresh copy with its own stream of randomness."""
        X, _ = sorted_by_content(X)
        if isinstance(X, FrameRows):
            X = X.frame
        if self.score_name is None:
            keywords = {}
            if "random_state" in inspect.signature(self.template).parameters:
                keywords["random_state"] = model_seeds(seed, 1)[0]
            return self.fitted(self.template(X, **keywords))
        if hasattr(self.template, "get_params"):
            model = clone(self.template)
        else:
            model = copy.deepcopy(self.template)
        seed_model(model, seed)
        result = model.fit(X)
        return self.fitted(model if result is None else result)

    def check_model(self, model: Model, X: FloatArray) -> None:
        """Refuse a model whose score of a row depends on the rest of the batch."""
        probe_batch_dependence(model, X, name=self.name)

    def fit_plan(
        self,
        X: FloatArray,
        plan: Plan,
        seeds: Sequence[np.random.SeedSequence],
        *,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> Ensemble:
        """Fit every model of a plan on its own; with prefit, calibrate the model there is."""
        if plan.row.frozen:
            model = self.fitted(self.template)
            self.check_model(model, X)
            return calibrate_fitted(model, X, plan, n_jobs=n_jobs)
        if plan.row.fits_batch:
            return fit_pooled(self, X, seeds[-1])
        if plan.row.augments:
            return fit_full(self, X, seeds[-1], n_jobs=n_jobs, verbose=verbose)
        return refit(self, X, plan, seeds, n_jobs=n_jobs, verbose=verbose)

    def training_scores(self, model: Model, X: FloatArray) -> FloatArray:
        """Score the training rows, by the detector's own leave-one-out style scores if any.

        Equal rows score alike, whatever the detector makes of them.
        """
        rows, order = sorted_by_content(X)
        return scores_by_content(X, order, self._own_scores(model, rows))

    def _own_scores(self, model: Model, X: FloatArray) -> FloatArray:
        """Scores of the training rows as the model saw them."""
        if self.training_name is not None:
            inner = _innermost(getattr(model, "model", model))
            scores = np.asarray(getattr(inner, self.training_name, ()), dtype=np.float64)
            if scores.shape == (len(X),) and not np.isnan(scores).any():
                return scores if self.sign > 0 else -scores
        return model.score_samples(X)

    def fitted(self, model: Any) -> FittedDetector:
        """Wrap a model that is fitted already."""
        return FittedDetector(model, self.score_name, self.sign, self.name)


def adapt(detector: Any, larger_is: str | None = None) -> ForeignDetector:
    """Turn any detector to the convention small = anomalous.

    Parameters
    ----------
    detector : object or callable
        A scikit-learn outlier detector or a pipeline ending in one, a PyOD detector, an object
        with ``fit`` and ``score_samples``, or a function ``fit(X) -> score(X)``.
    larger_is : {"anomalous", "normal"}, optional
        What a large score means; by default it follows from the interface.

    Examples
    --------
    >>> from sklearn.svm import OneClassSVM
    >>> adapted = adapt(OneClassSVM())
    >>> adapted.score_name, adapted.sign
    ('score_samples', 1)
    """
    if larger_is is not None and larger_is not in LARGER_IS:
        raise unknown_choice("larger_is", larger_is, LARGER_IS)
    stated = None if larger_is is None else (1 if larger_is == "normal" else -1)
    name = getattr(detector, "__name__", None) or type(detector).__name__
    if isinstance(detector, type):
        raise ReconformError(f"detector must be an object; got the class {name}. Write {name}().")

    inner = _innermost(detector)
    if isinstance(inner, NativeDetector) and inner.uses_batch:
        raise ReconformError(
            f"detector {type(inner).__name__} compares new rows with each other, and is used as it "
            "is: not in a pipeline, not with `larger_is`, and not with `method='prefit'`. Give the "
            f"detector itself (its `scale='robust'` scales), or use KNN() in its place."
        )
    if _goes_by_order(inner):
        raise ReconformError(
            f"detector {type(inner).__name__} scores a row by the rows before and after it, and "
            "conformal p-values need scores that do not depend on the order of rows. Use one that "
            "scores single rows, and put what came before a row into columns of its own."
        )
    if not hasattr(detector, "fit"):
        return _adapt_function(detector, stated, name)
    if _is_pyod(inner):
        return ForeignDetector(detector, "decision_function", stated or -1, name)
    if hasattr(detector, "score_samples"):
        return ForeignDetector(detector, "score_samples", stated or 1, name)
    if getattr(inner, "novelty", None) is False:
        raise ReconformError(
            f"detector {inner!r} can only score the rows it was fitted on; "
            f"use {type(inner).__name__}(novelty=True)."
        )
    if hasattr(detector, "decision_function"):
        if stated is None and not _is_outlier_detector(detector):
            raise ReconformError(
                f"detector {name} has a decision_function, but its interface does not say whether "
                "large scores are anomalous or normal; state larger_is='anomalous' or 'normal'."
            )
        return ForeignDetector(detector, "decision_function", stated or 1, name)
    raise ReconformError(
        f"detector must have score_samples or decision_function besides fit; {name} has neither. "
        "A function fit(X) that returns a function score(X) will do as well."
    )


def _adapt_function(function: Any, stated: int | None, name: str) -> ForeignDetector:
    if not callable(function):
        from .registry import named  # which imports the detectors, and they this package

        raise ReconformError(
            f"detector must be {named('or')}, an estimator with fit and score_samples, or a "
            f"function fit(X) -> score(X); got {function!r}."
        )
    if stated is None:
        raise ReconformError(
            f"detector {name} is a bare function, and a function does not say which of its scores "
            "are anomalous; state larger_is='anomalous' or larger_is='normal'."
        )
    return ForeignDetector(function, None, stated, name)


def _innermost(detector: Any) -> Any:
    """Return the detector at the end of a pipeline or inside a frozen estimator."""
    while True:
        if isinstance(detector, FrozenEstimator):
            detector = detector.estimator
        elif hasattr(detector, "steps") and detector.steps:
            detector = detector.steps[-1][1]
        else:
            return detector


def _thawed(detector: Any) -> Any:
    """The estimator inside a frozen one."""
    return detector.estimator if isinstance(detector, FrozenEstimator) else detector


def _is_frozen(detector: Any) -> bool:
    """Whether the detector, or the one that ends a pipeline, must not be fitted again."""
    if isinstance(detector, FrozenEstimator):
        return True
    return bool(getattr(detector, "steps", None)) and _is_frozen(detector.steps[-1][1])


def _is_local_outlier_factor(thing: Any) -> bool:
    # Where the module was never imported, nothing is of its class: it is slow to import.
    module = sys.modules.get("sklearn.neighbors")
    return module is not None and isinstance(thing, module.LocalOutlierFactor)


def _is_pyod(detector: Any) -> bool:
    # By ancestry and not by isinstance: PyOD is optional and slow to import.
    return any(
        base.__name__ == "BaseDetector" and base.__module__.split(".")[0] == "pyod"
        for base in type(detector).__mro__
    )


def _goes_by_order(detector: Any) -> bool:
    # PyOD's detectors for time series; sorted rows, as all but split sees them, are no series.
    return any(base.__module__.startswith("pyod.models.ts_") for base in type(detector).__mro__)


def _is_outlier_detector(detector: Any) -> bool:
    try:
        return bool(get_tags(detector).estimator_type == "outlier_detector")
    except Exception:  # no tags, no promise
        return False
