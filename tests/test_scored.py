"""Scores from elsewhere: the list of a fitted model, from its scores alone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import IsolationForest

from reconform import ConformalDetector, discover_scores, report
from refusals import refused

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(600, 3)), RNG.normal(size=(100, 3))
NEW[90:] += 5


@pytest.fixture(scope="module")
def model():
    return IsolationForest(random_state=0).fit(X[:300])


def test_it_is_the_list_of_the_fitted_model(model):
    whole = ConformalDetector(model, "prefit").fit(X[300:]).discover(NEW, fdr=0.2)
    ours, theirs = model.score_samples(X[300:]), model.score_samples(NEW)
    found = discover_scores(ours, theirs, 0.2, larger_is="normal")
    assert found.p_values.tolist() == whole.p_values.tolist()
    assert (found.mask.tolist(), found.guarantee) == (whole.mask.tolist(), whole.guarantee)
    turned = discover_scores(-model.score_samples(X[300:]), -model.score_samples(NEW), 0.2)
    assert turned.mask.tolist() == found.mask.tolist()


def test_labels_groups_rules_and_reports_are_those_of_rows(model, tmp_path):
    names = [f"image {k}" for k in range(100)]
    new = pd.Series(-model.score_samples(NEW), index=names)
    groups = np.arange(300) % 2, np.arange(100) % 2
    found = discover_scores(-model.score_samples(X[300:]), new, groups=groups, false_alarms=1)
    assert found.to_frame().index[0] in names[90:]
    assert [one.rows for one in found.groups] == [50, 50]
    report(found, tmp_path / "report.html")
    assert "scores from elsewhere" in (tmp_path / "report.html").read_text()


def test_scores_of_another_shape_are_refused():
    refused(r"`new` must be one score per row; .* \(100, 3\)", discover_scores, X[:, 0], NEW)
    refused("NaN", discover_scores, X[:, 0], np.array([1.0, np.nan]))
