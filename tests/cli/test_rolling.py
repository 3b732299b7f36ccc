"""`check --keep`: a reference that moves with time, by rows and by windows."""

import json

import numpy as np
import pandas as pd
import pytest

from commands import run
from reconform.models import load


def check(options, code=0):
    """What a check says of the reference that it moved."""
    line = run(f"check m.rcad new.csv --fail-on broken {options}", code=code).stdout
    return json.loads(line)["moved"]


def day(number, n=60, shift=0.0):
    rng = np.random.default_rng(number)
    frame = pd.DataFrame(rng.normal(size=(n, 2)) + shift, columns=["x", "y"])
    return frame.assign(id=[f"{number}-{k}" for k in range(n)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("detector", ["knn", "auto"])
def test_rows_join_and_the_oldest_leave(folder, detector):
    day(0, 200).to_csv("old.csv", index=False)
    run(f"fit old.csv --id id --detector {detector} --model m.rcad")
    new = day(1)
    new.loc[7, ["x", "y"]] = 9.0
    new.to_csv("new.csv", index=False)
    pd.DataFrame({"id": ["1-7"], "mark": ["real"]}).to_csv("marks.csv", index=False)
    moved = check("--keep 210 --marks marks.csv")
    assert {k: moved[k] for k in ("normal", "left_out", "forgotten", "reference")} == {
        "normal": 59, "left_out": 1, "forgotten": 49, "reference": 210
    }  # fmt: skip
    cad = load("m.rcad")
    expected = pd.concat([day(0, 200), new.drop(index=7)])[["x", "y"]].to_numpy()[49:]
    rows = np.asarray(cad.known_rows.rows if cad.state_.rows is None else cad.state_.rows)
    assert np.array_equal(np.sort(rows, axis=0), np.sort(expected, axis=0))
    assert check("--keep 210")["normal"] == 60
    line = {"command": "check", "calibration": moved["parent"], "assumption": {"findings": []}}
    seen = {"rows": 60, "columns": {"x": [-1.3, -0.7, 0.0, 0.7, 1.3]}}
    (folder / "log.jsonl").write_text(json.dumps({**line, "seen": seen}) + "\n")
    last = run("check m.rcad new.csv --before log.jsonl --fail-on broken").stdout
    assert json.loads(last)["since"]["runs"] == 1  # of the model that this one came from


def test_a_check_that_ends_with_4_moves_nothing(folder):
    day(0, 200).to_csv("old.csv", index=False)
    day(1, 200, shift=3.0).to_csv("new.csv", index=False)
    run("fit old.csv --id id --detector knn --model m.rcad")
    before = (folder / "m.rcad").read_bytes()
    assert check("--keep 100", code=4) is False
    assert (folder / "m.rcad").read_bytes() == before
    refused = run("check m.rcad new.csv --marks marks.csv", code=2)
    assert "--marks goes with --keep" in refused.stderr


def test_windows_join_by_their_names(folder):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"hour": np.arange(1_200), "load": rng.normal(size=1_200)})
    rows.loc[1_050:1_060, "load"] += 6
    rows[:1_000].to_csv("old.csv", index=False)
    rows[1_000:].to_csv("new.csv", index=False)
    run("fit old.csv --time hour --window 10 --model m.rcad")
    marks = pd.DataFrame({"id": ["1050", "1060"], "mark": ["real", "real"]})
    marks.to_csv("marks.csv", index=False)
    moved = check("--keep 100 --marks marks.csv")
    assert (moved["left_out"], moved["forgotten"]) == (2, 18)
    units = load("m.rcad").state_.units
    assert units.span[0].tolist() == [0, 1_199]
    assert np.array_equal(units.tail_times[0], np.arange(1_190.0, 1_200.0))
