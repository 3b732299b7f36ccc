"""Chances of counts, where normal new rows are exchangeable with the reference rows.

`scipy.stats` has these laws, too. Importing it takes longer than all checks together, and it adds
up the other tail, which loses small chances.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import bdtrc, bdtrik, gammaln

from ..arrays import FloatArray


def log_factorials(top: int) -> FloatArray:
    """Return log 0!, ..., log top!, and perhaps some more."""
    return _log_factorials_up_to(1 << top.bit_length())


@lru_cache(maxsize=4)
def _log_factorials_up_to(top: int) -> FloatArray:
    return np.asarray(gammaln(np.arange(1.0, top + 2.0)))


def at_most_marked(most: int, rows: int, marked: int, drawn: int) -> float:
    """P(at most so many marked rows among those drawn): hypergeometric.

    Examples
    --------
    >>> round(at_most_marked(0, 3, 1, 2), 6)  # the marked one of three is not among two
    0.333333
    """
    logs = log_factorials(rows)
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
