"""The order of rows: an exact test, and what becomes of what it finds."""

import itertools
import json

import numpy as np
import pandas as pd
import pytest

from commands import run
from reconform import ConformalDetector, load, save
from reconform.assumption import order
from reconform.assumption.order import Order, Runs, in_runs, order_of, season_of, seconds_of
from reconform.stream import FalseAlarmBudget
from refusals import refused

HOURS = 1.7e9 + 3_600 * np.arange(336.0)


def ar(rng, n, d=2, rho=0.8):
    """A stationary autoregression in every column."""
    X = rng.normal(size=(n, d))
    for i in range(1, n):
        X[i] = rho * X[i - 1] + np.sqrt(1 - rho**2) * X[i]
    return X


def bursts(rng):
    X = rng.normal(size=(400, 3))
    start = rng.integers(0, 320)
    X[start : start + 80] += 4
    return X


EXCHANGEABLE = {
    "plain": lambda rng: rng.normal(size=(400, 4)),
    "ties": lambda rng: rng.integers(0, 3, size=(400, 3)).astype(float),
    "copies": lambda rng: rng.normal(size=(20, 4))[rng.integers(0, 20, 400)],
    "20% anomalies": lambda rng: np.where(rng.random((400, 1)) < 0.2, 5.0, 0) + rng.normal(size=3),
    "missing": lambda rng: np.where(rng.random((300, 3)) < 0.3, np.nan, rng.normal(size=(300, 3))),
    "bursts": bursts,
    "wide": lambda rng: rng.normal(size=(60, 200)),
}


@pytest.mark.parametrize("kind", EXCHANGEABLE)
def test_exchangeable_rows_are_seldom_called_alike(kind):
    """At 1/400, 250 repetitions: a right program fails one of these in 1 of 8,000 runs."""
    rng = np.random.default_rng(1)
    wrong = sum(order_of(EXCHANGEABLE[kind](rng), halve=True).alike for _ in range(250))
    assert wrong <= 5


def test_the_level_is_exact():
    """All orders of a few rows: the largest of k + 1 exchangeable numbers, ties against it."""
    X = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 3.0], [5.0, 3.0], [5.0, 3.0]])
    Z = order._ranked(X, np.zeros(5, dtype=np.intp))
    orders = np.array(list(itertools.permutations(range(5))))
    seen = order._likeness(Z, orders).max(axis=1)
    largest = sum(int((seen >= one - 1e-9).sum()) <= 1 for one in seen)
    assert largest <= 120 / 120
    for share in (1, 6, 12, 60):  # P(as large in at most `share` of 120 orders) <= share / 120
        assert sum((seen >= one - 1e-9).sum() <= share for one in seen) <= share


@pytest.mark.parametrize("d", [1, 4, 40])
def test_dependent_rows_are_noticed(d):
    """AR(1) with ρ = 0.5 at n = 400, and a daily season; ten standard deviations from chance."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        assert order_of(ar(rng, 400, d, 0.5)).alike
        season = np.sin(2 * np.pi * np.arange(336) / 24)[:, None] + rng.normal(size=(336, d))
        assert order_of(season).alike
    found = order_of(ar(rng, 400, 3, 0.9))
    assert found.correlation > 0.7
    assert 0 <= found.column < 3


def test_series_are_compared_within_themselves():
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 5, 500)
    apart = 10.0 * codes[:, None] + rng.normal(size=(500, 2))
    by_customer = np.argsort(codes, kind="stable")
    assert order_of(apart[by_customer]).alike
    assert not order_of(apart[by_customer], groups=codes[by_customer]).alike
    turns = np.stack([ar(rng, 25, 2, 0.9) for _ in range(20)], axis=1).reshape(-1, 2)
    assert order_of(turns, groups=np.tile(np.arange(20), 25)).alike
    ten = order_of(np.stack([ar(rng, 40, 2, 0.9) for _ in range(10)], axis=1).reshape(-1, 2))
    assert (ten.alike, ten.lag, ten.series) == (True, 10, -1)
    which, rows = rng.integers(0, 8, 480), np.empty((480, 2))  # in no order: a column tells them
    for one in range(8):
        rows[which == one] = ar(rng, int((which == one).sum()), 2, 0.9)
    assert order_of(np.column_stack([rows, which])).series == 2


def test_time_says_what_comes_first():
    rng = np.random.default_rng(4)
    X, shuffled = ar(rng, 400), rng.permutation(400)
    assert not order_of(X[shuffled]).alike
    found = order_of(X[shuffled], times=shuffled.astype(float))
    assert found.alike
    assert found.timed


@pytest.mark.parametrize(
    "X",
    [
        *(np.full((400, 2), value) for value in (1, np.nan)),
        *(np.zeros((n, 2)) for n in (5, 0)),
        np.empty((50, 0)),
        np.r_[np.zeros(399), 1.0][:, None],
    ],
)
def test_rows_that_say_nothing_are_not_called_alike(X):
    for halve in (False, True):
        assert not order_of(X, halve=halve, groups=np.arange(len(X)) // 2).alike
        assert not order_of(X, halve=halve).alike


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 512, 513, 1_000, 70_000])
@pytest.mark.parametrize("part", [1, 50, 4_096])
def test_rows_in_parts_are_those_of_memory(rows, part):
    if part == 1 and rows > 1_000:
        return
    runs = Runs()
    for start in range(0, rows, part):
        runs.add(np.arange(start, min(rows, start + part)))
    assert (runs.positions == in_runs(rows)).all()
    assert not rows or (runs.rows == in_runs(rows)).all()
    assert len(in_runs(rows)) <= 512


def test_the_calendar():
    rng = np.random.default_rng(5)
    night = np.where(HOURS / 3_600 % 24 < 8, 2.0, 0.0)
    assert season_of(rng.normal(size=336) + night, HOURS) == "hour of the day"
    weekend = np.where(HOURS // 86_400 % 7 < 2, 3.0, 0.0)
    assert season_of(rng.normal(size=336) + weekend, HOURS, halve=False) == "day of the week"
    assert season_of(rng.normal(size=336), HOURS) == ""
    assert season_of(rng.normal(size=336) + night, np.arange(336.0)) == ""  # no calendar
    assert season_of(np.ones(336), HOURS) == ""


@pytest.mark.parametrize(
    "times",
    [
        ["2024-05-31 13:45:00", "2024-06-01 00:00:00"],
        ["2024-05-31T13:45:00Z", "2024-06-01T00:00:00Z"],
        ["31.05.2024 13:45", "01.06.2024 00:00"],
        ["05/31/2024 13:45:00", "06/01/2024 00:00:00"],
        np.array(["2024-05-31T13:45", "2024-06-01"], dtype="datetime64[m]"),
        pd.to_datetime(["2024-05-31 13:45", "2024-06-01 00:00"]),
        pd.to_datetime(["2024-05-31 15:45+02:00", "2024-06-01 02:00+02:00"]),
        [1717163100, 1717200000],
        ["1717163100", "1717200000.0"],
    ],
)
def test_times_are_read_however_they_are_written(times):
    assert seconds_of(times, 2).tolist() == [1717163100.0, 1717200000.0]


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (["yesterday", "2024-06-01"], "cannot all be read as times"),
        (["2024-06-01", None], "1 rows have no time, the first is row 2"),
        ([1.0, np.inf], "have no time"),
        ([True, False], "must be dates, times or numbers"),
        ([1, 2, 3], "one time per row: 2 rows, 3 times"),
    ],
)
def test_what_is_no_time_gets_a_sentence(times, sentence):
    refused(sentence, seconds_of, times, 2)


def test_a_question_without_a_time_and_no_promise_with_one(tmp_path):
    rng = np.random.default_rng(6)
    X, T = ar(rng, 600, 3, 0.7), ar(rng, 200, 3, 0.7)
    found = ConformalDetector("knn", "split", random_state=0).fit(X).discover(T)
    asked = [one for one in found.verdict.findings if one.check == "order"]
    assert [one.level for one in asked] == ["doubtful"]
    assert asked[0].sentence.startswith(order.QUESTION)
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, times=range(600))
    for model in (cad, _saved(cad, tmp_path)):
        timed = model.discover(T, times=range(600, 800))
        assert timed.verdict.word == "broken"
        assert timed.guarantee.startswith("No promise")
        assert (timed.p_values == found.p_values).all()  # only what is said of them changes
        with pytest.warns(UserWarning, match="alike"):
            assert FalseAlarmBudget(model, 1, 10).guarantee.startswith("No promise")
    index = pd.date_range("2024-01-01", periods=600, freq="h")
    frame = pd.DataFrame(X, columns=["a", "b", "c"], index=index)
    assert ConformalDetector("knn", "split", random_state=0).fit(frame).state_.order.timed


def _saved(cad, folder):
    save(cad, folder / "model.rcad")
    return load(folder / "model.rcad")


def test_sorted_rows_are_doubtful_and_never_broken():
    rng = np.random.default_rng(7)
    for _ in range(10):
        level = rng.normal(size=(60, 3))
        X = np.repeat(level[:40], 10, axis=0) + 0.5 * rng.normal(size=(400, 3))
        T = np.repeat(level[40:], 10, axis=0) + 0.5 * rng.normal(size=(200, 3))
        findings = ConformalDetector("knn", "split", random_state=0).fit(X).discover(T).verdict
        levels = [one.level for one in findings.findings if one.check == "order"]
        assert levels == ["doubtful"]


def findings_of(line):
    facts = json.loads(run(line).stdout)
    return {one["check"]: one for one in facts["assumption"]["findings"]}


def test_files_with_and_without_a_time(here):
    rng = np.random.default_rng(8)
    X = ar(rng, 900, 3, 0.7)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["when"] = pd.date_range("2024-01-01", periods=900, freq="min").strftime("%d.%m.%Y %H:%M")
    frame[:600].to_csv("ref.csv", index=False)
    frame[600:].to_csv("new.csv", index=False)
    frame[600:].sample(frac=1, random_state=0).to_csv("shuffled.csv", index=False)
    frame[600:].assign(when="soon").to_csv("bad.csv", index=False)
    knn = "--detector knn --method split --json"
    asked = findings_of(f"detect ref.csv new.csv --drop when {knn}")["order"]
    assert asked["level"] == "doubtful"
    again = asked["advice"].split("`")[1]
    assert again.startswith("reconform detect ref.csv new.csv")
    again = again.removeprefix("reconform ") + " --window 1 --json"
    assert findings_of(again)["order"]["level"] == "broken"
    for how in ("--time when", "--time when --id when", "--time rows --drop when", ""):
        how = f"{how} --window 1" if how else "--id when"
        assert findings_of(f"detect ref.csv new.csv {how} {knn}")["order"]["level"] == "broken"
    windows = findings_of(f"detect ref.csv new.csv --id when {knn}")["order"]["advice"].split("`")[
        1
    ]
    assert windows.endswith("--time when --window 10")
    said = run(windows.removeprefix("reconform ")).stdout.splitlines()
    assert "of 30 windows flagged" in said[0], said
    assert findings_of(f"detect ref.csv shuffled.csv --time when --window 1 {knn}")["order"]
    numbered = frame.assign(when=range(900))
    numbered[:600].to_csv("ref2.csv", index=False)
    numbered[600:].to_csv("new2.csv", index=False)
    # a number is no time
    for how, level in (("--time when --window 1", "broken"), ("--id when", "doubtful")):
        assert findings_of(f"detect ref2.csv new2.csv {how} {knn}")["order"]["level"] == level
    assert "'when'" in run(f"detect ref.csv bad.csv --time when --window 1 {knn}", code=1).stderr
    assert "'then'" in run(f"detect ref.csv new.csv --time then --drop when {knn}", code=1).stderr
    run("fit ref.csv --time when --window 1 --detector knn --method split --model plant.rcad")
    assert findings_of("score plant.rcad new.csv --json")["order"]["level"] == "broken"
    assert "--time when" in run("inspect plant.rcad").stdout


def test_nothing_is_said_of_a_model_that_was_never_tested():
    assert not Order().alike
