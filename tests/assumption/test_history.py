"""Every day: as it was in the last runs, or something broke today."""

import json

import numpy as np
import pandas as pd
import pytest

from commands import run
from reconform.assumption.history import change_since, earlier_run, seen_in

DRIFT = ["shift"]


def exits(seed, *, drift=0.05, size=1.5, rho=0.0, days=30, broke=20):
    """On which days a drifting process would end with exit code 4, all of them broken."""
    rng, runs, found = np.random.default_rng(seed), [], []
    for day in range(days):
        X = rng.normal(size=(400, 4))
        for i in range(1, 400 if rho else 1):
            X[i] = rho * X[i - 1] + np.sqrt(1 - rho**2) * X[i]
        X[:, 0] += drift * (day + 10)
        X[:, 1] += size * (day >= broke)
        seen = seen_in(X, list("abcd"), 400)
        found.append(not change_since(seen, DRIFT, runs).as_before)
        runs.append({"seen": seen, "broken": DRIFT})
    return found


@pytest.mark.parametrize("how", [{}, {"drift": 0.2}, {"rho": 0.8, "size": 2.0}])
def test_a_month_of_a_drifting_process(how):
    """In 50 months each (`benchmarks/order.py days`) no third false exit, and breaks found."""
    months = [exits(seed, **how) for seed in range(10)]
    assert all(sum(month[:20]) <= 2 for month in months)
    assert sum(any(month[20:22]) for month in months) >= 9


def day(x, rows=400):
    return {"rows": rows, "columns": {"x": [x - 1.28, x - 0.67, x, x + 0.67, x + 1.28]}}


def run_of(x, *broken):
    return {"seen": day(x), "broken": list(broken)}


def test_what_is_news():
    assert not change_since(day(3.0), DRIFT, []).as_before  # the first run
    assert not change_since(day(3.0), DRIFT, [run_of(3.0), run_of(3.0)]).as_before
    runs = [run_of(3.0, "shift"), run_of(3.1, "shift")]
    assert change_since(day(3.2), DRIFT, runs).as_before
    labels = change_since(day(3.2), ["shift", "labels"], runs)
    assert not labels.as_before
    assert "labels for the first time" in labels.sentence
    wider = {"rows": 400, "columns": {"x": [0.0, 1.4, 3.2, 5.0, 6.4]}}
    assert not change_since(wider, DRIFT, runs).as_before
    stuck = {"rows": 400, "columns": {"x": [3.0] * 5}}
    assert change_since(stuck, DRIFT, [{"seen": stuck, "broken": DRIFT}] * 3).as_before
    assert change_since({"rows": 5, "columns": {}}, DRIFT, runs).as_before  # nothing to compare


@pytest.mark.parametrize(
    "line",
    [
        None,
        [],
        {"calibration": "other"},
        {"calibration": "c", "exit": 1, "error": "no file"},
        {"calibration": "c", "seen": 3, "assumption": {}},
        {"calibration": "c", "seen": {"rows": 0, "columns": {}}, "assumption": {"findings": []}},
        {"calibration": "c", "seen": {"rows": 9, "columns": 3}, "assumption": {"findings": []}},
    ],
)
def test_lines_that_say_nothing_are_passed_over(line):
    assert earlier_run(line, {"c"}) is None


def test_damaged_numbers_are_left_out():
    columns = {"x": [1, 2, 3, 4, float("nan")], "y": [1, 2], "z": [1, 2, 3, 4, 5]}
    line = {"calibration": "c", "seen": {"rows": 9, "columns": columns}}
    line["assumption"] = {"findings": [{"level": "broken", "check": "shift"}, "?"]}
    found = earlier_run(line, {"c"})
    assert (list(found["seen"]["columns"]), found["broken"]) == (["z"], ["shift"])


def test_missing_values_and_few_rows():
    X = np.array([[np.nan, 1.0], [np.nan, np.inf]])
    assert seen_in(X, ["a", "b"], 2)["columns"] == {"b": [1.0] * 5}
    assert seen_in(None, (), 7) == {"rows": 7, "columns": {}}


def test_the_command_ends_with_4_only_if_something_changed(here, rng):

    def check(moved, code):
        X = rng.normal(size=(300, 3))
        X[:, 0] += moved
        pd.DataFrame(X, columns=["a", "b", "c"]).to_csv("new.csv", index=False)
        result = run("check m.rcad new.csv --before log.jsonl --fail-on broken", code=code)
        with open("log.jsonl", "a", encoding="utf-8") as log:
            log.write(result.stdout)
        return json.loads(result.stdout)

    pd.DataFrame(rng.normal(size=(500, 3)), columns=["a", "b", "c"]).to_csv("n.csv", index=False)
    run("fit n.csv --detector knn --method split --model m.rcad")
    check(0.0, 0)
    assert check(1.0, 4)["since"]["runs"] == 1  # the first day that is broken
    for moved in (1.02, 1.04, 1.06):
        found = check(moved, 0)
        assert found["assumption"]["verdict"] == "broken"
        assert found["since"]["as_before"]
    assert "'a' moved" in check(2.5, 4)["since"]["sentence"]
    check(2.52, 0)
    with open("log.jsonl", "w", encoding="utf-8") as log:
        log.write("something else\n")
    result = run("check m.rcad new.csv --before log.jsonl", code=1)
    assert "no lines of reconform check" in result.stderr
