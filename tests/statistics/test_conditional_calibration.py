"""Conditional calibration: the shortcuts are the enumeration of all worlds, bit for bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from oracle_worlds import nearest_neighbours, one_model_rule, oracle_e_value
from reconform.detectors.knn import KNN
from reconform.detectors.knn.ensembles import FullNeighbours
from reconform.ensemble import worlds_by_scores
from reconform.statistics.conditional_calibration import StepUp, count_exchanges
from reconform.statistics.evalues import closed_e_bh


def worlds_in(knn, D):
    return FullNeighbours.fit(knn._model(D))


LEVELS = (Fraction(1, 10), Fraction(3, 10), Fraction(3, 5), Fraction(9, 10))


def small_case(seed, kind):
    """Few rows; on the grid with many ties and duplicates, and a copy of a reference row."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 4))
    n, m, d = int(rng.integers(k + 2, 13)), int(rng.integers(1, 6)), int(rng.integers(1, 3))
    if kind == "grid":
        D, X = (rng.integers(0, 4, size=(rows, d)).astype(float) for rows in (n, m))
    else:
        D, X = (rng.normal(size=(rows, d)) for rows in (n, m))
    X[: m // 2] += 3
    if m > 1:
        X[-1] = D[0]
    return D, X, k


@pytest.mark.parametrize("kind", ["continuous", "grid"])
@pytest.mark.parametrize("seed", range(8))
def test_knn_worlds_equal_enumeration(seed, kind):
    """Where one model per row counts all worlds; for lists of their own see `test_worlds`."""
    D, X, k = small_case(seed, kind)
    neighbours = worlds_in(KNN(n_neighbors=k), D)
    for level in LEVELS:
        rule = one_model_rule(nearest_neighbours(k), level)
        step = StepUp.at(level, len(D), len(X))
        for j, worlds in worlds_by_scores(neighbours.augmented_scores(X, np.arange(len(X))), step):
            assert worlds.e_value == oracle_e_value(D, X, j, rule)


@pytest.mark.parametrize("kind", ["continuous", "grid"])
@pytest.mark.parametrize("seed", range(8))
def test_one_model_equals_enumeration(seed, kind):
    D, X, k = small_case(seed, kind)
    detector = nearest_neighbours(k)
    for level in LEVELS:
        step = StepUp.at(level, len(D), len(X))
        for j in range(len(X)):
            inside, score = detector(np.vstack([D, X[j]]))
            worlds = count_exchanges(inside, score(np.delete(X, j, axis=0)), step)
            rule = one_model_rule(detector, level)
            assert worlds.e_value == oracle_e_value(D, X, j, rule)


@pytest.mark.parametrize("seed", range(40))
def test_one_model_equals_enumeration_on_scores(seed):
    """Scores fixed by content: the statistics alone, with heavy ties and infinities."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 13)), int(rng.integers(1, 7))
    values = rng.integers(0, int(rng.integers(2, 15)), size=n + m).astype(float)
    values[rng.random(n + m) < 0.1] = -np.inf
    D, X = values[:n, None], values[n:, None]

    def detector(E):
        return E[:, 0], lambda Z: Z[:, 0]

    level = Fraction(int(rng.integers(1, 20)), 20)
    step = StepUp.at(level, n, m)
    for j in range(m):
        worlds = count_exchanges(np.append(D, X[j]), np.delete(X[:, 0], j), step)
        assert worlds.e_value == oracle_e_value(D, X, j, one_model_rule(detector, level))


def test_a_fixed_score_gives_the_list_of_bh():
    """With a score that never changes (split), the certificate costs nothing."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        D, X = rng.normal(size=99), rng.normal(size=40)
        X[:8] -= 4
        step = StepUp.at(Fraction(1, 10), 99, 40)
        e = [count_exchanges(np.append(D, X[j]), np.delete(X, j), step).e_value for j in range(40)]
        ranks = 1 + (D[None] <= X[:, None]).sum(axis=1)
        passed = np.flatnonzero(np.sort(ranks) <= step.limits[1:])
        bh = ranks <= (step.limits[passed[-1] + 1] if len(passed) else 0)
        assert (closed_e_bh(e, Fraction(1, 10)) == bh).all()
