"""Companions: new rows that are nearer to each other than to any reference row.

A new row has c companions if its c-th nearest other new row is strictly nearer than its nearest
reference row. If reference and new rows are exchangeable, the c rows nearest to a new row are all
new ones with a probability of at most share^c, share being that of new rows among the others; equal
distances only lower it. More of them are clusters: copies, repeated measurements of one thing, a
burst of one customer.

A new row with companions, which reference rows do not have, looks anomalous to contrast whatever it
is. Its guard counts such rows. For new row j it is a function of D and x_j as one set and of the
other new rows, and does not know which row of the set is new: with it p-values are as exact as
without.
"""

from __future__ import annotations

import numpy as np

from ..arrays import FloatArray, IntArray
from .chances import unlikely_counts

# Clusters are seen by chance with a probability of about this.
LEVEL = 1e-4

# This share of new rows may have companions: anomalies among normal rows look like a few clusters.
GUARD_SHARE = 0.05


def companions_allowed(rows: IntArray, share: float, most: int, tolerated: float) -> FloatArray:
    """Say how many of so many new rows may have c companions.

    Allowed is a share of the rows beyond what has a chance of `LEVEL`. The binomial law ignores
    that rows depend on each other; that concerns how often clusters are seen for nothing.

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
    chances = share ** np.arange(1, most + 1)[:, None]
    return np.asarray(unlikely_counts(LEVEL, rows, chances) + tolerated * rows)


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
