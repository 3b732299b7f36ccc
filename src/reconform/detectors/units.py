"""Units of measurement: a few integers that are learned from the rows of a model, symmetrically.

A detector that scales measures the rows of a model in units that depend on them: the exponents of
scales that are powers of two (`scaling`), perhaps that of a bandwidth as well. Units are integers
and do not depend on the order of the rows. So those of D and x, for every new row x, and those of
D without row i, for every i, are seldom different from each other, and all multisets that have
the same units are fitted together, on rows that are measured in them (`scaled`).

What a detector needs for that is a parameter `scale`: `NativeDetector._units` then gives
`RobustUnits`, and everything else the detector does is told only of rows that are measured
already, by an object of its class with ``scale="none"`` (`Units.plain`). A detector with more
to learn from its rows gives units of its own class there: a kernel density with a bandwidth
that is a power of two adds the exponent to the others, and its `plain` states the bandwidth.

For leave-one-out plans, models with equal units come as a plan of their own with some of the
models (`Plan.part`): an ensemble that is fitted to ``plan.left_out``, not to all rows, takes these
quickly; one that asks for ``plan.leaves_one_out`` leaves them to refits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from ..arrays import FloatArray, IndexArray, IntArray
from ..records import require, within
from .scaling import (
    LARGEST_EXPONENT,
    rescale,
    scale_exponents,
    spreads,
    spreads_with,
    spreads_without,
)

if TYPE_CHECKING:
    from .base import NativeDetector  # which asks this module for units


class Units(ABC):
    """What a detector learns from the rows of a model before it is fitted on them.

    Parameters
    ----------
    detector : NativeDetector
        With the parameters that the user gave it.
    """

    def __init__(self, detector: NativeDetector) -> None:
        self.detector = detector

    @abstractmethod
    def of(self, X: FloatArray) -> IntArray:
        """Units of rows: (k,), whatever their order."""

    @abstractmethod
    def with_each(self, X: FloatArray, new: FloatArray) -> IntArray:
        """Units of D and one new row, for every new row: (m, k)."""

    @abstractmethod
    def without_each(self, X: FloatArray) -> IntArray:
        """Units of D without one row, for every row of D: (n, k)."""

    @abstractmethod
    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Rows as they are in these units; each by itself."""

    def columns(self, units: IntArray, d: int) -> IndexArray:
        """Say of which of d columns each column of the measured rows was made."""
        return np.arange(d)

    @abstractmethod
    def plain(self, units: IntArray) -> NativeDetector:
        """Return the detector to be fitted on rows that are measured in these units."""

    def together(
        self, reference: FloatArray, X: FloatArray
    ) -> tuple[NativeDetector, FloatArray, FloatArray]:
        """See a whole batch as one, where new rows are compared with each other.

        Returns
        -------
        detector, reference, X
            All as they are, unless single rows are measured more coarsely than that takes.
        """
        return self.detector, reference, X

    @abstractmethod
    def check(self, units: IntArray, d: int) -> int:
        """Refuse, by `require`, units from a file that rows of d columns cannot have.

        Returns
        -------
        int
            Columns of the rows that are measured in them.
        """


class RobustUnits(Units):
    """A power of two per feature, from the distance of its quartiles: ``scale="robust"``.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.knn import KNN
    >>> units = RobustUnits(KNN(scale="robust"))
    >>> X = np.array([[0.0, 50.0], [1.0, 10.0], [2.0, 30.0], [3.0, 90.0]])
    >>> units.of(X)
    array([0, 4])
    >>> units.measure(X[:1], units.of(X))
    array([[0.   , 3.125]])
    >>> units.plain(units.of(X))
    KNN()
    """

    def of(self, X: FloatArray) -> IntArray:
        """Exponents for all rows together."""
        return scale_exponents(spreads(X)).astype(np.int64)

    def with_each(self, X: FloatArray, new: FloatArray) -> IntArray:
        """Exponents for D and one new row."""
        return scale_exponents(spreads_with(X, new)).astype(np.int64)

    def without_each(self, X: FloatArray) -> IntArray:
        """Exponents for D without one row."""
        return scale_exponents(spreads_without(X)).astype(np.int64)

    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Divide by the scales."""
        return rescale(X, units.astype(np.int32))

    def plain(self, units: IntArray) -> NativeDetector:
        """Return the detector without scaling."""
        plain: NativeDetector = clone(self.detector).set_params(scale="none")
        return plain

    def check(self, units: IntArray, d: int) -> int:
        """One exponent per column."""
        right = len(units) == d and within(units, -LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
        require(right, "a scale is not one")
        return d
