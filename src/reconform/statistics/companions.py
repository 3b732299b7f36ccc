"""Companions: new rows that are nearer to each other than to any reference row.

A new row has c companions if its c-th nearest other new row is strictly nearer than its nearest
reference row. If reference and new rows are exchangeable, the c rows nearest to a new row are all
new ones with a probability of at most share^c, share being that of new rows among the others; equal
distances only lower it. More of them are clumps: copies, repeated measurements of one thing, a
burst of one customer.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray, IntArray

# Clumps are seen by chance with a probability of about this.
LEVEL = 1e-4


def companions_allowed(rows: IntArray, share: float, most: int, tolerated: float) -> FloatArray:
    """Say how many of so many new rows may have c companions.

    Allowed is a share of the rows beyond what has a chance of `LEVEL`. The binomial law ignores
    that rows depend on each other; that concerns how often clumps are seen for nothing.

    Parameters
    ----------
    rows : int array of shape (b,)
        Numbers of new rows that lie among reference rows.
    share : float
        That of new rows among all rows that may be nearest to one of them.
    most : int
        The largest number of companions.
    tolerated : float
        Share of the rows that may have companions for other reasons: anomalies have.

    Returns
    -------
    float array of shape (most, b)
        For c = 1, ..., most.

    Examples
    --------
    >>> companions_allowed(np.array([0, 10, 50, 100]), 0.09, 2, 0.05)
    array([[ 0. ,  5.5, 15.5, 26. ],
           [ 0. ,  2.5,  6.5, 11. ]])
    """
    from scipy.stats import binom  # imported when needed: it is slow to import

    chances = share ** np.arange(1, most + 1)[:, None]
    by_chance = binom.isf(LEVEL, rows, chances)
    return np.asarray(np.maximum(by_chance, 0.0) + tolerated * rows)
