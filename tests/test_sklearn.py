"""scikit-learn's own checks and its metadata routing, with no expected failures.

Detectors are checked in their own files; here `ConformalDetector` is, with every method that judges
rows alone. Those that fit a model on the whole batch (``"batch"``, ``"learned"``) have no p-value
of one row, ``"prefit"`` wants a model that was fitted before the data of a check are there, and
``"auto"`` is checked in test_auto.py.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from reconform import ConformalDetector, methods
from reconform.detectors import (
    DETECTORS,
    INNE,
    KDE,
    KNN,
    LOF,
    Auto,
    Contrast,
    ContrastForest,
    Extreme,
    IForest,
    Mahalanobis,
    Rarity,
)
from reconform.methods import method_names
from refusals import refused

ESTIMATORS = [
    ConformalDetector("knn", methods.Split(), ties="randomized", random_state=0),
    ConformalDetector("knn", methods.CrossValidation(folds=3), random_state=0),
]

# The others, which say little more: once in a while.
SLOW = [
    ConformalDetector("knn", method, random_state=0)
    for method in (
        methods.Split(),
        methods.Bootstrap(draws=10),
        methods.Jackknife(),
        methods.Jackknife(variant="basic"),
        methods.CrossValidation(folds=3, variant="basic"),
        methods.CrossValidation(folds=3, variant="pooled"),
        methods.Bootstrap(draws=10, variant="basic"),
        methods.Split(repeats=3),
        methods.Full(),
        methods.Resampling(ShuffleSplit(30, test_size=0.3)),
    )
]
JUDGE_BATCHES = {"batch", "learned"}


DETECTORS_CHECKED = [
    Auto(random_state=0),
    Contrast(),
    ContrastForest(n_estimators=5),
    IForest(n_estimators=10),
    INNE(n_estimators=10),
    KNN(),
    LOF(),
    *(KDE(), KDE(1.0), KDE(scale="robust")),
    *(Mahalanobis(), Mahalanobis(scale="robust")),
    Rarity(),
    Extreme(),
]
# As in PyOD and in scikit-learn with novelty=True, the offset comes from training rows that are not
# their own neighbours, while predict finds each of them at distance 0 from itself; so fewer
# training rows are predicted outliers than the contamination says.
OWN_NEIGHBOUR = ("check_outliers_train", "check_outliers_fit_predict")


def expected_failures(estimator):
    if isinstance(estimator, Rarity):
        return dict.fromkeys(OWN_NEIGHBOUR, "rows whose values are all different are tied")
    looks = isinstance(estimator, Contrast | ContrastForest | KNN | LOF)
    return dict.fromkeys(OWN_NEIGHBOUR, "its own neighbour") if looks else {}


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(
    [ConformalDetector(random_state=0), *ESTIMATORS, *DETECTORS_CHECKED],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(SLOW)
def test_scikit_learn_checks_of_the_other_methods(estimator, check):
    check(estimator)


def test_every_method_and_every_detector_is_checked():
    checked = {type(one.method) for one in ESTIMATORS + SLOW}
    alone = {kind for name, (kind, _) in method_names().items() if name not in JUDGE_BATCHES}
    assert {kind.__name__ for kind in alone - checked} == {"BySize", "Prefit"}  # see above
    assert {entry.kind for entry in DETECTORS.values()} == set(map(type, DETECTORS_CHECKED))


RNG = np.random.default_rng(0)
X, ANOMALIES = RNG.normal(size=(60, 2)), RNG.normal(7, 1, size=(9, 2))
GROUPS = np.repeat(np.arange(12), 5)
BY_GROUP = methods.Resampling(GroupKFold(3))


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def grouped():
    return ConformalDetector("knn", BY_GROUP, random_state=0)


def test_what_fit_takes_can_be_asked_for():
    """Every keyword of `fit` that goes with rows, so that a new one is thought of here."""
    requests = ConformalDetector().get_metadata_routing().fit.requests
    assert {"groups", "blocks", "anomalies"} <= set(requests)
    assert not any(requests.values()), "nothing is asked for by default"


def test_blocks_reach_the_last_step_of_a_pipeline(routing):
    pipeline = make_pipeline(StandardScaler(), grouped().set_fit_request(blocks=True))
    cad = pipeline.fit(X, blocks=GROUPS)[-1]
    for train, held_out in zip(cad.plan_.train, cad.plan_.held_out, strict=True):
        assert not set(GROUPS[train]) & set(GROUPS[held_out]), "no group is torn apart"
    expected = grouped().fit(StandardScaler().fit_transform(X), blocks=GROUPS)
    assert np.array_equal(cad.calibration_.scores, expected.calibration_.scores)


def test_blocks_that_nobody_asked_for_are_refused(routing):
    with pytest.raises(UnsetMetadataPassedError, match="blocks"):
        make_pipeline(StandardScaler(), grouped()).fit(X, blocks=GROUPS)
    asks = ConformalDetector("knn", "split").set_fit_request(blocks=True)
    refused("ignores blocks", make_pipeline(StandardScaler(), asks).fit, X, blocks=GROUPS)


@pytest.mark.filterwarnings("ignore::reconform.ReferenceWarning")
def test_groups_go_through_a_pipeline_and_cross_validation(routing):
    """Rows are ranked within their group when they are fitted, and when they are judged."""
    kinds, scaled = np.repeat(["a", "b"], 30), StandardScaler().fit_transform(X)
    cad = ConformalDetector("knn", "split", random_state=0)
    asks = clone(cad).set_fit_request(groups=True).set_predict_request(groups=True)
    asks.set_decision_function_request(groups=True)
    pipeline = make_pipeline(StandardScaler(), asks).fit(X, groups=kinds)
    plain = clone(cad).fit(scaled, groups=kinds)
    for judge in ("predict", "decision_function"):
        expected = getattr(plain, judge)(scaled, groups=kinds)
        assert np.array_equal(getattr(pipeline, judge)(X, groups=kinds), expected)
    refused("fitted with groups", pipeline.predict, X)
    seen = []
    cross_validate(
        clone(cad).set_fit_request(groups=True),
        X,
        params={"groups": kinds},
        cv=KFold(3, shuffle=True, random_state=0),
        scoring=lambda fold, rows: float(seen.append(sorted(fold.grouping_.names)) is None),
    )
    assert seen == [["a", "b"]] * 3


def test_the_api_page_names_the_requests_that_there_are():
    page = (Path(__file__).parent.parent / "docs" / "api.md").read_text(encoding="utf-8")
    there = {name for name in dir(ConformalDetector) if re.fullmatch(r"set_\w+_request", name)}
    assert set(re.findall(r"`(set_\w+_request)`", page)) == there


def test_known_anomalies_go_through_a_pipeline_as_they_are(routing):
    """They are rows of another number: no fold takes a part of them."""
    asks = ConformalDetector("contrast", "full", random_state=0).set_fit_request(anomalies=True)
    fitted = make_pipeline(asks).fit(X, anomalies=ANOMALIES)
    new = np.vstack([RNG.normal(size=(10, 2)), ANOMALIES[:2] + 0.1])
    plain = ConformalDetector("contrast", "full", random_state=0).fit(X, anomalies=ANOMALIES)
    assert np.array_equal(fitted[-1].discover(new).p_values, plain.discover(new).p_values)
    seen = []

    class Seen(ConformalDetector):
        def fit(self, X, y=None, *, groups=None, blocks=None, anomalies=None):
            seen.append(len(anomalies))
            return super().fit(X, y, groups=groups, blocks=blocks, anomalies=anomalies)

    asks = Seen("contrast", "full", random_state=0).set_fit_request(anomalies=True)
    cross_validate(asks, X, params={"anomalies": ANOMALIES}, cv=3, scoring=lambda cad, rows: 0.0)
    assert seen == [9, 9, 9]
