"""Masked cells are missing, and dates are no numbers, wherever rows come in."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from reconform import ConformalDetector
from reconform.detectors import resolve_detector
from reconform.detectors.prepare import make_prepared
from reconform.frames import checked_rows, unmasked

X = np.random.default_rng(0).normal(size=(60, 2))
MASKED = np.ma.masked_array(X, mask=np.abs(X) > 1.5)
TIMES = pd.DataFrame({"a": X[:, 0], "when": pd.date_range("2024-01-01", periods=60)})


def detector():
    return ConformalDetector("knn", "split", random_state=0)


def test_masked_cells_are_missing():
    with pytest.raises(ValueError, match="NaN"):
        detector().fit(MASKED)
    with pytest.raises(ValueError, match="NaN"):
        detector().fit(list(MASKED))  # rows that are masked, in a list
    fitted = detector().fit(X)
    for method in (fitted.p_values, fitted.ranks, fitted.predict):
        with pytest.raises(ValueError, match="NaN"):
            method(MASKED)
    with pytest.raises(ValueError, match="NaN"):
        resolve_detector("iforest").fit(MASKED)
    with pytest.raises(ValueError, match="NaN"):
        resolve_detector("iforest").fit(X).score_samples(MASKED)


def test_a_mask_that_hides_nothing_changes_nothing():
    plain = detector().fit(X).p_values(X)
    np.testing.assert_array_equal(detector().fit(np.ma.masked_array(X)).p_values(X), plain)


def test_a_detector_that_takes_missing_values_takes_masked_ones():
    cad = ConformalDetector(make_prepared("iforest", [0, 1], []), "split", random_state=0)
    missing = np.where(np.ma.getmaskarray(MASKED), np.nan, X)
    np.testing.assert_array_equal(
        cad.fit(MASKED).p_values(MASKED), cad.fit(missing).p_values(missing)
    )


def test_integers_may_be_masked():
    counts = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    np.testing.assert_array_equal(unmasked(counts), [[1.0, np.nan], [3.0, 4.0]])


@pytest.mark.parametrize(
    "frame",
    [
        TIMES,
        TIMES[["when"]],
        TIMES.assign(when=TIMES.when.dt.tz_localize("UTC")),
        TIMES.assign(when=TIMES.when - TIMES.when[0]),
        pl.from_pandas(TIMES),
        pl.from_pandas(TIMES).with_columns(pl.col("when").cast(pl.Date)),
        pa.Table.from_pandas(TIMES),
    ],
)
def test_times_in_frames_are_refused_by_name(frame):
    with pytest.raises(ValueError, match=r"dates or times \('when'\).*hour of the day"):
        detector().fit(frame)


@pytest.mark.parametrize("kind", ["datetime64[s]", "timedelta64[ms]"])
def test_arrays_of_times_are_refused(kind):
    times = np.arange(120).reshape(60, 2).astype(kind)
    for given in (times, list(times), [list(row) for row in times]):
        with pytest.raises(ValueError, match="dates or times"):
            detector().fit(given)
    with pytest.raises(ValueError, match="dates or times"):
        detector().fit(X).p_values(times)


def test_other_rows_pass_as_they_are():
    for rows in (X, X.tolist(), pd.DataFrame(X), [], ()):
        assert checked_rows(rows) is rows
