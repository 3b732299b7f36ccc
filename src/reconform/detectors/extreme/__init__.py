"""Extreme: how far the farthest of a row's values lies out in its column.

Every column is measured from its median, in units of the mean distance of the fifth of the rows
that lie farthest out: a column that has far values of its own must go farther to be unusual. One
column is enough, and columns that say nothing take little away, which suits few rows of many
columns, such as windows of a time series (`reconform.timeseries`).
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...records import SCORES, DetectorRecord
from ..base import Attribution, NativeDetector, in_shares

# The share of the rows that say what is far in a column.
FAR = 0.2
# A column that never changes in the reference has no spread; one that then does comes first.
LEAST = 1e-9


def far_out(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the median of every column, and the mean distance from it of the farthest fifth.

    Examples
    --------
    >>> far_out(np.array([[-4.0], [-1.0], [0.0], [1.0], [2.0]]))
    (array([0.]), array([4.]))
    """
    centre = np.median(X, axis=0)
    distances = np.abs(X - centre)
    most = max(1, round(FAR * len(X)))
    farthest = np.sort(np.partition(distances, -most, axis=0)[-most:], axis=0)
    scale = farthest.mean(axis=0)
    return centre, np.maximum(scale, LEAST * np.maximum(1.0, np.abs(centre)))


class Extreme(NativeDetector):
    """The largest distance of a row's values from the medians of their columns.

    A distance is measured by the mean of the largest fifth of those in its column.

    Parameters
    ----------
    contamination : float, default=0.1
        Share of training rows that `predict` calls outliers; conformal p-values ignore it.

    Attributes
    ----------
    centre_, scale_ : float array of shape (d,)

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> found = Extreme().fit(X)
    >>> found.score_samples([[0, 0, 9]]) < found.score_samples([[1, 1, 1]])
    array([ True])
    """

    def __init__(self, contamination: float = 0.1) -> None:
        self.contamination = contamination

    def _fit_rows(self, X: FloatArray, seed: np.random.SeedSequence) -> None:
        self.centre_, self.scale_ = far_out(X)

    def _score_rows(self, X: FloatArray) -> FloatArray:
        return np.asarray(-(np.abs(X - self.centre_) / self.scale_).max(axis=1))

    def _carried(self, x: FloatArray, rows: FloatArray) -> Attribution | None:
        """Columns share by how much farther out they are than rows usually are."""
        centre, scale = far_out(rows)
        parts = np.maximum(np.abs(x - centre) / scale - 1.0, 0.0)
        return in_shares(parts, "how far each lies beyond what is far in its column")


EXTREME_RECORD = DetectorRecord("extreme", {"centre_": SCORES, "scale_": SCORES})
