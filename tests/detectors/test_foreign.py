import numpy as np
import pytest
from sklearn.base import clone
from sklearn.covariance import EllipticEnvelope
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDOneClassSVM
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity, LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.svm import OneClassSVM

from reconform import BatchDependenceError, Bootstrap, ConformalDetector, ReconformError
from reconform.detectors.foreign import adapt
from reconform.ensemble.refitting import probe_batch_dependence
from refusals import refused

pyod = pytest.importorskip("pyod", reason="needs reconform[pyod]")


def pyod_detector(module, name, **parameters):
    import importlib

    return getattr(importlib.import_module(f"pyod.models.{module}"), name)(**parameters)


class Distance:
    """An object with fit and score_samples, and nothing of scikit-learn."""

    def fit(self, X):
        self.center = X.mean(axis=0)

    def score_samples(self, X):
        return -np.linalg.norm(X - self.center, axis=1)


class Ambiguous:
    def fit(self, X):
        return self

    def decision_function(self, X):
        return X[:, 0]


def distance_function(X):
    center = X.mean(axis=0)
    return lambda Z: np.linalg.norm(Z - center, axis=1)


SKLEARN = [
    IsolationForest(n_estimators=20),
    OneClassSVM(),
    LocalOutlierFactor(novelty=True),
    EllipticEnvelope(),
    KernelDensity(),
    GaussianMixture(2),
    make_pipeline(StandardScaler(), OneClassSVM()),
    make_pipeline(RobustScaler(), PCA(2), LocalOutlierFactor(novelty=True)),
    make_pipeline(Nystroem(n_components=20), SGDOneClassSVM()),
    Distance(),
]
PYOD = [
    *(pyod_detector(name.lower(), name) for name in ("KNN", "PCA", "OCSVM", "LOF", "HBOS", "MCD")),
    *(pyod_detector(name.lower(), name) for name in ("GMM", "KDE", "ABOD")),
    pyod_detector("iforest", "IForest", n_estimators=20),
    pyod_detector("inne", "INNE", n_estimators=20),
    pyod_detector("cblof", "CBLOF", n_clusters=5),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("detector", [*SKLEARN, *PYOD], ids=lambda d: type(d).__name__)
def test_detectors_of_others_find_what_is_far_away(detector, blobs):
    reference, new = blobs
    scaled = [make_pipeline(StandardScaler(), detector)] if detector in PYOD else []
    for one in (detector, *scaled):
        cad = ConformalDetector(one, "split", random_state=0).fit(reference)
        p = cad.p_values(new)
        assert p[30:].max() < np.median(p[:30])
        assert p[30:].max() == 1 / (cad.n_calibration_ + 1) or one not in SKLEARN


def test_functions_must_state_their_direction(blobs):
    reference, new = blobs
    with pytest.raises(ValueError, match="state larger_is='anomalous'"):
        ConformalDetector(distance_function, "split").fit(reference)
    right = ConformalDetector(distance_function, "split", larger_is="anomalous", random_state=0)
    wrong = ConformalDetector(distance_function, "split", larger_is="normal", random_state=0)
    assert right.fit(reference).p_values(new)[30:].max() < 0.05
    assert wrong.fit(reference).p_values(new)[30:].min() == 1.0


def test_a_function_that_takes_a_seed_gets_one_per_model(blobs):
    seen = []

    def noisy(X, random_state):
        seen.append(random_state)
        weights = np.random.default_rng(random_state).random(X.shape[1])
        return lambda Z: Z @ weights

    ConformalDetector(noisy, "cv+", larger_is="normal", random_state=0).fit(blobs[0])
    assert len(set(seen)) == len(seen) == 11


def test_every_model_gets_its_own_seed_whatever_the_template_says(blobs):
    cad = ConformalDetector(IsolationForest(n_estimators=5, random_state=0), "cv+", random_state=0)
    models = cad.fit(blobs[0]).ensemble_.models
    assert len({model.model.random_state for model in models}) == 10
    assert cad.detector.random_state == 0


@pytest.mark.parametrize(
    ("detector", "words"),
    [
        (Ambiguous(), "does not say whether"),
        (StandardScaler(), "must have score_samples or decision_function"),
        (LocalOutlierFactor(), r"novelty=True"),
        (IsolationForest, r"Write IsolationForest\(\)"),
        (7, "got 7"),
    ],
    ids=["ambiguous", "no scores", "not novelty", "class", "number"],
)
def test_what_is_no_detector_is_refused_in_words(detector, words, blobs):
    refused(words, ConformalDetector(detector, "split").fit, blobs[0])


def test_larger_is_settles_what_the_interface_leaves_open(blobs):
    cad = ConformalDetector(Ambiguous(), "split", larger_is="anomalous", random_state=0)
    assert cad.fit(blobs[0]).p_values(blobs[1])[30:].max() < 0.1
    refused("Did you mean 'anomalous'", adapt, Ambiguous(), "anomalou")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "n"),
    [("ECOD", 100), ("ECOD", 100_000), ("COPOD", 100),
     *((name, 100) for name in ("COF", "SOD", "SOS", "ROD"))],
)  # fmt: skip
def test_detectors_that_rank_the_batch_against_itself_are_refused(name, n):
    X = np.random.default_rng(0).normal(size=(n, 3))
    with pytest.raises(BatchDependenceError, match=f"detector {name} cannot be used"):
        ConformalDetector(pyod_detector(name.lower(), name), "split").fit(X)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize(
    "detector",
    [
        pyod_detector("pca", "PCA"),
        pyod_detector("ocsvm", "OCSVM"),
        pyod_detector("iforest", "IForest"),
        LocalOutlierFactor(novelty=True),
        make_pipeline(StandardScaler(), KernelDensity()),
    ],
    ids=lambda d: type(d).__name__,
)
def test_detectors_that_score_row_by_row_pass_the_probe(detector, scale):
    X = np.random.default_rng(0).normal(size=(300, 20)) * scale + scale
    ConformalDetector(detector, "split", random_state=0).fit(X)


def test_a_detector_that_throws_dice_is_refused(blobs, rng):

    class Dice(Distance):
        def score_samples(self, X):
            return rng.random(len(X))

    with pytest.raises(BatchDependenceError, match="or on chance"):
        ConformalDetector(Dice(), "split").fit(blobs[0])


def test_float32_rounding_is_no_batch_dependence():
    class Single(Distance):
        def score_samples(self, X):
            return super().score_samples(X).astype(np.float32) * (1 + 1e-7 * len(X) / 512)

    model = Single()
    X = np.random.default_rng(0).normal(size=(50, 3))
    model.fit(X)
    probe_batch_dependence(adapt(model).fitted(model), X, name="Single")


@pytest.mark.parametrize("scores", ["nan", "shape", "scalar"])
def test_scores_that_are_not_one_number_per_row_are_refused(scores, blobs):
    class Bad(Distance):
        def score_samples(self, X):
            if scores == "nan":
                return np.where(np.arange(len(X)) == 0, np.nan, 1.0)
            return np.zeros((len(X), 2)) if scores == "shape" else np.float64(1.0)

    words = "returned NaN for 1 of" if scores == "nan" else "one score per row"
    refused(words, ConformalDetector(Bad(), "split").fit, blobs[0])


def test_prefit_calibrates_a_model_as_it_is(blobs):
    reference, new = blobs
    model = IsolationForest(n_estimators=20, random_state=3).fit(reference[:30])
    before = model.score_samples(new)
    cad = ConformalDetector(model, "prefit").fit(reference[30:])
    assert cad.n_calibration_ == 30
    c = model.score_samples(reference[30:])
    assert cad.ranks(new).tolist() == [1 + int((c <= s).sum()) for s in before]
    assert np.array_equal(model.score_samples(new), before)
    assert cad.guarantee_.kind == "exact"


@pytest.mark.parametrize("method", ["split", "jackknife", "jackknife+", "cv", "cv+", "jab", "jab+"])
def test_frozen_models_are_not_refitted(method, blobs):
    model = FrozenEstimator(IsolationForest(n_estimators=20).fit(blobs[0]))
    for frozen in (model, make_pipeline(StandardScaler(), model)):
        refused("method='prefit'", ConformalDetector(frozen, method).fit, blobs[0])


def test_frozen_pyod_models_keep_their_direction(blobs):
    reference, new = blobs
    model = FrozenEstimator(pyod_detector("knn", "KNN").fit(reference[:30]))
    p = clone(ConformalDetector(model, "prefit")).fit(reference[30:]).p_values(new)
    assert p[30:].max() == 1 / 31


def test_prefit_needs_a_fitted_model(blobs):
    from sklearn.exceptions import NotFittedError

    for detector in (IsolationForest(), OneClassSVM(), "iforest"):
        with pytest.raises(NotFittedError):
            ConformalDetector(detector, "prefit").fit(blobs[0])


def test_aggregates_of_infinite_scores_are_numbers(blobs):
    def cliff(X):
        return lambda Z: np.where(np.abs(Z - X[0]).sum(axis=1) > 3, -np.inf, np.inf)

    for aggregate in ("median", 0.3, "mean"):
        method = Bootstrap(draws=9, aggregate=aggregate)
        cad = ConformalDetector(cliff, method, larger_is="normal", random_state=0).fit(blobs[0])
        assert not np.isnan(cad.calibration_.scores).any()
        assert (cad.ranks(blobs[1])[30:] <= cad.ranks(blobs[1])[:30].max()).all()


@pytest.mark.parametrize("method", ["full", "batch", "split", "cv+"])
def test_detectors_of_time_series_are_refused(method):
    """They score a row by its neighbours in time, and rows are sorted before such a fit."""
    series = pytest.importorskip("pyod.models.ts_od")
    X = np.random.default_rng(0).normal(size=(60, 2))
    detector = series.TimeSeriesOD()
    for given in (detector, make_pipeline(StandardScaler(), detector)):
        with pytest.raises(ReconformError, match="TimeSeriesOD scores a row by the rows before"):
            ConformalDetector(given, method).fit(X).discover(X[:5])
