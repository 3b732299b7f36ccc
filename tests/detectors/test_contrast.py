"""Contrast against its definition, row by row; the guard; and what a batch changes elsewhere."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from oracle_detectors import is_clustered, score
from reconform import ConformalDetector, Split
from reconform.detectors import KNN, Contrast
from reconform.detectors.contrast import FullContrast
from reconform.detectors.prepare import prepared
from reconform.detectors.scaled import ScaledFull
from reconform.detectors.scaling import rescale, scale_exponents, spreads
from reconform.errors import ReconformError
from reconform.frames import label_code
from reconform.tables import Feature
from refusals import refused


def by_definition(D, new, ks, *, guard=True, scale=False):
    """For every new row: both ranks, and whether it is ranked by itself for clusters."""
    at_most, below, clustered = [], [], []
    for j in range(len(new)):
        E, T = np.vstack([D, new[j]]), np.delete(new, j, axis=0)
        if scale:
            units = scale_exponents(spreads(np.vstack([E, T])))  # of the pool
            E, T = rescale(E, units), rescale(T, units)
        use_new = len(T) >= max(ks)
        clustered.append(guard and use_new and is_clustered(E, T, max(ks)))
        use_new = use_new and not clustered[-1]
        s = np.array([score(E[i], np.delete(E, i, axis=0), T, ks, use_new) for i in range(len(E))])
        at_most.append(int((s <= s[-1]).sum()))
        below.append(1 + int((s[:-1] < s[-1]).sum()))
    return at_most, below, clustered


def cases():
    rng = np.random.default_rng(0)
    D, T = rng.normal(size=(25, 3)), rng.normal(size=(14, 3))
    yield "smooth", D, np.vstack([T, D[:2], rng.normal(4.0, 0.1, size=(4, 3))])
    D, T = rng.integers(0, 3, size=(30, 2)) * 1.0, rng.integers(0, 3, size=(15, 2)) * 1.0
    yield "lattice", D, T
    D, T = rng.normal(size=(70, 2)), rng.normal(size=(13, 2))
    yield "pairs", D, np.vstack([T, T + 1e-9])
    yield "copies", D, np.vstack([T, T])
    D, T = D[:30], T[:9]
    yield "overflow", np.vstack([D[:12], D[:9] * 1e200]), np.vstack([T * 1e200, T, T[:2] * 1e300])
    yield "tiny batch", D, T[:2]
    yield "batch of k + 1", D, T[:4]
    yield "small reference", D[:3], T
    yield "more new than normal", D[:8], rng.normal(size=(20, 2))


CASES = {name: rest for name, *rest in cases()}
KS = [(1,), (3,), (1, 2, 3)]


def ensemble_of(D, ks, n_jobs=None):
    return FullContrast.fit(D, np.array(ks), n_jobs)


def fitted(D, **options):
    detector = Contrast(**options)
    return ConformalDetector(detector, "full").fit(D)


@pytest.mark.parametrize("ks", KS)
@pytest.mark.parametrize("name", CASES)
def test_ranks_are_those_of_the_definition(name, ks):
    D, new = CASES[name]
    ranks = ensemble_of(D, ks).batch_ranks(new, strictly=True)
    at_most, below, clustered = by_definition(D, new, ks)
    assert (ranks.at_most.tolist(), ranks.below.tolist()) == (at_most, below)
    assert (ranks.clustered if len(new) > max(ks) else np.zeros(len(new))).tolist() == clustered
    assert any(clustered) == (name in ("pairs", "copies"))


@pytest.mark.parametrize("ks", [(1,), (1, 3)])
@pytest.mark.parametrize("name", [name for name in CASES if name != "small reference"])
def test_scaled_ranks_are_those_of_the_definition(name, ks):
    D, new = CASES[name]
    D, new = D * ([1.0] + [1e3] * (D.shape[1] - 1)), new * ([1.0] + [1e3] * (D.shape[1] - 1))
    if name == "overflow":
        D, new = D[:12], new[9:18]
    cad = fitted(D, n_neighbors=ks, scale="robust")
    assert type(cad.ensemble_) is ScaledFull
    assert cad.ranks_rows == "batch"
    ranks = cad.rank(new, together=True)
    at_most, _, clustered = by_definition(D, new, ks, scale=True)
    assert ranks.at_most.tolist() == at_most
    found = np.zeros(len(new)) if ranks.clustered is None else ranks.clustered
    assert found.tolist() == clustered
    alone = [by_definition(D, x[None], ks, scale=True)[0][0] for x in new]
    assert cad.ranks(new).tolist() == alone


@pytest.mark.parametrize("name", CASES)
def test_p_values_judge_every_row_alone_as_knn_does(name):
    D, new = CASES[name]
    knn = ConformalDetector(KNN(n_neighbors=3), "full").fit(D)
    cad = fitted(D, n_neighbors=3)
    expected = knn.rank(new)
    assert np.array_equal(cad.rank(new).at_most, expected.at_most)
    assert np.array_equal(cad.rank(new).scores, expected.scores)
    assert np.array_equal(cad.p_values(new), knn.p_values(new))
    assert np.array_equal(cad.score_samples(new[:1]), knn.p_values(new[:1]))
    assert np.array_equal(cad.predict(new), knn.predict(new))


def batch(rng, n=300, m=60):
    """Normal rows and anomalies that resemble each other, not far away."""
    new = rng.normal(size=(m, 3))
    new[:9] = np.array([1.3, -1.3, 1.2]) + 0.1 * rng.normal(size=(9, 3))
    return rng.normal(size=(n, 3)), new


def test_discover_uses_the_batch_and_says_so():
    D, new = batch(np.random.default_rng(2))
    cad = fitted(D)
    found = cad.discover(new, fdr=0.1)
    assert found.mask[:9].all()
    assert not ConformalDetector("knn", "full").fit(D).discover(new, fdr=0.1).mask.any()
    assert np.array_equal(found.p_values, cad.rank(new, together=True).at_most / 301)
    assert not [finding for finding in found.verdict.findings if finding.check == "batch"]
    assert "full with the batch" in found.guarantee
    assert cad.guarantee_.kind == "exact"
    assert "*given the other new rows*" in str(cad.guarantee_)
    assert "repeated measurements" in str(cad.guarantee_)


def pairs_of_near_copies(seed, n, m, d):
    rng = np.random.default_rng(seed)
    T = rng.normal(size=(m // 2, d))
    return rng.normal(size=(n, d)), np.vstack([T, T + 1e-6 * rng.normal(size=T.shape)])


@pytest.mark.parametrize(("n", "m"), [(200, 40), (1000, 200), (200, 200), (100, 20)])
def test_pairs_of_near_copies_switch_it_off(n, m):
    D, T = pairs_of_near_copies(0, n, m, 3)
    unguarded = ensemble_of(D, (1,)).rank_batch(T, np.arange(m), np.empty((0, 0)), False)
    assert (unguarded.at_most <= 0.1 * (n + 1)).mean() > 0.9
    cad = fitted(D, n_neighbors=1)
    found = cad.discover(T)
    assert np.array_equal(found.p_values, cad.p_values(T))  # those of kNN
    assert (found.p_values <= 0.1).mean() < 0.3
    (finding,) = [finding for finding in found.verdict.findings if finding.check == "batch"]
    assert finding.level == "note"
    assert f"All {m} rows are compared with reference rows only" in str(finding)
    for said in (repr(found), found._repr_html_()):
        assert "are compared with reference rows only" in said


@pytest.mark.parametrize("size", [2, 3, 6])
def test_clusters_of_all_sizes_switch_it_off(size):
    """Also those that are smaller than k + 1, which do harm as well."""
    rng = np.random.default_rng(6)
    T = np.repeat(rng.normal(size=(60 // size, 4)), size, axis=0) + 1e-3 * rng.normal(size=(60, 4))
    ranks = fitted(rng.normal(size=(300, 4))).rank(T, together=True)
    assert ranks.clustered.mean() > 0.9


def test_where_some_rows_are_switched_off_the_promise_is_withdrawn():
    for seed in range(50):  # in small batches the guard may be of two minds
        D, T = pairs_of_near_copies(seed, 30, 18, 3)
        clustered = ensemble_of(D, (1,)).batch_ranks(T).clustered
        if 0 < clustered.sum() < len(T):
            break
    else:
        pytest.fail("no such batch")
    verdict = fitted(D, n_neighbors=1).discover(T).verdict
    assert verdict.word == "doubtful"  # whatever else there is
    (said,) = [str(finding) for finding in verdict.findings if finding.check == "batch"]
    assert f"{clustered.sum()} of {len(T)} rows are compared with reference rows only" in said
    assert "rests on an assumption that looks broken" in said


HONEST = {
    "poisson": lambda rng, size: rng.poisson(1.0, size=(size, 3)) * 1.0,
    "lattice": lambda rng, size: rng.integers(0, 4, size=(size, 2)) * 1.0,
    "rounded": lambda rng, size: rng.normal(size=(size, 2)).round(1),
    "binary": lambda rng, size: (rng.random((size, 8)) < 0.2) * 1.0,
    "smooth": lambda rng, size: rng.normal(size=(size, 4)),
}


@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("shape", HONEST)
def test_honest_data_do_not_switch_it_off(shape, k):
    """20 batches of each kind, with a cluster of anomalies elsewhere; many of them full of ties."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, m = [(200, 40), (500, 100), (100, 100), (300, 30)][seed % 4]
        D, T = HONEST[shape](rng, n), HONEST[shape](rng, m)
        T[: m // 10] = T[0] + 30.0
        assert not ensemble_of(D, (k,)).batch_ranks(T).clustered.any()


@pytest.mark.parametrize("detector", [Contrast(), Contrast(scale="robust")])
@pytest.mark.parametrize("method", ["split", "jackknife+", "cv+", "jab+", "jab", Split(repeats=2)])
def test_other_methods_are_refused(method, detector):
    with pytest.raises(ReconformError, match="works with `method='full'` only"):
        ConformalDetector(detector, method).fit(CASES["smooth"][0])


def test_disguises_are_refused():
    D, _ = CASES["smooth"]
    pipeline = make_pipeline(StandardScaler(), Contrast())
    for cad in (
        ConformalDetector(pipeline, "full"),
        ConformalDetector(Contrast(), "full", larger_is="anomalous"),
        ConformalDetector(Contrast().fit(D), "prefit"),
    ):
        refused("Contrast compares new rows with each other", cad.fit, D)


def test_numbers_of_neighbours_that_cannot_be():
    D, _ = CASES["smooth"]
    for given, said in (
        (26, "needs at least 26 reference rows"),
        (0, "n_neighbors"),
        ((), "got none"),
        ((1, "a"), "n_neighbors"),
        ("5", "n_neighbors"),
    ):
        refused(said, fitted, D, n_neighbors=given)
    assert fitted(D, n_neighbors=25).ranks(D[:1] + 50.0).tolist() == [2]  # all are neighbours


def test_what_judges_in_parts_refuses_it():
    from reconform.rule import Rule
    from reconform.stream import FalseAlarmBudget

    D, new = CASES["smooth"]
    cad = fitted(D)
    refused("the rank of a row depends on all new rows", cad.rank_counts, new)
    knn = ConformalDetector("knn", "full").fit(D)
    refused("what is merged is judged in parts", cad.decide_counts, knn.rank_counts(new), Rule())
    stream = FalseAlarmBudget(cad, false_alarms=1, per=10)  # judges every row alone
    assert np.array_equal(stream.update(new).p_values, cad.p_values(new))


def test_prepared_rows_are_compared_with_each_other_too():
    D, new = batch(np.random.default_rng(13))
    features = [Feature("a"), Feature("b"), Feature("c"), Feature("colour", ("red", "blue"))]
    colours = np.random.default_rng(14).integers(0, 2, size=(360, 1)) * 1.0
    D, new = np.hstack([D, colours[:300]]), np.hstack([new, colours[300:]])
    D[:20, 1] = new[9:12, 2] = np.nan
    new[:9, 3], new[12:14, 3] = 1.0, label_code("green")
    cad = ConformalDetector(prepared("contrast", features), "full").fit(D)
    assert cad.ranks_rows == "batch"
    found = cad.discover(new)
    assert found.mask[:9].all()
    assert not np.array_equal(found.p_values, cad.p_values(new))
    with pytest.raises(ReconformError, match="works with `method='full'` only"):
        ConformalDetector(prepared("contrast", features), "split").fit(D)
