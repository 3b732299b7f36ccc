"""Contrast against its definition, row by row; the guard; and what a batch changes elsewhere."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from forge import forge, members_of, put
from oracle import binomial_upper
from reconform import ConformalDetector, Split
from reconform.detectors import KNN, Contrast
from reconform.detectors.contrast.ensembles import FullContrast
from reconform.detectors.prepare import Feature, prepared
from reconform.detectors.scaled import ScaledFull
from reconform.detectors.scaling import rescale, scale_exponents, spreads
from reconform.errors import ModelFileError, ReconformError
from reconform.frames import label_code
from reconform.models import load, save
from reconform.statistics.chances import guard_limits
from test_knn import OWN_NEIGHBOUR


def squared(a, b):
    total = 0.0
    for u, v in zip(a.tolist(), b.tolist(), strict=True):  # as the search adds up
        total += (u - v) * (u - v)
    return total


def kth(e, others, k):
    return sorted(squared(e, o) for o in others)[k - 1]


def score(e, others, T, ks, use_new=True):
    v = 1.0
    for k in sorted(ks):
        normal = kth(e, others, k)
        if normal == 0.0:
            return np.inf
        if normal == np.inf:
            v = 0.0
            continue
        v *= (np.sqrt(kth(e, T, k)) if use_new else 1.0) / normal
        if v == np.inf:
            return v
    return v


def is_clustered(E, T, k):
    reach = sorted(kth(E[i], np.delete(E, i, axis=0), k) for i in range(len(E)))
    typical = reach[(len(E) - 1) // 2]
    inside, accompanied = 0, np.zeros(k)
    for at, x in enumerate(T):
        others = np.delete(T, at, axis=0)
        if kth(x, E, k) <= typical:
            inside += 1
            for c in range(1, k + 1):
                accompanied[c - 1] += len(others) >= c and kth(x, others, c) < kth(x, E, 1)
    limits = guard_limits(len(E) - 1, len(T) + 1, k)
    return bool((accompanied > limits[:, inside]).any())


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
    assert ranks.at_most.tolist() == at_most
    assert ranks.below.tolist() == below
    assert (ranks.clustered if len(new) > max(ks) else np.zeros(len(new))).tolist() == clustered
    assert any(clustered) == (name in ("pairs", "copies"))


@pytest.mark.parametrize("ks", KS)
@pytest.mark.parametrize("name", [name for name in CASES if len(CASES[name][1]) > 3])
def test_ranks_without_the_guard_and_of_some_rows(name, ks):
    D, new = CASES[name]
    some = np.array([3, 0, len(new) - 1])
    ranks = ensemble_of(D, ks).rank_batch(new, some, np.empty((0, 0)), True)
    at_most, below, _ = by_definition(D, new, ks, guard=False)
    assert ranks.at_most.tolist() == [at_most[j] for j in some]
    assert ranks.below.tolist() == [below[j] for j in some]


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
    assert (ranks.clustered is None and not any(clustered)) or (
        ranks.clustered.tolist() == clustered
    )
    alone = [by_definition(D, x[None], ks, scale=True)[0][0] for x in new]
    assert cad.ranks(new).tolist() == alone


@pytest.mark.parametrize("name", CASES)
def test_order_and_threads_change_nothing(name):
    D, new = CASES[name]
    expected = ensemble_of(D, (3,)).batch_ranks(new, strictly=True)
    rng = np.random.default_rng(1)
    rows, batch = rng.permutation(len(D)), rng.permutation(len(new))
    got = ensemble_of(D[rows], (3,), n_jobs=2).batch_ranks(new[batch], strictly=True)
    for field in ("at_most", "below", "scores"):
        assert np.array_equal(getattr(expected, field)[batch], getattr(got, field))


# --- a row alone ---------------------------------------------------------------------------------


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


def test_a_tiny_batch_is_judged_row_by_row():
    D, new = CASES["smooth"]
    cad = fitted(D, n_neighbors=3)
    for m in (1, 2, 3):
        found = cad.discover(new[:m])
        assert np.array_equal(found.p_values, cad.p_values(new[:m]))
        assert not found.verdict.findings
    assert not np.array_equal(cad.discover(new).p_values, cad.p_values(new))


def test_several_neighbours_alone():
    D, new = CASES["smooth"]
    cad = fitted(D, n_neighbors=[3, 1])
    assert cad.ranks(new).tolist() == [by_definition(D, x[None], (1, 3))[0][0] for x in new]
    distances = np.sort([[np.sqrt(squared(x, e)) for e in D] for x in new], axis=1)
    assert np.allclose(cad.rank(new).scores, -np.sqrt(distances[:, 0] * distances[:, 2]))


# --- lists ---------------------------------------------------------------------------------------


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


def test_smoothed_p_values():
    D, new = batch(np.random.default_rng(4))
    cad = ConformalDetector("contrast", "full", ties="randomized", random_state=0).fit(D)
    p = cad.discover(new).p_values
    plain = fitted(D).discover(new).p_values
    assert (p <= plain).all()
    assert (p > plain - 1 / 301 - 1e-12).all()  # no ties


def test_what_is_proven():
    D, new = batch(np.random.default_rng(5))
    cad = fitted(D)
    assert cad.discover(new).guarantee.startswith("FDR measured, not proven, for BH on full with")
    found = cad.discover(new, validity="proven")
    assert found.certified
    assert found.guarantee.startswith("FDR proven (conditional calibration)")
    assert cad.discover(new, procedure="by", validity="proven").guarantee.startswith("FDR proven")


# --- the guard -----------------------------------------------------------------------------------


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
    assert f"not compared with each other for any of the {m} rows" in str(finding)
    for said in (repr(found), found._repr_html_()):
        assert "not compared with each other" in said


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
    assert f"for {clustered.sum()} of the {len(T)} rows" in said
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


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("detector", [Contrast(), Contrast(scale="robust")])
@pytest.mark.parametrize("method", ["split", "jackknife+", "cv+", "jab+", "jab", Split(repeats=2)])
def test_other_methods_are_refused(method, detector):
    with pytest.raises(ReconformError, match="only `method='full'` can do"):
        ConformalDetector(detector, method).fit(CASES["smooth"][0])


def test_disguises_are_refused():
    D, _ = CASES["smooth"]
    pipeline = make_pipeline(StandardScaler(), Contrast())
    for cad in (
        ConformalDetector(pipeline, "full"),
        ConformalDetector(Contrast(), "full", larger_is="anomalous"),
        ConformalDetector(Contrast().fit(D), "prefit"),
    ):
        with pytest.raises(ReconformError, match="Contrast compares new rows with each other"):
            cad.fit(D)


def test_numbers_of_neighbours_that_cannot_be():
    D, _ = CASES["smooth"]
    for given, said in (
        (26, "needs at least 26 reference rows"),
        (0, "n_neighbors"),
        ((), "got none"),
        ((1, "a"), "n_neighbors"),
        ("5", "n_neighbors"),
    ):
        with pytest.raises(ReconformError, match=said):
            fitted(D, n_neighbors=given)
    assert fitted(D, n_neighbors=25).ranks(D[:1] + 50.0).tolist() == [2]  # all are neighbours


def test_what_judges_in_parts_refuses_it():
    from reconform.rule import Rule
    from reconform.stream import FalseAlarmBudget

    D, new = CASES["smooth"]
    cad = fitted(D)
    with pytest.raises(ReconformError, match="the rank of a row depends on all new rows"):
        cad.rank_counts(new)
    knn = ConformalDetector("knn", "full").fit(D)
    with pytest.raises(ReconformError, match="what is merged is judged in parts"):
        cad.decide_counts(knn.rank_counts(new), Rule())
    stream = FalseAlarmBudget(cad, false_alarms=1, per=10)  # judges every row alone
    assert np.array_equal(stream.update(new).p_values, cad.p_values(new))
    da = pytest.importorskip("dask.array", reason="needs reconform[dask]")
    from reconform import distributed

    with pytest.raises(ReconformError, match="a Dask collection is judged in parts"):
        distributed.discover(cad, da.from_array(new, chunks=(5, 3)))


# --- files and the command line ------------------------------------------------------------------


def written(path, rows):
    np.savetxt(path, rows, delimiter=",", header="a,b,c", comments="", fmt="%.17g")
    return path


def test_a_file_is_one_batch(tmp_path, monkeypatch):
    from reconform.files import read_reference
    from reconform.files import result as results
    from reconform.files.judge import ReadOptions, judge_file

    D, new = batch(np.random.default_rng(7))
    frame = read_reference(written(tmp_path / "normal.csv", D)).frame
    cad = fitted(frame)
    path = written(tmp_path / "new.csv", new)
    expected = cad.discover(new.astype(np.float64))
    found = judge_file(cad, path, tmp_path / "out.csv", read=ReadOptions(batch_rows=7))
    assert found.count == expected.count == 9
    for name in ("mask", "p_values", "q_values", "scores", "warning", "claim"):
        assert np.array_equal(getattr(found.to_discoveries(), name), getattr(expected, name))
    flags = [line.endswith("true") for line in (tmp_path / "out.csv").read_text().split()[1:]]
    assert flags == expected.mask.tolist()
    for most in (30, 59):
        monkeypatch.setattr(results, "MOST_DISCOVERIES", most)
        with pytest.raises(ReconformError, match="that a detector can compare with each other"):
            judge_file(cad, path, read=ReadOptions(batch_rows=7))


def test_the_command_line(tmp_path):
    from click.testing import CliRunner

    from reconform.cli import main

    D, new = batch(np.random.default_rng(8))
    clustered = np.repeat(new[9:39], 2, axis=0)
    files = [
        str(written(tmp_path / name, rows))
        for name, rows in (("normal.csv", D), ("new.csv", new), ("twice.csv", clustered))
    ]

    def run(*arguments):
        said = CliRunner().invoke(main, [*arguments, "--json"])
        assert said.exit_code == 0, said.output
        return json.loads(said.stdout)

    options = ("--detector", "contrast", "--method", "full")
    facts = run("detect", files[0], files[1], *options, "--report", str(tmp_path / "r.html"))
    expected = fitted(D).discover(new)
    assert facts["flagged"] == expected.count >= 9
    assert facts["warnings"] == [expected.warning.replace("`fdr`", "--fdr")]
    facts = run("detect", files[0], files[2], *options)
    (said,) = [f["sentence"] for f in facts["assumption"]["findings"] if f["check"] == "batch"]
    assert "not compared with each other for any of the 60 rows" in said
    told = CliRunner().invoke(main, ["detect", files[0], files[2], *options])
    assert "not compared with each other for any of the 60 rows" in told.output
    model = str(tmp_path / "m.rcad")
    assert (
        "given the other new rows" in run("fit", files[0], *options, "--model", model)["guarantee"]
    )
    assert run("score", model, files[1])["flagged"] == expected.count
    said = CliRunner().invoke(main, ["detect", *files[:2], *options[:2], "--method", "cv+"])
    assert said.exit_code == 1
    assert "--method full" in said.output


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
    with pytest.raises(ReconformError, match="only `method='full'` can do"):
        ConformalDetector(prepared("contrast", features), "split").fit(D)


def test_a_study_ranks_every_test_set_as_a_batch(tmp_path):
    pytest.importorskip("pyarrow", reason="needs pyarrow")
    from reconform.study import Protocol, Study
    from reconform.study.datasets import Dataset

    rng = np.random.default_rng(9)
    X = np.vstack([rng.normal(size=(600, 3)), [1.5, -1.5, 1.5] + 0.1 * rng.normal(size=(40, 3))])
    y = np.repeat([False, True], [600, 40])
    protocol = Protocol(draws=1, test_sets=4, fdr=0.2)
    study = Study([("mine", X, y)], ["contrast"], ["full"], protocol).run(tmp_path)
    (result,) = study.results_.to_pylist()
    draw = protocol.draw(Dataset("mine", X, y), 0)
    cad = fitted(X[draw.train])
    fdps, powers = [], []
    for rows in draw.pool[draw.test_sets]:
        found, truth = cad.discover(X[rows], fdr=0.2).mask, y[rows]
        fdps.append((found & ~truth).sum() / max(found.sum(), 1))
        powers.append((found & truth).sum() / truth.sum())
    assert (result["cfdr"], result["cpower"]) == (np.mean(fdps), np.mean(powers))
    assert result["cpower"] > 0


# --- saved models --------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"n_neighbors": (1, 3)}, {"scale": "robust"}])
def test_saved_models_give_the_same_lists(options, tmp_path):
    D, new = batch(np.random.default_rng(10))
    cad = fitted(D, **options)
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad")
    assert np.array_equal(again.discover(new).p_values, cad.discover(new).p_values)
    assert np.array_equal(again.p_values(new), cad.p_values(new))
    assert again.guarantee_ == cad.guarantee_
    assert again.detector.n_neighbors == cad.detector.n_neighbors


def test_files_from_elsewhere_are_checked(tmp_path):
    path = tmp_path / "m.rcad"
    for member, change in (
        ("ks", lambda a: a * 0),
        ("ks", lambda a: a + 100),
        ("ks", lambda a: a[:0]),
        ("ks", lambda a: a[::-1]),
        ("X", lambda a: a[:, :-1]),
        ("X", lambda a: a[:-1]),
        ("X", lambda a: a * np.nan),
    ):
        save(fitted(CASES["smooth"][0], n_neighbors=(1, 3)), path, overwrite=True)
        members = members_of(path)
        put(members, f"ensemble/model/{member}.npy", change)
        with pytest.raises(ModelFileError, match="damaged"):
            load(forge(path, members))


def expected_failures(estimator):
    checks = ("check_outliers_train", "check_outliers_fit_predict")
    return dict.fromkeys(checks, OWN_NEIGHBOUR)


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([Contrast()], expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


# --- levels --------------------------------------------------------------------------------------

REPETITIONS = 4000


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"n_neighbors": 1}, {"n_neighbors": 5}, {"scale": "robust"}])
@pytest.mark.parametrize("kind", ["smooth", "lattice"])
def test_the_level_is_exact(kind, options):
    """4,000 references of 99 rows and batches of 20, of which one normal row is looked at.

    Four of each batch are anomalies that resemble each other, about a centre of their own. An
    exact test of P(p <= α) <= α: for each of the levels a correct program fails with a
    probability of at most 1e-4, so with 18 of them in one of 500 runs of other seeds.
    """
    rng = np.random.default_rng(12)

    def draw(size):
        if kind == "smooth":
            return rng.normal(size=(size, 3)) * [1.0, 0.1, 30.0]
        return rng.poisson([0.5, 1.0, 2.0], size=(size, 3)) * 1.0

    p = np.empty(REPETITIONS)
    for r in range(REPETITIONS):
        D, new = draw(99), draw(16)
        anomalies = draw(1) + 3.0 + 0.1 * rng.normal(size=(4, 3))
        p[r] = fitted(D, **options).discover(np.vstack([new, anomalies])).p_values[0]
    for alpha in (0.01, 0.05, 0.1):
        assert (p <= alpha).sum() <= binomial_upper(REPETITIONS, alpha, 1e-4)
    if kind == "smooth":  # and hardly below it
        assert (p <= 0.1).sum() >= binom.ppf(1e-4, REPETITIONS, 0.1)
