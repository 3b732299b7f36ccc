"""Units: whole runs, days or patients as rows of features; exact whatever happens within them."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from commands import run
from reconform import ConformalDetector, load, save
from reconform.errors import ReconformError
from reconform.tables import Feature
from reconform.units import UnitFeatures, codes_of_units, unit_rows
from refusals import refused


def runs(rng, count, first=0, bad=()):
    """Runs of 1 to 30 rows that depend on each other; bad ones have one row that is far off."""
    parts = []
    for one in range(first, first + count):
        size = int(rng.integers(1, 31))
        a = rng.normal() + 0.1 * np.cumsum(rng.normal(size=size))
        part = pd.DataFrame({"a": a, "b": rng.normal(size=size)})
        part["state"] = rng.choice(["on", "off"], size)
        if one in bad:
            part.loc[size - 1, "b"] += 15
        parts.append(part.assign(run=f"r{one}", kind=f"k{one % 2}"))
    return pd.concat(parts, ignore_index=True)


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    return runs(rng, 300), runs(rng, 80, 1_000, bad=range(1_010, 1_020))


def knn():
    return ConformalDetector("knn", "split", random_state=0)


def slow_features(X, names, columns):
    """One row per unit, by pandas, of columns of numbers and labels."""
    made = {}
    for name in dict.fromkeys(names):
        rows = X[np.asarray(names) == name]
        row = [len(rows)]
        for column, labels in columns.items():
            cells = rows[column].dropna()
            if labels is None:
                row += [cells.mean(), cells.std(ddof=0), cells.min(), cells.max()]
            else:
                row += [(cells == label).sum() for label in labels]
                row += [(~cells.isin(labels)).sum()]
            row += [rows[column].isna().sum()] if X[column].isna().any() else []
        made[name] = row
    return np.array(list(made.values()), dtype=float)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_features_are_those_of_pandas(missing):
    rng = np.random.default_rng(1)
    frame = runs(rng, 40)
    for column in ("a", "b", "state"):
        frame[column] = frame[column].mask(rng.random(len(frame)) < missing)
    X = frame[["a", "b", "state"]]
    rows = unit_rows(X, frame["run"].tolist())
    slow = slow_features(X, frame["run"], {"a": None, "b": None, "state": ["off", "on"]})
    assert np.allclose(rows.features, slow, equal_nan=True)
    assert rows.features.shape[1] == len(rows.units.names)
    mixed = rng.permutation(len(frame))
    again = unit_rows(X.iloc[mixed], frame["run"].iloc[mixed].tolist(), rows.units)
    by_name = dict(zip(again.names, again.features, strict=True))
    for name, row in zip(rows.names, rows.features, strict=True):
        assert np.array_equal(by_name[name], row, equal_nan=True)  # to the last bit


def test_many_labels_are_counted_together():
    labels = [f"l{k:02d}" for k in range(30) for _ in range(30 - k)]
    rows = unit_rows(pd.DataFrame({"x": labels}), ["u"] * len(labels))
    assert len(rows.units.columns[0].labels) == 20
    assert rows.features[0, -1] == sum(30 - k for k in range(20, 30))


@pytest.mark.parametrize("detector", ["knn", "iforest"])
def test_the_level_is_exact_for_units_of_equal_rows(detector):
    """Every unit is the new one once: P(p <= k/7) is k/7 at most, by counting."""
    rng = np.random.default_rng(2)
    sizes, values = rng.integers(1, 6, 7), rng.integers(0, 4, (7, 2)).astype(float)
    names = np.repeat([f"u{k}" for k in range(7)], sizes)
    X = np.repeat(values, sizes, axis=0)  # rows within a unit depend on each other fully
    p_values = []
    for new in range(7):
        mine = names == f"u{new}"
        cad = ConformalDetector(detector, "full", random_state=0)
        cad.fit(X[~mine], units=names[~mine])
        found = cad.discover(X[mine], units=names[mine], validity="nominal")
        p_values.append(Fraction(found.p_values[0]).limit_denominator(7))
    for k in range(1, 8):
        assert sum(p <= Fraction(k, 7) for p in p_values) <= k


def test_units_are_judged_as_rows_are(tables, tmp_path):
    reference, new = (one.drop(columns="kind") for one in tables)
    cad = knn().fit(reference, units="run")
    found = cad.discover(new, units="run")
    assert len(found) == 80
    flagged = [name for name, bad in zip(found.index, found.mask, strict=True) if bad]
    assert {f"r{k}" for k in range(1_010, 1_020)} <= set(flagged)
    assert found.to_frame().index[0] in flagged
    rows = unit_rows(reference, "run")
    plain = knn().fit(rows.frame).discover(cad.units_in(new, "run").frame)
    assert (plain.p_values == found.p_values).all()
    for name in flagged[:3]:
        first = found.units.within(name)[0]
        assert new["run"][first["row"]] == name
        assert first["value"] == new[first["column"]][first["row"]]
    save(cad, tmp_path / "units.rcad")
    again = load(tmp_path / "units.rcad")
    assert (again.discover(new, units="run").p_values == found.p_values).all()
    refused("'r0'", again.discover, pd.concat([new, reference[:2]]), units="run")


def test_groups_and_times_are_those_of_units(tables):
    reference, new = tables
    X, T = reference.drop(columns="kind"), new.drop(columns="kind")
    cad = knn().fit(X, units="run", groups=reference["kind"], times=np.arange(len(X)))
    found = cad.discover(T, units="run", groups=new["kind"], times=np.arange(len(T)))
    assert [group.rows for group in found.groups] == [40, 40]
    assert cad.state_.order.timed
    refused("several `groups`", knn().fit, X, units="run", groups=np.arange(len(X)))
    hours = 1.7e9 + 3_600 * np.arange(len(X))  # the flow of time cut into days
    days = knn().fit(X.drop(columns="run"), units="day", times=hours)
    said = days.discover(T.drop(columns="run"), units="day", times=hours[: len(T)] + 9e8).headline
    assert "units flagged" in said


@pytest.mark.parametrize(
    ("units", "sentence"),
    [
        (["a", None, "b"], "1 rows have no unit, the first is row 2"),
        ([1.0, np.nan, 2.0], "1 rows have no unit"),
        (["a", "", "b"], "have no unit"),
        (["a", "b"], "one name per row: 3 rows, 2 names"),
        ("run", "names a column 'run' that X does not have"),
        (["a", "a", "a"], "at least 2 units"),
    ],
)
def test_what_is_no_unit_gets_a_sentence(units, sentence):
    refused(sentence, knn().fit, np.eye(3), units=units)


def test_names_are_one_however_a_table_was_read():
    for same in ([3, 3, 1], [3.0, 3.0, 1.0], [*"331"], pa.chunked_array([["3"], ["3", "1"]])):
        codes, names = codes_of_units(same, 3)
        assert (codes.tolist(), names.tolist()) == ([0, 0, 1], ["3", "1"])


def test_refusals(tables):
    reference, new = (one.drop(columns="kind") for one in tables)
    cad = knn().fit(reference, units="run")
    with pytest.raises(ReconformError, match="leave `units` out"):
        knn().fit(reference[["a", "b"]]).discover(new[["a", "b"]], units=new["run"])
    with pytest.raises(ReconformError, match="lacks"):
        cad.discover(new)  # rows where units were fitted
    refused("text where the reference has numbers", cad.discover, new.assign(a="x"), units="run")
    refused("there is no unit 'none'", cad.discover(new, units="run").units.within, "none")
    refused("`anomalies` are rows", knn().fit, reference, units="run", anomalies=new)


def test_units_of_one_row_and_constant_columns():
    X = np.c_[np.arange(40.0) % 7, np.ones(40)]
    cad = knn().fit(X, units=np.arange(40))
    assert np.isfinite(cad.discover(X[:5], units=np.arange(100, 105)).p_values).all()
    few = UnitFeatures.of([Feature("0"), Feature("1")], X[:2], ["a", "b"])
    assert (few.features(X[:2], np.array([0, 1]), 2)[:, 2] == 0).all()  # one row has no spread


def test_files(tables, here):
    reference, new = tables
    for name, table in (("ref", reference), ("new", new)):
        start = 0 if name == "ref" else 300
        days = table["run"].factorize()[0] + start
        day = pd.Timestamp("2024-01-01") + pd.to_timedelta(days, unit="D")
        table.assign(when=day.strftime("%Y-%m-%d 06:00:00")).to_csv(f"{name}.csv", index=False)
    how = "--detector knn --method split --json"
    drop = "--drop kind,when"
    facts = json.loads(run(f"detect ref.csv new.csv --unit run {drop} {how}").stdout)
    X, T = reference.drop(columns="kind"), new.drop(columns="kind")
    found = knn().fit(X, units="run").discover(T, units="run")
    assert facts["flagged"] == found.count
    assert not any("never change" in one for one in facts["warnings"])  # rows, label = others
    with_dates = json.loads(run(f"detect ref.csv new.csv --unit run --drop kind {how}").stdout)
    assert with_dates["flagged"] == found.count
    top = facts["anomalies"][0]
    assert new["run"][top["rows"][0]["row"] - 1] == top["id"]["run"]
    daily = f"detect ref.csv new.csv --unit when:day --drop kind,run {how}"
    assert json.loads(run(daily).stdout)["flagged"] == found.count
    grouped = f"detect ref.csv new.csv --unit run --group kind --drop when {how}"
    assert [one["rows"] for one in json.loads(run(grouped).stdout)["groups"]] == [40, 40]
    run(f"fit ref.csv --unit run {drop} --detector knn --method split --model u.rcad")
    assert json.loads(run("check u.rcad new.csv", code=3).stdout)["flagged"] == found.count
    shown = run("score u.rcad new.csv --report u.html --explain r1012 --output out.csv").stdout
    assert "r1012" in shown
    assert pd.read_csv("out.csv")["anomaly"].sum() == found.count
    assert "Within r10" in run("score u.rcad new.csv").stdout
    assert "300 units are in the reference" in run("score u.rcad ref.csv", code=1).stderr
    assert "that is not there" in run("score u.rcad new.csv --unit nope", code=1).stderr
    new.assign(label=new["b"] > 10).to_csv("labelled.csv", index=False)
    by_label = "detect labelled.csv ref.csv --unit run --label label --drop kind"
    assert json.loads(run(f"{by_label} {how}").stdout)["n_reference"] == 70
