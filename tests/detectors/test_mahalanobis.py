"""Mahalanobis: one formula against a refit for every new row and for every row left out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from oracle import all_augmented_scores, p_value, phi_of
from reconform import ConformalDetector, Full, Jackknife
from reconform.detectors import Mahalanobis
from reconform.detectors.mahalanobis.ensembles import (
    LEAST_LEFT,
    FullMahalanobis,
    LeaveOneOutMahalanobis,
    Whitened,
)
from reconform.detectors.scaling import rescale, scale_exponents, spreads
from reconform.ensemble.refitting import OneModel
from reconform.errors import ReconformError
from rows import FILL, extremes

SEED = np.random.SeedSequence(0)


# --- refits --------------------------------------------------------------------------------------


def fit(X, ridge):
    mean = X.mean(axis=0)
    return mean, np.linalg.inv((X - mean).T @ (X - mean) + ridge * np.eye(X.shape[1]))


def scores(model, X):
    mean, inverse = model
    return -np.einsum("ij,jk,ik->i", X - mean, inverse, X - mean)


def not_above(c, t, strictly):
    """What differs in the ninth digit only is a tie."""
    margin = 1e-9 * np.maximum(np.abs(c), np.abs(t))
    return (c < t - margin) if strictly else (c <= t + margin)


def full_by_refits(X, new, ridge, strictly=False):
    ranks = []
    for x in new:
        E = np.vstack([X, x])
        s = scores(fit(E, ridge), E)
        ranks.append(1 + not_above(s[:-1], s[-1], strictly).sum())
    return ranks


def plus_by_refits(X, new, ridge, strictly=False):
    ranks = np.ones(len(new), dtype=int)
    for i in range(len(X)):
        model = fit(np.delete(X, i, axis=0), ridge)
        ranks += not_above(scores(model, X[i : i + 1]), scores(model, new), strictly)
    return ranks.tolist()


def cases():
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(4, 4))
    X = rng.normal(size=(40, 4)) @ mixing
    yield "smooth", X, np.vstack([X[:5], rng.normal(size=(20, 4)) @ mixing * 1.5])
    X = rng.integers(-2, 3, size=(60, 2)).astype(float)
    yield "lattice", np.vstack([X, -X]), np.vstack([X[:10], -X[10:20], [[9.0, 9.0], [0.0, 0.0]]])
    X = rng.normal(size=(12, 30))
    yield "wide", X, np.vstack([X[:3], rng.normal(size=(10, 30))])
    X = np.repeat(rng.normal(size=(6, 20)), [1, 1, 1, 2, 2, 4], axis=0)
    yield "wide copies", X, np.vstack([X[:7], X[:3] + X[3:6] - X[5:8], rng.normal(size=(5, 20))])
    X = np.hstack([rng.normal(size=(25, 2)), np.full((25, 1), 3.0)])
    new = np.vstack([X[:3], rng.normal(size=(5, 3)), X[3:5] + np.array([0, 0, 100.0])])
    yield "constant", X, new
    X = rng.normal(size=(30, 3))
    yield "far", X + 1e4, np.vstack([X[:5] + 1e4, X[:5] - 1e4, X[5:9] * 1e5])


CASES = {name: (X, new) for name, X, new in cases()}


def with_fill(rng, n, rows):
    X = rng.normal(size=(n, 4))
    for i in rows:
        X[i, rng.permutation(4)[:3]] = FILL * rng.choice([-1, 1], size=3)
    return X


def fit_full(X, **parameters):
    return Mahalanobis(**parameters).fit_plan(X, Full().plan(len(X)), [SEED])


def fit_plus(X, plan=None, **parameters):
    plan = Jackknife().plan(len(X)) if plan is None else plan
    return Mahalanobis(**parameters).fit_plan(X, plan, [SEED] * (len(X) + 1))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ridge", [1.0, 0.01])
def test_full_and_jackknife_plus_are_the_refits_and_the_same(name, ridge):
    X, new = CASES[name]
    full, plus = fit_full(X, ridge=ridge), fit_plus(X, ridge=ridge)
    assert type(full) is FullMahalanobis
    assert type(plus) is LeaveOneOutMahalanobis
    for ranks in (full.ranks(new, strictly=True), plus.ranks(new, strictly=True)):
        assert ranks.at_most.tolist() == full_by_refits(X, new, ridge)
        assert ranks.at_most.tolist() == plus_by_refits(X, new, ridge)
        assert ranks.below.tolist() == full_by_refits(X, new, ridge, strictly=True)
        assert ranks.below.tolist() == plus_by_refits(X, new, ridge, strictly=True)


def exact_score(rows, x):
    """Minus the squared distance with a ridge of 1, of two integer features, in fractions."""
    n = len(rows)
    mean = [Fraction(sum(row[j] for row in rows), n) for j in range(2)]
    a, b, c = (
        sum((row[j] - mean[j]) * (row[k] - mean[k]) for row in rows) + (j == k)
        for j, k in ((0, 0), (0, 1), (1, 1))
    )
    u, v = x[0] - mean[0], x[1] - mean[1]
    return -(c * u * u - 2 * b * u * v + a * v * v) / (a * c - b * b)


@pytest.mark.parametrize("n", [2, 3, 7])
def test_the_theorem_in_exact_arithmetic(n):
    """Many of these rows are copies or mirror images of others: ties are ties."""
    rng = np.random.default_rng(n)
    ties = 0
    for _ in range(40):
        rows = rng.integers(-2, 3, size=(n + 4, 2))
        D, new = rows[:n].tolist(), rows[n:].tolist()
        X, T = rows[:n].astype(float), rows[n:].astype(float)
        full, plus = (e.ranks(T, strictly=True) for e in (fit_full(X), fit_plus(X)))
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
            for ranks in (full, plus):
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


@pytest.mark.parametrize("name", CASES)
def test_scores_of_every_model_are_those_of_refits(name):
    X, new = CASES[name]
    ensemble = fit_plus(X)
    without = ensemble.scores(new)
    assert np.allclose(ensemble.full_scores(new), scores(fit(X, 1.0), new), rtol=1e-6)
    for i in range(len(X)):
        model = fit(np.delete(X, i, axis=0), 1.0)
        assert np.allclose(without[i], scores(model, new), rtol=1e-6)
        assert np.allclose(ensemble.calibration.scores[i], scores(model, X[i : i + 1]), rtol=1e-6)


@pytest.mark.parametrize("variant", ["basic", "pooled"])
@pytest.mark.parametrize("name", ["smooth", "wide", "constant"])
def test_other_variants_are_algorithm_1(name, variant):
    X, new = CASES[name]
    new = new[~(new[:, None] == X).all(axis=2).any(axis=1)]  # no copies, which rounding decides
    plan = Jackknife(variant).plan(len(X))
    ranks = fit_plus(X, plan).ranks(new).at_most
    phi = phi_of("median")
    for x, rank in zip(new, ranks, strict=True):
        expected = p_value(X, refit, x, plan.train, phi, variant)
        assert rank == expected * (len(X) + 1)


def refit(D):
    model = fit(D, 1.0)
    return lambda rows: scores(model, rows)


# --- scales --------------------------------------------------------------------------------------


def scaled(rows, among):
    return rescale(rows, scale_exponents(spreads(among)))


def test_with_scales_every_model_is_a_refit_in_its_own():
    rng = np.random.default_rng(5)
    X, new = rng.normal(size=(9, 2)) * [1e-6, 1.3e3], rng.normal(size=(40, 2)) * [2e-6, 1e3]
    full, plus = (
        ConformalDetector(Mahalanobis(scale="robust"), method).fit(X).ranks(new)
        for method in ("full", "jackknife+")
    )
    scales = {scale_exponents(spreads(np.vstack([X, x]))).tobytes() for x in new}
    assert len(scales) > 1
    for x, rank in zip(new, full, strict=True):
        E = scaled(np.vstack([X, x]), np.vstack([X, x]))
        assert full_by_refits(E[:-1], E[-1:], 1.0) == [rank]
    expected = np.ones(40, dtype=int)
    for i in range(9):
        rest = np.delete(X, i, axis=0)
        model = fit(scaled(rest, rest), 1.0)
        c, t = scores(model, scaled(X[i : i + 1], rest)), scores(model, scaled(new, rest))
        expected += not_above(c, t, strictly=False)
    assert np.array_equal(plus, expected)


# --- ties, order, extremes -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e6, 1e9, 1e12])
def test_rows_that_make_a_direction_their_own(size):
    """Without such a row the scatter along it is nothing: the formula would subtract it all."""
    rng = np.random.default_rng(3)
    X = np.vstack([rng.normal(size=(20, 3)), [[0.0, size, size]]])
    reference = Whitened(X, 1.0)
    assert reference._left[-1] < LEAST_LEFT
    expected = scores(fit(X[:-1], 1.0), np.vstack([X[-1:], X[:4], [[0.0, 0.0, 2 * size]]]))
    ensemble = fit_plus(X)
    assert np.allclose(ensemble.calibration.scores[-1], expected[0], rtol=1e-6)
    new = np.vstack([X[:4], [[0.0, 0.0, 2 * size]]])
    assert np.allclose(ensemble.scores(new)[-1], expected[1:], rtol=1e-6)
    # Such a row is at least as anomalous as an ordinary one, whichever way it is looked at.
    assert (ensemble.ranks(X[:4]).at_most >= 2).all()


@pytest.mark.parametrize("method", ["full", "jackknife+"])
@pytest.mark.parametrize("seed", range(6))
def test_fill_values_in_the_reference_flag_no_clean_rows(seed, method):
    """50 clean rows by 100 with two fill values; a correct program flags some in 2% of seeds."""
    rng = np.random.default_rng(seed)
    X, new = with_fill(rng, 100, [3, 40]), rng.normal(size=(50, 4))
    cad = ConformalDetector("mahalanobis", method).fit(X)
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


@pytest.mark.parametrize("kind", ["one size", "columns", "rows", "cells", "far", "fill"])
def test_no_rank_is_below_that_of_exact_arithmetic(kind):
    """Numbers from 1e-300 to 1e300; scores with each new row are those of exact arithmetic."""
    rng = np.random.default_rng(0)
    bound = -(Fraction(2) ** 800)  # scores beyond it are shown as it
    for _ in range(25):
        n = int(rng.integers(3, 9))
        d = int(rng.integers(1, 4)) if rng.random() < 0.9 else n + 1
        ridge = 1.0 if rng.random() < 0.7 else 10.0 ** rng.uniform(-14, 14)
        rows = extremes(kind, rng, (n + 3, d))
        exact = [[Fraction(float(value)) for value in row] for row in rows]
        full = fit_full(rows[:n], ridge=ridge)
        got = full.ranks(rows[n:]).at_most
        assert np.array_equal(got, fit_plus(rows[:n], ridge=ridge).ranks(rows[n:]).at_most)
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


# --- what is promised ----------------------------------------------------------------------------


def test_jackknife_plus_says_that_it_is_exact_where_it_is():
    X, new = CASES["smooth"]
    cad = ConformalDetector(Mahalanobis(), "jackknife+").fit(X)
    assert cad.guarantee_.kind == "exact"
    assert "mahalanobis" in str(cad.guarantee_)
    assert np.array_equal(cad.p_values(new, validity="proven"), cad.p_values(new))
    assert "FDR proven for BY" in cad.discover(new, procedure="by").guarantee
    for detector, method in (
        (Mahalanobis(scale="robust"), "jackknife+"),  # scales of D without a row may be others
        (Mahalanobis(), "cv+"),
        (Mahalanobis(), "jackknife"),
        ("knn", "jackknife+"),
    ):
        assert ConformalDetector(detector, method).fit(X).guarantee_.kind != "exact"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ridge", [1.0, 0.01])
def test_all_rows_with_each_new_row_are_those_of_refits(name, ridge):
    D, new = CASES[name]
    new = np.vstack([new, new[:2]])
    rows = np.arange(len(new))[::-1]
    expected = all_augmented_scores(OneModel(Mahalanobis(ridge), D, SEED), new, rows)
    # In the last case a new row lies a million times further away than D is wide.
    tolerance = 1e-6 if name == "far" else 1e-8
    for ensemble in (fit_full(D, ridge=ridge), fit_plus(D, ridge=ridge)):
        got = all_augmented_scores(ensemble, new, rows)
        for a, b in zip(got, expected, strict=True):
            assert np.allclose(a, b, rtol=tolerance, atol=1e-12)


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


@pytest.mark.parametrize("ridge", [0, -1.0, np.nan, np.inf, True, "1", None])
def test_a_ridge_that_is_none(ridge):
    X, _ = CASES["smooth"]
    for method in ("full", "jackknife+", "split"):
        with pytest.raises(ReconformError, match="`ridge` must be a number between"):
            ConformalDetector(Mahalanobis(ridge), method).fit(X)
    with pytest.raises(ReconformError, match="`ridge` must be a number between"):
        Mahalanobis(ridge).fit(X)
