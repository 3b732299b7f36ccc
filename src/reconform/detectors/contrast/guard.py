"""The guard against clumps: new rows that keep each other company among normal rows.

A new row with companions (`reconform.statistics.companions`), which reference rows do not have,
looks anomalous to contrast whatever it is. The guard counts such rows. For new row j it is a
function of D and x_j as one set and of the other new rows, and does not know which row of the set
is new: with it p-values are as exact as without.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray
from ...statistics.companions import companions_allowed

# This share of new rows may have companions: anomalies among normal rows look like a few clumps.
GUARD_SHARE = 0.05


def guard_limits(n: int, m: int, most: int) -> FloatArray:
    """Say how many of b new rows among normal rows may have c companions.

    New row j counts as a reference row: of the rows that may be nearest to one of the m - 1 others,
    n + 1 are in D and x_j, and m - 2 are new.

    Parameters
    ----------
    n : int
        Reference rows.
    m : int
        New rows.
    most : int
        The largest number of companions.

    Returns
    -------
    float array of shape (most, m + 1)
        For c = 1, ..., most and b = 0, ..., m.

    Examples
    --------
    >>> guard_limits(1000, 101, 2)[:, [0, 10, 50, 100]]
    array([[ 0. ,  5.5, 15.5, 26. ],
           [ 0. ,  2.5,  6.5, 11. ]])
    """
    others = max(m - 2, 0)
    return companions_allowed(np.arange(m + 1), others / (n + 1 + others), most, GUARD_SHARE)
