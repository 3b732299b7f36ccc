"""Scales that are powers of two: dividing by them is exact, and one row more seldom changes them.

The spread of a feature is a difference of two of its order statistics, so it does not depend on
the order of the rows. Rounded to a power of two it is the same for nearly all of the multisets
that conformal methods need: D and one new row, or D without one of its rows. Which of them have
other scales is known from the order statistics of D alone. Multisets with equal scales form a
group, and each group is one ordinary fast fit on rescaled rows: nothing is approximated.

A detector that scales measures the rows of a model in units that depend on them: the exponents of
scales, perhaps that of a bandwidth as well. Units are integers
and do not depend on the order of the rows. So those of D and x, for every new row x, and those of
D without row i, for every i, are seldom different from each other, and all multisets that have
the same units are fitted together, on rows that are measured in them (`scaled`).

What a detector needs for that is a parameter `scale`: `NativeDetector._units` then gives a row of
`UNITS`, and everything else the detector does is told only of rows that are measured already, by
an object of its class with ``scale="none"`` (`Units.plain`). A detector with a parameter to learn
from its rows, a power of two, gives `WithExponent` there: the bandwidth of a kernel density, the
ridge of a scatter.

For leave-one-out plans, models with equal units come as a plan of their own with some of the
models (`Plan.part`): an ensemble that is fitted to ``plan.left_out``, not to all rows, takes these
quickly; one that asks for ``plan.leaves_one_out`` leaves them to refits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

from ..arrays import FloatArray, IndexArray, Int32Array, IntArray
from ..content import sorted_by_content
from ..errors import unknown_choice
from ..records import require, within

if TYPE_CHECKING:
    from .base import NativeDetector


# The distance of the quartiles of a normal distribution, in standard deviations.
OF_NORMAL = 1.349

# Rescaled numbers stay below 2^500, so that sums of their squares are finite.
LARGEST_EXPONENT = 400
LARGEST = 2.0**500


def trims(n: int) -> list[int]:
    """Say how many of n values each spread leaves out at either end.

    A quarter, so that the spread is the distance of the quartiles; where that is zero, because
    more than half of the values are equal, a sixteenth, and so on down to one value. The last one
    is left out always: no single row sets the scale in which it is measured.

    Examples
    --------
    >>> trims(100), trims(5), trims(3), trims(2)
    ([25, 6, 1], [1], [1], [])
    """
    counts = []
    count = n >> 2
    while count > 1:
        counts.append(count)
        count >>= 2
    return [*counts, 1] if n > 2 else []


def _first_positive(
    n: int, shape: tuple[int, ...], value: Callable[[int], FloatArray]
) -> FloatArray:
    """Take the first spread that is not zero; `value` gives order statistics, counted from 0."""
    spread = np.zeros(shape)
    with np.errstate(over="ignore"):
        for t in trims(n):
            spread = np.where(spread > 0, spread, value(n - 1 - t) - value(t))
    return np.minimum(spread, np.finfo(np.float64).max)


def spreads(X: FloatArray) -> FloatArray:
    """Spread of every feature; zero if all values but two are equal.

    Parameters
    ----------
    X : float array of shape (n, d)

    Returns
    -------
    float array of shape (d,)

    Examples
    --------
    >>> import numpy as np
    >>> spreads(np.array([[1.0, 7.0], [2.0, 7.0], [4.0, 7.0], [9.0, 7.0]]))
    array([2., 0.])
    """
    ordered = np.sort(X, axis=0)
    return _first_positive(len(X), X.shape[1:], lambda k: ordered[k])


def smallest_with(X: FloatArray, new: FloatArray) -> Callable[[int], FloatArray]:
    """Return a function that gives the k-th smallest of D and one new row, for every new row.

    It is x, or the (k-1)-th or k-th of D if x is not between them; k counts from 0.

    Examples
    --------
    >>> smallest_with(np.array([1.0, 2.0, 4.0]), np.array([0.0, 3.0]))(2)
    array([2., 3.])
    """
    ends = np.full((1, *X.shape[1:]), np.inf)
    ordered = np.concatenate([-ends, np.sort(X, axis=0), ends])
    return lambda k: np.asarray(np.clip(new, ordered[k], ordered[k + 1]))


def smallest_without(X: FloatArray) -> Callable[[int], FloatArray]:
    """Return a function that gives the k-th smallest of D without one row, for every row.

    It is the k-th of D, or the next one if the value that is left out is not above it.

    Examples
    --------
    >>> smallest_without(np.array([1.0, 2.0, 4.0]))(0)
    array([2., 1., 1.])
    """
    ordered = np.sort(X, axis=0)
    return lambda k: np.asarray(np.where(ordered[k] < X, ordered[k], ordered[k + 1]))


def spreads_with(X: FloatArray, new: FloatArray) -> FloatArray:
    """Spreads of D and one new row, for every new row.

    Parameters
    ----------
    X : float array of shape (n, d)
        D.
    new : float array of shape (m, d)

    Returns
    -------
    float array of shape (m, d)

    Examples
    --------
    >>> import numpy as np
    >>> spreads_with(np.array([[1.0], [2.0], [4.0], [8.0]]), np.array([[0.0], [5.0], [9.0]]))
    array([[3.],
           [3.],
           [6.]])
    """
    return _first_positive(len(X) + 1, new.shape, smallest_with(X, new))


def spreads_without(X: FloatArray) -> FloatArray:
    """Spreads of D without one row, for every row of D.

    Parameters
    ----------
    X : float array of shape (n, d)

    Returns
    -------
    float array of shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> spreads_without(np.array([[1.0], [2.0], [4.0], [8.0], [16.0]])).ravel()
    array([4., 4., 6., 2., 2.])
    """
    return _first_positive(len(X) - 1, X.shape, smallest_without(X))


def nearest_exponents(size: FloatArray) -> Int32Array:
    """Exponent of the power of two that is nearest by ratio; 0 where the size is zero.

    Examples
    --------
    >>> import numpy as np
    >>> nearest_exponents(np.array([1.0, 1.4, 1.5, 3.0, 0.0]))
    array([0, 0, 1, 2, 0], dtype=int32)
    """
    fraction, exponent = np.frexp(size)  # size = fraction * 2^exponent, 1/2 <= fraction < 1
    exponent = np.where(fraction < np.sqrt(0.5), exponent - 1, exponent)
    exponent = np.where(size > 0, exponent, 0)
    return np.clip(exponent, -LARGEST_EXPONENT, LARGEST_EXPONENT).astype(np.int32)


def scale_exponents(spread: FloatArray) -> Int32Array:
    """Exponents of scales, given spreads; 0 without spread.

    A scale is a spread divided by that of normal rows with standard deviation 1. So the scales of
    rows that somebody has standardised already are as far as can be from the next power of two.

    Examples
    --------
    >>> import numpy as np
    >>> scale_exponents(np.array([1.349, 1.0, 1.9, 2.0, 0.9, 0.0]))
    array([ 0,  0,  0,  1, -1,  0], dtype=int32)
    """
    return nearest_exponents(spread / OF_NORMAL)


def rescale(X: FloatArray, exponents: Int32Array) -> FloatArray:
    """Divide features by powers of two, exactly. What is beyond all bounds is put on the bound.

    Examples
    --------
    >>> import numpy as np
    >>> rescale(np.array([[3.0, 1e308]]), np.array([1, -400], dtype=np.int32))
    array([[1.50000000e+000, 3.27339061e+150]])
    """
    with np.errstate(over="ignore"):
        # As np.ldexp(X, -exponents), which takes numbers one by one.
        scaled = X * np.ldexp(1.0, -exponents)
    return np.clip(scaled, -LARGEST, LARGEST, out=scaled)


def groups(keys: IntArray) -> Iterator[tuple[IntArray, IndexArray]]:
    """Go through the distinct rows of an integer matrix, with the positions where each occurs.

    Examples
    --------
    >>> import numpy as np
    >>> [(key.tolist(), at.tolist()) for key, at in groups(np.array([[1], [0], [1]]))]
    [([1], [0, 2]), ([0], [1])]
    """
    if not len(keys):
        return
    # Nearly all rows are alike: sorting what differs from the first is much less work.
    first = (keys == keys[0]).all(axis=1)
    yield keys[0], np.flatnonzero(first)
    others = np.flatnonzero(~first)
    if len(others):
        ordered, order = sorted_by_content(keys[others])
        edges = np.flatnonzero((ordered[1:] != ordered[:-1]).any(axis=1)) + 1
        for some in np.split(order, edges):
            yield keys[others[some[0]]], others[some]


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

    def with_each(self, X: FloatArray, new: FloatArray) -> IntArray:
        """Units of D and one new row, for every new row: (m, k)."""
        return np.array([self.of(np.vstack([X, x])) for x in new])

    def without_each(self, X: FloatArray) -> IntArray:
        """Units of D without one row, for every row of D: (n, k)."""
        return np.array([self.of(np.delete(X, i, axis=0)) for i in range(len(X))])

    @abstractmethod
    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Rows as they are in these units; each by itself."""

    def columns(self, units: IntArray, d: int) -> IndexArray:
        """Say of which of d columns each column of the measured rows was made."""
        return np.arange(d)

    def plain(self, units: IntArray) -> NativeDetector:
        """Return the detector to be fitted on rows that are measured in these units."""
        plain: NativeDetector = clone(self.detector)
        return plain.set_params(scale="none") if hasattr(plain, "scale") else plain

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

    def filled(self, pool: FloatArray) -> FloatArray:
        """Fill in what is missing, by all rows of a pool as one set; the pool itself as it is."""
        return pool

    @abstractmethod
    def check(self, units: IntArray, d: int) -> int:
        """Refuse, by `require`, units from a file that rows of d columns cannot have.

        Returns
        -------
        int
            Columns of the rows that are measured in them.
        """


class AsTheyAre(Units):
    """Nothing is learned: ``scale="none"``."""

    def of(self, X: FloatArray) -> IntArray:
        """None."""
        return np.empty(0, dtype=np.int64)

    def with_each(self, X: FloatArray, new: FloatArray) -> IntArray:
        """None for every new row."""
        return np.empty((len(new), 0), dtype=np.int64)

    def without_each(self, X: FloatArray) -> IntArray:
        """None for every row."""
        return self.with_each(X, X)

    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Leave rows as they are."""
        return X

    def check(self, units: IntArray, d: int) -> int:
        """There are none."""
        require(not len(units), "rows that are not scaled have no scales")
        return d


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

    def check(self, units: IntArray, d: int) -> int:
        """One exponent per column."""
        right = len(units) == d and within(units, -LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
        require(right, "a scale is not one")
        return d


class Directions(RobustUnits):
    """Rows divided by the scales, and then by their own length: ``scale="direction"``.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform.detectors.knn import KNN
    >>> units = Directions(KNN(scale="direction"))
    >>> units.measure(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([0, 0]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """

    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Divide by the scales and the lengths; a row of zeros stays one."""
        rows = super().measure(X, units)
        largest = np.abs(rows).max(axis=1, initial=0.0)[:, None]
        rows /= np.where(largest > 0, largest, 1.0)
        squares = np.zeros(len(rows))
        for column in rows.T:  # in order: NumPy's own sum depends on how many rows there are
            squares += column * column
        return rows / np.where(squares > 0, np.sqrt(squares), 1.0)[:, None]


UNITS: dict[str, type[Units]] = {"none": AsTheyAre, "robust": RobustUnits, "direction": Directions}


def scales_of(detector: NativeDetector) -> Units:
    """Return the units that the parameter `scale` of a detector asks for.

    Examples
    --------
    >>> from reconform.detectors.knn import KNN
    >>> scales_of(KNN(scale="standard"))
    Traceback (most recent call last):
    ...
    reconform.errors.ReconformError: scale must be one of 'none', 'robust', ...
    """
    scale = getattr(detector, "scale", "none")
    if not isinstance(scale, str) or scale not in UNITS:
        raise unknown_choice("scale", scale, UNITS)
    return UNITS[scale](detector)


class WithExponent(Units):
    """The units of the scales, and one exponent more that is learned from the rows in these.

    A parameter of the detector is that power of two.
    """

    parameter: str

    def __init__(self, detector: NativeDetector) -> None:
        super().__init__(detector)
        self.scales = scales_of(detector)

    @abstractmethod
    def exponent(self, X: FloatArray) -> int:
        """The exponent for measured rows, whatever their order."""

    def exponents_with(self, X: FloatArray, new: FloatArray) -> IntArray:
        """The exponents for measured rows and one new row, for every new row: (m,)."""
        return np.array([self.exponent(np.vstack([X, x])) for x in new])

    def of(self, X: FloatArray) -> IntArray:
        """Units of all rows together."""
        units = self.scales.of(X)
        return np.append(units, self.exponent(self.scales.measure(X, units)))

    def with_each(self, X: FloatArray, new: FloatArray) -> IntArray:
        """Units of D and one new row: those of the scales, and behind them the exponents."""
        units, measure = self.scales.with_each(X, new), self.scales.measure
        last = np.empty((len(units), 1), dtype=np.int64)
        for key, at in groups(units):
            last[at, 0] = self.exponents_with(measure(X, key), measure(new[at], key))
        return np.hstack([units, last])

    def measure(self, X: FloatArray, units: IntArray) -> FloatArray:
        """Divide by the scales only."""
        return self.scales.measure(X, units[:-1])

    def plain(self, units: IntArray) -> NativeDetector:
        """Return the detector with this parameter, without scaling."""
        plain = super().plain(units)
        plain.set_params(**{self.parameter: 2.0 ** int(units[-1])})
        return plain

    def check(self, units: IntArray, d: int) -> int:
        """Those of the scales, and one more."""
        right = within(units[-1:], -LARGEST_EXPONENT, LARGEST_EXPONENT + 1)
        require(len(units) and right, f"a {self.parameter} is not one")
        return self.scales.check(units[:-1], d)
