"""Numbers without rounding: levels as they were written, and the harmonic number.

Decisions are made in integers and fractions; a float is for showing.

The grid of p-values: the p-value of each rank, in integers over one denominator.

The usual grid is r / (n + 1). A correction that turns ranks into other p-values (a larger one
for a theorem, calibration-conditional p-values) is another grid over the same ranks, so that
whatever counts ranks keeps working.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import FloatArray, IntArray
from ..errors import ReconformError, check_probability, is_number


def exact_fraction(argument: str, value: float | Fraction) -> Fraction:
    """Read a level as the decimal number that was written: 0.1 is 1/10.

    Examples
    --------
    >>> exact_fraction("fdr", 0.1)
    Fraction(1, 10)
    """
    if isinstance(value, Fraction) and 0 < value < 1:
        return value
    return Fraction(repr(check_probability(argument, value)))


def exact_number(argument: str, value: float | Fraction) -> Fraction:
    """Read a positive number as the decimal number that was written: 2.5 is 5/2.

    Examples
    --------
    >>> exact_number("false_alarms", 2.5)
    Fraction(5, 2)
    """
    if not is_number(value) or not 0 < value < float("inf"):
        raise ReconformError(f"{argument} must be a positive number; got {value!r}.")
    if isinstance(value, numbers.Rational):  # integers, NumPy's included
        return Fraction(int(value.numerator), int(value.denominator))
    return Fraction(repr(float(value)))


# Lists are a little shorter where x_j is a reference row, and a little slack pays for that; in
# lists of at most SHORT rows it would cost whole steps of the grid.
SLACK, SHORT = Fraction(19, 20), 5


def rows_counted(k: int) -> Fraction:
    """For how many rows a list of k rows counts, where it is certified.

    Examples
    --------
    >>> [float(rows_counted(k)) for k in (1, 5, 6, 20)]
    [1.0, 5.0, 5.7, 19.0]
    """
    return max(Fraction(min(k, SHORT)), SLACK * k)


# --- the harmonic number of Benjamini-Yekutieli, to any precision -------------------------------

_EULER_GAMMA = Decimal("0.57721566490153286060651209008240243104215933593992359880576723488487")
# 1/2m - sum of B_2j / (2j m^2j), alternating: the error is below the first term left out.
_BERNOULLI_TERMS = ((2, 12), (4, -120), (6, 252), (8, -240), (10, 132))
_EXACT_BELOW = 1_000


@lru_cache(maxsize=64)
def harmonic_number(m: int) -> tuple[Fraction, Fraction]:
    """Bounds on H_m = 1 + 1/2 + ... + 1/m: equal for small m, 10^-30 apart beyond.

    Examples
    --------
    >>> harmonic_number(4)
    (Fraction(25, 12), Fraction(25, 12))
    """
    if m < _EXACT_BELOW:
        exact = sum((Fraction(1, i) for i in range(1, m + 1)), Fraction(0))
        return exact, exact
    with localcontext() as context:
        context.prec = 60
        value = Decimal(m).ln() + _EULER_GAMMA + 1 / (2 * Decimal(m))
        for power, denominator in _BERNOULLI_TERMS:
            value -= 1 / (denominator * Decimal(m) ** power)
    middle = Fraction(value)
    return middle - Fraction(1, 10**30), middle + Fraction(1, 10**30)


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

    def decide(self, counts: RankCounts, how: Callable[[RankCounts, Grid], Decision]) -> Decision:
        """Decide on counts of ranks, in the order of p-values."""
        return how(counts, self)


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
