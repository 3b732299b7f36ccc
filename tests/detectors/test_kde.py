"""Kernel density: sums without a term against refits with SciPy's log-sum-exp."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from sklearn.neighbors import KernelDensity

from oracle import all_augmented_scores, p_value, phi_of
from reconform import ConformalDetector, Full, Jackknife
from reconform.detectors import KDE
from reconform.detectors.kde import KernelUnits, bandwidth_exponents
from reconform.detectors.kde.model import FullKDE, LeaveOneOutKDE
from reconform.detectors.scaling import rescale, scale_exponents, spreads
from reconform.ensemble.refitting import OneModel
from reconform.errors import ReconformError

SEED = np.random.SeedSequence(0)


# --- refits --------------------------------------------------------------------------------------


def log_kernels(A, B, h):
    return -cdist(A, B, "sqeuclidean") / (2.0 * h * h)


def not_above(c, t, strictly):
    """What differs in the ninth digit only is a tie."""
    margin = 1e-9 * np.maximum(1.0, np.maximum(np.abs(c), np.abs(t)))
    return (c < t - margin) if strictly else (c <= t + margin)


def full_by_refits(X, new, h, strictly=False):
    ranks = []
    for x in new:
        E = np.vstack([X, x])
        K = log_kernels(E, E, h)
        np.fill_diagonal(K, -np.inf)
        s = logsumexp(K, axis=1)
        ranks.append(1 + not_above(s[:-1], s[-1], strictly).sum())
    return ranks


def plus_by_refits(X, new, h, strictly=False):
    ranks = np.ones(len(new), dtype=int)
    for i in range(len(X)):
        model = np.delete(X, i, axis=0)
        c = logsumexp(log_kernels(X[i : i + 1], model, h), axis=1)
        ranks += not_above(c, logsumexp(log_kernels(new, model, h), axis=1), strictly)
    return ranks.tolist()


def cases():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    yield "smooth", X, np.vstack([X[:5], rng.normal(size=(20, 3)) * 1.5]), 0.5
    X = rng.integers(-2, 3, size=(80, 2)).astype(float)
    yield "lattice", X, np.vstack([X[:10], -X[10:20], [[9.0, 9.0], [0.5, 0.5]]]), 1.0
    X = rng.normal(size=(30, 40))
    yield "wide", X, np.vstack([X[:3], rng.normal(size=(10, 40))]), 2.0
    X = np.hstack([rng.normal(size=(25, 2)), np.full((25, 1), 3.0)])
    new = np.vstack([X[:3], rng.normal(size=(5, 3)), X[3:5] + np.array([0, 0, 100.0])])
    yield "constant", X, new, 1.0
    yield "two rows", np.array([[0.0], [1.0]]), np.array([[0.0], [0.5], [2.0], [-1.0], [1.0]]), 1.0
    X = rng.normal(size=(40, 1))
    yield "narrow", X, np.vstack([X[:5], rng.normal(size=(20, 1)) * 2]), 0.01


CASES = {name: rest for name, *rest in cases()}


def fit_full(X, h):
    return KDE(h).fit_plan(X, Full().plan(len(X)), [SEED])


def fit_plus(X, h, plan=None):
    plan = Jackknife().plan(len(X)) if plan is None else plan
    return KDE(h).fit_plan(X, plan, [SEED] * (len(X) + 1))


@pytest.mark.parametrize("name", CASES)
def test_full_and_jackknife_plus_are_the_refits_and_the_same(name):
    X, new, h = CASES[name]
    full, plus = fit_full(X, h), fit_plus(X, h)
    assert type(full) is FullKDE
    assert type(plus) is LeaveOneOutKDE
    for ranks in (full.ranks(new, strictly=True), plus.ranks(new, strictly=True)):
        assert ranks.at_most.tolist() == plus_by_refits(X, new, h)
        assert ranks.below.tolist() == plus_by_refits(X, new, h, strictly=True)
        if name != "narrow":  # sums with the kernel of a near-copy hide all other terms
            assert ranks.at_most.tolist() == full_by_refits(X, new, h)
            assert ranks.below.tolist() == full_by_refits(X, new, h, strictly=True)


def test_a_near_copy_does_not_hide_what_is_compared():
    """The kernel of a copy of an outlier is 1, the others exp(-1000): sums with it are all 1."""
    X = np.array([[0.0], [0.1], [0.2], [0.3], [45.0]])
    new = np.array([[45.0], [44.9], [45.1]])
    ranks = fit_full(X, 1.0).ranks(new, strictly=True)
    # Tied with its copy; less anomalous than it; more anomalous than it.
    assert ranks.at_most.tolist() == [2, 2, 1]
    assert ranks.below.tolist() == [1, 2, 1]
    assert ranks.at_most.tolist() == plus_by_refits(X, new, 1.0)


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_scikit_learn(name):
    X, new, h = CASES[name]
    ensemble = fit_plus(X, h)
    without = ensemble.scores(new)
    expected = KernelDensity(bandwidth=h).fit(X).score_samples(new)
    assert np.allclose(KDE(h).fit(X).score_samples(new), expected, rtol=1e-9)
    assert np.allclose(ensemble.full_scores(new), expected, rtol=1e-9)
    for i in range(len(X)):
        model = KernelDensity(bandwidth=h).fit(np.delete(X, i, axis=0))
        assert np.allclose(without[i], model.score_samples(new), rtol=1e-9)
        held = model.score_samples(X[i : i + 1])
        assert np.allclose(ensemble.calibration.scores[i], held, rtol=1e-9)


@pytest.mark.parametrize("variant", ["basic", "pooled"])
@pytest.mark.parametrize("name", ["smooth", "wide", "constant"])
def test_other_variants_are_algorithm_1(name, variant):
    X, new, h = CASES[name]
    new = new[~(new[:, None] == X).all(axis=2).any(axis=1)]  # no copies, which rounding decides
    plan = Jackknife(variant).plan(len(X))
    ranks = fit_plus(X, h, plan).ranks(new).at_most
    phi = phi_of("median")

    def algorithm(D):
        return KernelDensity(bandwidth=h).fit(D).score_samples

    for x, rank in zip(new[:6], ranks, strict=False):
        assert rank == p_value(X, algorithm, x, plan.train, phi, variant) * (len(X) + 1)


# --- bandwidth and scales ------------------------------------------------------------------------


def literal_units(rows, scale):
    """The rule of docs/methods.md: exponents of the scales, and that of the bandwidth."""
    spread = spreads(rows)
    exponents = scale_exponents(spread) if scale == "robust" else np.zeros(len(spread), int)
    measured = [s / 2.0**e for s, e in zip(spread, exponents, strict=True) if s > 0]
    d, n = max(len(measured), 1), len(rows)
    sigma = np.sqrt(sum(s * s for s in measured) / d) / 1.349
    h = sigma * (4.0 / ((d + 2) * n)) ** (1 / (d + 4))
    return exponents, int(np.round(np.log2(h))) if h > 0 else 0


@pytest.mark.parametrize("scale", ["none", "robust"])
def test_the_bandwidth_is_silvermans_to_a_power_of_two(scale):
    rng = np.random.default_rng(0)
    units = KernelUnits(KDE(scale=scale))
    X, new = rng.normal(size=(9, 2)) * [1.3, 5.0], rng.normal(size=(60, 2)) * [3.0, 40.0]
    joined, left = units.with_each(X, new), units.without_each(X)
    assert len(np.unique(joined[:, -1])) > 1 or scale == "robust"
    for x, key in zip(new, joined, strict=True):
        together = np.vstack([X, x])
        exponents, bandwidth = literal_units(together, scale)
        assert key.tolist() == [*exponents, bandwidth] == units.of(together).tolist()
    for i, key in enumerate(left):
        assert np.array_equal(key, units.of(np.delete(X, i, axis=0)))


def test_features_without_any_spread_do_not_count():
    n = 500
    assert bandwidth_exponents(np.array([1.3, 0.0, 0.0]), n) == bandwidth_exponents(
        np.array([1.3]), n
    )
    assert bandwidth_exponents(np.zeros(3), n) == 0
    assert bandwidth_exponents(np.array([1e308, 1e308]), n) == 400  # the largest exponent


@pytest.mark.parametrize("scale", ["none", "robust"])
def test_by_rule_every_model_is_a_refit_with_its_own_bandwidth(scale):
    rng = np.random.default_rng(1)
    X, new = rng.normal(size=(9, 2)) * [1.0, 5.0], rng.normal(size=(30, 2)) * [3.0, 40.0]
    full, plus = (
        ConformalDetector(KDE(scale=scale), method).fit(X).ranks(new)
        for method in ("full", "jackknife+")
    )
    for x, rank in zip(new, full, strict=True):
        E = np.vstack([X, x])
        exponents, bandwidth = literal_units(E, scale)
        E = rescale(E, exponents)
        assert full_by_refits(E[:-1], E[-1:], 2.0**bandwidth) == [rank]
    expected = np.ones(30, dtype=int)
    for i in range(9):
        rest = np.delete(X, i, axis=0)
        exponents, bandwidth = literal_units(rest, scale)
        model = rescale(rest, exponents)
        c, t = (
            logsumexp(log_kernels(rescale(rows, exponents), model, 2.0**bandwidth), axis=1)
            for rows in (X[i : i + 1], new)
        )
        expected += not_above(c, t, strictly=False)
    assert np.array_equal(plus, expected)


# --- what is promised ----------------------------------------------------------------------------


def test_jackknife_plus_says_that_it_is_exact_where_it_is():
    X, new, h = CASES["smooth"]
    cad = ConformalDetector(KDE(h), "jackknife+").fit(X)
    assert cad.guarantee_.kind == "exact"
    assert "kde" in str(cad.guarantee_)
    assert np.array_equal(cad.p_values(new, validity="proven"), cad.p_values(new))
    for detector, method in (
        (KDE(), "jackknife+"),  # the bandwidth of D without a row may be another
        (KDE(h, scale="robust"), "jackknife+"),
        (KDE(h), "cv+"),
        (KDE(h), "jackknife"),
    ):
        assert ConformalDetector(detector, method).fit(X).guarantee_.kind != "exact"


@pytest.mark.parametrize("far", [1.0, 1e3, 1e200])
@pytest.mark.parametrize("name", CASES)
def test_all_rows_with_each_new_row_are_those_of_refits(name, far):
    """Up to the grid, whose steps are a part in 10^9 of log-sums: the scores less a constant."""
    D, new, h = CASES[name]
    new = np.vstack([new, new[-3:] * far, new[:1]])
    rows = np.arange(len(new))[::-1]
    expected = all_augmented_scores(OneModel(KDE(h), D, SEED), new, rows)
    constant = abs(fit_full(D, h).reference.constant())
    for ensemble in (fit_full(D, h), fit_plus(D, h), fit_full(D[::-1], h)):
        got = all_augmented_scores(ensemble, new, rows)
        for a, b in zip(got, expected, strict=True):
            assert (np.abs(a - b) <= 1e-9 * (1.0 + constant + np.abs(b))).all()
    last = all_augmented_scores(fit_full(D, h), new, rows)
    for a, b in zip(got, last, strict=True):
        assert np.array_equal(a, b)  # whatever the order of D


@pytest.mark.parametrize("name", ["smooth", "lattice", "wide"])
def test_with_a_new_row_ties_do_not_depend_on_which_row_is_new(name):
    """Copies of the new row have its score; so have mirror images, in a set with a centre."""
    D, new, h = CASES[name]
    D = np.vstack([D, -D])
    copies = np.vstack([D[:6], -new])
    for augmented in fit_full(np.vstack([D, new]), h).augmented_scores(
        copies, np.arange(len(copies))
    ):
        for x, own in zip(copies[:6], augmented.own, strict=False):
            assert (own == own[-1]).sum() >= 1 + (x == D).all(axis=1).sum()
    for j in range(len(new)):
        rest = np.vstack([D, -new[j]])
        (augmented,) = fit_full(rest, h).augmented_scores(new[j : j + 1], np.arange(1))
        assert (augmented.own[0] == augmented.own[0, -1]).sum() >= 2


@pytest.mark.parametrize("bandwidth", [0, -1.0, np.nan, np.inf, True, "scott", None])
def test_a_bandwidth_that_is_none(bandwidth):
    X, _, _ = CASES["smooth"]
    for method in ("full", "jackknife+", "split"):
        with pytest.raises(ReconformError, match="`bandwidth` must be 'auto' or a number between"):
            ConformalDetector(KDE(bandwidth), method).fit(X)
    with pytest.raises(ReconformError, match="`bandwidth` must be 'auto' or a number between"):
        KDE(bandwidth).fit(X)


def test_one_model_by_itself_has_the_same_units():
    X, new, _ = CASES["smooth"]
    for scale in ("none", "robust"):
        exponents, bandwidth = literal_units(X, scale)
        model = KernelDensity(bandwidth=2.0**bandwidth).fit(rescale(X, exponents))
        got = KDE(scale=scale).fit(X).score_samples(new)
        assert np.allclose(got, model.score_samples(rescale(new, exponents)), rtol=1e-9)
