"""Weights for a covariate shift: how much more often rows of a kind come among new normal rows.

The reference may be right and its proportions wrong: machine types, seasons or customers come in
another mix. If w(x), the density of normal new rows over that of reference rows, is known, p-values
and lists can be weighted and stay exact; if it is estimated, they are measured only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .arrays import FloatArray
from .errors import ReconformError

# No weight of an estimate is further from 1 than by this factor.
CLIP = 20.0
FOLDS = 5
# Weights that leave less of the reference than this share are not worth using.
LEAST_SHARE = 0.1
LEAST_ROWS = 30
MOST_CLIPPED = 0.1


@dataclass(frozen=True, eq=False)
class Weights:
    """Weights of reference rows and new rows, for `ConformalDetector.discover`.

    Parameters
    ----------
    reference : array-like of shape (n,)
        Of all rows that `fit` gets, in their order: how much more often such a row comes among
        normal new rows. Any factor that all weights share changes nothing.
    new : array-like of shape (m,)
        Of the new rows.
    known : bool, default=True
        Whether they are the true weights, fixed without looking at these rows. What is promised of
        a list depends on it; `Weights.estimate` sets it to False.
    clipped : int, default=0
        How many weights of an estimate were cut off.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector, Weights
    >>> rng = np.random.default_rng(0)
    >>> normal = rng.normal(size=(500, 2))
    >>> new = rng.normal(size=(100, 2)) + [1.0, 0.0]       # the same process, another mix
    >>> new[:5] = [0.0, 9.0]
    >>> w = lambda X: np.exp(X[:, 0])                      # the density of N(1, 1) over N(0, 1)
    >>> weights = Weights(w(normal), w(new))
    >>> round(weights.effective_size) < 250
    True
    >>> cad = ConformalDetector("knn", "full").fit(normal)
    >>> bool(cad.discover(new, weights=weights).mask[:5].all())
    True
    """

    reference: FloatArray = field(repr=False)
    new: FloatArray = field(repr=False)
    known: bool = True
    clipped: int = 0

    def __post_init__(self) -> None:
        for name in ("reference", "new"):
            object.__setattr__(self, name, _checked(name, getattr(self, name)))
        if not (self.reference > 0).any():
            raise ReconformError(
                "weights of the reference rows are all 0: none of them could be a normal new row. "
                "Take another reference."
            )

    @classmethod
    def estimate(cls, reference: npt.ArrayLike, new: npt.ArrayLike, classifier: Any = None) -> Self:
        """Estimate weights by a classifier that tells new rows from reference rows.

        Every row is weighted by a classifier that has not seen it. Anomalies among the new rows are
        new rows, too: weights are clipped to 1/20 and 20, and what is promised of the list is
        measured only.

        Parameters
        ----------
        reference : array-like of shape (n, d)
            The rows that `fit` gets.
        new : array-like of shape (m, d)
        classifier : scikit-learn classifier with `predict_proba`, optional
            By default logistic regression on standardised columns, missing values at the mean.

        Returns
        -------
        Weights

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> weights = Weights.estimate(rng.normal(size=(400, 2)), rng.normal(size=(200, 2)) + 0.5)
        >>> weights.known, weights.usable
        (False, True)
        """
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        ours, theirs = np.asarray(reference, dtype=float), np.asarray(new, dtype=float)
        if ours.ndim != 2 or theirs.ndim != 2 or ours.shape[1] != theirs.shape[1]:
            raise ReconformError(
                "weights are estimated from tables with the same columns; got shapes "
                f"{ours.shape} and {theirs.shape}."
            )
        if min(len(ours), len(theirs)) < FOLDS:
            raise ReconformError(
                f"weights are estimated from at least {FOLDS} rows of both tables; got "
                f"{len(ours):,} and {len(theirs):,}."
            )
        rows = np.vstack([ours, theirs])
        is_new = np.repeat([0, 1], [len(ours), len(theirs)])
        chance = cross_val_predict(
            _usual_classifier() if classifier is None else classifier,
            rows,
            is_new,
            cv=StratifiedKFold(FOLDS, shuffle=True, random_state=0),
            method="predict_proba",
        )[:, 1]
        with np.errstate(divide="ignore"):
            odds = chance / (1.0 - chance) * (len(ours) / len(theirs))
        weights = np.clip(odds, 1.0 / CLIP, CLIP)
        return cls(weights[: len(ours)], weights[len(ours) :], False, int(np.sum(weights != odds)))

    @property
    def effective_size(self) -> float:
        """How many reference rows of equal weight would be worth as much: (Σw)² / Σw²."""
        return self.effective_size_of(slice(None))

    def effective_size_of(self, rows: Any) -> float:
        """The effective size of some of the reference rows, such as those that calibrate."""
        w = self.reference[rows] / self.reference.max()
        squares = float((w**2).sum())
        return float(w.sum() ** 2 / squares) if squares else 0.0

    @property
    def usable(self) -> bool:
        """Whether enough of the reference is left: at least 30 rows' worth, and a tenth of it.

        An estimate of which more than a tenth was clipped is not: the tables hardly overlap.
        """
        enough = self.effective_size >= max(LEAST_ROWS, LEAST_SHARE * len(self.reference))
        return enough and self.clipped <= MOST_CLIPPED * (len(self.reference) + len(self.new))

    @property
    def constant(self) -> bool:
        """Whether all weights are the same: then there is nothing to weigh."""
        every = np.append(self.reference, self.new)
        return bool((every == every[0]).all())

    def __str__(self) -> str:
        how = "known" if self.known else "estimated"
        cut = f"; {self.clipped:,} were clipped" if self.clipped else ""
        return f"Weights are {how}{cut}. {self.remains}"

    @property
    def remains(self) -> str:
        """What the weights leave of the reference, in a sentence."""
        poor = "" if self.usable else ": too little of the reference is like the new rows"
        return (
            f"{len(self.reference):,} weighted reference rows count as much as "
            f"{self.effective_size:,.0f} of equal weight{poor}."
        )

    def check_sizes(self, n: int, m: int) -> None:
        """Refuse weights of other rows."""
        if len(self.reference) != n:
            raise ReconformError(
                f"weights.reference must have one weight per row that `fit` got, {n:,}; got "
                f"{len(self.reference):,}."
            )
        if len(self.new) != m:
            raise ReconformError(
                f"weights.new must have one weight per new row, {m:,}; got {len(self.new):,}."
            )


def _checked(name: str, values: npt.ArrayLike) -> FloatArray:
    weights = np.asarray(values, dtype=float)
    if weights.ndim != 1:
        raise ReconformError(f"weights.{name} must be one number per row; got {weights.shape}.")
    bad = np.flatnonzero(~np.isfinite(weights) | (weights < 0))
    if len(bad):
        raise ReconformError(
            f"weights.{name} must be finite and not negative; row {bad[0]:,} (from 0) has "
            f"{weights[bad[0]]}."
        )
    return weights


def _usual_classifier() -> Any:
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        SimpleImputer(keep_empty_features=True), StandardScaler(), LogisticRegression(max_iter=300)
    )
