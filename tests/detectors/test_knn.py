import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import GroupKFold

from oracle_detectors import METHODS
from reconform import Bootstrap, ConformalDetector, Full, Jackknife, Resampling
from reconform.detectors.knn import KNN
from reconform.detectors.knn import search as neighbours
from reconform.detectors.knn.ensembles import FullNeighbours, KNNModel, OneTable, tabulate
from reconform.detectors.knn.search import FORMULAS, TreeSearch, WideSearch, make_search
from reconform.randomness import Streams
from refits import assert_same_ensemble, plans, refits
from refusals import refused
from rows import DATA, grid, normal

NONE = Streams(np.random.SeedSequence(0), 1000)  # kNN draws nothing
pyod = pytest.importorskip("pyod.models.knn", reason="needs reconform[pyod]")


class TestAgainstPyOD:
    @pytest.mark.parametrize("method", METHODS)
    @pytest.mark.parametrize("p", [1, 3, 1.5])
    def test_the_same_numbers(self, method, p):
        X, Z = normal(80, 30, d=4)
        X[:5], Z[:3, 1] = X[5:10], 0.0
        for k in (1, 4, 5):
            theirs = pyod.KNN(n_neighbors=k, method=method, p=p).fit(X)
            ours = KNN.from_pyod(theirs).fit(X)
            expected = theirs.decision_function(Z)
            np.testing.assert_allclose(-ours.score_samples(Z), expected, rtol=1e-12)
            # PyOD's threshold is the same quantile, of the scores turned round.
            np.testing.assert_allclose(-ours.offset_, theirs.threshold_, rtol=1e-12)

    def test_parameters_come_along(self):
        given = {"contamination": 0.2, "n_neighbors": 3, "method": "mean", "leaf_size": 9, "p": 1}
        native = KNN.from_pyod(pyod.KNN(n_jobs=2, metric="l1", **given))
        assert native.get_params() == KNN().get_params() | given | {"n_jobs": 2, "metric": "l1"}
        defaults = pyod.KNN().get_params()
        defaults.pop("radius")  # without effect in PyOD
        defaults.pop("metric_params")
        ours = KNN(n_jobs=1).get_params()
        assert ours.pop("scale") == "none"  # which PyOD does not have
        assert ours == defaults
        assert KNN().n_jobs is None  # joblib's convention

    def test_metrics_with_a_twin(self):
        weighted = pyod.KNN(metric="minkowski", metric_params={"w": np.ones(2)})
        left = [pyod.KNN(metric=metric) for metric in ("haversine", "canberra", abs)]
        left += [weighted, type("Altered", (pyod.KNN,), {})(), KNN(), "knn", None]
        assert all(map(KNN.takes, [pyod.KNN(), pyod.KNN(metric="cityblock")]))
        assert not any(map(KNN.takes, left))
        refused(r"must be a pyod.models.knn.KNN object; got KNN", KNN.from_pyod, KNN())

    @pytest.mark.parametrize("metric", FORMULAS)
    def test_twins_have_the_same_numbers(self, metric):
        """Also on rows of zeros and ones, where some metrics are not defined."""
        rows = np.random.default_rng(8).integers(0, 2, (80, 5)).astype(float)
        if metric == "cosine":  # see below
            rows = rows[rows.any(axis=1)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # scikit-learn turns data to bool, loudly
            for X, Z in ((rows[:50], rows[50:]), normal(d=5)):
                theirs = pyod.KNN(metric=metric, method="mean").fit(X)
                ours = KNN.from_pyod(theirs).fit(X).score_samples(Z)
                # Cosines come from a product of matrices there: 1e-16 instead of 0.
                expected = theirs.decision_function(Z)
                np.testing.assert_allclose(-ours, expected, rtol=1e-12, atol=1e-15)

    @pytest.mark.parametrize("method", ["split", "jackknife+", "cv+", "jab+"])
    def test_pyods_objects_take_the_native_road(self, blobs, method):
        X, Z = blobs
        fast = ConformalDetector(pyod.KNN(), method, random_state=0).fit(X)
        assert isinstance(fast.ensemble_.full, KNNModel)
        pyods = {"detector": lambda D: pyod.KNN().fit(D).decision_function, "random_state": 0}
        slow = ConformalDetector(**pyods, method=method, larger_is="anomalous").fit(X)
        np.testing.assert_array_equal(fast.p_values(Z), slow.p_values(Z))
        full = ConformalDetector(pyod.KNN(method="mean"), "full").fit(X).ensemble_
        assert isinstance(full, FullNeighbours)

    def test_cosine_of_a_row_of_zeros(self):
        X, Z = normal()
        X[3], Z[4] = 0.0, 0.0
        theirs = pyod.KNN(metric="cosine", n_neighbors=40).fit(np.vstack([X, X[:2]]))
        ours = KNN.from_pyod(theirs).fit(np.vstack([X, X[:2]]))
        keep = np.arange(len(Z)) != 4
        expected = theirs.decision_function(Z)
        np.testing.assert_allclose(-ours.score_samples(Z)[keep], expected[keep], rtol=1e-12)
        assert ours.score_samples(Z)[4] == pytest.approx(-1.0, rel=1e-12)


class TestContract:
    """The fast ensemble is the slow one, to the last bit."""

    @pytest.mark.parametrize(
        "metric",
        [*({"metric": m} for m in ("manhattan", "chebyshev", "cosine")), {"p": 3}, {"p": 0.5}],
        ids=str,
    )
    def test_metrics(self, metric):
        X, Z = (a + 2.0 for a in DATA["grid"])
        knn = KNN(method="mean", **metric)
        for plan in plans(len(X)).values():
            assert_same_ensemble(knn.fit_plan(X, plan, NONE), refits(knn, X, plan, NONE), Z)

    def test_tables_for_any_sets(self):
        """What one by one is quicker for is right by the table, too."""
        X, Z = DATA["grid"]
        for name in ("multisets", "small sets"):
            plan = plans(40)[name]
            full = KNNModel(make_search(X), 5, 5, None)
            fast = OneTable.fit(full, X, plan, *tabulate(plan, 5))
            assert_same_ensemble(fast, refits(KNN(), X, plan, NONE), Z)

    @pytest.mark.parametrize("method", METHODS)
    def test_all_near_rows_held_out_together(self, method, monkeypatch):
        """Tables that run out are completed: a fold is a cluster, far from all others."""
        rng = np.random.default_rng(4)
        clusters = np.repeat(np.arange(5), 30)
        X = rng.integers(0, 3, (150, 2)) + 1000.0 * clusters[:, None]
        Z = rng.integers(0, 3, (40, 2)) + 1000.0 * rng.integers(0, 6, (40, 1))
        plan = Resampling(GroupKFold(5)).plan(150, groups=clusters)
        widths = []
        search = TreeSearch.nearest
        monkeypatch.setattr(
            TreeSearch,
            "nearest",
            lambda self, X, width, **kw: widths.append(width) or search(self, X, width, **kw),
        )
        knn = KNN(method=method)
        fast = knn.fit_plan(X, plan, NONE)
        assert isinstance(fast, OneTable)
        assert widths[0] < 29 < widths[-1]
        assert_same_ensemble(fast, refits(knn, X, plan, NONE), Z)

    def test_a_table_of_all_rows(self):
        """Doubling ends at n, where even the farthest row is met."""
        X = np.arange(30.0)[:, None]
        plan = Resampling([[29] * 5, [0] * 5, np.arange(1, 30)]).plan(30)
        multiplicity, _ = tabulate(plan, 5)
        for width in (1, 2, 29):
            fast = OneTable.fit(KNNModel(make_search(X), 5, 5, None), X, plan, multiplicity, width)
            assert_same_ensemble(fast, refits(KNN(), X, plan, NONE), X)


def plain_scores(X, Z, k, method, metric, skip=None):
    """NumPy, one row at a time. Distances of small integers are exact but for the root."""
    scores = []
    for z, own in zip(Z, [None] * len(Z) if skip is None else skip, strict=True):
        gaps = np.abs(X - z) if own is None else np.abs(np.delete(X, own, axis=0) - z)
        distances = {
            "euclidean": lambda gaps=gaps: np.sqrt((gaps**2).sum(axis=1)),
            "manhattan": lambda gaps=gaps: gaps.sum(axis=1),
            "chebyshev": lambda gaps=gaps: gaps.max(axis=1),
        }[metric]()
        near = np.sort(distances)[:k]
        total = 0.0
        for distance in near:
            total += distance
        scores.append(-{"largest": near[-1], "mean": total / k, "median": np.median(near)}[method])
    return np.array(scores)


@given(st.data())
def test_one_model_is_plain(data):
    """Scores, and those of training rows, which leave each row out, as the offset shows them."""
    n, d, k = (data.draw(st.integers(low, most)) for low, most in ((3, 14), (1, 3), (1, 4)))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    X, Z = rng.integers(0, 4, size=(n, d)) * 1.0, rng.integers(0, 4, size=(5, d)) * 1.0
    method = data.draw(st.sampled_from(METHODS))
    metric = data.draw(st.sampled_from(["euclidean", "manhattan", "chebyshev"]))
    if n <= k:
        return
    knn = KNN(n_neighbors=k, method=method, metric=metric, leaf_size=1, contamination=0.25).fit(X)
    np.testing.assert_array_equal(knn.score_samples(Z), plain_scores(X, Z, k, method, metric))
    own = plain_scores(X, X, k, method, metric, skip=range(n))
    assert knn.offset_ == np.quantile(own, 0.25)
    ensemble = knn.fit_plan(X, Jackknife().plan(n), NONE)
    np.testing.assert_array_equal(ensemble.calibration.scores, own)


def brute(X, Z, power):
    """Every distance by the direct formula, feature after feature."""
    total = np.zeros((len(Z), len(X)))
    for j in range(X.shape[1]):
        gap = np.abs(X[:, j] - Z[:, j, None])
        total = np.maximum(total, gap) if power == np.inf else total + gap**power
    return total


class TestSearch:
    @pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
    @pytest.mark.parametrize("name", DATA)
    def test_the_tree_is_exact(self, name, metric):
        """Distances equal brute force by the same formula, bit for bit, at every width."""
        X, Z = DATA[name]
        power = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}[metric]
        with np.errstate(over="ignore"):
            expected = brute(X, Z, power)
        every = np.sort(np.sqrt(expected) if power == 2 else expected, axis=1)
        for leaf_size in (1, 8, 30):
            search = make_search(X, metric=metric, leaf_size=leaf_size, algorithm="kd_tree")
            for width in (1, 3, len(X)):
                distances, rows = search.nearest(Z, width)
                np.testing.assert_array_equal(distances, every[:, :width])
                assert all(len(set(row)) == width for row in rows.tolist())
                chosen = np.take_along_axis(expected, rows, axis=1)
                chosen = np.sqrt(chosen) if power == 2 else chosen
                np.testing.assert_array_equal(chosen, distances)

    @pytest.mark.parametrize("shift", [0.0, 1e8])
    @pytest.mark.parametrize("few_values", [False, True])
    @pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "cosine"])
    def test_the_matrix_product_only_proposes(self, metric, few_values, shift, monkeypatch):
        rng = np.random.default_rng(5)
        X, Z = rng.normal(size=(300, 20)), rng.normal(size=(50, 20))
        if few_values:
            X, Z = np.round(X), np.round(Z)
        X, Z = X + shift, Z + shift
        X[7] = 1e12  # one wild row must not blind the check for all
        own = np.arange(300, dtype=np.int32)
        tree = make_search(X, metric=metric, algorithm="kd_tree")
        expected, expected_own = tree.nearest(Z, 6), tree.nearest(X, 6, own=own)
        monkeypatch.setattr(neighbours, "SMALL_WORK", 0)
        asked = []
        exact = TreeSearch.nearest_embedded
        monkeypatch.setattr(
            TreeSearch,
            "nearest_embedded",
            lambda self, Q, *args: asked.append(len(Q)) or exact(self, Q, *args),
        )
        wide = make_search(X, metric=metric)
        assert isinstance(wide, WideSearch)
        np.testing.assert_array_equal(wide.nearest(Z, 6)[0], expected[0])
        np.testing.assert_array_equal(wide.nearest(X, 6, own=own)[0], expected_own[0])
        assert not (wide.nearest(X, 6, own=own)[1] == own[:, None]).any()
        if not few_values and metric != "cosine":
            assert sum(asked) <= 3  # only the wild row is in doubt
        if few_values and shift == 0 and metric == "euclidean":
            assert asked  # ties at the edge of the proposals

    def test_proposals_that_are_wrong_are_found_out(self, monkeypatch):
        """Rounding in the product hides neighbours; the check sees that it may have."""
        rng = np.random.default_rng(6)
        # Two clouds 1e9 apart, each of size 1: seen from the middle, a product has no digits left.
        X = rng.normal(size=(200, 16)) + 1e9 * np.repeat([-1, 1], 100)[:, None]
        Z = rng.normal(size=(40, 16)) + 1e9
        expected, _ = make_search(X, algorithm="kd_tree").nearest(Z, 5)
        monkeypatch.setattr(neighbours, "SMALL_WORK", 0)
        wide = make_search(X)
        proposed = np.sort(wide.proposals.kneighbors(Z - wide.middle, 5)[1], axis=1)
        truth = np.sort(make_search(X, algorithm="kd_tree").nearest(Z, 5)[1], axis=1)
        assert (proposed != truth).any()
        np.testing.assert_array_equal(wide.nearest(Z, 5)[0], expected)

    def test_numbers_too_large_for_a_product(self, monkeypatch):
        monkeypatch.setattr(neighbours, "SMALL_WORK", 0)
        X, Z = normal(d=20)
        Z[3, 3] = 1e200
        for rows in (X, X * 1e200):
            expected, _ = make_search(rows, algorithm="kd_tree").nearest(Z, 4)
            np.testing.assert_array_equal(make_search(rows).nearest(Z, 4)[0], expected)


@pytest.mark.parametrize("metric", [{}, {"p": 3}, {"metric": "cosine"}], ids=str)
def test_neither_leaves_nor_algorithms_change_a_number(metric, monkeypatch):
    X, Z = grid(120, 70, d=17)

    def numbers(**parameters):
        knn = KNN(method="mean", **metric, **parameters)
        found = [knn.fit(X).score_samples(Z), knn.offset_]
        for method in (Bootstrap(9), Jackknife(), Full()):
            ensemble = knn.fit_plan(X, method.plan(120, random_state=0), NONE)
            ranks = ensemble.ranks(Z, strictly=True)
            found += [ensemble.calibration.scores, ranks.at_most, ranks.below, ranks.scores]
        return found

    expected = numbers()
    for small_work in (neighbours.SMALL_WORK, 0):
        monkeypatch.setattr(neighbours, "SMALL_WORK", small_work)
        for call in ({}, {"leaf_size": 1}, {"algorithm": "kd_tree"}, {"algorithm": "brute"}):
            for ours, theirs in zip(numbers(**call), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


class TestEstimator:
    @pytest.mark.filterwarnings("error")
    def test_infinite_scores_have_an_offset(self):
        X = np.arange(8.0)[:, None] * np.array([1.0, 0.0])
        X[:3, 1] = 1e200 * np.arange(1, 4)  # squares overflow: infinitely far from all others
        for contamination in (0.1, 0.25, 0.4, 0.5):
            knn = KNN(n_neighbors=1, contamination=contamination).fit(X)
            assert np.isfinite(knn.offset_)
            assert knn.score_samples([[0.0, -1e200]])[0] == -np.inf
            np.testing.assert_array_equal(knn.predict([[5.0, 0.0], [0.0, -1e200]]), [1, -1])

    def test_a_model_of_n_neighbors_rows(self):
        X = np.array([[0.0], [1.0], [3.0]])
        knn = KNN(n_neighbors=3).fit(X)
        np.testing.assert_array_equal(knn.score_samples([[5.0]]), [-5.0])
        assert np.isfinite(knn.offset_)

    def test_too_few_rows(self):
        X = np.arange(8.0)[:, None]
        refused(r"this model has n_samples = 4. Use fewer", KNN().fit, X[:4])
        with pytest.raises(ValueError, match=r"all rows but one, has n_samples = 4"):
            KNN().fit_plan(X[:5], Jackknife().plan(5), NONE)
        with pytest.raises(ValueError, match=r"at least 5 .* the reference has n_samples = 4"):
            ConformalDetector("knn", "full").fit(X[:4])
        plan = Resampling([np.arange(7), np.arange(4), np.arange(6)]).plan(8)
        with pytest.raises(ValueError, match=r"n_neighbors=5` needs at least 5 .* model 1 has .*4"):
            KNN().fit_plan(X, plan, NONE)
        # Repeats count: five times one row is five rows.
        repeated = Resampling([[3] * 5, [0, 1, 2, 2, 2]]).plan(8)
        assert_same_ensemble(KNN().fit_plan(X, repeated, NONE), refits(KNN(), X, repeated, NONE), X)


@pytest.mark.parametrize("columns", [4, 20])
def test_mean_and_squared_mean_distances_take_the_quick_way(columns):
    """As the k-th neighbour does: one search for all models, by a tree or a matrix product."""
    X = np.random.default_rng(0).normal(size=(60, columns))
    for parameters in ({}, {"method": "mean"}, {"method": "mean", "metric": "sqeuclidean"}):
        kinds = {"jackknife+": "LeaveOneOut", "cv+": "OneTable", "jab+": "OneTable"}
        for method, kind in {**kinds, "full": "FullNeighbours"}.items():
            ensemble = ConformalDetector(KNN(**parameters), method, random_state=0).fit(X).ensemble_
            assert type(ensemble).__name__ == kind
            search = ensemble.search if method == "full" else ensemble.full.search
            assert isinstance(search, TreeSearch if columns == 4 else WideSearch)


# --- full-conformal: the ranks of a literal loop --------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_calibration_of_full_leaves_each_row_out(method):
    for name in ("grid", "200 features", "n barely larger than k"):
        X, knn = DATA[name][0], KNN(method=method)
        full, left_out = (knn.fit_plan(X, m.plan(len(X)), []) for m in (Full(), Jackknife()))
        np.testing.assert_array_equal(full.calibration.scores, left_out.calibration.scores)
        np.testing.assert_array_equal(full.calibration.rows, np.arange(len(X)))
    X = np.array([[0.0], [1.0], [3.0]])  # finite where D is one row short
    full = KNN(n_neighbors=3, method=method).fit_plan(X, Full().plan(3), [])
    by_two = {"largest": [-3, -2, -3], "mean": [-2, -1.5, -2.5], "median": [-3, -2, -3]}
    assert full.calibration.scores.tolist() == by_two[method]


@pytest.mark.parametrize("method", ["full", "jackknife+"])
def test_no_table_of_all_pairs(method):
    X, Z = np.random.default_rng(0).normal(size=(2, 4000, 2))
    cad = ConformalDetector("knn", method)
    cad.fit(X[:50]).ranks(Z[:50])  # compile
    tracemalloc.start()
    cad.fit(X).ranks(Z)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4000 * 4000  # an eighth of a table of all distances
