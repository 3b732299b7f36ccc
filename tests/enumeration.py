"""All worlds of a set of rows: each of them in turn is the new one, and the others are D.

Where D and the new row are exchangeable, every world is equally likely given the rows as a set (or
as likely as its weight says). So a p-value that is valid given the seed is small in few worlds,
and an e-value is 1 on average at most: both can be counted, and nothing is left to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

# From the rows of D, in any order, and the new row, as positions, to p and perhaps e.
Judge = Callable[[npt.NDArray[np.intp], int], Any]


def worlds(count: int, seed: int = 0) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Positions of D, in another order every time, and of the new row."""
    rng = np.random.default_rng(seed)
    for new in range(count):
        yield rng.permutation(np.delete(np.arange(count), new)), new


def judged(judge: Judge, count: int, seed: int = 0) -> npt.NDArray[np.float64]:
    """What `judge` says in every world: (worlds,), or (worlds, 2) of p-values and e-values."""
    return np.array([judge(others, new) for others, new in worlds(count, seed)], dtype=float)


def excess(
    p: Sequence[float], weights: Sequence[float] | None = None, groups: Sequence[Any] | None = None
) -> Fraction:
    """The most by which P(p <= t) exceeds t, over all t and groups; at most 0 if p is valid.

    A p-value is a fraction with a denominator of at most 10^6, unless there are weights. With
    weights a world is as likely as the weight of its new row; with groups the probability is that
    within a group, of which the new row is one.
    """
    exact = [Fraction(float(value)) for value in p]
    if weights is None:
        exact = [value.limit_denominator(10**6) for value in exact]
    mass = [Fraction(1)] * len(exact) if weights is None else [Fraction(float(w)) for w in weights]
    of = [0] * len(exact) if groups is None else list(groups)
    found = []
    for g in dict.fromkeys(of):
        mine = [i for i in range(len(exact)) if of[i] == g]
        whole = sum(mass[i] for i in mine)
        for t in {exact[i] for i in mine}:
            found.append(sum(mass[i] for i in mine if exact[i] <= t) / whole - t)
    return max(found)


def mean_e(e: Sequence[float], weights: Sequence[float] | None = None) -> float:
    """The mean of e-values over all worlds; at most 1 if they are valid."""
    return float(np.average(np.asarray(e, dtype=float), weights=weights))
