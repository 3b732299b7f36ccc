"""Scores on a grid, so that what is equal but for rounding is equal.

A score that is repaired, by adding a term to a sum or a row to a scatter, is that of a fit from
scratch up to its last digits. Which rows are repaired and which are not depends on which one is
new. A tie between scores must not: rounded to a grid that is far coarser than what rounding has
done to them, tied scores are equal to the bit, but for about one in a million that lies on an edge
of the grid.
"""

from __future__ import annotations

from numba import njit

# 30 binary digits are kept: steps are about a part in 10^9, the ties of `compare`.
_CUT = 2.0**23 + 1.0
_STEPS = 1.5 * 2.0**22

# Numbers beyond it would overflow on the way, and none is finer than any grid.
_LARGEST = 2.0**990


@njit(cache=True, nogil=True)
def on_grid(value: float, least: float) -> float:
    """Round a number to 30 binary digits, or to those of `least` where that is larger.

    Examples
    --------
    >>> on_grid(0.1, 0.0) == on_grid(0.1 + 1e-15, 0.0)
    True
    >>> abs(on_grid(0.1, 0.0) - 0.1) < 1e-10, on_grid(1e-12, 0.0) > 0.0, on_grid(1e-12, 1.0)
    (True, True, 0.0)
    """
    if abs(value) < least:
        return (value + _STEPS * least) - _STEPS * least
    if not abs(value) < _LARGEST:
        return value
    # Veltkamp: what the large product cannot hold is cut off, rounded.
    large = value * _CUT
    return large - (large - value)
