"""Windows of a stream are those of the whole file; a reference of windows moves with time."""

import json

import numpy as np
import pandas as pd
import pytest

from commands import run
from reconform import ConformalDetector, ReconformError
from reconform.models import load, save
from reconform.stream import WindowStream
from reconform.timeseries import Windows, fit
from reconform.updating import moved


def series(n, seed, name=None, start=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"hour": start + np.arange(n), "load": rng.normal(size=n).cumsum() / 9})
    frame["heat"] = rng.normal(size=n)
    return frame if name is None else frame.assign(machine=name)


def cut_up(rows, sizes):
    edges = np.r_[0, np.cumsum(sizes), len(rows)]
    return [rows.iloc[a:b] for a, b in zip(edges, edges[1:], strict=False) if a < b]


@pytest.mark.parametrize("sizes", [[200], [3] * 60, [1, 99, 7, 50]])
def test_windows_of_a_stream_are_those_of_the_file(sizes):
    rows = series(1_000, 0)
    rows.loc[900:930, "load"] += 3
    how = Windows("hour", length=10)
    cad = fit(rows[:800], how, random_state=0)
    found = cad.discover(rows[800:], units=how, false_alarms=2)
    stream = WindowStream(cad, false_alarms=10, per=100)
    told = [one for part in cut_up(rows[800:], sizes) for one in stream.update(part)]
    assert stream.waiting == 0
    assert len(told) == 20
    assert [one.window for one in told] == found.units.names.tolist()
    np.testing.assert_allclose([one.p_value for one in told], found.p_values)
    assert [one.flagged for one in told] == found.mask.tolist()
    assert stream.events == len(found.events)


def test_series_gaps_and_the_rows_that_wait():
    parts = [series(400, k, name) for k, name in enumerate("ab")]
    how = Windows("hour", "machine", length=10)
    cad = fit(pd.concat(part[:300] for part in parts), how, random_state=0)
    stream = WindowStream(cad, false_alarms=5)
    new = pd.concat([parts[0][300:325], parts[1][300:308]])
    told = stream.update(new.sample(frac=1, random_state=0))
    assert [(one.series, one.rows) for one in told] == [("a", 10), ("a", 10)]
    assert stream.waiting == 13
    assert not stream.update(parts[0][325:329])
    assert stream.waiting == 17
    told = stream.update(parts[1][350:352])  # a gap: what came before it is complete
    assert [(one.series, one.begin, one.rows) for one in told] == [("b", "300", 8)]
    assert [one.rows for one in stream.flush()] == [9, 2]
    assert stream.waiting == 0
    with pytest.raises(ReconformError, match="in the order of time"):
        stream.update(parts[0][310:312])
    with pytest.raises(ReconformError, match="series"):
        stream.update(parts[0][340:341].assign(machine="c"))
    with pytest.raises(ReconformError, match="fitted on windows"):
        WindowStream(
            ConformalDetector("knn", "split").fit(np.random.default_rng(0).normal(size=(50, 2)))
        )


def test_a_reference_of_windows_moves(tmp_path):
    rows, how = series(1_000, 1), Windows("hour", length=10)
    cad = fit(rows[:600], how, random_state=0)
    save(cad, tmp_path / "a.rcad")
    new = how.rows(rows[600:800], cad.state_.units)
    for one in (cad, load(tmp_path / "a.rcad")):
        later = moved(one, new, 70, real=[new.names[3]])
        update = later.state_.updates[-1]
        assert (update.normal, update.left_out, update.forgotten, update.reference) == (
            19,
            1,
            9,
            70,
        )
        expected = np.vstack([how.rows(rows[:600]).features, np.delete(new.features, 3, axis=0)])
        np.testing.assert_allclose(later.state_.rows, expected[9:])
        assert later.state_.units.span[0].tolist() == [0, 799]
        judged = later.discover(rows[800:], units=how)  # by forecasts from the rows before them
        again = how.rows(rows[600:], cad.state_.units).features[20:]
        np.testing.assert_allclose(judged.units.features, again)
        with pytest.raises(ReconformError, match="time of the reference"):
            later.discover(rows[700:800], units=how)
    plain = ConformalDetector("knn").fit(rows[["load", "heat"]], units=np.repeat(range(100), 10))
    with pytest.raises(ReconformError, match="moves"):
        moved(plain, new, 50)


def test_the_command_decides_about_windows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = series(1_000, 0, "pump")
    rows.loc[900:930, "load"] += 3
    rows[:800].to_csv("old.csv", index=False)
    run("fit old.csv --time hour --series machine --window 10 --model m.rcad")
    lines = "".join(json.dumps(row) + "\n" for row in rows[800:].to_dict("records"))
    told = run("stream m.rcad --false-alarms 10", input=lines)
    windows = [json.loads(line) for line in told.stdout.splitlines()]
    expected = WindowStream(load("m.rcad"), false_alarms=10).update(rows[800:])
    assert [one["p_value"] for one in windows] == [one.p_value for one in expected]
    assert [one["anomaly"] for one in windows] == [one.flagged for one in expected]
    assert any(one.get("columns") == ["load"] for one in windows)
    assert "200 rows in 20 windows decided" in told.stderr
    assert "not a JSON object" in run("stream m.rcad", input="oops\n", code=1).stderr
    assert "--journal" in run("stream m.rcad --journal j", input="", code=2).stderr
