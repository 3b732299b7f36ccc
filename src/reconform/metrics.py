"""How good a list is where the truth is known: its false discoveries, and what it found."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .arrays import BoolArray, FloatArray, RankArray
from .discoveries import BaseDiscoveries, Discoveries
from .errors import ReconformError
from .statistics.exact import usual

__all__ = ["false_discovery_proportion", "power"]


def false_discovery_proportion(
    flagged: Discoveries | npt.ArrayLike, is_anomaly: npt.ArrayLike
) -> float:
    """Share of the flagged rows that are normal: the false ones in a list.

    The false discovery rate that `discover` aims at is the mean of this number over repetitions,
    not a bound for every list.

    Parameters
    ----------
    flagged : Discoveries or array-like of shape (m,)
        The list: what `discover` returns, or a yes or no (True and False, or 1 and 0) per row.
    is_anomaly : array-like of shape (m,)
        The truth about the same rows, in the same order: yes or no per row.

    Returns
    -------
    float
        In [0, 1]; 0 for an empty list, which has no false discoveries.

    See Also
    --------
    power : Share of the anomalies that are flagged.

    Examples
    --------
    >>> from reconform.metrics import false_discovery_proportion
    >>> false_discovery_proportion([1, 1, 1, 1, 0], is_anomaly=[1, 1, 1, 0, 1])
    0.25
    >>> false_discovery_proportion([0, 0], is_anomaly=[0, 1])
    0.0
    """
    return float(false_shares(*_lists(flagged, is_anomaly)))


def power(flagged: Discoveries | npt.ArrayLike, is_anomaly: npt.ArrayLike) -> float:
    """Share of the anomalies that are flagged (others say recall, or sensitivity).

    Parameters
    ----------
    flagged : Discoveries or array-like of shape (m,)
        As in `false_discovery_proportion`.
    is_anomaly : array-like of shape (m,)
        As in `false_discovery_proportion`.

    Returns
    -------
    float
        In [0, 1]; NaN where no row is an anomaly: there was nothing to find, and neither 0 nor 1
        would be true. ``np.nanmean`` over repetitions leaves such batches out.

    See Also
    --------
    false_discovery_proportion : Share of the flagged rows that are normal.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.metrics import false_discovery_proportion, power
    >>> rng = np.random.default_rng(0)
    >>> normal, new = rng.normal(size=(200, 2)), rng.normal(size=(100, 2))
    >>> new[90:] += 8
    >>> truth = np.arange(100) >= 90
    >>> found = ConformalDetector("knn", random_state=0).fit(normal).discover(new, fdr=0.1)
    >>> power(found, truth), false_discovery_proportion(found, truth) <= 0.2
    (1.0, True)
    >>> power([1, 0], is_anomaly=[0, 0])
    nan
    """
    mask, truth = _lists(flagged, is_anomaly)
    return float(found_shares(mask, truth)) if truth.any() else math.nan


def false_shares(flagged: BoolArray, is_anomaly: BoolArray) -> FloatArray:
    """`false_discovery_proportion` along the last axis, of many lists at once; unchecked.

    Examples
    --------
    >>> false_shares(np.array([[True, True], [False, False]]), np.array([[True, False]] * 2))
    array([0.5, 0. ])
    """
    false = (flagged & ~is_anomaly).sum(axis=-1)
    return np.asarray(false / np.maximum(flagged.sum(axis=-1), 1))


def found_shares(flagged: BoolArray, is_anomaly: BoolArray) -> FloatArray:
    """`power` along the last axis, of many lists that each have anomalies; unchecked.

    Examples
    --------
    >>> found_shares(np.array([[True, True], [False, False]]), np.array([[True, False]] * 2))
    array([1., 0.])
    """
    return np.asarray((flagged & is_anomaly).sum(axis=-1) / is_anomaly.sum(axis=-1))


def _lists(
    flagged: Discoveries | npt.ArrayLike, is_anomaly: npt.ArrayLike
) -> tuple[BoolArray, BoolArray]:
    """Both as masks of one length."""
    if isinstance(flagged, Discoveries):
        flagged = flagged.mask
    elif isinstance(flagged, BaseDiscoveries):
        raise ReconformError(
            "`flagged` is a list whose rows are not in memory; read the column 'anomaly' of the "
            "file that it wrote, and give that."
        )
    mask, truth = _mask("flagged", flagged), _mask("is_anomaly", is_anomaly)
    if len(mask) != len(truth):
        raise ReconformError(
            f"`flagged` and `is_anomaly` must be about the same rows: {len(mask)} and {len(truth)}."
        )
    return mask, truth


def _mask(name: str, given: npt.ArrayLike) -> BoolArray:
    values = np.asarray(given)
    if values.dtype == bool and values.ndim == 1:
        return values
    if values.ndim != 1:
        raise ReconformError(f"`{name}` must have one value per row; got shape {values.shape}.")
    strange = [value for value in values.tolist() if not _yes_or_no(value)]
    if strange:
        raise ReconformError(
            f"`{name}` must say yes or no for every row, as True and False or 1 and 0; got "
            f"{strange[0]!r}. Of positions make a mask: np.isin(np.arange(m), positions); of "
            "predictions of scikit-learn: predictions == -1."
        )
    return values.astype(bool)


def _yes_or_no(value: object) -> bool:
    # By type as well: pandas' NA is neither equal to 1 nor unequal.
    return isinstance(value, bool | int | float) and value in (0, 1)


@dataclass(frozen=True, eq=False)
class Stability:
    """How far basic and plus ranks of the same rows lie apart.

    Attributes
    ----------
    basic, plus : int arrays
        Ranks of the two variants.
    n_calibration : int
    alpha : float
        Level of the per-row test.
    """

    basic: RankArray
    plus: RankArray
    n_calibration: int
    alpha: float

    @property
    def typical(self) -> float:
        """Median of |p_basic - p_plus|."""
        return float(np.median(self._apart())) if len(self.basic) else 0.0

    @property
    def largest(self) -> float:
        """Largest |p_basic - p_plus|."""
        return float(self._apart().max(initial=0.0))

    @property
    def shift(self) -> float:
        """Mean of p_basic - p_plus; negative if one model raises more alarms than all."""
        if not len(self.basic):
            return 0.0
        return float((self.basic - self.plus).mean() / (self.n_calibration + 1))

    @property
    def changed(self) -> float:
        """Share of rows whose per-row decision at `alpha` changes."""
        if not len(self.basic):
            return 0.0
        p_values = usual(self.n_calibration).values
        p_basic, p_plus = p_values(self.basic), p_values(self.plus)
        return float(((p_basic <= self.alpha) != (p_plus <= self.alpha)).mean())

    @property
    def verdict(self) -> str:
        """``"stable"``, ``"borderline"`` or ``"unstable"``.

        Stable: at most 1% of the decisions change and the typical difference is at most 0.01.
        Unstable: more than 5% change, or the typical difference exceeds 0.05.
        """
        if self.changed <= 0.01 and self.typical <= 0.01:
            return "stable"
        if self.changed > 0.05 or self.typical > 0.05:
            return "unstable"
        return "borderline"

    def _apart(self) -> np.typing.NDArray[np.float64]:
        return np.asarray(np.abs(self.basic - self.plus) / (self.n_calibration + 1))

    def __repr__(self) -> str:
        advice = {
            "stable": "one model (variant='basic') in production is as good as all of them here.",
            "borderline": "one model in production decides a little differently; look at the rows "
            "that change before you rely on it.",
            "unstable": "one model in production is not safe here; keep variant='plus'.",
        }[self.verdict]
        return (
            f"Stability: {self.verdict} on {len(self.basic):,} rows. p-values of basic and plus "
            f"differ by {self.typical:.2g} typically and {self.largest:.2g} at most (mean shift "
            f"{self.shift:+.2g}); {self.changed:.1%} of the decisions at alpha={self.alpha:g} "
            f"change. In words: {advice}"
        )
