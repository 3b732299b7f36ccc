"""Chances of counts, where normal new rows are exchangeable with the reference rows.

`scipy.stats` has these laws, too. Importing it takes longer than all checks together, and it adds
up the other tail, which loses small chances.

Clusters: if reference and new rows are exchangeable, the c rows nearest to a new row are all new
ones with a probability of at most share^c, share being that of new rows among the others; equal
distances only lower it. More of them are copies, repeated measurements of one thing, or a burst of
one customer. A new row in a cluster that the reference does not have looks anomalous to contrast
whatever it is, so its guard counts such rows: for new row j a function of D and x_j as one set and
of the other new rows, which does not know which row of the set is new, so that p-values stay exact.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import bdtrc, bdtrik, gammaln

from ..arrays import FloatArray, IntArray


@lru_cache(maxsize=4)
def log_factorials(bits: int) -> FloatArray:
    """Return log k! for all numbers k of so many binary digits: one table serves many sizes."""
    return np.asarray(gammaln(np.arange(1.0, (1 << bits) + 2.0)))


def at_most_marked(most: int, rows: int, marked: int, drawn: int) -> float:
    """P(at most so many marked rows among those drawn): hypergeometric.

    Examples
    --------
    >>> round(at_most_marked(0, 3, 1, 2), 6)  # the marked one of three is not among two
    0.333333
    """
    logs = log_factorials(rows.bit_length())
    i = np.arange(max(0, drawn + marked - rows), min(most, marked, drawn) + 1)
    law = np.exp(
        (logs[marked] - logs[i] - logs[marked - i])
        + (logs[rows - marked] - logs[drawn - i] - logs[rows - marked - drawn + i])
        - (logs[rows] - logs[drawn] - logs[rows - drawn])
    )
    return float(min(law.sum(), 1.0))


def at_least_before(count: int, m: int, r: int, n: int) -> float:
    """P(at least so many of m new rows come before the r-th of n reference rows).

    In random order: beta-binomial with r and n + 1 - r. So many do if there are fewer than r
    reference rows among the first ``count + r - 1``.

    Examples
    --------
    >>> round(at_least_before(2, 2, 1, 1), 6)  # one reference row, and it comes last of three
    0.333333
    """
    return at_most_marked(r - 1, n + m, n, count + r - 1) if count <= m else 0.0


def unlikely_counts(chance: float, trials: Any, share: Any) -> FloatArray:
    """Smallest counts that are exceeded with at most this chance: binomial, in any shape.

    Examples
    --------
    >>> unlikely_counts(0.05, [0, 10, 100], 0.5)
    array([ 0.,  8., 58.])
    """
    n, p = np.broadcast_arrays(np.asarray(trials, np.int64), np.asarray(share, np.float64))
    # Where the inverse says, or one beside it; it knows none for no trials and for no chance.
    count = np.ceil(np.nan_to_num(bdtrik(1.0 - chance, n, p)))
    count = np.where(bdtrc(np.maximum(count - 1, 0), n, p) <= chance, count - 1, count)
    count = np.where(bdtrc(count, n, p) > chance, count + 1, count)
    return np.asarray(np.maximum(count, 0.0))


# Clusters are seen by chance with a probability of about this.
CLUSTER_CHANCE = 1e-4

# This share of new rows may be close to others: anomalies look like a few clusters.
GUARD_SHARE = 0.05


def close_rows_allowed(rows: IntArray, share: float, most: int, tolerated: float) -> FloatArray:
    """Say how many of so many new rows may have c new rows nearer than any reference row.

    Allowed is a share of the rows beyond what has a chance of `CLUSTER_CHANCE`. The binomial law
    ignores that rows depend on each other; that concerns how often clusters are seen for nothing.

    Parameters
    ----------
    rows : int array of shape (b,)
        Numbers of new rows that lie among reference rows.
    share : float
        That of new rows among all rows that may be nearest to one of them.
    most : int
        The largest c.
    tolerated : float
        Share of the rows that may have such neighbours for other reasons: anomalies have.

    Returns
    -------
    float array of shape (most, b)
        For c = 1, ..., most.

    Examples
    --------
    >>> close_rows_allowed(np.array([0, 10, 50, 100]), 0.09, 2, 0.05)
    array([[ 0. ,  5.5, 15.5, 26. ],
           [ 0. ,  2.5,  6.5, 11. ]])
    """
    chances = share ** np.arange(1, most + 1)[:, None]
    return np.asarray(unlikely_counts(CLUSTER_CHANCE, rows, chances) + tolerated * rows)


def guard_limits(n: int, m: int, most: int) -> FloatArray:
    """Say the same for all b new rows that lie among normal rows, where row j is looked at.

    New row j counts as a reference row: of the rows that may be nearest to one of the m - 1 others,
    n + 1 are in D and x_j, and m - 2 are new.

    Parameters
    ----------
    n : int
        Reference rows.
    m : int
        New rows.
    most : int
        The largest c.

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
    return close_rows_allowed(np.arange(m + 1), others / (n + 1 + others), most, GUARD_SHARE)
