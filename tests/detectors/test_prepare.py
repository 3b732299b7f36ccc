"""Imputing, encoding and scaling as part of the algorithm: nothing of a held-out row leaks."""

import json

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from reconform import ConformalDetector, CrossValidation
from reconform.content import sorted_by_content
from reconform.detectors.prepare import make_prepared, prepared
from reconform.reporting.words import facts
from reconform.tables import Feature, describe, restore
from refusals import refused

UNSEEN = -1.0  # no code of the reference
FEATURES = (Feature("x"), Feature("colour", ("blue", "green", "red")), Feature("y"))


@pytest.fixture
def mixed():
    """Numbers, a category with a rare label, and missing values in both."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=40), rng.integers(0, 2, 40), rng.exponential(size=40)])
    X[7, 1] = 2  # one row alone has this label
    X[rng.random(40) < 0.2, 0] = np.nan
    X[[3, 20], 1] = np.nan
    new = np.column_stack([rng.normal(size=9), rng.integers(0, 3, 9), rng.exponential(size=9)])
    new[0] = [np.nan, UNSEEN, 1.0]
    new[1, 2] = np.nan  # never missing in the reference
    new[2, 1] = np.nan
    return X, new


def by_hand(train, rows):
    """What the pipeline is to do, written out: every number comes from the training rows."""
    columns = []
    for j in (0, 2):
        median = np.nanmedian(train[:, j])
        filled = np.where(np.isnan(train[:, j]), median, train[:, j])
        values = np.where(np.isnan(rows[:, j]), median, rows[:, j])
        columns.append((values - filled.mean()) / filled.std())
    for j in (0, 2):
        if np.isnan(train[:, j]).any():
            columns.append(np.isnan(rows[:, j]))
    for label in np.unique(train[:, 1]):
        same = np.isnan(rows[:, 1]) if np.isnan(label) else rows[:, 1] == label
        columns.append(same)
    return np.column_stack(columns).astype(float)


def test_no_held_out_row_leaks(mixed):
    X, new = mixed
    detector = OneClassSVM(gamma=0.5)
    cad = ConformalDetector(prepared(detector, FEATURES), CrossValidation(folds=8), random_state=0)
    cad.fit(X)
    c, leaky = np.empty(len(X)), np.empty(len(X))
    t = np.empty((len(X), len(new)))
    for train, held in zip(cad.plan_.train, cad.plan_.held_out, strict=True):
        train = train[sorted_by_content(X[train])[1]]  # the order in which a detector sees them
        model = clone(detector).fit(by_hand(X[train], X[train]))
        c[held] = model.score_samples(by_hand(X[train], X[held]))
        t[held] = model.score_samples(by_hand(X[train], new))
        together = clone(detector).fit(by_hand(X, X[train]))
        leaky[held] = together.score_samples(by_hand(X, X[held]))
    assert cad.calibration_.scores == pytest.approx(c, rel=1e-9)
    assert cad.ranks(new).tolist() == (1 + (c[:, None] <= t).sum(axis=0)).tolist()
    # The comparison can fail: prepared on all rows, the scores are others.
    assert np.abs(cad.calibration_.scores - leaky).max() > 1e-3


def test_unseen_and_missing_labels(mixed):
    X, _ = mixed
    columns = make_prepared(IsolationForest(), [], [1])[:-1].fit(X)
    rows = np.array([[0, UNSEEN, 0], [0, np.nan, 0], [0, 1, 0]])
    assert columns.transform(rows).tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0]]
    without = make_prepared(IsolationForest(), [], [1])[:-1].fit(X[~np.isnan(X[:, 1])])
    assert without.transform(rows[1:2]).sum() == 0


def test_a_column_that_is_missing_in_all_training_rows():
    X = np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.nan]])
    steps = make_prepared(OneClassSVM(), [0, 1], [])[:-1].fit(X)
    assert np.isfinite(steps.transform([[1.0, 4.0], [np.nan, np.nan]])).all()


def test_only_distance_detectors_are_standardised():
    def scaled(detector, **options):
        numbers = make_prepared(detector, [0], [], **options)["prepare"].transformers[0][1]
        return "scale" in dict(numbers.steps)

    assert scaled(LocalOutlierFactor(novelty=True))
    assert not scaled(IsolationForest())
    assert scaled(IsolationForest(), distance_based=True)
    assert scaled("knn")
    assert scaled("inne")
    assert not scaled("iforest")


def test_descriptions_are_plain_data():
    assert restore(json.loads(json.dumps(describe(FEATURES)))) == FEATURES
    x = {"name": "x", "kind": "category"}
    for entry in (
        {},
        {"name": 3, "kind": "number"},
        {"name": "x", "kind": "date"},
        x,
        {**x, "labels": "ab"},
        {**x, "labels": [1, 2]},
        {**x, "labels": ["a", "a"]},
        {"name": "x", "kind": "number", "labels": ["a"]},
        {"name": "x", "kind": "number", "more": 1},
    ):
        refused("feature", restore, [entry])
    refused("distinct", restore, describe([Feature("x"), Feature("x")]))


def test_detectors_that_were_left_out_are_named(rng):
    X = rng.normal(size=(300, 2))
    split = ("auto", "split", ("contrast", "contrast-forest"))
    for one, method, gone in (split, ("auto", "full", ()), (["lof"], "split", ())):
        found = ConformalDetector(one, method, random_state=0).fit(X).discover(X[:50])
        assert found.not_tried == gone
        assert ("Not tried, as this is a split or large" in dict(facts(found))) == bool(gone)
