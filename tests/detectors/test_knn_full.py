"""Full-conformal kNN: the ranks of a literal loop, to the last bit, and an exact level."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle_detectors import METHODS
from reconform import ConformalDetector, Full, Jackknife
from reconform.detectors.foreign import adapt
from reconform.detectors.knn import KNN
from reconform.detectors.knn import ensembles as full_neighbours
from reconform.detectors.knn import search as neighbours
from reconform.detectors.knn.ensembles import FullNeighbours
from reconform.detectors.knn.search import (
    TreeSearch,
    WideSearch,
    _directions,
)
from reconform.ensemble.refitting import FullRefit
from rows import DATA, grid, normal

FORMULAS = {
    "minkowski": ({}, 2.0, 0.5),
    "p=1": ({"p": 1}, 1.0, 1.0),
    "p=3": ({"p": 3}, 3.0, 1 / 3),
    "chebyshev": ({"metric": "chebyshev"}, np.inf, 1.0),
    "cosine": ({"metric": "cosine"}, 2.0, 1.0),
    "sqeuclidean": ({"metric": "sqeuclidean"}, 2.0, 1.0),
}


def reduced_distance(a, b, power):
    """The direct formula, feature after feature."""
    total = 0.0
    for u, v in zip(a, b, strict=True):
        gap = abs(u - v)
        if power == np.inf:
            total = max(total, gap)
        elif power == 2.0:
            total += gap * gap
        else:
            try:
                total += gap**power
            except OverflowError:  # Python's way to say infinity
                total = np.inf
    return total


def score(near, k, method):
    """Score from sorted distances, added up in order."""
    if method == "largest":
        return -near[k - 1]
    if method == "mean":
        total = 0.0
        for distance in near[:k]:
            total += distance
        return -(total / k)
    return -(near[k // 2] if k % 2 else (near[k // 2 - 1] + near[k // 2]) / 2)


def all_distances(X, Z, formula):
    """Reduced distances between all rows of X and Z, in this order."""
    parameters, power, _ = formula
    rows = np.vstack([X, Z])
    rows = (_directions(rows) if parameters.get("metric") == "cosine" else rows).tolist()
    return [[reduced_distance(a, b, power) for b in rows] for a in rows]


def literal(distances, n, k, method, root=1.0):
    """For every new row, and every one of the n + 1 rows: its k nearest others."""
    ranks = []
    for x in range(n, len(distances)):
        together = [*range(n), x]
        s = []
        for i in together:
            near = sorted(distances[i][j] for j in together if j != i)[:k]
            near = [np.sqrt(d) if root == 0.5 else d**root for d in near]
            s.append(score(near, k, method))
        t = s.pop()
        ranks.append((1 + sum(c <= t for c in s), 1 + sum(c < t for c in s), t))
    return ranks


def fast(knn, X, Z, n_jobs=None):
    ensemble = knn.fit_plan(X, Full().plan(len(X)), [], n_jobs=n_jobs)
    assert isinstance(ensemble, FullNeighbours)
    assert ensemble.ranks(Z).below is None
    ranks = ensemble.ranks(Z, strictly=True)
    assert ranks.at_most.dtype == ranks.below.dtype == np.int64
    return list(
        zip(ranks.at_most.tolist(), ranks.below.tolist(), ranks.scores.tolist(), strict=True)
    )


class TestLiteral:
    @pytest.mark.parametrize("formula", FORMULAS)
    @pytest.mark.parametrize("name", DATA)
    def test_the_same_ranks(self, name, formula):
        X, Z = DATA[name]
        Z = np.vstack([Z[:12], X[:2], X[-1:]])  # rows that are in D already
        parameters, _, root = FORMULAS[formula]
        distances = all_distances(X, Z, FORMULAS[formula])
        for k, method in [(1, "largest"), (2, "mean"), *((5, method) for method in METHODS)]:
            knn = KNN(n_neighbors=k, method=method, **parameters)
            assert fast(knn, X, Z) == literal(distances, len(X), k, method, root)

    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
    def test_few_rows(self, k, method):
        """With n = k every row needs the new one to have k neighbours."""
        X, Z = normal(k + 1, 8, d=2)
        for data in ((X, Z), (np.round(X), np.round(Z))):
            Z = np.vstack([data[1], data[0][:1]])
            for n in (k, k + 1):
                X = data[0][:n]
                for formula in FORMULAS.values():
                    expected = literal(all_distances(X, Z, formula), n, k, method, formula[2])
                    knn = KNN(n_neighbors=k, method=method, leaf_size=1, **formula[0])
                    assert fast(knn, X, Z) == expected

    @given(st.data())
    def test_any_small_grid(self, data):
        n, m, d = (data.draw(st.integers(1, most)) for most in (9, 3, 2))
        k = data.draw(st.integers(1, n))
        numbers = st.lists(st.integers(0, 3), min_size=(n + m) * d, max_size=(n + m) * d)
        rows = np.array(data.draw(numbers), dtype=float).reshape(n + m, d)
        method = data.draw(st.sampled_from(METHODS))
        formula = FORMULAS[data.draw(st.sampled_from(sorted(FORMULAS)))]
        knn = KNN(n_neighbors=k, method=method, leaf_size=1, **formula[0])
        expected = literal(all_distances(rows[:n], rows[n:], formula), n, k, method, formula[2])
        assert fast(knn, rows[:n], rows[n:]) == expected


class TestNothingChangesANumber:
    @pytest.mark.parametrize("metric", [{}, {"p": 3}, {"metric": "cosine"}], ids=str)
    @pytest.mark.parametrize("make", [grid, normal])
    def test_jobs_blocks_leaves_and_algorithms(self, make, metric, monkeypatch):
        X, Z = make(150, 70, d=17)
        expected = fast(KNN(method="mean", **metric), X, Z)
        for small_work, block_bytes, n_jobs in [(neighbours.SMALL_WORK, 1000, 1), (0, 1 << 25, 2)]:
            monkeypatch.setattr(neighbours, "SMALL_WORK", small_work)
            monkeypatch.setattr(full_neighbours, "BLOCK_BYTES", block_bytes)
            for call in ({}, {"leaf_size": 1}, {"algorithm": "kd_tree"}):
                knn = KNN(method="mean", **metric, **call)
                assert fast(knn, X, Z, n_jobs=n_jobs) == expected

    def test_roads(self):
        wide, narrow = normal(d=20)[0], normal(d=2)[0]
        for X, parameters, kind in [
            (wide, {}, WideSearch),
            (narrow, {}, TreeSearch),
            (wide, {"p": 1}, TreeSearch),
        ]:
            ensemble = KNN(**parameters).fit_plan(X, Full().plan(len(X)), [])
            assert isinstance(ensemble.search, kind)


class TestCalibration:
    @pytest.mark.parametrize("method", METHODS)
    def test_leave_one_out_scores(self, method):
        for name in ("grid", "200 features", "n barely larger than k"):
            X, _ = DATA[name]
            knn = KNN(method=method)
            full = knn.fit_plan(X, Full().plan(len(X)), [])
            left_out = knn.fit_plan(X, Jackknife().plan(len(X)), [])
            np.testing.assert_array_equal(full.calibration.scores, left_out.calibration.scores)
            np.testing.assert_array_equal(full.calibration.rows, np.arange(len(X)))

    @pytest.mark.parametrize("method", METHODS)
    def test_finite_where_d_is_one_row_short(self, method):
        X = np.array([[0.0], [1.0], [3.0]])
        full = KNN(n_neighbors=3, method=method).fit_plan(X, Full().plan(3), [])
        by_two = {"largest": [-3, -2, -3], "mean": [-2, -1.5, -2.5], "median": [-3, -2, -3]}
        assert full.calibration.scores.tolist() == by_two[method]


class TestInsideAConformalDetector:
    @pytest.mark.parametrize("method", METHODS)
    def test_the_same_as_refits_of_pyod(self, blobs, method):
        """PyOD's own training scores leave each row out: one refit per new row is the slow way."""
        pyod = pytest.importorskip("pyod.models.knn", reason="needs reconform[pyod]")
        X, Z = blobs
        foreign = pyod.KNN(method=method)
        cad = ConformalDetector(foreign, "full").fit(X)
        assert isinstance(cad.ensemble_, FullNeighbours)
        slow = adapt(foreign).fit_plan(X, Full().plan(len(X)), [np.random.SeedSequence(0)])
        assert isinstance(slow, FullRefit)
        np.testing.assert_array_equal(cad.ranks(Z), slow.ranks(Z).at_most)
        scores = cad.ensemble_.ranks(Z).scores
        np.testing.assert_allclose(scores, slow.ranks(Z).scores, rtol=1e-12)
        assert cad.guarantee_.name == "full"
        assert cad.n_calibration_ == len(X)

    def test_bad_parameters(self):
        X = np.zeros((4, 2))
        for detector, message in [
            ("knn", r"n_neighbors=5` needs at least 5 .* the reference has n_samples = 4"),
            (KNN(n_neighbors=0), "n_neighbors must be an integer"),
            (KNN(n_neighbors=2, method="max"), "method must be one of"),
            (KNN(n_neighbors=2, metric="no such"), "metric must be one of .*; got 'no such'"),
        ]:
            with pytest.raises(ValueError, match=message):
                ConformalDetector(detector, "full").fit(X)

    def test_no_table_of_all_pairs(self):
        rng = np.random.default_rng(0)
        X, Z = rng.normal(size=(2, 4000, 2))
        cad = ConformalDetector("knn", "full")
        cad.fit(X[:50]).ranks(Z[:50])  # compile
        tracemalloc.start()
        cad.fit(X).ranks(Z)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4000 * 4000  # an eighth of a table of all distances
