"""The guard against clumps: new rows that keep each other company among normal rows.

A new row with companions among the new rows, which reference rows do not have, looks anomalous to
contrast whatever it is: copies, repeated measurements of one thing, a burst of one customer. The
guard counts such rows. For new row j it is a function of D and x_j as one set and of the other new
rows, and does not know which row of the set is new: with it p-values are as exact as without.
"""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray

# The guard speaks up by chance with a probability of about this, and lets this share of new rows
# have companions: anomalies among normal rows look like a few clumps.
GUARD_LEVEL = 1e-4
GUARD_SHARE = 0.05


def guard_limits(n: int, m: int, most: int) -> FloatArray:
    """Say how many of b new rows among normal rows may have c companions.

    If reference and new rows are exchangeable, the c rows nearest to a new row are all new ones
    with a probability of at most share^c, with share = (m - 2) / (n + m - 1): j counts as a
    reference row, and a row is not its own neighbour. Equal distances only lower it: companions
    are strictly nearer than the first reference row. Allowed is `GUARD_SHARE` of the rows beyond
    what has a chance of `GUARD_LEVEL`. (The binomial law ignores that rows depend on each other;
    that concerns how often the guard speaks up for nothing, not whether p-values are exact.)

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
    from scipy.stats import binom  # imported when needed: it is slow to import

    others = max(m - 2, 0)
    rows = np.arange(m + 1)
    chances = (others / (n + 1 + others)) ** np.arange(1, most + 1)[:, None]
    by_chance = binom.isf(GUARD_LEVEL, rows, chances)
    return np.asarray(np.maximum(by_chance, 0.0) + GUARD_SHARE * rows)
