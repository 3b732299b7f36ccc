"""Full-conformal IForest: entered trees and the window against a plain forest per new row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconform import Full
from reconform.content import Contents, draw_rows
from reconform.detectors.iforest import IForest
from reconform.detectors.iforest.ensembles import EnteredForest, fit_full_forest
from reconform.detectors.iforest.kernels import sums_with_replaced
from reconform.detectors.iforest.model import (
    Forest,
    Recipe,
    TreeDraws,
    fit_forest,
)

SEED = np.random.SeedSequence(20240911)


def rows(n, kind, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, 4))
    if kind == "ties":
        return X.round(0) + 0.0
    if kind == "duplicates":
        return X[np.random.default_rng(seed + 1).integers(0, 1 + n // 3, size=n)]
    if kind == "constant columns":
        X[:, :3] = [0.0, -7.5, 1e300]
    if kind == "constant":
        X[:] = 3.0
    return X


def forest_per_row(detector, reference, new, seed):
    """The definition: a forest on D and x, and the rank of x among all n + 1 sums."""
    ranks, strict, scores = [], [], []
    for x in new:
        together = np.vstack([reference, x])
        recipe = detector.recipe(*together.shape)
        forest = fit_forest(together, None, recipe, seed)
        *sums, mine = forest.path_sums(together).tolist()
        ranks.append(1 + sum(one <= mine for one in sums))
        strict.append(1 + sum(one < mine for one in sums))
        scores.append(forest.scores(together)[-1])
    return ranks, strict, scores


def fit(detector, reference, seed=SEED, n_jobs=None):
    ensemble = detector.fit_plan(reference, Full().plan(len(reference)), [seed], n_jobs=n_jobs)
    assert isinstance(ensemble, EnteredForest)
    return ensemble


def assert_equals_definition(detector, reference, new):
    found = fit(detector, reference).ranks(new, strictly=True)
    ranks, strict, scores = forest_per_row(detector, reference, new, SEED)
    assert found.at_most.tolist() == ranks
    assert found.below.tolist() == strict
    assert found.scores.tolist() == scores


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(2, 60),
    decimals=st.integers(0, 2),
    replace=st.booleans(),
    data=st.data(),
)
@settings(max_examples=60)
def test_equals_a_forest_per_row_at_random(seed, n, decimals, replace, data):
    X = np.random.default_rng(seed).normal(size=(n + 3, 3)).round(decimals)
    parameters = {
        "n_estimators": data.draw(st.integers(1, 12)),
        "max_samples": data.draw(st.integers(1, n + 1)),
        "max_features": data.draw(st.integers(1, 3)),
        "bootstrap": replace,
    }
    assert_equals_definition(IForest(**parameters), X[:n], X[n:])


def test_a_row_enters_the_trees_that_take_it():
    reference, new = rows(600, "continuous"), rows(30, "continuous", 5)
    full = fit(IForest(), reference)
    enters = full.entries(new)[1]
    # 100 trees, each entered with probability 256 / 601: 43 on average, standard deviation 5.
    assert (np.abs(enters.sum(axis=1) - 42.6) < 6 * 5).all()
    recipe = IForest().recipe(601, 4)
    streams = TreeDraws.of(recipe, SEED, 601, 4).row_streams
    for x, entered in zip(new, enters, strict=True):
        both = Contents.of(np.vstack([x, reference]))
        taken = (draw_rows(both, streams, recipe.psi).rows == 0).any(axis=1)
        assert np.array_equal(taken, entered)
    assert fit(IForest(), rows(255, "continuous")).entries(new)[1].all()


# --- all rows as each forest sees them --------------------------------------------------------


# --- the law: what makes the ranks valid ------------------------------------------------------


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 50),
    d=st.integers(1, 4),
    decimals=st.integers(0, 2),
    data=st.data(),
)
@settings(max_examples=60)
def test_a_tree_depends_on_its_rows_but_not_on_their_order(seed, n, d, decimals, data):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).round(decimals)  # rounding leaves zeros of both signs
    psi = data.draw(st.integers(1, n))
    width = data.draw(st.integers(1, d))
    recipe = Recipe(4, psi, width, data.draw(st.booleans()))
    draws = TreeDraws.of(recipe, np.random.SeedSequence(seed), n, d)
    samples = np.array([rng.permutation(n)[:psi] for _ in range(4)], dtype=np.int32)
    one = Forest.empty(4, psi)
    one.grow(X, samples, draws)

    moved = rng.permutation(n)  # row i of X is row moved[i] of Y
    Y = np.empty_like(X)
    Y[moved] = X
    samples = moved[samples].astype(np.int32)
    for row, size in zip(samples, draws.sizes, strict=True):
        row[:size] = rng.permutation(row[:size])
    two = Forest.empty(4, psi)
    two.grow(Y, samples, draws)
    assert np.array_equal(one.thresholds, two.thresholds)
    assert np.array_equal(one.features, two.features)
    assert np.array_equal(one.lengths, two.lengths)


# --- what must not matter ---------------------------------------------------------------------


@pytest.mark.parametrize("bootstrap", [False, True])
def test_the_calibration_shows_the_forest_without_any_new_row(bootstrap):
    reference = rows(300, "ties")
    detector = IForest(bootstrap=bootstrap)
    full = fit(detector, reference)
    if bootstrap:  # sizes of trees are drawn for n + 1 rows
        assert np.array_equal(full.calibration.scores, full.base.scores(reference))
    else:
        alone = fit_forest(reference, None, detector.recipe(301, 4), SEED)
        assert np.array_equal(full.calibration.scores, alone.scores(reference))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 90),
    psi=st.sampled_from([2, 3, 16, 33]),
    decimals=st.sampled_from([0, 1, 9]),
    width=st.sampled_from([1, 2, 4]),
)
def test_an_entered_tree_is_the_tree_grown_from_nothing(seed, n, psi, decimals, width):
    """What is kept of a base tree is what growing would give: nodes, lengths and all the rest."""
    rng = np.random.default_rng(seed)
    reference = rng.normal(size=(n, 4)).round(decimals)
    new = np.vstack([rng.normal(size=(4, 4)).round(decimals), reference[:1], reference[:1] + 9.0])
    recipe = Recipe(n_trees=6, psi=min(psi, n + 1), n_features=width)
    full = fit_full_forest(reference, recipe, np.random.SeedSequence(seed))
    entering, trees = (part.ravel() for part in np.indices((len(new), 6)))
    together = np.vstack([reference, new])
    changed = full.entered(together, n + entering, trees)
    plain = Forest.empty(len(trees), recipe.psi)
    for array in plain.arrays:
        array[:] = 7  # whatever the memory held before
    listed = np.zeros((len(trees), recipe.psi), dtype=np.int32)
    for k, t in enumerate(trees):
        size = full.draws.sizes[t]
        listed[k, : size - 1] = full.samples[t, : size - 1]
        listed[k, size - 1] = n + entering[k]
    plain.grow(together, listed, full.draws.only(trees))
    for mine, theirs in zip(changed.arrays, plain.arrays, strict=True):
        assert np.array_equal(mine, theirs)

    # Sums by look-ups where a row ends as before, and by walking where it does not.
    leaves, sums = full.base.leaves(new), np.empty((len(new), len(new)), dtype=np.int64)
    total = full.base.path_sums(new)
    indptr = np.arange(0, len(trees) + 1, 6)
    known = full.base.arrays, leaves, total, new
    sums_with_replaced(changed.arrays, indptr, trees, *known, sums)
    for j in range(len(new)):
        assert np.array_equal(sums[j], plain.only(slice(6 * j, 6 * j + 6)).path_sums(new))
