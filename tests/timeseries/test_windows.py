"""Windows: how rows are cut, what forecasts miss, events, and how often there is a list."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.signal import lfilter

from commands import run
from reconform import ReconformError
from reconform.models import load, save
from reconform.timeseries import Windows, _cut, _stretches, fit
from reconform.timeseries.forecast import MOST_LAGS, PARTS, fit_forecast
from refusals import refused


def hourly(n, seed=0, level=0.0, start="2024-01-01", step="h", name=None):
    """A daily wave, and AR(1) around it."""
    rng = np.random.default_rng(seed)
    when = pd.date_range(start, periods=n, freq=step)
    wave = 3 * np.sin(2 * np.pi * when.hour / 24)
    load = level + wave + lfilter([1], [1, -0.7], rng.normal(size=n))
    frame = pd.DataFrame({"when": when, "load": load, "heat": rng.normal(size=n)})
    return frame if name is None else frame.assign(machine=name)


def judged(reference, new, windows):
    return fit(reference, windows, random_state=0).discover(new, units=windows)


def test_a_forecast_is_a_regression_on_the_values_before(rng):
    z = lfilter([1], [1, -0.6, 0.2], rng.normal(size=2_000))[:, None]
    starts, seconds = np.zeros(2_000, dtype=np.intp), np.arange(2_000.0)
    parts = np.arange(2_000) * PARTS // 2_000
    forecast, errors = fit_forecast(z, starts, seconds, parts, 1.0)
    weights = forecast.weights[:, 0]
    np.testing.assert_allclose(weights[:2], [0.6, -0.2], atol=0.06)
    assert not weights[2:MOST_LAGS].any(), "the BIC keeps two lags"
    for part in range(PARTS):  # errors of a part by ridge on the others, with plain loops
        rows = np.flatnonzero((parts != part) & (np.arange(2_000) >= 0))
        before = [z[np.maximum(rows - lag, 0), 0] for lag in (1, 2)]
        F = np.column_stack([np.ones(len(rows)), *before])
        w = np.linalg.solve(F.T @ F + np.diag([1e-6, 1, 1]), F.T @ z[rows, 0])
        i = int(np.flatnonzero(parts == part)[5])
        expected = z[i, 0] - w @ [1, z[i - 1, 0], z[i - 2, 0]]
        np.testing.assert_allclose(errors[i, 0], expected, rtol=1e-9)


def test_the_calendar_is_used_where_it_helps():
    known = Windows("when").rows(hourly(24 * 30)).units
    day = known.forecast.usual[:24]
    assert np.ptp(day[:, 0]) * known.spreads[0, 0] == pytest.approx(6, abs=1.5)
    assert not day[:, 1].any() or np.ptp(day[:, 1]) < np.ptp(day[:, 0])
    assert not Windows("when").rows(hourly(400, step="s")).units.forecast.clock.per_day


def test_windows_do_not_reach_over_gaps_or_series():
    seconds = np.r_[np.arange(10.0), 100 + np.arange(10.0), np.arange(5.0)]
    series = np.repeat([0, 1], [20, 5])
    starts = _stretches(seconds, series, 5.0)
    assert starts.tolist() == [0] * 10 + [10] * 10 + [20] * 5
    assert _cut(starts, np.ones(25, dtype=bool), 4).tolist() == [0, 5, 10, 15, 20, 25]


def test_the_order_of_rows_in_a_file_does_not_matter(rng):
    rows = pd.concat([hourly(400, 1, name="a"), hourly(300, 2, 50.0, name="b")])
    soon = {"start": "2025-01-01"}
    new = pd.concat([hourly(100, 3, name="b", **soon), hourly(90, 4, name="a", **soon)])
    windows = Windows("when", "machine")
    there = judged(rows, new, windows)
    shuffled = judged(rows.iloc[rng.permutation(700)], new.iloc[rng.permutation(190)], windows)
    assert sorted(zip(there.index, there.p_values, strict=True)) == sorted(
        zip(shuffled.index, shuffled.p_values, strict=True)
    )
    assert there.index[0].startswith("a, 2025-01-01")


def test_new_rows_that_follow_the_reference_are_forecast_by_its_last_rows():
    rows = hourly(600)
    windows = Windows("when")
    known = windows.rows(rows[:400]).units
    follow, alone = windows.rows(rows[400:], known), windows.rows(rows[430:], known)
    whole = known.forecast.errors(
        ((rows[["load", "heat"]].to_numpy() - known.levels) / known.spreads),
        np.zeros(600, dtype=np.intp),
        rows["when"].to_numpy().astype("datetime64[s]").astype(float),
    )
    np.testing.assert_allclose(follow.errors, whole[400:] / known.noise, rtol=1e-9)
    assert not np.allclose(alone.errors[0], whole[430] / known.noise), "nothing is known before"
    again = follow.forecasts() + follow.errors * known.noise * known.spreads
    np.testing.assert_allclose(again, rows[["load", "heat"]][400:], rtol=1e-9)


def test_an_event_has_its_times_and_columns():
    rows = hourly(1_200)
    rows.loc[1_060:1_099, "heat"] += 5
    found = judged(rows[:1_000], rows[1_000:], Windows("when"))
    (event,) = [event for event in found.events if event.windows > 1]
    assert (event.columns, event.series) == (("heat",), "")
    assert event.p_value < 0.02
    assert (event.begin, event.end) == (str(rows["when"][1_060]), str(rows["when"][1_099]))
    assert (event.rows, event.windows) == ((60, 99), 4)
    assert {one["column"] for one in found.units.within(event.peak)} == {"heat"}
    assert replace(found, mask=np.zeros_like(found.mask)).events == []
    apart = found.mask.copy()
    apart[:] = False
    apart[[2, 5, 9]] = True  # two windows between the first two, three before the last
    assert [e.windows for e in found.units.events(apart, found.p_values)] == [2, 1]


def test_a_missing_value_counts_where_the_reference_misses_some():
    rows = hourly(1_200)
    rows.loc[::50, "heat"] = np.nan
    rows.loc[1_100:1_119, "heat"] = np.nan
    windows = Windows("when")
    found = judged(rows[:1_000], rows[1_000:], windows)
    assert found.units.units.names[-1] == "heat missing"
    assert found.mask[[10, 11]].all()
    known = windows.rows(rows[:1_000].assign(heat=1.0)).units
    assert np.isfinite(windows.rows(rows[1_000:], known).features).all()


def test_what_cannot_be_judged_is_refused_with_a_way_out():
    rows = hourly(400)
    with pytest.raises(
        ReconformError, match=r"400 rows in windows of 60 are 6 windows.*at least 20.*`window=20`"
    ):
        Windows("when", length=60).rows(rows)
    assert len(Windows("when", length=20).rows(rows).names) == 20
    with pytest.raises(ReconformError, match="has no rows of the series 'c'"):
        fit(rows.assign(m="a"), Windows("when", "m")).discover(
            rows.assign(m="c"), units=Windows("when", "m")
        )
    with pytest.raises(ReconformError, match="100 new rows are from the time of the reference"):
        judged(rows, rows[300:], Windows("when"))
    refused("'time' that X does not have", Windows("time").rows, rows)
    refused("no column has any", Windows("when").rows, rows[["when"]].assign(x="a"))


def test_a_saved_model_judges_the_same(tmp_path):
    rows = pd.concat([hourly(700, 1, name="a"), hourly(700, 2, 50.0, name="b")])
    reference, new = rows[rows["when"] < "2024-01-25"], rows[rows["when"] >= "2024-01-25"]
    windows = Windows("when", "machine")
    cad = fit(reference, windows, random_state=0)
    save(cad, tmp_path / "m.rcad")
    again = load(tmp_path / "m.rcad").discover(new, units=windows)
    assert again.p_values.tolist() == cad.discover(new, units=windows).p_values.tolist()


def series(kind, n, rng):
    e = rng.normal(size=n + 300)
    weights = {"ar1": [1, -0.95], "ar2": [1, -1.6, 0.8], "slow": [1, -1.2, 0.25]}
    weights = weights.get(kind, [1, -0.7])
    x = lfilter([1], weights, e)[300:]
    return x + 4 * np.sin(np.arange(n) * 2 * np.pi / 24) * (kind == "season")


@pytest.mark.parametrize("kind", ["ar1", "ar2", "slow", "season"])
def test_stationary_series_have_few_lists_and_shifts_are_found(kind):
    """1,000 + 200 rows. Lists in at most 12 % of batches: with 40, more than 9 would be less likely
    than 1 in 40 at 12 %. A shift of 4 standard deviations over 60 rows is found in 80 %."""
    rng, lists, hits, repeats = np.random.default_rng(7), 0, 0, 40
    windows = Windows("rows")
    for _ in range(repeats):
        x = series(kind, 1_200, rng)
        reference = pd.DataFrame({"x": x[:1_000]})
        cad = fit(reference, windows, random_state=0)
        lists += bool(cad.discover(pd.DataFrame({"x": x[1_000:]}), units=windows).count)
        x[1_070:1_130] += 4 * x.std()
        events = cad.discover(pd.DataFrame({"x": x[1_000:]}), units=windows).events
        hits += any(e.rows[0] < 130 and e.rows[1] >= 70 for e in events)
    assert lists <= 9
    assert hits >= 36


def test_the_command_line_judges_windows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = hourly(1_200)
    rows.loc[1_060:1_099, "heat"] += 5
    rows[:1_000].to_csv("ref.csv", index=False)
    rows[1_000:].to_csv("new.csv", index=False)
    found = judged(rows[:1_000], rows[1_000:], Windows("when"))
    peak = found.events[0].peak
    told = json.loads(run("detect ref.csv new.csv --time when --json").stdout)
    assert [event["begin"] for event in told["events"]] == [e.begin for e in found.events]
    assert told["flagged"] == found.count
    assert found.explain(found.events[0].window).headline.startswith(f"Window {peak}: flagged")
    told_of = run("detect", "ref.csv", "new.csv", "--time", "when", "--explain", peak).stdout
    assert "'heat'" in told_of
    assert f"Window {peak}: flagged" in told_of
    assert "Nearest normal windows" in told_of
    alarms = run("detect ref.csv new.csv --time when --false-alarms 1").stdout.splitlines()
    assert "at most 1 of them" in alarms[1]
    assert "False events are at most as many" in alarms[1]
    run("fit ref.csv --time when --model m.rcad")
    assert json.loads(run("score m.rcad new.csv --json").stdout)["events"] == told["events"]
    said = run("detect ref.csv new.csv --time when --window 60", code=1).stderr
    assert "are 16 windows" in said
    assert "--window 50" in said
    run("detect ref.csv new.csv --window 5", code=2)
