"""The grid of p-values: what each rank is worth, in integers over one denominator.

The usual grid is r / (n + 1). A correction that turns ranks into other p-values (a larger one
for a theorem, calibration-conditional p-values) is another grid over the same ranks, so that
whatever counts ranks keeps working.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import FloatArray, IntArray
from ..errors import ReconformError

if TYPE_CHECKING:
    from .fdr import Decision, RankCounts  # which are decided on grids

_ROUNDING = 1 << 50


@dataclass(frozen=True, eq=False)
class Grid:
    """p-values of the ranks 1 .. n + 1.

    Attributes
    ----------
    numerators : int array of shape (n + 2,)
        Nondecreasing; entry r belongs to rank r, entry 0 is 0 and stands for no rank.
    denominator : int

    Examples
    --------
    >>> import numpy as np
    >>> usual(4).values(np.array([1, 5]))
    array([0.2, 1. ])
    """

    numerators: IntArray
    denominator: int

    @property
    def n_calibration(self) -> int:
        """n, the number of calibration scores."""
        return len(self.numerators) - 2

    @property
    def smallest(self) -> Fraction:
        """The smallest p-value that there is."""
        return Fraction(int(self.numerators[1]), self.denominator)

    @cached_property
    def table(self) -> FloatArray:
        """The p-value of every rank as a float."""
        return self.numerators / self.denominator

    def values(self, ranks: IntArray) -> FloatArray:
        """p-values of rows with these ranks."""
        return np.asarray(self.table[ranks])

    # A joint grid of several groups (`joint.py`) has its ranks in another order than its p-values.

    def smallest_of_each(self) -> list[Fraction]:
        """The smallest p-value of every group."""
        return [self.smallest]

    @property
    def in_order(self) -> Grid:
        """The grid in the order of its p-values."""
        return self

    def ordered(self, counts: RankCounts) -> RankCounts:
        """Put counts of ranks into the order of p-values."""
        return counts

    def decided(self, decision: Decision) -> Decision:
        """Turn a decision in the order of p-values into one on ranks."""
        return decision


def usual(n_calibration: int) -> Grid:
    """The grid r / (n + 1) of the paper."""
    return Grid(np.arange(n_calibration + 2, dtype=np.int64), n_calibration + 1)


def from_floats(table: FloatArray) -> Grid:
    """A grid from floats in [0, 1], rounded up to multiples of 2^-50 so that nothing is gained.

    Parameters
    ----------
    table : float array of shape (n + 2,)
        Nondecreasing; entry 0 is ignored.

    Examples
    --------
    >>> import numpy as np
    >>> from_floats(np.array([0.0, 0.25, 1.0])).table
    array([0.  , 0.25, 1.  ])
    """
    numerators = np.ceil(np.asarray(table, dtype=np.float64) * _ROUNDING).astype(np.int64)
    numerators[0] = 0
    if len(numerators) < 2 or (np.diff(numerators) < 0).any() or numerators[-1] > _ROUNDING:
        raise ReconformError("a table of p-values must be nondecreasing in the rank and at most 1.")
    return Grid(numerators, _ROUNDING)
