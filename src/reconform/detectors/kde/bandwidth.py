"""A bandwidth by rule: a power of two that is learned from the rows of a model, symmetrically.

The exponent joins those of the scales (`reconform.detectors.units`), so that models with another
bandwidth are found, and fitted apart from the others, like those with another scale.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

from ...arrays import FloatArray, IntArray
from ...records import require, within
from ..base import NativeDetector
from ..scaling import (
    LARGEST_EXPONENT,
    OF_NORMAL,
    check_scale,
    nearest_exponents,
    rescale,
    scale_exponents,
    spreads,
    spreads_with,
    spreads_without,
)
from ..units import Units


def bandwidth_exponents(spread: FloatArray, n: int) -> IntArray:
    """Choose bandwidths that are powers of two, by Silverman's rule for n rows.

    Features without any spread do not count.

    Parameters
    ----------
    spread : float array of shape (..., d)
        Spreads of the features, such as `scaling.spreads_with` gives for every new row.
    n : int
        Rows that the spreads are of.

    Returns
    -------
    int array of shape (...)
        The bandwidth is 2 to this power.

    Examples
    --------
    >>> import numpy as np
    >>> bandwidth_exponents(np.array([[1.3, 1.4], [13.0, 14.0], [0.0, 1.4], [0.0, 0.0]]), 1000)
    array([-2,  2, -2,  0])
    """
    largest = spread.max(axis=-1)
    # Relative to the largest, as squares might overflow.
    relative = spread / np.where(largest > 0, largest, 1.0)[..., None]
    # In order: NumPy's own sum depends on the shape, a running one does not.
    total = np.cumsum(relative**2, axis=-1)[..., -1]
    d = np.maximum((relative > 0).sum(axis=-1), 1.0)
    factor = (4.0 / ((d + 2.0) * n)) ** (1.0 / (d + 4.0)) / OF_NORMAL
    return nearest_exponents(factor * largest * np.sqrt(total / d)).astype(np.int64)


class KernelUnits(Units):
    """The exponents of the scales, zeros with ``scale="none"``, and that of the bandwidth.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.kde import KDE
    >>> units = KernelUnits(KDE(scale="robust"))
    >>> X = np.array([[0.0, 50.0], [1.0, 10.0], [2.0, 30.0], [3.0, 90.0]])
    >>> units.of(X)
    array([ 0,  4, -1])
    >>> units.plain(units.of(X))
    KDE(bandwidth=0.5)
    """

    def of(self, X: FloatArray) -> IntArray:
        """Units of all rows together."""
        return self._units(spreads(X), len(X))

    def with_each(self, X: FloatArray, new: FloatArray) -> IntArray:
        """Units of D and one new row."""
        return self._units(spreads_with(X, new), len(X) + 1)

    def without_each(self, X: FloatArray) -> IntArray:
        """Units of D without one row."""
        return self._units(spreads_without(X), len(X) - 1)

    def _units(self, spread: FloatArray, n: int) -> IntArray:
        exponents = np.zeros(spread.shape, dtype=np.int32)
        if self._scales:
            exponents = scale_exponents(spread)
        bandwidth = bandwidth_exponents(np.ldexp(spread, -exponents), n)
        return np.concatenate([exponents, bandwidth[..., None]], axis=-1).astype(np.int64)

    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Divide by the scales, not by the bandwidth, which the plain detector has."""
        return rescale(X, units[:-1].astype(np.int32)) if self._scales else X

    def plain(self, units: IntArray) -> NativeDetector:
        """Return the detector with this bandwidth, without scaling."""
        plain: NativeDetector = clone(self.detector)
        plain.set_params(bandwidth=2.0 ** int(units[-1]), scale="none")
        return plain

    def check(self, units: IntArray, d: int) -> int:
        """One exponent per column, and one more."""
        right = len(units) == d + 1 and within(units, -LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
        require(right, "a scale or a bandwidth is not one")
        require(self._scales or not units[:-1].any(), "features have scales, and are not scaled")
        return d

    @property
    def _scales(self) -> bool:
        return check_scale(getattr(self.detector, "scale", "none"))
