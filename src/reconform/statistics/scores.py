"""Conformal p-values from scores that someone else computed: no detector, no fit.

Who has a model, and its scores of rows that it has not seen, needs no more than this and
`reconform.Rule`. The model may be anything; what the p-values are worth is what is proven for
``method="prefit"``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..arrays import FloatArray, RankArray
from ..errors import ReconformError, unknown_choice
from .grid import usual
from .ranks import ranks_among

LARGER_IS = ("anomalous", "normal")


def ranks_of(
    calibration_scores: npt.ArrayLike, new_scores: npt.ArrayLike, *, larger_is: str
) -> RankArray:
    """Rank new scores among calibration scores, ties counted against the new row.

    Parameters
    ----------
    calibration_scores : array-like of float, shape (n,)
        Scores of normal rows that the model has not seen.
    new_scores : array-like of float, shape (m,)
    larger_is : {"anomalous", "normal"}
        What a large score means.

    Returns
    -------
    int array of shape (m,)
        From 1 (more anomalous than all calibration rows) to n + 1; for `RankCounts`, whose counts
        of any parts add up.

    Examples
    --------
    >>> ranks_of([1.0, 2.0, 3.0], [0.5, 2.0, 9.0], larger_is="anomalous")
    array([4, 3, 1])
    """
    if larger_is not in LARGER_IS:
        raise unknown_choice("larger_is", larger_is, LARGER_IS)
    sign = 1.0 if larger_is == "normal" else -1.0
    calibration = sign * given_scores("calibration_scores", calibration_scores)
    if not len(calibration):
        raise ReconformError("calibration_scores must hold at least one score; got none.")
    return ranks_among(np.sort(calibration), sign * given_scores("new_scores", new_scores))


def p_values_of(
    calibration_scores: npt.ArrayLike, new_scores: npt.ArrayLike, *, larger_is: str
) -> FloatArray:
    """Turn scores into conformal p-values: p = r / (n + 1), r from `ranks_of`.

    Parameters
    ----------
    calibration_scores : array-like of float, shape (n,)
        Scores of normal rows that the model has not seen.
    new_scores : array-like of float, shape (m,)
    larger_is : {"anomalous", "normal"}
        What a large score means.

    Returns
    -------
    float array of shape (m,)
        In [1 / (n + 1), 1]. P(p <= α) <= α for a new normal row, if its score and those of the
        calibration rows are exchangeable.

    See Also
    --------
    reconform.Rule.decide_p_values : From p-values to a list at a false discovery rate.

    Examples
    --------
    >>> from reconform import Rule
    >>> normal = [0.1, 0.4, 0.3, 0.2, 0.5, 0.6, 0.2, 0.3, 0.1]
    >>> p = p_values_of(normal, [0.3, 7.5, 9.1], larger_is="anomalous")
    >>> p
    array([0.6, 0.1, 0.1])
    >>> Rule(fdr=0.2).decide_p_values(p, n_calibration=len(normal)).mask
    array([False,  True,  True])
    """
    ranks = ranks_of(calibration_scores, new_scores, larger_is=larger_is)
    return usual(len(np.asarray(calibration_scores))).values(ranks)


def given_scores(argument: str, values: npt.ArrayLike) -> FloatArray:
    """Return scores that a caller gave as an array; refuse what cannot be ranked."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ReconformError(f"{argument} must be one-dimensional; got shape {array.shape}.")
    if np.isnan(array).any():
        raise ReconformError(f"{argument} must not contain NaN; drop the rows it comes from.")
    return array
