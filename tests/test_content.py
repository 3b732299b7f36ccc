"""Draws keyed by content: brute force, permutations, duplicates, collisions, laws, theorems."""

from functools import partial

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

from enumeration import judged
from reconform import ConformalDetector, CrossValidation, Jackknife, Resampling, content
from reconform.content import Contents, canonical_order, draw_rows, sorted_by_content
from reconform.detectors import IForest
from reconform.detectors.iforest.ensembles import fit_full_forest, fit_leave_one_out
from reconform.detectors.iforest.model import Recipe, TreeDraws, fit_forest
from reconform.detectors.inne.ensembles import LeaveOneOutINNE

SEED = np.random.SeedSequence(3)


GOLDEN_DIGESTS = [
    10590895045444643113,
    8936750341160049979,
    10590895045444643113,
    7700835123209724737,
]
GOLDEN_KEYS = [2965685766772879514, 14104119674672054479, 3593126310679294718, 13601962480550452492]
GOLDEN_ORDER = [2, 3, 0, 1]


def rows(n, d=3, *, kind="continuous", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    if kind == "duplicates":
        X = rng.integers(-1, 2, size=(n, d)).astype(float)
        X[rng.random(X.shape) < 0.2] *= -0.0
    if kind == "mixed":
        X[: n // 2] = X[n // 2 : n // 2 + n // 2]
        X[:, 0] = 1.0
    return X


KINDS = ("continuous", "duplicates", "mixed")


def recipes(n, d, options):
    forest = IForest(n_estimators=20, **options)
    return lambda size: forest.recipe(size, d)


def test_minus_zero_and_dtype_are_canonical():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [np.nan, 2.0], [-np.nan, 2.0]])
    contents = Contents.of(X)
    assert contents.count == 2
    assert (Contents.of(np.float32(X)).digests == contents.digests).all()


def test_collisions_are_broken_by_content(monkeypatch):
    """With a digest of 2 bits, all but equal rows collide; draws stay symmetric."""
    X = rows(60, kind="mixed")
    real = content.digests_of
    monkeypatch.setattr(
        content, "digests_of", lambda X, **k: (lambda w, d: (w, d & np.uint64(3)))(*real(X, **k))
    )
    order = np.random.default_rng(0).permutation(60)
    streams = np.arange(30, dtype=np.uint64)
    here, there = Contents.of(X), Contents.of(X[order])
    assert here.count == len(np.unique(X, axis=0))
    a, b = draw_rows(here, streams, 20).rows, draw_rows(there, streams, 20).rows
    assert (X[a] == X[order][b]).all()
    a, b = canonical_order(here, SEED), canonical_order(there, SEED)
    assert (X[a] == X[order][b]).all()
    recipe_for = recipes(60, 3, {"max_samples": 8})
    new = np.vstack([rows(6, kind="mixed", seed=1), X[:4]])
    full = fit_full_forest(X, recipe_for(61), SEED).ranks(new)
    for j, x in enumerate(new):
        forest = fit_forest(np.vstack([x, X[order]]), None, recipe_for(61), SEED)
        assert full.at_most[j] == 1 + (forest.path_sums(X) <= forest.path_sums(x[None])).sum()


def test_draws_are_uniform():
    """Inclusion of rows and pairs over 40,000 streams; z-scores of 45 pairs and 10 rows.

    A correct program exceeds 4.5 standard errors with probability below 55 * 7e-6 = 4e-4.
    """
    X = rows(10)
    streams = np.random.SeedSequence(1).generate_state(40_000, np.uint64)
    taken = np.zeros((len(streams), 10))
    drawn = draw_rows(Contents.of(X), streams, 4).rows
    np.put_along_axis(taken, drawn.astype(int), 1, axis=1)
    pairs = taken.T @ taken / len(streams)
    single, both = 4 / 10, 4 * 3 / 90
    error = lambda p: np.sqrt(p * (1 - p) / len(streams))  # noqa: E731
    assert abs(np.diag(pairs) - single).max() < 4.5 * error(single)
    off = pairs[~np.eye(10, dtype=bool)]
    assert abs(off - both).max() < 4.5 * error(both)
    # The first drawn is uniform too.
    first = np.bincount(drawn[:, 0], minlength=10) / len(streams)
    assert abs(first - 0.1).max() < 4.5 * error(0.1)


def test_bootstrap_sizes_have_the_law_of_draws_with_replacement(rng):
    """Mean and variance of the number of different rows, 20,000 trees; 5 standard errors."""
    recipe = Recipe(n_trees=20_000, psi=20, n_features=1, replace=True)
    sizes = TreeDraws.of(recipe, SEED, 30, 1).sizes
    wanted = np.array([len(np.unique(rng.integers(0, 30, 20))) for _ in range(20_000)])
    error = wanted.std() * np.sqrt(2 / 20_000)
    assert abs(sizes.mean() - wanted.mean()) < 5 * error
    assert abs(sizes.var() / wanted.var() - 1) < 0.1


def test_exchanging_a_row_moves_one_row_across_a_cut():
    def folds(X):
        shuffle = partial(canonical_order, Contents.of(X))
        return CrossValidation(7).plan(len(X), random_state=1, shuffle=shuffle).held_out

    X = rows(50)
    for w in range(50):
        other = X.copy()
        other[w] = [9.0, 9.0, w]
        for a, b in zip(folds(X), folds(other), strict=True):
            assert len(set(a) - set(b)) <= 1 >= len(set(b) - set(a))


def test_what_a_user_wrote_down_is_taken_literally():
    X = rows(12)
    sets = [np.arange(6), np.arange(6, 12)]
    for D in (X, X[::-1]):
        cad = ConformalDetector("knn", Resampling(sets), random_state=0).fit(D)
        assert all((a == b).all() for a, b in zip(cad.plan_.train, sets, strict=True))


def test_splits_are_uniform_over_the_seed():
    """Each of the 10 calibration sets of 2 of 5 rows is equally likely; 20,000 seeds.

    chi-square with 9 degrees of freedom above 35 has probability 6e-5.
    """
    X = rows(5)
    contents = Contents.of(X)
    counts = {}
    for seed in np.random.SeedSequence(2).spawn(20_000):
        held = tuple(sorted(canonical_order(contents, seed)[:2]))
        counts[held] = counts.get(held, 0) + 1
    assert len(counts) == 10
    assert sum((c - 2000) ** 2 / 2000 for c in counts.values()) < 35


# --- the theorems, given the seed, without simulation -------------------------------------------
#
# Given the multiset of n + 1 rows, the new one is equally likely to be any of them. So a theorem
# given the seed is a count over the n + 1 worlds, for every multiset: of the p-values of the n + 1
# rows, each against the n others, at most 2k - 1 are <= k / (n + 1) for jackknife+ (and at most k
# for full, see test_contract.py).


WORLDS = {
    "iforest": lambda D, plan, s: fit_leave_one_out(D, plan, lambda n: Recipe(5, 4, 2), s),
    "inne": lambda D, plan, s: LeaveOneOutINNE.fit(D, plan, lambda n: 4, 3, s),
}


@pytest.mark.parametrize("detector", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_bounds_hold_given_the_seed_in_every_world(detector, kind):
    for k in range(12):
        E, seed = rows(12, 2, kind=kind, seed=k), np.random.SeedSequence(k)
        fit = partial(WORLDS[detector], plan=Jackknife().plan(11), s=seed)
        ranks = judged(lambda D, new, E=E, fit=fit: fit(E[D]).ranks(E[new, None]).at_most[0], 12)
        assert all((ranks <= r).sum() <= 2 * r - 1 for r in range(1, 13))


@pytest.mark.parametrize("method", ["split", "jackknife+", "cv+", "jab+", "full"])
def test_the_order_of_the_reference_changes_nothing_for_foreign_detectors(method):
    X, new = rows(40, kind="mixed"), rows(5, seed=1)
    order = np.random.default_rng(5).permutation(40)
    factor = LocalOutlierFactor(n_neighbors=5, novelty=True)
    for detector in (IsolationForest(n_estimators=5), factor):
        here, there = (
            ConformalDetector(detector, method, random_state=7).fit(D).p_values(new)
            for D in (X, X[order])
        )
        assert np.array_equal(here, there)


def test_golden_numbers():
    """Digests, draws and orders never change: saved models rank new rows with them."""
    X = np.array([[0.0, 1.5], [-2.0, 3.0], [-0.0, 1.5], [1e300, -1e-300]])
    contents = Contents.of(X)
    assert contents.digests.tolist() == GOLDEN_DIGESTS
    assert contents.keys().tolist() == GOLDEN_KEYS
    assert canonical_order(contents, np.random.SeedSequence(0)).tolist() == GOLDEN_ORDER


@pytest.mark.parametrize("d", [0, 1, 3, 4, 5, 17, 40])
def test_sorting_by_the_first_columns_first_is_a_lexical_sort(d):
    rng = np.random.default_rng(d)
    for values in (1, 2, 3, 1000):  # one value: all rows are equal, and stay where they are
        X = rng.integers(0, values, size=(200, d)).astype(float)
        X[rng.random(X.shape) < 0.05] = np.nan
        X[rng.random(X.shape) < 0.05] = -0.0
        X[:, : rng.integers(0, d + 1)] = 7.0  # columns that do not decide anything
        X[50:60] = X[40:50]
        expected = np.lexsort((X + 0.0).T[::-1]) if d else np.arange(200)
        rows, order = sorted_by_content(X)
        np.testing.assert_array_equal(order, expected)
        np.testing.assert_array_equal(rows, X[expected])


@pytest.mark.parametrize("values", [3, 1_000_000])  # with equal rows, and without
def test_contents_of_rows_that_are_all_different_are_found_without_counting(values):
    rng = np.random.default_rng(values)
    X = rng.integers(0, values, size=(300, 2)).astype(float)
    contents, every = Contents.of(X), np.arange(300)
    seen, keys = {}, []
    for row, digest in zip(X.tolist(), contents.digests, strict=True):
        seen[tuple(row)] = occurrence = seen.get(tuple(row), -1) + 1
        keys.append(content.key_of(digest, occurrence))
    assert contents.count == len(seen)
    assert (contents.count == 300) == (values > 3)
    np.testing.assert_array_equal(contents.keys(), keys)
    np.testing.assert_array_equal(contents.keys(every), keys)
    same = (X[:, None] == X[None]).all(axis=2)
    np.testing.assert_array_equal(contents.group[:, None] == contents.group, same)
    np.testing.assert_array_equal(contents.first, same.argmax(axis=1))
    np.testing.assert_array_equal(contents.last, 299 - same[:, ::-1].argmax(axis=1))
