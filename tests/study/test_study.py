"""The study: protocol against literal loops, kill and resume."""

from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student
from sklearn.base import BaseEstimator

from reconform import Bootstrap, ConformalDetector, CrossValidation, RankCounts, Resampling, Split
from reconform.detectors import INNE, KNN, IForest
from reconform.methods import resolve_method
from reconform.study import Estimate, Protocol, Study, make_dataset
from reconform.study.protocol import MODELS, bh_masks, conditional_fdr_and_power, name_key
from reconform.study.ranked import lower_bound
from reconform.study.runner import Store
from reconform.study.subjects import describe, resolve_readings
from refusals import refused

pytest.importorskip("pyarrow", reason="the store of a study needs pyarrow")


class Centre(BaseEstimator):
    """A detector that costs nothing: minus the distance to the mean, with a bit of noise."""

    def __init__(self, noise=0.0, random_state=None):
        self.noise = noise
        self.random_state = random_state

    def fit(self, X):
        shift = np.random.default_rng(self.random_state).normal(0, self.noise, X.shape[1])
        self.centre_ = X.mean(axis=0) + shift
        return self

    def score_samples(self, X):
        return -np.linalg.norm(X - self.centre_, axis=1)


class Fragile(Centre):
    """Fits small training sets only."""

    def fit(self, X):
        if len(X) > 20:
            raise RuntimeError("too many rows for me")
        return super().fit(X)


def blobs(name="blobs", n_normal=90, n_outliers=12, seed=5):
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(size=(n_normal, 2)), rng.normal(2.5, 1, size=(n_outliers, 2))])
    return name, X, np.r_[np.zeros(n_normal), np.ones(n_outliers)]


def toy(**changes):
    """A study of 24 rows that runs in a moment."""
    parameters = {
        "datasets": [blobs(), blobs("more", 120, 20, 6)],
        "detectors": [("centre", Centre(noise=0.1))],
        "methods": ["split", "cv", "cv+", "cv-pooled"],
        "draws": 3,
        "test_sets": 5,
        "folds": 4,
    }
    parameters |= changes
    names = [field.name for field in fields(Protocol)]
    protocol = {name: parameters.pop(name) for name in names if name in parameters}
    return Study(**parameters, protocol=Protocol(**protocol))


def results_bytes(store):
    return {path.name: path.read_bytes() for path in Path(store, "parts").glob("*.json")}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The toy study, undisturbed: the store and the study."""
    store = tmp_path_factory.mktemp("finished")
    return store, toy().run(store)


# --- the protocol -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_normal", "n_outliers", "train", "test", "outliers"),
    [
        (213, 10, 106, 35, 4),  # wbc: round(3.5) = 4
        (225, 126, 112, 37, 4),  # ionosphere
        (357, 10, 178, 59, 6),  # wdbc
        (444, 239, 222, 74, 7),  # breast
        (2965, 97, 1482, 494, 49),  # musk
        (3679, 93, 1839, 613, 61),  # thyroid
        (4399, 2036, 2199, 733, 73),  # satellite
        (10923, 260, 5461, 1000, 100),  # mammography: no more than 1000
    ],
)
def test_sizes_of_the_papers_data_sets(n_normal, n_outliers, train, test, outliers):
    sizes = Protocol().sizes(n_normal, n_outliers)
    assert (sizes.train, sizes.test, sizes.outliers) == (train, test, outliers)


def test_sizes_follow_the_parameters():
    protocol = Protocol(test_size=40, anomaly_rate=Fraction(1, 4), train_share=Fraction(3, 10))
    sizes = protocol.sizes(100, 30)  # 0.3 * 100 is 30 exactly, not 29.999...
    assert (sizes.train, sizes.test, sizes.outliers) == (30, 40, 10)


def test_a_draw_is_normal_disjoint_and_without_repeats():
    data = make_dataset(*blobs())
    draw = Protocol(test_sets=7).draw(data, 3)
    assert len(draw.train) == 45
    assert not data.y[draw.train].any()
    assert sorted([*draw.train, *draw.pool]) == list(range(len(data.X)))
    assert draw.test_sets.shape == (7, 15)
    assert draw.outliers == 2  # round(1.5)
    for rows in draw.test_sets:
        assert len(set(rows)) == 15
        assert data.y[draw.pool[rows]].tolist() == [False] * 13 + [True] * 2


def test_draws_differ_and_do_not_depend_on_each_other():
    data, same = make_dataset(*blobs()), make_dataset(*blobs("another name"))
    protocol = Protocol(test_sets=4)
    first, again = protocol.draw(data, 0), protocol.draw(data, 0)
    assert np.array_equal(first.train, again.train)
    assert np.array_equal(first.test_sets, again.test_sets)
    longer = Protocol(test_sets=9).draw(data, 0)
    assert np.array_equal(longer.test_sets[:4], first.test_sets)
    # Each of these equals the first with probability 1 / C(90, 45).
    for other in (protocol.draw(data, 1), protocol.draw(same, 0), Protocol(seed=1).draw(data, 0)):
        assert sorted(other.train) != sorted(first.train)


@given(
    ranks=st.integers(1, 60).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.integers(1, 25).flatmap(
                lambda m: st.lists(
                    st.lists(st.integers(1, n + 1), min_size=m, max_size=m), min_size=1, max_size=4
                )
            ),
        )
    ),
    fdr=st.sampled_from([0.1, 0.05, 0.2, 0.5, 0.9, 0.123456789012345, 1e-3]),
)
def test_bh_on_many_test_sets_is_bh_on_each(ranks, fdr):
    n, rows = ranks
    level = Fraction(repr(fdr))
    masks = bh_masks(np.array(rows), n, level)
    for row, mask in zip(rows, masks, strict=True):
        decision = RankCounts(n, "").add(row).decide(fdr)
        assert np.array_equal(mask, decision.mask(np.array(row)))


def test_one_draw_against_a_literal_loop():
    """cFDR and cPower of section VI, one test set after the other, through the public estimator."""
    data = make_dataset(*blobs())
    protocol = Protocol(test_sets=20, fdr=Fraction(2, 5))
    draw = protocol.draw(data, 2)
    cad = ConformalDetector(Centre(), "cv+", random_state=1).fit(data.X[draw.train])
    fdps, powers = [], []
    for rows in draw.test_sets:
        new, truth = data.X[draw.pool[rows]], data.y[draw.pool[rows]]
        mask = cad.discover(new, fdr=0.4).mask
        false, every = (mask & ~truth).sum(), mask.sum()
        fdps.append(false / every if every else 0.0)
        powers.append((mask & truth).sum() / truth.sum())
    assert sum(fdps) > 0
    assert 0 < sum(powers) < 20
    ranks = cad.ranks(data.X[draw.pool])[draw.test_sets]
    found = conditional_fdr_and_power(ranks, cad.n_calibration_, draw, protocol.fdr)
    assert found == (np.mean(fdps), np.mean(powers))


def test_every_row_of_a_study_against_separate_fits(finished):
    """Sharing models and scoring the pool once change nothing."""
    _, study = finished
    expected = []
    for source in study.datasets:
        data = make_dataset(*source)
        for label in study.methods:
            [reading] = resolve_readings([label], folds=4)
            for j in range(3):
                draw = Protocol(test_sets=5).draw(data, j)
                kind = name_key(type(reading.method).__name__)
                key = (name_key(data.name), j, MODELS, kind)
                seed = np.random.SeedSequence(0, spawn_key=key)
                cad = ConformalDetector(Centre(noise=0.1), reading.method, random_state=seed)
                cad.fit(data.X[draw.train])
                masks = [cad.discover(data.X[draw.pool[rows]]).mask for rows in draw.test_sets]
                true = [mask[-draw.outliers :].sum() for mask in masks]
                every = [mask.sum() for mask in masks]
                fdp = [(r - t) / max(r, 1) for r, t in zip(every, true, strict=True)]
                power = [t / draw.outliers for t in true]
                expected.append((data.name, label, j, np.mean(fdp), np.mean(power)))
    columns = ("dataset", "method", "draw", "cfdr", "cpower")
    found = list(zip(*(study.results_[name].to_pylist() for name in columns), strict=True))
    assert found == expected


# --- over the draws -----------------------------------------------------------------------------


def test_summary_of_the_draws(finished):
    _, study = finished
    cells = study.cells()
    named = [(cell.dataset, cell.method) for cell in cells[:2]]
    assert named == [("blobs", "split"), ("blobs", "cv")]
    first = [row for row in study.results_.to_pylist() if row["dataset"] == "blobs"][:3]
    powers = [row["cpower"] for row in first]
    assert cells[0].power == Estimate(np.mean(powers), np.std(powers, ddof=1), 3)
    x = np.random.default_rng(0).uniform(size=9)  # of a violation
    mean, sd = x.mean(), x.std(ddof=1)
    assert np.isclose(lower_bound(mean, sd, 9), mean - student.ppf(0.95, 8) * sd / 3, rtol=1e-12)
    assert lower_bound(0.9, float("nan"), 1) == -np.inf  # one draw is no evidence


# --- running, resuming, adding ------------------------------------------------------------------


def test_jobs_do_not_change_the_table(finished, tmp_path):
    store, study = finished
    two = toy().run(tmp_path / "two", n_jobs=2)
    assert results_bytes(tmp_path / "two") == results_bytes(store)
    assert two.results_.equals(study.results_)
    # The worker processes are there now, and take their time to start again.
    check_that_a_failure_is_named_and_the_rest_is_kept(tmp_path / "failing", n_jobs=2)


def test_order_and_later_additions_do_not_change_rows(finished, tmp_path):
    store, study = finished
    few = toy(datasets=study.datasets[::-1], methods=["cv+"], draws=2).run(tmp_path)
    before = {tuple(row.values()) for row in few.results_.to_pylist()}
    everything = {tuple(row.values()) for row in study.results_.to_pylist()}
    assert before < everything
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("parts/*")}
    toy().run(tmp_path)
    assert results_bytes(tmp_path) == results_bytes(store)
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())  # not redone


def test_the_table_is_read_from_what_is_there(finished):
    store, study = finished
    names = ["dataset", "detector", "method", "draw", "cfdr", "cpower"]
    assert (study.results_.column_names, study.results_.num_rows) == (names, 24)
    assert toy().run(store).results_.equals(study.results_)


def test_a_store_of_another_study_is_refused(finished):
    store, _ = finished
    changes = [
        ({"fdr": 0.2}, "fdr was 1/10 and is 1/5"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"test_sets": 6}, "test_sets was 5 and is 6"),
        ({"folds": 5}, "method was .*folds=4.* and is .*folds=5"),
        ({"detectors": [("centre", Centre())]}, r"noise=0\.1.* and is .*noise=0\.0"),
        ({"datasets": [blobs(seed=9)]}, "data was"),
    ]
    for change, told in changes:
        refused(told, toy(**change).run, store)


def test_a_damaged_row_is_named(tmp_path):
    toy(draws=1, methods=["split"]).run(tmp_path)
    victim = sorted(tmp_path.glob("parts/*.json"))[0]
    victim.write_text("{")
    with pytest.raises(ValueError, match=r"is not a finished row .* Delete it and run again"):
        toy(draws=1, methods=["split"]).run(tmp_path)


def check_that_a_failure_is_named_and_the_rest_is_kept(store, n_jobs):
    study = toy(
        datasets=[blobs()],
        detectors=[("fragile", Fragile())],
        methods=[("small", Split(calibration=30)), "split"],  # train on 15 and on 22 of 45 rows
        draws=1,
    )
    with pytest.raises(RuntimeError, match="too many rows for me") as error:
        study.run(store, n_jobs=n_jobs)
    [note] = error.value.__notes__
    for told in ("'blobs'", "'fragile'", "'split'", "draw 0"):
        assert told in note
    assert [key[2] for key in Store(store).results()] == ["small"]


def test_a_detector_that_fails(tmp_path):
    check_that_a_failure_is_named_and_the_rest_is_kept(tmp_path, n_jobs=1)


def test_any_method_and_any_label(tmp_path):
    halves = Resampling([np.arange(25), np.arange(20, 45)])
    methods = [CrossValidation(folds=3), ("halves", halves), ("a / b: \\ %", "jackknife"), "full"]
    study = toy(datasets=[blobs()], methods=methods, draws=2).run(tmp_path)
    found = [cell.method for cell in study.cells()]
    assert found == ["CrossValidation(folds=3)", "halves", "a / b: \\ %", "full"]
    written = results_bytes(tmp_path)
    again = toy(datasets=[blobs()], methods=methods, draws=2).run(tmp_path)
    assert (again.results_.equals(study.results_), results_bytes(tmp_path)) == (True, written)


def test_named_methods_take_the_studys_parameters():
    readings = resolve_readings(["jab-pooled", "cv", "split"], folds=7, bootstrap_draws=9)
    assert [repr(reading.method) for reading in readings] == [
        "Bootstrap(draws=9, variant='pooled')",
        "CrossValidation(folds=7, variant='basic')",
        "Split()",
    ]
    families = resolve_readings(["jab", "jab+", "jab-pooled", "cv"])
    assert len({reading.family for reading in families}) == 2


def test_descriptions_tell_contents_apart_and_no_addresses():
    long = np.arange(5000)
    assert describe(Resampling([long])) != describe(Resampling([long[::-1]]))
    medians = (Resampling([one], aggregate=np.median) for one in (long, long.copy()))
    assert len({*map(describe, medians)}) == 1
    assert " at 0x" not in describe(Resampling([long], aggregate=lambda s: s.mean()))
    assert describe(resolve_method("cv")) != describe(resolve_method("cv+"))
    # Names in a store do not follow modules.
    planned = CrossValidation(5), Bootstrap(), Split(), resolve_method("full")
    for one in (*planned, KNN(), IForest(), INNE()):
        assert describe(one).startswith(f"{type(one).__name__}(")


def test_jackknife_limit(tmp_path):
    study = toy(methods=["split", "jackknife"], draws=1, jackknife_limit=60).run(tmp_path)
    assert [(cell.dataset, cell.method) for cell in study.cells()] == [
        ("blobs", "split"),  # n_train = 45
        ("blobs", "jackknife"),
        ("more", "split"),  # n_train = 60
    ]


# --- what goes wrong ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"methods": ["cv++"]}, "method must be one of"),
        ({"methods": ["split-pooled"]}, "only 'jackknife', 'cv' and 'jab' can be pooled"),
        ({"methods": "cv"}, r"Say methods=\['cv'\]"),
        ({"methods": ["cv", "cv"]}, "'cv' more than once"),
        ({"methods": []}, "methods must have at least one entry"),
        ({"detectors": ["kn"]}, "Did you mean 'knn'"),
        ({"detectors": [Centre(), Centre(noise=1)]}, "'Centre' more than once"),
        ({"folds": 46}, "folds=46` needs at least 46 rows; got 45"),
        ({"test_size": 100}, "'blobs' is too small"),
        ({"anomaly_rate": 0.01}, "takes 15 of those .* and 0 of 12 outliers"),
        ({"anomaly_rate": 0}, "anomaly_rate must be a number strictly between 0 and 1"),
        ({"draws": 0}, "draws must be an integer of at least 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"fdr": 1.5}, "fdr must be a number strictly between 0 and 1"),
        ({"datasets": ["wbc"]}, "a data set must be"),
    ],
)
def test_bad_parameters_are_told_before_anything_is_run(change, told, tmp_path):
    store = tmp_path / "store"
    refused(told, lambda: toy(**change).run(store))
    assert not store.exists()


def test_results_before_a_run():
    refused(r"no results yet; call run\(store\)", toy().cells)
