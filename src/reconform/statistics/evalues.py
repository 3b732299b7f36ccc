"""E-values: from conformity scores, averaged over repeated splits; and lists from them.

A p-value depends on the random split into training and calibration rows; p-values of several
splits do not average. E-values do: the mean of any number of them, however dependent, is one again
(Bashari et al. 2023). In every repeat all rows below a threshold share one e-value, a fraction of
integers, so averages and decisions are exact: rows exactly on the line are discoveries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

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
    The e-values of the normal rows sum up to at most m0 in expectation: reading the merged scores
    downwards, #{normal s_j <= t} / (1 + #{c_i <= t}) is a supermartingale that starts at
    m0 / (n + 1), and T is a stopping time (docs/guarantees). Scores may have ties.

    With one repeat and α_bh = fdr, closed e-BH makes the discoveries of Benjamini-Hochberg.

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


def closed_e_bh(
    e_values: EValues | Sequence[Fraction] | npt.ArrayLike, fdr: float | Fraction
) -> BoolArray:
    """Find the largest list S for which every set of rows has enough evidence.

    S is admissible if for every non-empty set A of rows the mean of the e-values over A is at
    least |A and S| / (fdr |S|). For A = the normal rows this says that the false discovery
    proportion is at most fdr times a mean of e-values, whose expectation is at most 1. The list
    of e-BH is always admissible.

    Parameters
    ----------
    e_values : EValues, sequence of Fraction or of float
        Of all m rows, with any dependence; those of the normal rows must add up to at most their
        number in expectation. Floats are taken for the numbers they are: 0.1 + 0.2 is more than
        0.3.
    fdr : float or Fraction
        A float is read as the decimal number it prints as.

    Returns
    -------
    bool array of shape (m,)
        Rows with equal e-values are in the list together.

    Notes
    -----
    For a list of the K largest e-values, the sets A that matter are the s smallest e-values in
    the list and all those outside that are below the mean of A. For a given number outside, the sum
    less the bound is concave in s while the e-value stays the same, so it is smallest where a run
    of equal e-values ends, and nowhere else needs a look.

    References
    ----------
    Z. Xu, A. Solari, L. Fischer, R. de Heide, A. Ramdas, J. Goeman, "Bringing closure to false
    discovery rate control" (2025).

    Examples
    --------
    >>> e = [Fraction(12), Fraction(9), Fraction(0), Fraction(0)]
    >>> closed_e_bh(e, 0.2)  # e-BH asks for 10 each; here 20 in sum, and 7.5 each, suffice
    array([ True,  True, False, False])
    """
    level = exact_fraction("fdr", fdr)
    runs, which = _runs(e_values)
    for groups in range(sum(value > 0 for value in runs.values), 0, -1):
        if runs.least_level(groups, level) is not None:
            return np.asarray(which < groups)
    return np.zeros(len(which), dtype=np.bool_)


def closed_q_values(e_values: EValues | Sequence[Fraction] | npt.ArrayLike) -> FloatArray:
    """Find the smallest level at which `closed_e_bh` has each row; 1 if there is none below.

    Examples
    --------
    >>> closed_q_values([12.0, 9.0, 0.0, 0.0])
    array([0.19047619, 0.19047619, 1.        , 1.        ])
    """
    runs, which = _runs(e_values)
    q = np.ones(len(runs.values))
    least = Fraction(1)
    for groups in range(sum(value > 0 for value in runs.values), 0, -1):
        least = min(least, runs.least_level(groups) or least)
        q[groups - 1] = float(least)
    return np.asarray(q[which])


@dataclass(frozen=True, eq=False)
class _Runs:
    """Distinct e-values, the largest first, as whole multiples of one fraction."""

    values: list[int]
    unit: int
    sizes: list[int]

    def least_level(self, groups: int, most: Fraction | None = None) -> Fraction | None:
        """The smallest level at which the first `groups` runs are admissible; None above `most`."""
        length = sum(self.sizes[:groups])
        top, bottom = 0, 1
        inside = outside = evidence = 0
        last = len(self.values) - 1
        for i in range(groups - 1, -1, -1):
            inside += self.sizes[i]
            evidence += self.values[i] * self.sizes[i]
            # Rows outside that are below the mean; there are ever more of them as it rises.
            while last >= groups and self.values[last] * (inside + outside) < evidence:
                outside += self.sizes[last]
                evidence += self.values[last] * self.sizes[last]
                last -= 1
            a, b = inside * (inside + outside) * self.unit, length * evidence
            if most is not None and a * most.denominator > b * most.numerator:
                return None
            if a * bottom > top * b:
                top, bottom = a, b
        return Fraction(top, bottom)


def _runs(e_values: EValues | Sequence[Fraction] | npt.ArrayLike) -> tuple[_Runs, IndexArray]:
    distinct, which = _distinct(e_values)
    unit = lcm(*(value.denominator for value in distinct))
    values = [int(value * unit) for value in distinct]
    return _Runs(values, unit, np.bincount(which, minlength=len(values)).tolist()), which


def _distinct(
    e_values: EValues | Sequence[Fraction] | npt.ArrayLike,
) -> tuple[list[Fraction], IndexArray]:
    """The distinct e-values, largest first, and which of them each row has."""
    if isinstance(e_values, EValues):
        # Rows that the same repeats point to share an e-value; there are few such patterns.
        packed = np.ascontiguousarray(np.packbits(e_values.masks, axis=0).T)
        _, first, pattern = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        found = [
            sum((w for w, on in zip(e_values.weights, column, strict=True) if on), Fraction(0))
            for column in e_values.masks[:, first].T.tolist()
        ]
    else:
        array = np.asarray(e_values, dtype=object)
        if array.ndim != 1:
            raise ReconformError(f"e_values must be one-dimensional; got shape {array.shape}.")
        if not all(0 <= value < np.inf for value in array):
            raise ReconformError("e_values must be finite and at least 0; got others among them.")
        found, pattern = [Fraction(value) for value in array], np.arange(len(array))
    distinct = sorted(set(found), reverse=True)
    position = {value: i for i, value in enumerate(distinct)}
    return distinct, np.array([position[value] for value in found], dtype=np.intp)[pattern.ravel()]
