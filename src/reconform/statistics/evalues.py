"""E-values from conformity scores, averaged over repeated splits, and e-BH.

A p-value depends on the random split into training and calibration rows; p-values of several
splits do not average. E-values do: the mean of any number of them, however dependent, is one again
(Bashari et al. 2023). In every repeat all rows below a threshold share one e-value, a fraction of
integers, so averages and decisions are exact: rows exactly on the line are discoveries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, FloatArray, IndexArray
from ..errors import ReconformError
from .exact import exact_fraction
from .scores import given_scores

# The threshold inside each of several splits, whatever the level of e-BH is: then e-values do not
# depend on that level, and the q-value of a row is the smallest level at which it is found.
INNER_LEVEL = Fraction(1, 20)

# Far wider than the rounding of the products it is used on, far narrower than any real gap.
_ROUNDING = 1e-12


@dataclass(frozen=True, eq=False)
class EValues:
    """Exact e-values: row j has the sum of the weights of the repeats that point to it.

    Attributes
    ----------
    weights : tuple of Fraction, one per repeat
    masks : bool array of shape (repeats, m)
        Which rows lie below the threshold of each repeat.
    """

    weights: tuple[Fraction, ...]
    masks: BoolArray

    def __len__(self) -> int:
        return int(self.masks.shape[1])

    @property
    def values(self) -> FloatArray:
        """The e-values as floats, correctly rounded."""
        distinct, which = _distinct(self)
        return np.array(distinct, dtype=np.float64)[which]


def conformal_e_values(
    calibration_scores: npt.ArrayLike, test_scores: npt.ArrayLike, alpha_bh: float | Fraction
) -> EValues:
    """Turn the scores of one split into e-values.

    With T the largest observed score t such that
    m (1 + #{c_i <= t}) / ((n + 1) max(1, #{s_j <= t})) <= α_bh,
    e_j = (n + 1) 1{s_j <= T} / (1 + #{c_i <= T}); all are zero if there is no such t.

    Parameters
    ----------
    calibration_scores : array-like of float, shape (n,)
        Scores of normal rows that the model has not seen; small = anomalous.
    test_scores : array-like of float, shape (m,)
        The whole batch.
    alpha_bh : float
        The level of the threshold; about half the level of e-BH if repeats are averaged. It
        affects power, not validity.

    Returns
    -------
    EValues

    Notes
    -----
    The e-values of the normal rows sum up to at most m in expectation: reading the merged scores
    downwards, #{normal s_j <= t} / (1 + #{c_i <= t}) is a supermartingale that starts at
    m0 / (n + 1), and T is a stopping time (docs/guarantees). Scores may have ties.

    With one repeat and α_bh = fdr, e-BH makes the discoveries of Benjamini-Hochberg.

    References
    ----------
    M. Bashari, A. Epstein, Y. Romano, M. Sesia, "Derandomized novelty detection with FDR control
    via conformal e-values", NeurIPS (2023).

    Examples
    --------
    >>> calibration = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    >>> conformal_e_values(calibration, [0.1, 0.2, 0.35, 0.9], alpha_bh=0.4).values
    array([4., 4., 4., 0.])
    """
    calibration = np.sort(given_scores("calibration_scores", calibration_scores))
    test = np.asarray(test_scores, dtype=np.float64)
    ordered = np.sort(given_scores("test_scores", test))
    level = exact_fraction("alpha_bh", alpha_bh)
    n, m = len(calibration), len(test)
    candidates = np.union1d(calibration, ordered)
    alarms = 1 + np.searchsorted(calibration, candidates, side="right")
    flagged = np.maximum(1, np.searchsorted(ordered, candidates, side="right"))
    # Floats sort out what is clear; integers decide, from the largest candidate down.
    estimate = (m / (n + 1)) * alarms / flagged
    for i in np.flatnonzero(estimate <= float(level) * (1 + _ROUNDING))[::-1].tolist():
        alarm, flag = int(alarms[i]), int(flagged[i])
        if m * alarm * level.denominator <= level.numerator * (n + 1) * flag:
            return EValues((Fraction(n + 1, alarm),), (test <= candidates[i])[np.newaxis])
    return EValues((Fraction(0),), np.zeros((1, m), dtype=np.bool_))


def average_e_values(repeats: Sequence[EValues]) -> EValues:
    """Average the e-values of the same rows over repeated splits, exactly.

    Examples
    --------
    >>> first = EValues((Fraction(4),), np.array([[True, True, False]]))
    >>> second = EValues((Fraction(10, 3),), np.array([[True, False, False]]))
    >>> average_e_values([first, second]).values
    array([3.66666667, 2.        , 0.        ])
    """
    if not repeats:
        raise ReconformError("repeats must hold at least one set of e-values; got none.")
    if len({len(one) for one in repeats}) > 1:
        raise ReconformError(
            "repeats must hold e-values of the same rows; "
            f"got sets of {sorted({len(one) for one in repeats})} rows."
        )
    weights = tuple(weight / len(repeats) for one in repeats for weight in one.weights)
    return EValues(weights, np.concatenate([one.masks for one in repeats]))


def e_bh(e_values: EValues | npt.ArrayLike, fdr: float | Fraction) -> BoolArray:
    """Discover the rows with the k largest e-values, k maximal with e_(k) >= m / (fdr k).

    The false discovery rate is at most `fdr` for e-values with any dependence, if those of the
    normal rows sum up to at most m in expectation.

    Parameters
    ----------
    e_values : EValues or array-like of float
        Floats are taken for the numbers they are: 0.1 + 0.2 is more than 0.3. `EValues` are exact.
    fdr : float or Fraction
        A float is read as the decimal number it prints as.

    Returns
    -------
    bool array of shape (m,)

    References
    ----------
    R. Wang, A. Ramdas, "False discovery rate control with e-values", Journal of the Royal
    Statistical Society B 84 (2022).

    Examples
    --------
    >>> e_bh([40.0, 25.0, 3.0, 0.5], fdr=0.1)  # 40 >= 4 / 0.1, 25 >= 4 / 0.2
    array([ True,  True, False, False])
    """
    level = exact_fraction("fdr", fdr)
    distinct, which = _distinct(e_values)
    upto = np.cumsum(np.bincount(which, minlength=len(distinct)))
    m = len(which)
    share = np.array(distinct, dtype=np.float64) * upto * float(level)
    for i in np.flatnonzero(share >= m * (1 - _ROUNDING))[::-1].tolist():
        if Fraction(distinct[i]) * level * int(upto[i]) >= m > 0:
            return np.asarray(which <= i)
    return np.zeros(m, dtype=np.bool_)


def e_q_values(e_values: EValues | npt.ArrayLike) -> FloatArray:
    """Find the smallest level at which e-BH would discover each row; 1 if there is none below.

    Examples
    --------
    >>> e_q_values([40.0, 25.0, 3.0, 0.5])
    array([0.08      , 0.08      , 0.44444444, 1.        ])
    """
    distinct, which = _distinct(e_values)
    upto = np.cumsum(np.bincount(which, minlength=len(distinct)))
    m = len(which)
    raw = [
        float(m / (value * k)) if value * k > m else 1.0
        for value, k in zip(distinct, upto.tolist(), strict=True)
    ]
    q = np.minimum.accumulate(np.array(raw)[::-1])[::-1]
    return np.asarray(q[which])


def _distinct(
    e_values: EValues | npt.ArrayLike,
) -> tuple[list[Fraction] | list[float], IndexArray]:
    """The distinct e-values, largest first, and which of them each row has."""
    if not isinstance(e_values, EValues):
        array = np.asarray(e_values, dtype=np.float64)
        if array.ndim != 1:
            raise ReconformError(f"e_values must be one-dimensional; got shape {array.shape}.")
        if not np.isfinite(array).all() or (array < 0).any():
            raise ReconformError("e_values must be finite and at least 0; got others among them.")
        negative, which = np.unique(-array, return_inverse=True)
        return (-negative).tolist(), which
    # Rows that the same repeats point to share an e-value; there are few such patterns.
    packed = np.ascontiguousarray(np.packbits(e_values.masks, axis=0).T)
    _, first, pattern = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    found = [
        sum((w for w, on in zip(e_values.weights, column, strict=True) if on), Fraction(0))
        for column in e_values.masks[:, first].T.tolist()
    ]
    distinct = sorted(set(found), reverse=True)
    position = {value: i for i, value in enumerate(distinct)}
    return distinct, np.array([position[value] for value in found], dtype=np.intp)[pattern.ravel()]
