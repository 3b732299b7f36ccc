"""How good a list is where the truth is known: its false discoveries, and what it found."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .arrays import BoolArray, FloatArray
from .discoveries import BaseDiscoveries, Discoveries
from .errors import ReconformError

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
