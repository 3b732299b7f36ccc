"""Mahalanobis in exact arithmetic: ties are ties, and whatever overflows, no rank is too low."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.covariance import ledoit_wolf

from formulas import Scatter
from reconform import ConformalDetector, Full
from reconform.detectors import Mahalanobis
from reconform.detectors.mahalanobis import LEAST_LEFT, RidgeUnits, Whitened
from rows import FILL, extremes

SEED = np.random.SeedSequence(0)


def with_fill(rng, n, rows):
    X = rng.normal(size=(n, 4))
    for i in rows:
        X[i, rng.permutation(4)[:3]] = FILL * rng.choice([-1, 1], size=3)
    return X


def fit_full(X, **parameters):
    return Mahalanobis(**parameters).fit_plan(X, Full().plan(len(X)), [SEED])


@pytest.mark.parametrize("n", [2, 3, 7])
def test_the_theorem_in_exact_arithmetic(n):
    """Many of these rows are copies or mirror images of others: ties are ties."""
    rng = np.random.default_rng(n)
    ties = 0
    for _ in range(40):
        rows = rng.integers(-2, 3, size=(n + 4, 2))
        D, new = rows[:n].tolist(), rows[n:].tolist()
        X, T = rows[:n].astype(float), rows[n:].astype(float)
        ranks = fit_full(X).ranks(T, strictly=True)
        for j, x in enumerate(new):
            E = [*D, x]
            inside = [exact_score(E, e) for e in E]
            held = [E[:i] + E[i + 1 :] for i in range(n)]
            c = [exact_score(D[:i] + D[i + 1 :], D[i]) for i in range(n)]
            t = [exact_score(D[:i] + D[i + 1 :], x) for i in range(n)]
            alone = [exact_score(rest, e) for rest, e in zip(held, D, strict=True)]
            at_most = 1 + sum(s <= inside[-1] for s in inside[:-1])
            below = 1 + sum(s < inside[-1] for s in inside[:-1])
            ties += at_most > below
            assert at_most == 1 + sum(a <= b for a, b in zip(c, t, strict=True))
            assert below == 1 + sum(a < b for a, b in zip(c, t, strict=True))
            assert at_most == 1 + sum(s <= exact_score(D, x) for s in alone)  # by the others
            assert (ranks.at_most[j], ranks.below[j]) == (at_most, below)
    assert ties > 20


@pytest.mark.parametrize("steepness", [10**3, 10**7, 10**9, 10**12])
def test_columns_that_are_nearly_functions_of_each_other(steepness):
    """Ranks are those of exact arithmetic up to 10^7; where rounding wins, none is too low."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        a, b = rng.integers(-3, 4, size=(2, 18))
        rows = np.column_stack([a, steepness * a + b])
        got = fit_full(rows[:12].astype(float)).ranks(rows[12:].astype(float)).at_most
        for x, rank in zip(rows[12:].tolist(), got, strict=True):
            E = [*rows[:12].tolist(), x]
            inside = [exact_score(E, e) for e in E]
            expected = 1 + sum(s <= inside[-1] for s in inside[:-1])
            assert rank >= expected
            assert steepness > 10**7 or rank == expected


@pytest.mark.parametrize("size", [1e6, 1e9, 1e12])
def test_rows_that_make_a_direction_their_own(size):
    """Without such a row the scatter along it is nothing: the formula would subtract it all."""
    rng = np.random.default_rng(3)
    X = np.vstack([rng.normal(size=(20, 3)), [[0.0, size, size]]])
    reference = Whitened(X, 1.0)
    assert reference._left[-1] < LEAST_LEFT
    ensemble = fit_full(X)
    assert np.allclose(ensemble.calibration.scores[-1], Scatter().by(X[:-1], X[-1:]), rtol=1e-6)
    # Such a row is at least as anomalous as an ordinary one, whichever way it is looked at.
    assert (ensemble.ranks(X[:4]).at_most >= 2).all()


@pytest.mark.parametrize("seed", range(6))
def test_fill_values_in_the_reference_flag_no_clean_rows(seed):
    """50 clean rows by 100 with two fill values; a correct program flags some in 2% of seeds."""
    rng = np.random.default_rng(seed)
    X, new = with_fill(rng, 100, [3, 40]), rng.normal(size=(50, 4))
    cad = ConformalDetector("mahalanobis", "full").fit(X)
    assert cad.discover(new, fdr=0.1).count == 0
    assert len(np.unique(cad.p_values(new))) > 25  # and they are told apart


def exact_scores(rows, X, ridge):
    """Minus squared distances by the model on rows, in fractions."""
    n, d = len(rows), len(rows[0])
    mean = [sum(row[j] for row in rows) / n for j in range(d)]
    gaps = [[row[j] - mean[j] for j in range(d)] for row in rows]
    table = [
        [sum(g[j] * g[k] for g in gaps) + ridge * (j == k) for k in range(d)]
        + [Fraction(j == k) for k in range(d)]
        for j in range(d)
    ]
    for k in range(d):  # Gauss and Jordan
        table[k] = [value / table[k][k] for value in table[k]]
        for j in range(d):
            if j != k:
                table[j] = [u - table[j][k] * v for u, v in zip(table[j], table[k], strict=True)]
    result = []
    for x in X:
        g = [x[j] - mean[j] for j in range(d)]
        result.append(-sum(g[j] * table[j][d + k] * g[k] for j in range(d) for k in range(d)))
    return result


def exact_score(rows, x):
    """The score of x with a ridge of 1, of integer rows."""
    rows, x = ([[Fraction(value) for value in row] for row in part] for part in (rows, [x]))
    return exact_scores(rows, x, 1)[0]


@pytest.mark.parametrize("kind", ["one size", "columns", "rows", "cells", "far", "fill"])
def test_no_rank_is_below_that_of_exact_arithmetic(kind, rng):
    """Numbers from 1e-300 to 1e300; scores with each new row are those of exact arithmetic."""
    bound = -(Fraction(2) ** 800)  # scores beyond it are shown as it
    for _ in range(12):
        n = int(rng.integers(3, 9))
        d = int(rng.integers(1, 4)) if rng.random() < 0.9 else n + 1
        ridge = 1.0 if rng.random() < 0.7 else 10.0 ** rng.uniform(-14, 14)
        rows = extremes(kind, rng, (n + 3, d))
        exact = [[Fraction(float(value)) for value in row] for row in rows]
        full = fit_full(rows[:n], ridge=ridge)
        got = full.ranks(rows[n:]).at_most
        (augmented,) = full.augmented_scores(rows[n:], np.arange(3))
        for j in range(3):
            E = [*exact[:n], exact[n + j]]
            inside = exact_scores(E, E + exact[n:], Fraction(ridge))
            assert got[j] >= 1 + sum(s <= inside[n] for s in inside[:n])
            more = Fraction(n + 1, n)
            alone = [more * more * s / (1 + more * s) for s in inside[: n + 1]]
            expected = [float(max(s, bound)) for s in alone + inside[n + 1 :]]
            seen = np.append(augmented.own[j], augmented.others[j])
            here = [k for k, s in enumerate(expected) if s > -1e219 and k != n + 1 + j]
            assert np.allclose(seen[here], np.array(expected)[here], rtol=1e-6, atol=1e-26)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_all_rows_with_each_new_row_in_exact_arithmetic(n):
    """Each row of D and x by the others, and all new rows by D and x; ties are ties."""
    rng = np.random.default_rng(n)
    ties = 0
    for _ in range(40):
        rows = rng.integers(-2, 3, size=(n + 4, 2))
        full = fit_full(rows[:n].astype(float))
        (augmented,) = full.augmented_scores(rows[n:].astype(float), np.arange(4))
        for j in range(4):
            E = [*rows[:n].tolist(), rows[n + j].tolist()]
            inside = [exact_score(E[:i] + E[i + 1 :], e) for i, e in enumerate(E)]
            outside = [exact_score(E, x) for x in rows[n:].tolist()]
            assert np.allclose(augmented.own[j], [float(s) for s in inside], rtol=2e-9)
            assert np.allclose(augmented.others[j], [float(s) for s in outside], rtol=2e-9)
            for i in range(n):
                assert (augmented.own[j, i] <= augmented.own[j, n]) == (inside[i] <= inside[n])
                assert (augmented.own[j, i] < augmented.own[j, n]) == (inside[i] < inside[n])
                ties += inside[i] == inside[n]
    assert ties > 20


@pytest.mark.parametrize("shape", [(30, 80), (200, 10), (40, 40)])
def test_the_learned_ridge_is_ledoit_and_wolfs(shape):
    """To a power of two, whatever the order and the units of the rows."""
    n, d = shape
    rng = np.random.default_rng(n)
    X = rng.normal(size=shape) @ rng.normal(size=(d, d))
    share = ledoit_wolf(X)[1]
    expected = n * share / (1 - share) * X.var(axis=0).mean()
    (exponent,) = RidgeUnits(Mahalanobis("auto")).of(X)
    assert abs(exponent - np.log2(expected)) <= 0.5 + 1e-9
    assert RidgeUnits(Mahalanobis("auto")).of(X[::-1] * 2.0**7).tolist() == [exponent + 14]


def test_learned_ridges_are_those_of_refits(rng):
    X, new = rng.lognormal(size=(9, 12)), rng.lognormal(sigma=2.0, size=(8, 12))
    for scale in ("none", "robust", "direction"):
        units = RidgeUnits(Mahalanobis("auto", scale))
        together = [units.of(np.vstack([x, X])) for x in new]
        assert units.with_each(X, new).tolist() == np.array(together).tolist()
        without = [units.of(np.delete(X, i, axis=0)) for i in range(len(X))]
        assert units.without_each(X).tolist() == np.array(without).tolist()
