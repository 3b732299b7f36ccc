"""scikit-learn's own checks, with no expected failures."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from reconform import Bootstrap, ConformalDetector, CrossValidation, Split

ESTIMATORS = [
    ConformalDetector("knn", Split(), random_state=0),
    ConformalDetector("knn", Split(), ties="randomized", random_state=0),
    ConformalDetector("knn", CrossValidation(folds=3), random_state=0),
    ConformalDetector("knn", Bootstrap(draws=10), random_state=0),
]


@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
