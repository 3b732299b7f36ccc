"""Kernel density: its bandwidth, and ties. What it shares is in test_formulas.py."""

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

from formulas import Kernels, densities, literal_units, plus_ranks
from reconform import Full
from reconform.detectors import KDE
from reconform.detectors.kde import KernelUnits, bandwidth_exponents
from reconform.detectors.scaling import rescale

SEED = np.random.SeedSequence(0)
CASES = {name: rest for name, *rest in densities()}


def fit_full(X, h):
    return KDE(h).fit_plan(X, Full().plan(len(X)), [SEED])


def test_a_near_copy_does_not_hide_what_is_compared():
    """The kernel of a copy of an outlier is 1, the others exp(-1000): sums with it are all 1."""
    X = np.array([[0.0], [0.1], [0.2], [0.3], [45.0]])
    new = np.array([[45.0], [44.9], [45.1]])
    ranks = fit_full(X, 1.0).ranks(new, strictly=True)
    # Tied with its copy; less anomalous than it; more anomalous than it.
    assert (ranks.at_most.tolist(), ranks.below.tolist()) == ([2, 2, 1], [1, 2, 1])
    assert ranks.at_most.tolist() == plus_ranks(lambda _: (Kernels(), np.asarray), X, new)


@pytest.mark.parametrize("scale", ["none", "robust"])
def test_the_bandwidth_is_silvermans_to_a_power_of_two(scale, rng):
    units = KernelUnits(KDE(scale=scale))
    X, new = rng.normal(size=(9, 2)) * [1.3, 5.0], rng.normal(size=(60, 2)) * [3.0, 40.0]
    joined, left = units.with_each(X, new), units.without_each(X)
    assert len(np.unique(joined[:, -1])) > 1 or scale == "robust"
    for x, key in zip(new, joined, strict=True):
        together = np.vstack([X, x])
        exponents, bandwidth = literal_units(together, scale)
        scales = [*exponents] if scale == "robust" else []
        assert key.tolist() == [*scales, bandwidth] == units.of(together).tolist()
    for i, key in enumerate(left):
        assert np.array_equal(key, units.of(np.delete(X, i, axis=0)))


def test_features_without_any_spread_do_not_count():
    n = 500
    alone = bandwidth_exponents(np.array([1.3]), n)
    assert bandwidth_exponents(np.array([1.3, 0.0, 0.0]), n) == alone
    assert bandwidth_exponents(np.zeros(3), n) == 0
    assert bandwidth_exponents(np.array([1e308, 1e308]), n) == 400  # the largest exponent


@pytest.mark.parametrize("name", ["smooth", "lattice", "wide"])
def test_with_a_new_row_ties_do_not_depend_on_which_row_is_new(name):
    """Copies of the new row have its score; so have mirror images, in a set with a centre."""
    D, new, h = CASES[name]
    D = np.vstack([D, -D])
    copies = np.vstack([D[:6], -new])
    full = fit_full(np.vstack([D, new]), h)
    for augmented in full.augmented_scores(copies, np.arange(len(copies))):
        for x, own in zip(copies[:6], augmented.own, strict=False):
            assert (own == own[-1]).sum() >= 1 + (x == D).all(axis=1).sum()
    for j in range(len(new)):
        rest = np.vstack([D, -new[j]])
        (augmented,) = fit_full(rest, h).augmented_scores(new[j : j + 1], np.arange(1))
        assert (augmented.own[0] == augmented.own[0, -1]).sum() >= 2


def test_one_model_by_itself_has_the_same_units():
    X, new, _ = CASES["smooth"]
    for scale in ("none", "robust"):
        exponents, bandwidth = literal_units(X, scale)
        model = KernelDensity(bandwidth=2.0**bandwidth).fit(rescale(X, exponents))
        got = KDE(scale=scale).fit(X).score_samples(new)
        assert np.allclose(got, model.score_samples(rescale(new, exponents)), rtol=1e-9)
