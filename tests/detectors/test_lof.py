"""LOF by local repairs against models fitted from scratch (bit for bit), and scikit-learn's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import LocalOutlierFactor

from reconform import ConformalDetector, Full
from reconform.content import sorted_by_content
from reconform.detectors.knn.search import make_search
from reconform.detectors.lof import LOF, FullLOF, nearest_settled
from reconform.randomness import Streams
from refusals import refused

SEEDS = Streams(np.random.SeedSequence(0), 1000)


def squared(a, B):
    total = np.zeros(len(B))
    with np.errstate(over="ignore"):
        for j in range(B.shape[1]):  # in the order of the features, as the search adds up
            total += (B[:, j] - a[j]) * (B[:, j] - a[j])
    return total


class Slow:
    """LOF from scratch; of rows at one distance the smaller content is nearer."""

    def __init__(self, X, k):
        self.X = sorted_by_content(X)[0]
        self.k = min(k, len(X) - 1)
        near = [self.nearest(x, own=i) for i, x in enumerate(self.X)]
        self.reach = [distances[-1] for _, distances in near]
        self.density = [self.density_of(*of) for of in near]
        self.scores = [self.score_of(*of) for of in near]

    def nearest(self, x, own=None):
        square = squared(x, self.X)
        rows = [i for i in np.argsort(square, kind="stable") if i != own][: self.k]
        return rows, [np.sqrt(square[i]) for i in rows]

    def density_of(self, rows, distances):
        total = 0.0
        for o, distance in zip(rows, distances, strict=True):
            total += max(distance, self.reach[o])
        return 1.0 / (total / self.k + 1e-10)

    def score_of(self, rows, distances):
        total = 0.0
        for o in rows:
            total += self.density[o]
        own = self.density_of(rows, distances)
        if own == 0:  # distances overflow
            return -1.0 if total == 0 else -np.inf
        return -((total / self.k) / own)

    def score_new(self, X):
        return np.array([self.score_of(*self.nearest(x)) for x in X])

    def score_own(self, x):
        """Score of a row of the model."""
        return self.scores[int(np.flatnonzero((x == self.X).all(axis=1))[0])]


def cases():
    rng = np.random.default_rng(0)
    D = rng.normal(size=(60, 3))
    yield "smooth", D, np.vstack([rng.normal(size=(12, 3)) * 1.5, D[:3]])
    D = rng.integers(0, 5, size=(50, 2)) * 1.0
    yield "lattice", D, np.vstack([rng.integers(-1, 7, size=(14, 2)) * 1.0, [[2.5, 2.5]]])
    D = rng.normal(size=(20, 2))
    yield "copies", np.vstack([D, D[:8], D[:8]]), np.vstack([D[:4], D[9:12], D[:3] + 5.0])
    yield "hub", np.vstack([D * 50, np.zeros((1, 2))]), np.array([[0.1, 0.0], [0.0, 0.0], [9.0, 1]])
    yield "one content", np.zeros((30, 2)), np.array([[0.0, -0.0], [1.0, 0.0], [0.0, 0.0]])
    yield "overflow", np.vstack([D, D * 1e200]), np.vstack([D[:2] * 1e200, D[:2], D[:1] * 1e300])
    yield "few rows", D[:6], rng.normal(size=(6, 2))
    yield "three rows", D[:3], np.vstack([rng.normal(size=(6, 2)), D[:1] * 1e300])


CASES = {name: rest for name, *rest in cases()}


def ensemble_of(D, method, k, n_jobs=None):
    return LOF(n_neighbors=k, n_jobs=n_jobs).fit_plan(D, method.plan(len(D)), SEEDS)


def assert_one_model_is_slow(D, new, k):
    model = Slow(D, k)
    assert LOF(n_neighbors=k).fit(D).score_samples(new).tolist() == model.score_new(new).tolist()
    full = ensemble_of(D, Full(), k)
    assert full.calibration.scores.tolist() == [model.score_own(x) for x in D]
    own = [Slow(np.vstack([D, x]), k).score_own(x) for x in new]
    assert full.ranks(new).scores.tolist() == own


@pytest.mark.parametrize("k", [1, 2, 5, 11])
@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_the_definition(name, k):
    D, new = CASES[name]
    assert_one_model_is_slow(D, new, k)
    assert type(ensemble_of(D, Full(), k)) is FullLOF


@given(st.integers(0, 2**32), st.integers(2, 9), st.integers(1, 9), st.integers(1, 4))
def test_a_few_rows_on_a_lattice(seed, n, k, values):
    rows = np.random.default_rng(seed).integers(0, values, size=(n + 3, 2)) * 1.0
    assert_one_model_is_slow(rows[:n], rows[n:], k)


def test_scores_are_those_of_scikit_learn():
    D, new = CASES["smooth"]
    for k in (1, 5, 20):
        theirs = LocalOutlierFactor(n_neighbors=k, novelty=True).fit(D)
        ours = LOF(n_neighbors=k).fit(D)
        assert np.allclose(ours.score_samples(new), theirs.score_samples(new), rtol=1e-12, atol=0)
        scores = ensemble_of(D, Full(), k).ranks(new[:-3]).scores  # the last are rows of D: ties
        for x, t in zip(new, scores, strict=False):
            refitted = LocalOutlierFactor(n_neighbors=k).fit(np.vstack([D, x]))
            assert np.isclose(refitted.negative_outlier_factor_[-1], t, rtol=1e-12, atol=0)
    D, new = CASES["few rows"]  # all are neighbours where there are too few
    with pytest.warns(UserWarning, match="n_neighbors"):
        theirs = LocalOutlierFactor(n_neighbors=20, novelty=True).fit(D)
    assert np.allclose(LOF().fit(D).score_samples(new), theirs.score_samples(new), rtol=1e-12)


@pytest.mark.parametrize("width", [1, 3, 9])
@pytest.mark.parametrize("d", [2, 20])  # a tree, and a matrix product
def test_the_first_of_several_rows_at_one_distance(d, width):
    rng = np.random.default_rng(2)
    for values in (1, 2, 3, 40):
        X = sorted_by_content(rng.integers(0, values, size=(600, d)) * 1.0)[0]
        queries = rng.integers(0, values, size=(150, d)) * 1.0
        for rows, own in ((queries, None), (X, np.arange(len(X), dtype=np.int32))):
            search = make_search(X, metric="sqeuclidean")
            got = nearest_settled(search, rows, width, own=own, n_jobs=2)
            for q, x in enumerate(rows):
                square = squared(x, X)
                if own is not None:
                    square[q] = np.nan  # sorts last
                expected = np.argsort(square, kind="stable")[:width]
                assert got[1][q].tolist() == expected.tolist()
                assert got[0][q].tolist() == square[expected].tolist()


@pytest.mark.filterwarnings("ignore:all 2 calibration scores are equal")
def test_too_few_rows_get_a_sentence():
    X = np.array([[0.0], [1.0]])
    for method in ("jackknife+", "split"):
        refused("at least 2 training rows, and a model", ConformalDetector("lof", method).fit, X)
    refused("n_neighbors", LOF(n_neighbors=0).fit, X)
    assert ConformalDetector("lof", "full").fit(X).ranks([[9.0]]).tolist() == [3]
