"""Micro-batches: windows, their lists, what is said of them, and crashes."""

import re
import warnings

import numpy as np
import pytest

from reconform import ConformalDetector
from reconform.stream import MicroBatches
from streams import calibrated


@pytest.fixture(scope="module")
def cad():
    return calibrated(np.random.default_rng(0).uniform(size=5_000))


def stream_of(seed, rows=500, share=0.1):
    """Rows of which some are anomalous."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((rows, 1)) < share, -1.0, rng.uniform(size=(rows, 1)))


@pytest.mark.parametrize(
    "rule",
    [
        {"fdr": 0.2},
        {"fdr": 0.2, "procedure": "by"},
        {"fdr": 0.2, "procedure": "storey", "storey_lambda": 0.4},
        {"fdr": 0.2, "conditional": "simes", "confidence": 0.8},
        {"false_alarms": 2},
    ],
)
def test_a_window_is_decided_as_discover_decides_it(cad, rule):
    X = stream_of(2, rows=300)
    for window in MicroBatches(cad, 100, **rule).update(X):
        found = cad.discover(X[window.row : window.row + 100], **rule)
        assert np.array_equal(window.mask, found.mask)
        assert np.array_equal(window.p_values, found.p_values)
        assert window.count > 3


@pytest.mark.filterwarnings("ignore:With .* calibration rows")
@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("split", {}, r"10% of the rows flagged in a window are .*\(proven, if.* it is measured"),
        ("full", {}, r"should be false alarms \(measured, not proven, if normal new rows"),
        ("split", {"false_alarms": 1}, "at most 1, proven for split.* adds up over windows"),
    ],
)
def test_what_is_proven_is_said(method, options, said):
    X = np.random.default_rng(0).normal(size=(80, 2))
    cad = ConformalDetector("knn", method, random_state=0).fit(X)
    windows = MicroBatches(cad, 10, **options)
    assert re.search(said, windows.guarantee), windows.guarantee
    (window,) = windows.update(X[:10])
    assert window.guarantee == windows.guarantee


def test_what_a_window_can_find_is_said_beforehand():
    cad = calibrated(np.linspace(0, 1, 999))
    assert "A single anomaly in a window of 100 rows" in MicroBatches(cad, 100).outlook
    with pytest.warns(UserWarning, match="200 new ones, at least 2 rows must stand out") as caught:
        windows = MicroBatches(cad, 200)
    assert caught[0].filename == __file__
    assert "at least 2 rows must stand out" in windows.outlook
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        windows.update(np.linspace(0, 1, 450).reshape(-1, 1))  # said once
    with pytest.warns(UserWarning, match="no row can be flagged"):
        assert "no row can be flagged" in MicroBatches(cad, 200, false_alarms=0.1).outlook
