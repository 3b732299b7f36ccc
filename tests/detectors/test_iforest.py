"""IForest: its trees, its law, and every fast road against the plain one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn.ensemble import IsolationForest

from reconform.content import Contents, draw_rows
from reconform.detectors.iforest import IForest
from reconform.detectors.iforest.ensembles import LeaveOneOutForests
from reconform.detectors.iforest.kernels import PATIENCE, draw_features
from reconform.detectors.iforest.model import (
    UNITS,
    Forest,
    Recipe,
    TreeDraws,
    average_path_length,
    conformity,
    fit_forest,
)
from reconform.methods import Full, Jackknife

SEED = np.random.SeedSequence(20240607)


def sample(n, d, seed=0, decimals=None):
    """Normal rows with a correlated column; rounded ones have ties."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    X[:, -1] += X[:, 0]
    return X if decimals is None else X.round(decimals)


MASK = 2**64 - 1


def mix(z: int) -> int:
    """The finaliser of splitmix64, in plain integers."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def stream(key: int) -> Iterator[float]:
    """Splitmix64 as numbers in [0, 1)."""
    for i in itertools.count(1):
        yield (mix((key + i * 0x9E3779B97F4A7C15) & MASK) >> 11) * 2.0**-53


def plain_tree(X, rows, features, key, depth):
    """Grow one tree by recursion; nodes are tuples, leaves are path lengths in units."""

    def feature(rows, uniforms):
        """A feature that is not constant: by a few trials, or else among all of these."""
        for _ in range(PATIENCE):
            column = features[int(next(uniforms) * len(features))]
            if np.ptp(X[rows, column]) > 0:
                return column
        left = [column for column in features if np.ptp(X[rows, column]) > 0]
        return left[int(next(uniforms) * len(left))] if left else None

    def node(rows, number, level):
        uniforms = stream(mix(int(key) ^ (number * 0xD1B54A32D192ED03 & MASK)))
        if level < depth and len(rows) > 1:
            column = feature(rows, uniforms)
            if column is not None:
                low, high = X[rows, column].min(), X[rows, column].max()
                cut = 2.0 * (0.5 * low + next(uniforms) * (0.5 * high - 0.5 * low))
                cut = cut if low <= cut < high else low
                left = X[rows, column] <= cut
                right = node(rows[~left], 2 * number + 1, level + 1)
                return column, cut, node(rows[left], 2 * number, level + 1), right
        return level * UNITS + round(float(average_path_length(len(rows))) * UNITS)

    return node(np.asarray(rows), 1, 0)


def plain_length(tree, x):
    while isinstance(tree, tuple):
        column, cut, left, right = tree
        tree = left if x[column] <= cut else right
    return tree


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 40),
    d=st.integers(1, 5),
    decimals=st.integers(0, 2),
    replace=st.booleans(),
    data=st.data(),
)
@settings(max_examples=60, deadline=None)
def test_trees_equal_a_plain_recursion(seed, n, d, decimals, replace, data):
    X = sample(n, d, seed, decimals)
    psi, width = data.draw(st.integers(1, n)), data.draw(st.integers(1, d))
    recipe = Recipe(3, psi, width, replace)
    seq = np.random.SeedSequence(seed)
    train = np.random.default_rng(seed).integers(0, n, size=n)
    forest = fit_forest(X, train, recipe, seq)
    draws = TreeDraws.of(recipe, seq, n, d)
    drawn = draw_rows(Contents.of(X), draws.row_streams, psi, train).rows
    assert (draws.sizes == psi).all() or replace
    depth = int(np.ceil(np.log2(max(psi, 2))))
    lengths = forest.lengths_at(forest.leaves(X))
    for t in range(3):
        features = draws.features[t % len(draws.features)]
        tree = plain_tree(X, drawn[t, : draws.sizes[t]], features, draws.keys[t], depth)
        assert [plain_length(tree, x) for x in X] == lengths[t].tolist()
    assert np.array_equal(forest.path_sums(X), lengths.sum(axis=0))


def test_every_subset_is_drawn_equally_often():
    out = np.empty((60_000, 2), dtype=np.int32)
    draw_features(SEED.generate_state(len(out), np.uint64), 4, out)
    _, counts = np.unique(np.sort(out, axis=1), axis=0, return_counts=True)
    # Six subsets; Pearson's statistic exceeds the 1e-5 quantile 30.86 of chi2(5) by chance 1e-5.
    assert len(counts) == 6
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 30.86
    for size, count in ((1, 1), (7, 7), (7, 3), (300, 256)):
        out = np.empty((200, count), dtype=np.int32)
        draw_features(SEED.generate_state(200, np.uint64), size, out)
        assert 0 <= out.min() <= out.max() < size
        assert all(len(set(row)) == count for row in out.tolist())


def test_scores_keep_the_order_of_sums():
    sums = 100 * 10 * UNITS + np.arange(-2000, 2000)
    assert (np.diff(conformity(sums, 100, 256)) > 0).all()


def sklearn_path_lengths(model, X):
    """Path length of every row in every tree of a scikit-learn forest."""
    lengths = np.empty((len(model.estimators_), len(X)))
    for t, tree in enumerate(model.estimators_):
        features = model.estimators_features_[t]
        columns = X[:, features]
        depths = np.asarray(tree.decision_path(columns).sum(axis=1)).ravel() - 1
        lengths[t] = depths + average_path_length(tree.tree_.n_node_samples[tree.apply(columns)])
    return lengths


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [{}, {"bootstrap": True}, {"max_features": 0.5}, {"max_samples": 200}],
    ids=["default", "bootstrap", "features", "all-rows"],
)
def test_path_lengths_have_scikit_learns_law(parameters):
    parameters = {"n_estimators": 1500, "max_samples": 50, **parameters}
    # Single precision and ties, so that both libraries see the same numbers.
    X = sample(200, 4, decimals=1).astype(np.float32).astype(np.float64)
    rows = np.vstack([X[:6], [[4, 4, 4, 4], [0, 0, 0, 0]]])
    forest = IForest(random_state=1, **parameters).fit(X).forest_
    ours = forest.lengths_at(forest.leaves(rows)) / UNITS
    theirs = sklearn_path_lengths(IsolationForest(random_state=2, **parameters).fit(X), rows)
    # Trees are independent and identically distributed, so the law of a score is that of a tree.
    # 32 two-sample tests at 1e-6 (conservative with ties): false alarm below 4e-5 over all cases.
    for r in range(len(rows)):
        assert ks_2samp(ours[:, r].round(6), theirs[:, r].round(6)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("n", "parameters", "shares"),
    [
        (1000, {}, False),
        (1001, {}, True),
        (1001, {"share": False}, False),
        (100, {"share": True, "max_samples": 0.5}, True),
        (2, {"share": True}, True),
    ],
)
def test_sharing_is_chosen_by_the_number_of_rows(n, parameters, shares):
    detector = IForest(n_estimators=1, **parameters)
    ensemble = detector.fit_plan(sample(n, 2), Jackknife().plan(n), SEED.spawn(n + 1))
    assert isinstance(ensemble, LeaveOneOutForests) == shares


def test_constant_data_tells_nothing_apart():
    X = np.ones((50, 3))
    new = np.arange(6).reshape(2, 3)
    scores = IForest(n_estimators=5, random_state=0).fit(X).score_samples(new)
    assert np.array_equal(scores, [-0.5, -0.5])  # a mean path of c(psi)


def test_extreme_numbers_are_split_without_overflow():
    big = np.finfo(float).max
    tiny = np.finfo(float).smallest_subnormal
    for low, high in ((-big, big), (0.0, tiny), (1.0, np.nextafter(1.0, 2.0))):
        X = np.array([[low], [high]] * 8)
        cuts = fit_forest(X, np.arange(16), Recipe(50, 16, 1), SEED).thresholds[:, 1]
        assert ((low <= cuts) & (cuts < high)).all()
    assert len(np.unique(cuts)) == 1  # two neighbours leave one place to cut


def test_one_row_per_tree_scores_as_in_scikit_learn():
    X = sample(20, 2)
    ours = IForest(max_samples=1, n_estimators=3, random_state=0).fit(X)
    theirs = IsolationForest(max_samples=1, n_estimators=3, random_state=0).fit(X)
    assert np.array_equal(ours.score_samples(X), theirs.score_samples(X))


def test_depth_and_sizes_follow_the_recipe():
    assert IForest().recipe(100, 3) == Recipe(100, 100, 3)
    assert IForest(max_samples=0.25, max_features=0.5).recipe(100, 5) == Recipe(100, 25, 2)
    assert IForest(max_samples=500, max_features=0.01).recipe(100, 5) == Recipe(100, 100, 1)
    shapes = {psi: Forest.empty(1, psi).lengths.shape[1] for psi in (1, 2, 3, 255, 256, 257)}
    assert shapes == {1: 2, 2: 2, 3: 4, 255: 256, 256: 256, 257: 512}


@pytest.mark.parametrize("bootstrap", [False, True])
def test_the_calibration_of_full_shows_the_forest_without_any_new_row(bootstrap):
    reference, detector = sample(300, 4, decimals=0), IForest(bootstrap=bootstrap)
    full = detector.fit_plan(reference, Full().plan(300), [SEED])
    if bootstrap:  # sizes of trees are drawn for n + 1 rows
        assert np.array_equal(full.calibration.scores, full.base.scores(reference))
    else:
        alone = fit_forest(reference, None, detector.recipe(301, 4), SEED)
        assert np.array_equal(full.calibration.scores, alone.scores(reference))


@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("values", [3, 1_000_000])
def test_where_all_rows_are_drawn_their_order_does_not_matter(values, bootstrap, monkeypatch):
    """So nothing is hashed, and copies are looked at once: the trees are those on all rows."""
    rng = np.random.default_rng(values)
    X = rng.integers(0, values, size=(60, 3)).astype(float)
    train = np.sort(rng.integers(0, 60, size=60)) if bootstrap else None
    seed, recipe = np.random.SeedSequence(4), Recipe(n_trees=20, psi=60, n_features=3)
    contents, draws = Contents.of(X), TreeDraws.of(recipe, seed, 60, 3)
    rows = contents.first[draw_rows(contents, draws.row_streams, 60, train).rows]
    expected = Forest.empty(20, 60)
    expected.grow(X, rows, draws)
    monkeypatch.setattr("reconform.detectors.iforest.model.draw_rows", None)
    found = fit_forest(X, train, recipe, seed)
    for name in ("thresholds", "features", "lengths"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_blocks_of_rows_in_the_kernel_change_nothing():
    X = sample(1500, 3)
    forest = IForest(n_estimators=5, random_state=0).fit(X).forest_
    lengths = forest.lengths_at(forest.leaves(X))
    trees, rows = np.divmod(np.arange(lengths.size), len(X))
    assert np.array_equal(forest.paired_lengths(trees, X, rows).reshape(lengths.shape), lengths)
    order = np.random.default_rng(0).permutation(1500)
    assert np.array_equal(forest.path_sums(X[order]), lengths.sum(axis=0)[order])
