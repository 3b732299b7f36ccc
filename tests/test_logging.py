"""What the library chose and will do, under the logger `reconform`; silent by default."""

import logging

import numpy as np
import pytest
from sklearn.svm import OneClassSVM

from reconform import ConformalDetector, methods

# So few rows are on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::reconform.ReferenceWarning")

RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(40, 2)), RNG.normal(size=(12, 2))


@pytest.fixture
def said(caplog):
    """What is logged, as pairs of level and text."""
    caplog.set_level(logging.DEBUG, logger="reconform")

    def messages(level=logging.INFO):
        assert {record.name.split(".")[0] for record in caplog.records} <= {"reconform"}
        return [record.getMessage() for record in caplog.records if record.levelno == level]

    return messages


def test_nothing_is_shown_by_default(capfd):
    ConformalDetector("knn", random_state=0).fit(X).discover(NEW)
    assert capfd.readouterr() == ("", "")
    handlers = logging.getLogger("reconform").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]
    assert logging.getLogger("reconform").level == logging.NOTSET, "the program decides"


def test_the_method_that_was_chosen_by_size(said):
    ConformalDetector("knn", random_state=0).fit(X)
    assert said() == ["40 reference rows, method Full()"]
    plan = "plan: scheme full, variant plus, 0 resampled models"
    assert said(logging.DEBUG) == [plan]


def test_a_batch_that_is_too_large_for_full(said, monkeypatch):
    cad = ConformalDetector("knn", random_state=0).fit(X)
    monkeypatch.setattr(methods, "MOST_PAIRS", 100)
    cad.discover(NEW)
    assert said()[1:] == [
        "12 new rows are too many for full: fitting Split(calibration=None) instead",
        "40 reference rows, method Split(calibration=None)",
    ]


def test_refits_and_choices(said):
    svm = OneClassSVM(gamma="scale")
    ConformalDetector(svm, "cv+", random_state=0).fit(X)
    assert said() == ["40 reference rows, method CrossValidation()", "fitting OneClassSVM 11 times"]
    ConformalDetector(svm, "full", random_state=0).fit(X).p_values(NEW)
    assert said()[-1] == "fitting OneClassSVM once per new row: 12 times"
    before = len(said())
    ConformalDetector("knn", "jackknife+", random_state=0).fit(X).discover(NEW)
    assert not any("fitting" in text for text in said()[before:])  # all are fitted at once
    secret = X.copy()
    secret[0] = 8675.309
    cad = ConformalDetector(["knn", "mahalanobis"], "full", random_state=0).fit(secret)
    assert cad.discover(NEW).ranked_by in said()
    assert not any("8675" in text for text in said() + said(logging.DEBUG))
