"""Conditional calibration, word for word: every world is built, and the rule is run in it.

Slow, and for n <= 12 or so. `e_value_of_one_model` is compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
# From rows to a function that scores E (its own rows, all alike) or other rows; small = anomalous.
Detector = Callable[[FloatArray], tuple[FloatArray, Callable[[FloatArray], FloatArray]]]
# From reference, batch and j to the positions found.
Rule = Callable[[FloatArray, FloatArray, int], set[int]]


def benjamini_hochberg(ranks: list[int], n: int, level: Fraction) -> set[int]:
    """Step up, in fractions; lists of more than five rows at 19/20 of the level."""
    m = len(ranks)
    for k in range(m, 0, -1):
        line = level * max(min(k, 5), Fraction(19 * k, 20)) / m
        found = {j for j, r in enumerate(ranks) if Fraction(r, n + 1) <= line}
        if len(found) >= k:
            return found
    return set()


def one_model_rule(detector: Detector, level: Fraction) -> Rule:
    """BH on ranks under one model, fitted on the reference and row j of the batch."""

    def rule(D: FloatArray, batch: FloatArray, j: int) -> set[int]:
        inside, score = detector(np.vstack([D, batch[j]]))
        calibration, ranks = inside[:-1], []
        for place in range(len(batch)):
            s = inside[-1] if place == j else score(batch[place : place + 1])[0]
            ranks.append(1 + sum(c <= s for c in calibration))
        return benjamini_hochberg(ranks, len(D), level)

    return rule


def oracle_e_value(D: FloatArray, batch: FloatArray, j: int, rule: Rule) -> Fraction:
    """b(actual) / mean of b over all n + 1 worlds, b = 1{row at j found} / length of the list."""

    def b(reference: FloatArray, new: FloatArray) -> Fraction:
        world = batch.copy()
        world[j] = new
        found = rule(reference, world, j)
        return Fraction(int(j in found), max(len(found), 1))

    actual = b(D, batch[j])
    every = np.vstack([D, batch[j]])
    worlds = (b(np.delete(every, w, axis=0), every[w]) for w in range(len(every)))
    mean = sum(worlds, Fraction(0)) / len(every)
    return actual / mean if actual else Fraction(0)


def oracle_closed_list(e_values: list[Fraction], fdr: Fraction) -> set[int]:
    """The largest admissible list made of the largest e-values, by all 2^m sets; ties together."""
    m = len(e_values)
    best: set[int] = set()
    for value in {v for v in e_values if v > 0}:
        found = {i for i in range(m) if e_values[i] >= value}
        admissible = all(
            sum((e_values[i] for i in A), Fraction(0)) / size
            >= Fraction(len(found & set(A)), len(found)) / fdr
            for size in range(1, m + 1)
            for A in combinations(range(m), size)
        )
        if admissible and len(found) > len(best):
            best = found
    return best


def nearest_neighbours(k: int, root: float = 0.5) -> Detector:
    """Distance to the k-th nearest other row."""

    def fit(X: FloatArray) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
        def distances(Z: FloatArray) -> FloatArray:
            squares = np.zeros((len(Z), len(X)))
            for feature in range(X.shape[1]):
                squares += (Z[:, None, feature] - X[None, :, feature]) ** 2
            return squares

        own = distances(X)
        np.fill_diagonal(own, np.inf)
        inside = -(np.sort(own, axis=1)[:, k - 1] ** root)
        return inside, lambda Z: -(np.sort(distances(Z), axis=1)[:, k - 1] ** root)

    return fit
