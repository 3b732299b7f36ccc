"""Exact probabilities behind the certificates: no simulation, so nothing to take on trust.

`coverage` is for calibration-conditional p-values (`reconform.statistics.thresholds`), `passed` is
for the
curves of `reconform.statistics.bounds`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import fft, special

FloatArray = npt.NDArray[np.float64]


def coverage(bounds: Sequence[float] | FloatArray) -> float:
    """P(U_(1) <= b_1, ..., U_(n) <= b_n), by the recursion of Moscovich and Nadler (2017).

    A Poisson process of rate n has at least r points up to b_r, for all r; then it is conditioned
    on having n points in all. Only positive numbers are added, so this is good to 1e-10.

    Parameters
    ----------
    bounds : array-like of float
        Nondecreasing, in [0, 1].

    Examples
    --------
    >>> round(coverage([0.2, 0.5]), 12)  # 2 (0.2 * 0.5 - 0.2**2 / 2)
    0.16
    """
    n = len(bounds)
    points = np.arange(n + 1)
    size = fft.next_fast_len(2 * n + 2, real=True)
    law, last = np.zeros(n + 1), 0.0
    law[0] = 1.0
    for r, bound in enumerate(bounds, start=1):
        if bound > last:
            step = _poisson(points, n * (bound - last))
            law = fft.irfft(fft.rfft(law, size) * fft.rfft(step, size), size)[: n + 1].clip(0)
        law[:r] = 0.0
        last = bound
    rest = _poisson(n - points, n * (1 - last))
    return float((law * rest).sum() / _poisson(np.array(n), n))


def _poisson(points: npt.NDArray[Any], mean: float) -> FloatArray:
    return np.asarray(np.exp(special.xlogy(points, mean) - mean - special.gammaln(points + 1)))


def passed(envelope: Sequence[int] | npt.NDArray[np.int64], n: int, nulls: int) -> float:
    """P(N(r) > E(r) for some r): orders of n + s scores, counted in integers.

    Between neighbouring calibration scores any number of test scores may lie; every way to place
    all s of them is equally likely.

    Parameters
    ----------
    envelope : array-like of int, shape (n + 2,)
        E(0), ..., E(n + 1).
    n : int
        Number of calibration scores.
    nulls : int
        Number of normal test rows, s.

    Examples
    --------
    >>> passed([0, 0, 1], n=1, nulls=1)  # the test score is the smaller one
    0.5
    """
    ways = [1] + [0] * nulls
    for most in map(int, envelope[1:]):
        ways = list(accumulate(ways))
        ways[most + 1 :] = [0] * (nulls - most)
    return float(1 - Fraction(ways[nulls], comb(n + nulls, nulls)))
