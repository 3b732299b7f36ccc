"""Choose and compare: the ranking of a study, what it recommends, and files with labels."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student
from sklearn.svm import OneClassSVM

from commands import run, run_json
from reconform.detectors.registry import make_detector
from reconform.errors import ReferenceWarning
from reconform.files import TableOptions, normal_rows, read_labelled
from reconform.frames import label_code
from reconform.study import Protocol, Study
from reconform.study.ranked import CONFIDENCE, rank
from rows import read_reference

SMALL = Protocol(draws=3, test_sets=4)


def results(power, fdr=None):
    """The results of a study, from the power of each detector in each draw."""
    rows = [
        ("mine", detector, "full", j, 0.05 if fdr is None else fdr[detector][j], value)
        for detector, values in power.items()
        for j, value in enumerate(values)
    ]
    names = ("dataset", "detector", "method", "draw", "cfdr", "cpower")
    return {name: [row[k] for row in rows] for k, name in enumerate(names)}


def test_differences_are_taken_draw_by_draw(rng):
    hard = rng.uniform(0.2, 0.8, size=12)  # a draw that is hard is hard for all
    near, far = hard - 0.001 * rng.normal(size=12), hard - 0.1 + 0.01 * rng.normal(size=12)
    power = {"near": near, "best": hard + 0.002, "far": far}
    ranking = rank(results(power), fdr=0.1)
    assert [row.detector for row in ranking] == ["best", "near", "far"]
    assert ranking.best is ranking[0]
    for row in ranking[1:]:
        behind = power["best"] - power[row.detector]
        assert row.behind.mean == pytest.approx(behind.mean())
        assert row.behind.standard_error == pytest.approx(behind.std(ddof=1) / np.sqrt(12))
        limit = student.ppf(1 - (1 - CONFIDENCE) / 6, 11) * row.behind.standard_error
        assert row.worse == (behind.mean() > limit)
    # By their spreads alone, 0.1 behind could not be told from nothing.
    assert ranking[2].worse
    assert ranking[2].power.standard_error > 0.04
    near = [row.detector for row in ranking[1:] if not row.worse]
    assert [row.detector for row in ranking.equals] == near
    advice = ranking.recommendation
    assert "Recommended: best with full, which found" in advice
    assert ("cannot be told apart from near with full" in advice) == bool(near)


def test_power_that_is_bought_with_false_alarms_is_ranked_last():
    draws = np.arange(8) / 1000
    power = {"greedy": 0.9 + draws, "honest": 0.5 + draws}
    fdr = {"greedy": 0.3 + draws, "honest": 0.1 + draws}
    ranking = rank(results(power, fdr), fdr=0.2)
    rows = [(row.detector, row.violation, row.worse) for row in ranking]
    assert rows == [("honest", False, False), ("greedy", True, True)]
    assert "†" in str(ranking)
    assert rank(results(power, fdr), fdr=0.05).best is None


def test_one_draw_tells_nothing_apart():
    ranking = rank(results({"a": [0.9], "b": [0.1]}), fdr=0.1)
    assert not ranking[1].worse
    assert "One draw has no standard error" in str(ranking)


def test_what_did_not_run_everywhere_is_not_ranked():
    table = results({"a": [0.5, 0.6], "b": [0.5, 0.7]})
    for name, values in table.items():
        more = {"dataset": "other", "detector": "a", "method": "full", "draw": 0}
        values.append(more.get(name, 0.5))
        values.append({**more, "draw": 1}.get(name, 0.5))
    ranking = rank(table, fdr=0.1)
    assert [row.detector for row in ranking] == ["a"]
    assert ranking.partial == (("b", "full"),)
    assert "b with full" in str(ranking)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = np.vstack([rng.normal(size=(160, 3)), rng.normal(4, 1, size=(20, 3))])
    return "mine", X, np.repeat([0, 1], [160, 20])


def test_auto_is_there_by_default(data):
    study = Study([data], protocol=Protocol(draws=2, test_sets=2)).run()
    found = {(row.detector, row.method) for row in study.ranking()}
    assert {("auto", "auto"), ("auto", "split"), ("knn", "cv+"), ("kde", "jab+")} <= found
    assert len(found) == 26  # 7 detectors with 4 methods, but auto with cv+ and jab+
    assert {key[1:] for key in study.left_out_} == {("auto", "cv+"), ("auto", "jab+")}


def test_what_was_asked_for_and_cannot_be_is_said(data, tmp_path):
    study = Study([data], ["auto", "knn"], ["cv+"], SMALL)
    with pytest.warns(ReferenceWarning, match=r"auto is left out with cv\+: .*`method='full'`"):
        study.run(tmp_path)
    assert [row.detector for row in study.ranking()] == ["knn"]
    with pytest.raises(ValueError, match="compares new rows with each other"):
        Study([data], ["auto"], ["cv+"], SMALL).run(tmp_path / "nothing")


def test_a_detector_that_looks_at_the_batch_may_be_fitted_on_it(data):
    pytest.importorskip("pyod", reason="PyOD is optional: reconform[pyod]")
    study = Study([data], [("pyod:ECOD", make_detector("pyod:ECOD"))], ["batch", "split"], SMALL)
    with pytest.warns(ReferenceWarning, match="pyod:ECOD is left out with split"):
        study.run()
    assert [row.method for row in study.ranking()] == ["batch"]


def test_auto_is_not_run_twice_and_is_what_it_stands_for(data):
    study = Study([data], [OneClassSVM(), "knn"], ["auto", "full", "cv+"], SMALL).run()
    found = [(row.detector, row.method) for row in study.ranking()]
    assert ("OneClassSVM", "cv+") not in found
    assert ("knn", "full") not in found
    assert len(found) == 4
    alone = Study([data], ["knn"], ["full"], SMALL).run().ranking()[0]
    [same] = [row for row in study.ranking() if (row.detector, row.method) == ("knn", "auto")]
    assert same.power == alone.power


def test_nothing_is_recommended_where_nothing_is_found(rng):
    X = rng.normal(size=(60, 2))
    study = Study([("noise", X, np.arange(60) % 6 == 0)], ["knn"], ["split"], SMALL).run()
    assert study.ranking().best is None
    assert "no anomaly was found" in str(study.ranking())


def test_a_frame_with_text_in_python(data):
    _, X, y = data
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(kind=np.resize(["x", "y"], len(X)))
    frame.loc[::9, "a"] = None
    study = Study([("mine", frame, y)], ["knn", "iforest"], ["cv+"], SMALL).run()
    assert {row.detector for row in study.ranking()} == {"knn", "iforest"}


@pytest.fixture
def here(tmp_path, monkeypatch, data):
    _, X, y = data
    frame = pd.DataFrame(X.round(3), columns=["flow", "heat, out", "load"])
    frame = frame.assign(kind=np.resize(["a", "b"], 180), note="none", broken=y == 1)
    frame.insert(0, "pump no", [f"P{i:03d}" for i in range(180)])
    frame.loc[::11, "flow"] = np.nan
    frame.loc[y == 1, "kind"] = "odd"
    monkeypatch.chdir(tmp_path)
    frame.to_csv("pumps.csv", index=False, sep=";", decimal=",")
    new = frame.sample(60, random_state=0).drop(columns="broken")
    new.to_csv("new.csv", index=False, sep=";", decimal=",")
    return tmp_path


def test_only_normal_rows_are_the_reference(tmp_path):
    path = tmp_path / "pumps.csv"
    path.write_text("id,x,kind,bad\nA,1,u,0\nB,2,w,0\nC,9,v,1\nD,3,,0\n")
    table, anomalous = read_labelled(path, "bad", TableOptions(id_columns=["id"]))
    assert (anomalous.tolist(), table.names) == ([False, False, True, False], ("x", "kind"))
    normal = normal_rows(table, anomalous)
    assert normal.features[1].labels == ("u", "w")  # only the anomaly has "v"
    codes = [label_code("u"), label_code("w"), np.nan]
    np.testing.assert_array_equal(normal.X, np.column_stack([[1, 2, 3], codes]))
    assert normal.ids["id"].to_pylist() == ["A", "B", "D"]
    Path(tmp_path, "normal.csv").write_text("id,x,kind\nA,1,u\nB,2,w\nD,3,\n")
    plain = read_labelled(path, "bad", TableOptions(id_columns=["id"]))[0]
    assert plain.fingerprint != normal.fingerprint
    alone = read_reference(tmp_path / "normal.csv", id_columns=["id"])
    assert alone.fingerprint == normal.fingerprint


def test_fit_takes_the_normal_rows(here):
    layout = ["--delimiter", ";", "--decimal", ",", "--id", "pump no", "--drop", "note,kind,flow"]
    quick = ["--detector", "knn", "--method", "split"]
    facts = run_json("fit", "pumps.csv", "--label", "broken", *layout, *quick, "--model", "p.rcad")
    assert facts["reference"]["rows"] == 160
    assert "broken" not in facts["reference"]["features"]
    told = run("fit", "pumps.csv", "--label", "load", *layout, *quick, "--model", "q.rcad", code=1)
    assert "labels must be 0 or false" in told.stderr
    assert not Path("q.rcad").exists()
