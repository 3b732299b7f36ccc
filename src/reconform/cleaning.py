"""A reference that may hold anomalies: its most unusual rows, for a person to look at.

Rows leave only if a person has marked them: every reference has most unusual rows, and without them
p-values of normal rows are too small.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .arrays import FloatArray, IndexArray
from .assumption.contamination import ANCHORS, unusual
from .detector import ConformalDetector
from .errors import ReconformError


@dataclass(frozen=True, eq=False)
class Review:
    """The reference rows, each scored by models that have not seen it.

    Attributes
    ----------
    scores : float array of shape (n,)
        By row of the reference; small = anomalous.
    p_values : float array of shape (n,)
        The share of reference rows with at most this score: 1/n for the most unusual row, if no
        other has its score. It says where a row stands; it is no test of the row.
    order : int array of shape (n,)
        Positions of the rows, the most unusual first; rows of one score in the order of the
        reference.
    """

    scores: FloatArray
    p_values: FloatArray
    order: IndexArray

    def __len__(self) -> int:
        return len(self.scores)


def review(cad: ConformalDetector) -> Review:
    """Rank the reference rows of a fitted detector by their held-out scores.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, with a method that holds out every row: full, jackknife, jackknife+, cv, cv+, jab,
        jab+ or `Resampling`.

    Returns
    -------
    Review

    Notes
    -----
    Who leaves depends on the reference. If the marked rows are all of its anomalies and no normal
    rows, what is proven of a clean reference is proven; otherwise the level is measured, not
    proven. Say `left_out` to `fit`, and every list says it. Leaving out rows that nobody marked is
    not valid.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector, review
    >>> rng = np.random.default_rng(0)
    >>> dirty = np.vstack([rng.normal(size=(296, 2)), rng.normal(6, 1, size=(4, 2))])
    >>> new = np.vstack([rng.normal(size=(95, 2)), rng.normal(6, 1, size=(5, 2))])
    >>> cad = ConformalDetector("knn", "jackknife+", random_state=0).fit(dirty)
    >>> cad.discover(new).count
    0
    >>> seen = review(cad)
    >>> np.sort(seen.order[:4])
    array([296, 297, 298, 299])

    Somebody looked at them and says that four of them are anomalies:

    >>> normal = np.delete(dirty, [296, 297, 298, 299], axis=0)
    >>> cleaned = ConformalDetector("knn", "jackknife+", random_state=0)
    >>> found = cleaned.fit(normal, left_out=4).discover(new)
    >>> found.count
    5
    >>> found.guarantee[:91]
    'Measured, not proven: 4 of 300 reference rows were marked as anomalies and left out. (If th'
    """
    check_is_fitted(cad, "ensemble_")
    n, calibration = cad.plan_.n, cad.calibration_
    if cad.plan_.row.one_model:
        raise ReconformError(
            f"every reference row needs a score by models that have not seen it, and "
            f"{cad.plan_.scheme} has one of the calibration rows only: the rows that train its "
            "model would not be looked at. Use `method='jackknife+'` or `method='full'`."
        )
    if len(calibration) < n:
        raise ReconformError(
            f"every reference row needs a score by models that have not seen it, and "
            f"{n - len(calibration):,} of {n:,} rows were held out by none. Give more `draws`, or "
            "`method='jackknife+'`."
        )
    scores = np.empty(n)
    scores[calibration.rows] = calibration.scores
    at_most = np.searchsorted(calibration.sorted_scores, scores, side="right")
    return Review(scores, at_most / n, np.argsort(scores, kind="stable"))


def to_look_at(seen: Review, X: FloatArray) -> IndexArray:
    """Order the reference rows for a person to look at.

    Anomalies that resemble each other make each other normal for a detector that looks at a few
    neighbours. So a row is as urgent as the more urgent of its places in two orders: that of its
    held-out score, and that of its distance to the nearest 5 % of the reference (standardised,
    from a sample), which fewer such rows cannot make small.

    Parameters
    ----------
    seen : Review
    X : float array of shape (n, d)
        The reference rows; missing numbers are NaN.

    Returns
    -------
    int array
        Positions, the most urgent first.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> alike = rng.normal(6, 0.01, size=(10, 2))
    >>> X = np.vstack([rng.normal(size=(290, 2)), alike])
    >>> seen = review(ConformalDetector("knn", "jackknife+").fit(X))
    >>> int(np.sum(seen.order[:20] >= 290)), int(np.sum(to_look_at(seen, X)[:20] >= 290))
    (0, 10)
    """
    n = len(seen)
    some = np.random.default_rng(0).permutation(n)[:ANCHORS]
    Z = _standardised(X)
    far = unusual(Z, Z[:0], some)[0] if n > 2 else np.zeros(n)
    by_score, by_distance = (np.argsort(order) for order in (seen.order, np.argsort(-far)))
    return np.lexsort([by_score, np.minimum(by_score, by_distance)])


def _standardised(X: FloatArray) -> FloatArray:
    """Columns of mean 0 and standard deviation 1; missing numbers at the mean."""
    known = ~np.isnan(X)
    count = np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, X - np.where(known, X, 0.0).sum(axis=0) / count, 0.0)
    spread = np.sqrt((centred**2).sum(axis=0) / count)
    return np.asarray(centred / np.where(spread > 0, spread, 1.0))
