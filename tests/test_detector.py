import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from reconform import Bootstrap, ConformalDetector, CrossValidation, Resampling
from refusals import refused

NAMES = ["split", "jackknife", "jackknife+", "cv", "cv+", "jab", "jab+"]


def nearest(X):
    """Distance to the nearest training row: a detector without draws."""
    return lambda Z: np.abs(Z[:, None, :] - X).sum(axis=2).min(axis=1)


def cad_of(method="cv+", detector=nearest, **parameters):
    parameters.setdefault("random_state", 0)
    larger_is = "anomalous" if detector is nearest else None
    return ConformalDetector(detector, method, larger_is=larger_is, **parameters)


@pytest.mark.parametrize("method", NAMES)
def test_every_method_ranks_anomalies_first(method, blobs):
    reference, new = blobs
    cad = cad_of(method).fit(reference)
    ranks = cad.ranks(new)
    assert ranks.dtype == np.int64
    assert ranks.min() >= 1
    assert ranks.max() <= cad.n_calibration_ + 1
    assert (ranks[30:] == 1).all()
    assert np.array_equal(cad.p_values(new), ranks / (cad.n_calibration_ + 1))
    found = cad.discover(new, fdr=0.3)
    assert found.mask[30:].all() or method == "split"
    assert np.array_equal(found.p_values, cad.p_values(new))


def test_groups_reach_the_splitter(blobs):
    groups = np.repeat(np.arange(6), 10)
    cad = cad_of(Resampling(GroupKFold(6))).fit(blobs[0], blocks=groups)
    assert [len(held) for held in cad.plan_.held_out] == [10] * 6
    refused("60 rows, 3 labels", cad.fit, blobs[0], blocks=[1, 2, 3])


def test_predict_calls_p_equal_alpha_an_outlier():
    reference = np.arange(9.0)[:, None]
    cad = ConformalDetector(
        lambda X: lambda Z: Z[:, 0], "jackknife+", larger_is="normal", alpha=0.1
    ).fit(reference)
    new = np.array([[-1.0], [0.0]])  # p = 1/10 and 2/10
    assert (cad.p_values(new).tolist(), cad.predict(new).tolist()) == ([0.1, 0.2], [-1, 1])
    assert (cad.decision_function(new) < 0).tolist() == [True, False]
    assert np.array_equal(cad.score_samples(new), cad.p_values(new))


def test_smoothed_p_values_are_not_counted(blobs):
    cad = cad_of("jackknife+", ties="randomized").fit(blobs[0])
    refused("off the grid", cad.rank_counts, blobs[1])
    found = cad.discover(blobs[1], fdr=0.2)
    assert np.array_equal(found.mask, found.q_values <= 0.2)
    assert found.mask[30:].all()


def forest():
    return IsolationForest(n_estimators=10)


@pytest.mark.parametrize("method", ["split", "cv+", Bootstrap(draws=6)], ids=str)
def test_jobs_backend_and_row_order_change_nothing(method, blobs, monkeypatch):
    reference, new = blobs
    expected = cad_of(method, forest()).fit(reference).p_values(new)
    assert np.array_equal(cad_of(method, forest()).fit(reference).p_values(new), expected)
    for backend in ("loky", "threading", "multiprocessing"):
        with joblib.parallel_config(backend, n_jobs=2):
            again = cad_of(method, forest()).fit(reference).p_values(new)
        assert np.array_equal(again, expected)
    two = cad_of(method, forest(), n_jobs=2).fit(reference)
    assert np.array_equal(two.p_values(new), expected)
    order = np.random.default_rng(0).permutation(len(new))
    assert np.array_equal(two.p_values(new[order]), expected[order])
    for size in (8, 200):  # one row at a time, and a few
        monkeypatch.setattr("reconform.ensemble.BLOCK_BYTES", size * 8)
        monkeypatch.setattr("reconform.statistics.ranks.BLOCK_BYTES", size * 8)
        assert np.array_equal(two.p_values(new), expected)


@pytest.mark.parametrize(
    "make", [lambda: np.random.RandomState(3), lambda: np.random.default_rng(3), lambda: 3]
)
def test_any_kind_of_seed_repeats_and_another_does_not(make, blobs):
    cads = (cad_of("cv+", forest(), random_state=seed) for seed in (make(), make(), 4))
    one, two, other = (cad.fit(blobs[0]).calibration_.fingerprint for cad in cads)
    assert one == two != other


def test_works_in_clone_pipeline_grid_search_and_pickle(blobs):
    reference, new = blobs
    pipeline = make_pipeline(StandardScaler(), cad_of("cv+")).fit(reference)
    assert (pipeline.predict(new)[30:] == -1).all()
    cad = cad_of(CrossValidation(folds=4))
    assert clone(cad).get_params()["method__folds"] == 4
    y = np.r_[np.ones(len(new) - 4), -np.ones(4)]
    search = GridSearchCV(
        cad, {"method__folds": [2, 5], "method__variant": ["plus", "basic"]}, scoring="accuracy"
    ).fit(new, y)
    assert search.best_params_["method__folds"] in (2, 5)
    fitted = ConformalDetector(forest(), "cv+", random_state=0).fit(reference)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.p_values(new), fitted.p_values(new))


def test_verbose_shows_progress_on_standard_error(blobs, capsys):
    cad_of("cv+", verbose=1).fit(blobs[0])
    out, err = capsys.readouterr()
    assert out == ""
    assert "fitting nearest" in err
    assert "100%" in err
    cad_of("cv+").fit(blobs[0])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_do_not_fit_are_refused(value, blobs):
    reference, new = blobs[0].copy(), blobs[1].copy()
    cad = cad_of().fit(reference)
    refused("expecting 3 features", cad.p_values, new[:, :2])
    refused("no rows", cad.discover, np.empty((0, 3)))
    new[3, 1] = reference[3, 1] = value
    word = "NaN" if np.isnan(value) else "infinity"
    refused(word, cad.p_values, new)
    refused(word, cad_of().fit, reference)


def test_nan_is_welcome_where_the_detector_accepts_it(blobs):
    reference, new = blobs[0].copy(), blobs[1].copy()
    reference[::7, 0] = new[::5, 1] = np.nan
    pipeline = make_pipeline(SimpleImputer(), IsolationForest(n_estimators=10))
    cad = ConformalDetector(pipeline, "cv+", random_state=0).fit(reference)
    assert cad.p_values(new)[30:].max() < 0.25
    new[0, 0] = np.inf
    refused("infinity", cad.p_values, new)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.array([["a", "b"], ["c", "d"]]), "could not convert string to float"),
        (pd.DataFrame({"x": ["red", "blue"] * 9, "y": range(18)}), "text in the column .x., and"),
        (np.empty((0, 3)), "0 sample"),
        (np.ones((1, 3)), "1 sample"),
        (np.arange(5.0), "Expected 2D array"),
        (np.empty((5, 0)), "0 feature"),
    ],
    ids=["strings", "string column", "no rows", "one row", "one-dimensional", "no columns"],
)
def test_what_is_no_reference_is_refused(X, words):
    refused(words, cad_of().fit, X)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"method": "jacknife+"}, "Did you mean 'jackknife\\+'"),
        ({"detector": "iforrest"}, "Did you mean 'iforest'"),
        ({"ties": "random"}, "Did you mean 'randomized'"),
        ({"alpha": 0}, "alpha must be a number strictly between 0 and 1; got 0"),
        ({"larger_is": "odd"}, "larger_is must be one of 'anomalous', 'normal'"),
        ({"random_state": "seed"}, "random_state must be"),
        ({"random_state": -1}, "random_state must be"),
    ],
    ids=lambda value: str(value),
)
def test_wrong_parameters_are_refused_in_words(parameters, words, blobs):
    refused(words, ConformalDetector(**{"detector": IsolationForest(), **parameters}).fit, blobs[0])


@pytest.mark.parametrize("call", ["ranks", "p_values", "predict", "discover"])
def test_nothing_works_before_fit(call, blobs):
    with pytest.raises(NotFittedError):
        getattr(cad_of(), call)(blobs[1])
