"""Mahalanobis and KDE: one formula against a refit for every new row."""

import numpy as np
import pytest

from formulas import Kernels, Scatter, densities, full_ranks, kernel_units, plus_ranks, scatters
from oracle import all_augmented_scores
from reconform import ConformalDetector, Full
from reconform.detectors import KDE, Mahalanobis
from reconform.detectors.scaling import rescale, scale_exponents, spreads
from reconform.ensemble.refitting import OneModel

SEED = np.random.SeedSequence(0)


# Detector, the slow one, D and new rows.
CASES = {
    f"mahalanobis {ridge}, {name}": (Mahalanobis(ridge), Scatter(ridge), D, new)
    for name, D, new in scatters()
    for ridge in (1.0, 0.01)
} | {f"kde, {name}": (KDE(h), Kernels(h), D, new) for name, D, new, h in densities()}
PLAIN = [name for name in CASES if name.startswith(("kde", "mahalanobis 1.0"))]


def full_of(detector, D):
    return detector.fit_plan(D, Full().plan(len(D)), [SEED])


@pytest.mark.parametrize("name", CASES)
def test_full_is_the_refits_and_has_the_comparisons_of_jackknife_plus(name):
    detector, slow, D, new = CASES[name]
    by_slow = {"model_of": lambda rows: (slow, np.asarray), "X": D, "new": new}
    ranks = full_of(detector, D).ranks(new, strictly=True)
    for found, strictly in ((ranks.at_most, False), (ranks.below, True)):
        assert found.tolist() == plus_ranks(**by_slow, strictly=strictly)
        if name != "kde, narrow":  # sums with the kernel of a near-copy hide all other terms
            assert found.tolist() == full_ranks(**by_slow, strictly=strictly)


@pytest.mark.parametrize("name", PLAIN)
def test_scores_are_those_of_the_formula(name):
    detector, slow, D, new = CASES[name]
    rtol = 1e-9 if isinstance(slow, Kernels) else 1e-6
    assert np.allclose(detector.fit(D).score_samples(new), slow.by(D, new), rtol=rtol)
    held = [slow.by(np.delete(D, i, axis=0), D[i : i + 1])[0] for i in range(len(D))]
    assert np.allclose(full_of(detector, D).calibration.scores, held, rtol=rtol)


@pytest.mark.filterwarnings("ignore:.* is fitted once per row:UserWarning")
@pytest.mark.parametrize("far", [1.0, 1e3, 1e200])
@pytest.mark.parametrize("name", CASES)
def test_all_rows_with_each_new_row_are_those_of_refits(name, far):
    """Of kernels up to the grid, whose steps are a part in 10^9 of log-sums less a constant."""
    detector, slow, D, new = CASES[name]
    kernels = isinstance(slow, Kernels)
    if far > 1 and not kernels:
        return
    new = np.vstack([new, new[-3:] * far, new[:1]])
    rows = np.arange(len(new))[::-1]
    expected = all_augmented_scores(OneModel(detector, D, SEED), new, rows)
    full = full_of(detector, D)
    got = [all_augmented_scores(one, new, rows) for one in (full, full_of(detector, D[::-1]))]
    # In the last case a new row lies a million times further away than D is wide.
    close = {"rtol": 1e-6 if name.endswith("far") else 1e-8, "atol": 1e-12}
    if kernels:
        close = {"rtol": 1e-9, "atol": 1e-9 * (1.0 + abs(full.reference.constant()))}
        assert all(map(np.array_equal, got[0], got[1]))  # whatever the order of D
    for parts in got:
        for a, b in zip(parts, expected, strict=True):
            assert np.allclose(a, b, **close)


def scatter_units(rows):
    exponents = scale_exponents(spreads(rows))
    return Scatter(), lambda some: rescale(some, exponents)


@pytest.mark.parametrize(
    ("detector", "model_of"),
    [
        (Mahalanobis(scale="robust"), scatter_units),
        (KDE(), kernel_units("none")),
        (KDE(scale="robust"), kernel_units("robust")),
    ],
    ids=["mahalanobis", "kde", "scaled kde"],
)
def test_every_model_is_a_refit_in_its_own_units(detector, model_of):
    rng = np.random.default_rng(5)
    X, new = rng.normal(size=(9, 2)) * [1e-6, 1.3e3], rng.normal(size=(40, 2)) * [2e-6, 1e3]
    if isinstance(detector, KDE):
        X, new = X * [1e6, 4e-3], new * [1.5e6, 4e-2]
    cads = (ConformalDetector(detector, method).fit(X) for method in ("full", "jackknife+"))
    full, plus = (cad.ranks(new).tolist() for cad in cads)
    keys = {model_of(np.vstack([X, x]))[1](np.ones((1, 2))).tobytes() for x in new}
    assert len(keys) > 1 or detector.scale == "none"
    assert (full, plus) == (full_ranks(model_of, X, new), plus_ranks(model_of, X, new))
