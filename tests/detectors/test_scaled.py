"""Detectors that scale: groups of models with equal units give what separate fits give."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.base import clone

from oracle import p_value, phi_of
from reconform import (
    Bootstrap,
    ConformalDetector,
    CrossValidation,
    Full,
    Jackknife,
    Resampling,
    Split,
)
from reconform.content import Contents, RowStreams
from reconform.detectors.inne import INNE
from reconform.detectors.knn import KNN
from reconform.detectors.lof import LOF
from reconform.detectors.scaled import ScaledEnsemble, ScaledFull
from reconform.errors import ReconformError
from reconform.statistics.conditional_calibration import StepUp, count_exchanges


def literal_exponents(rows):
    """The rule of docs/methods.md, feature by feature, with plain lists."""
    exponents = []
    for column in rows.T.tolist():
        values, n = sorted(column), len(column)
        trims, spread = [], 0.0
        trim = n // 4
        while trim > 1:
            trims.append(trim)
            trim //= 4
        for trim in [*trims, 1] if n > 2 else []:
            spread = values[n - 1 - trim] - values[trim]
            if spread > 0:
                break
        exponents.append(round(math.log2(spread / 1.349)) if spread > 0 else 0)
    return exponents


def rescaled(train, rows):
    return rows / 2.0 ** np.array(literal_exponents(train))


def separate(detector, seed=None):
    """A, as the oracle wants it: scaling written out, and one plain fit on its own."""

    def fit(train):
        plain = clone(detector).set_params(scale="none")
        if seed is not None:
            plain.set_params(random_state=seed)
        model = plain.fit(rescaled(train, train))
        return lambda rows: model.score_samples(rescaled(train, rows))

    return fit


def data(name, n=24, m=9, seed=26):
    rng = np.random.default_rng(seed)
    rows = rng.standard_t(3, size=(n + m, 3)) * [1.0, 1e-3, 1e4]
    if name == "lattice":  # many ties, and a column where most values are equal
        rows = np.column_stack([rng.poisson([0.2, 2.0, 9.0], size=(n + m, 3)), np.full(n + m, 3.7)])
    if name == "copies":
        rows[n // 2 : n] = rows[: n - n // 2]
        rows[n + 1] = rows[0]
    rows[-1] *= 30.0
    return rows[:n].astype(float), rows[n:].astype(float)


DATA = ["smooth", "lattice", "copies"]
DETECTORS = {
    "knn": KNN(n_neighbors=3, scale="robust"),
    "mean": KNN(n_neighbors=3, method="mean", metric="sqeuclidean", scale="robust"),
    "manhattan": KNN(n_neighbors=2, method="median", metric="manhattan", scale="robust"),
    "lof": LOF(n_neighbors=3, scale="robust"),
    "inne": INNE(n_estimators=12, max_samples=4, share=False, scale="robust"),
    "inne, shared": INNE(n_estimators=12, max_samples=4, share=True, scale="robust"),
}


def seeds_for(plan, X):
    seed = np.random.SeedSequence(3)
    if plan.leaves_one_out:
        return RowStreams(seed, Contents.of(X))
    return seed.spawn(plan.n_models + 1)


METHODS = {
    "jackknife+": Jackknife(),
    "jackknife": Jackknife("basic"),
    "pooled": Jackknife("pooled"),
    "cv+": CrossValidation(folds=4),
    "cv": CrossValidation(folds=4, variant="basic"),
    "jab+": Bootstrap(draws=7),
    "jab": Bootstrap(draws=7, variant="basic"),
    "pooled jab": Bootstrap(draws=6, aggregate="mean", variant="pooled"),
    "sets": Resampling([np.arange(9), np.arange(5, 24), np.repeat([1, 4, 7, 9, 20], 2)]),
}


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("which", DETECTORS)
def test_any_plan_gives_the_numbers_of_separate_fits(which, method, name):
    detector, (X, new) = DETECTORS[which], data(name)
    plan = METHODS[method].plan(len(X), random_state=2)
    seeds = seeds_for(plan, X)
    ensemble = detector.fit_plan(X, plan, seeds)
    assert isinstance(ensemble, ScaledEnsemble)
    shared = which == "inne, shared" and plan.leaves_one_out
    models = [
        separate(detector, None if "inne" not in which else seeds[-1 if shared else k])(X[train])
        for k, train in enumerate(plan.train)
    ]
    full = separate(detector, None if "inne" not in which else seeds[-1])(X)
    ranks = ensemble.ranks(new, strictly=True)
    assert np.array_equal(ranks.scores, full(new))
    alone = clone(detector).set_params(**({"random_state": seeds[-1]} if "inne" in which else {}))
    assert np.array_equal(alone.fit(X).score_samples(new), full(new))
    assert alone.units_.tolist() == literal_exponents(X)
    # The oracle fits in the order of the plan, and A(D) last.
    phi = phi_of(plan.aggregate)
    for j, x in enumerate(new):
        fits = iter([*models, full])
        expected = p_value(X, lambda rows, f=fits: next(f), x, plan.train, phi, plan.variant)
        assert ranks.at_most[j] == expected * (len(ensemble.calibration) + 1)
    if plan.variant != "basic":
        assert np.array_equal(ensemble.scores(new), [model(new) for model in models])
    else:
        with pytest.raises(ReconformError, match="keeps only"):
            ensemble.ranks(new, variant="plus")


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("which", DETECTORS)
def test_full_gives_the_ranks_of_one_fit_per_new_row(which, name):
    detector, (X, new) = DETECTORS[which], data(name)
    seed = np.random.SeedSequence(3)
    ensemble = detector.fit_plan(X, Full().plan(len(X)), [seed])
    assert isinstance(ensemble, ScaledFull)
    ranks = ensemble.ranks(new, strictly=True)
    for j, x in enumerate(new):
        rows = np.vstack([X, x])
        plain = clone(detector).set_params(scale="none")
        if "inne" in which:
            plain.set_params(random_state=seed)
        measured = rescaled(rows, rows)
        s = plain.fit(measured)._training_scores(measured)
        assert ranks.at_most[j] == 1 + (s[:-1] <= s[-1]).sum()
        assert ranks.below[j] == 1 + (s[:-1] < s[-1]).sum()
        assert ranks.scores[j] == s[-1]


@pytest.mark.parametrize("method", ["jackknife+", "jackknife", "full"])
def test_units_of_columns_do_not_matter(method):
    X, new = data("smooth", n=40)
    powers = 2.0 ** np.array([90, -30, 7])

    def ranks(scale, unit):
        cad = ConformalDetector(KNN(n_neighbors=3, scale=scale), method, random_state=0)
        return cad.fit(X * unit).ranks(new * unit)

    assert np.array_equal(ranks("robust", 1.0), ranks("robust", powers))
    assert not np.array_equal(ranks("none", 1.0), ranks("none", powers))


# --- certified lists ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["full", "jackknife+", "cv+"])
@pytest.mark.parametrize("which", ["knn", "inne"])
def test_worlds_are_those_of_one_model_per_row(which, method):
    """The model is fitted on D and x_j, in their units, and scores everything."""
    X, new = data("copies", n=30, m=12)
    new[:3] += np.array([30.0, 0.03, 3e5])
    cad = ConformalDetector(DETECTORS[which], method, random_state=0).fit(X)
    step = StepUp.at(0.3, len(X), len(new))
    rows = np.flatnonzero(cad.ranks(new) <= step.highest)
    assert len(rows) >= 3
    refit = cad.ensemble_ if method == "full" else cad.ensemble_.by_refitting
    for j, worlds in cad.ensemble_.worlds(new, rows, step):
        together, others = np.vstack([X, new[j]]), np.delete(new, j, axis=0)
        plain = clone(DETECTORS[which]).set_params(scale="none")
        if which == "inne":
            plain.set_params(random_state=refit.seed)
        plain.fit(rescaled(together, together))
        inside = plain._training_scores(rescaled(together, together))
        outside = plain.score_samples(rescaled(together, others))
        assert worlds == count_exchanges(inside, outside, step)


# --- model files ---------------------------------------------------------------------------------


def test_a_split_is_one_model():
    X, new = data("smooth")
    cad = ConformalDetector(
        KNN(n_neighbors=3, scale="robust"), Split(repeats=3), random_state=0
    ).fit(X)
    for part, plan in zip(cad.ensemble_.splits, cad.plan_.repeats, strict=True):
        fit = separate(KNN(n_neighbors=3, scale="robust"))(X[plan.train[0]])
        assert np.array_equal(part.ranks(new).scores, fit(new))
