"""False-alarm budgets: the cut-off, what is promised, and that it is kept."""

import re
import warnings

import numpy as np
import pytest

from reconform import ConformalDetector, Split
from reconform.stream import FalseAlarmBudget, OutlookWarning
from refusals import refused
from streams import calibrated


@pytest.fixture(scope="module")
def cad():
    return calibrated(np.random.default_rng(0).uniform(size=5_000))


def test_the_certified_cut_off_is_that_of_threshold(cad):
    budget = FalseAlarmBudget(cad, 5, 1_000, confidence=0.95)
    X = np.random.default_rng(1).uniform(0, 0.02, size=(2_000, 1))
    decided = budget.update(X)
    limit = cad.threshold(0.005, confidence=0.95)
    assert np.array_equal(decided.mask, limit.flags(X[:, 0]))
    assert 100 < decided.count < 1_900
    assert (decided.mask == (decided.p_values <= decided.level)).all()
    said = "At most 5 false alarms in any 1,000 rows expected, .* share 0.95"
    assert re.search(said, budget.guarantee)


@pytest.mark.parametrize("method", ["split", "jackknife+", "full"])
@pytest.mark.parametrize("validity", ["nominal", "proven"])
def test_without_a_certificate_p_values_up_to_the_share_are_flagged(method, validity, rng):
    cad = ConformalDetector("knn", method, random_state=0).fit(rng.normal(size=(150, 2)))
    X = rng.normal(scale=2.0, size=(60, 2))
    budget = FalseAlarmBudget(cad, 2, 50, confidence=None, validity=validity)
    p_values = cad.p_values(X, validity=validity)
    decided = budget.update(X)
    assert np.array_equal(decided.p_values, p_values)
    assert np.array_equal(decided.mask, p_values <= 2 / 50)
    assert decided.count > 5
    proven = validity == "proven" or method != "jackknife+"
    assert ("measured, not proven" not in budget.guarantee) == proven
    assert "It holds in any 50 rows, on average over references." in budget.guarantee


def test_auto_takes_the_certificate_where_there_are_rows_enough():
    few, many = (calibrated(np.linspace(0, 1, n)) for n in (2_301, 2_302))
    assert FalseAlarmBudget(few).confidence is None
    assert FalseAlarmBudget(many).confidence == 0.9
    assert "on average over references" in FalseAlarmBudget(few).guarantee
    rows = np.random.default_rng(0).normal(size=(100, 2))
    for method in ("full", Split(repeats=3)):
        other = ConformalDetector("knn", method, random_state=0).fit(rows)
        assert FalseAlarmBudget(other, 10, 100).confidence is None


def test_too_few_rows_are_named():
    cad = calibrated(np.linspace(0, 1, 500))
    with pytest.warns(OutlookWarning, match="nothing can be flagged.* at least 999 cal") as caught:
        budget = FalseAlarmBudget(cad, 1, 1_000)
    assert caught[0].filename == __file__
    assert not budget.update([[-1.0]]).mask.any()
    assert budget.outlook.startswith("Nothing can be flagged: 500 calibration rows")
    with pytest.warns(UserWarning, match="at a confidence of 0.9. Use at least 2,302"):
        FalseAlarmBudget(cad, 1, 1_000, confidence=0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FalseAlarmBudget(calibrated(np.linspace(0, 1, 999)))


def test_what_has_no_certificate_is_refused():
    X = np.random.default_rng(0).normal(size=(100, 2))
    full = ConformalDetector("knn", "full", random_state=0).fit(X)
    refused("use `method='split'` or 'prefit'", FalseAlarmBudget, full, confidence=0.9)
    smoothed = ConformalDetector("knn", "split", ties="randomized", random_state=0).fit(X)
    refused("ties='conservative'", FalseAlarmBudget, smoothed)
