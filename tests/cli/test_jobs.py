"""Fourteen jobs that people come with (issue 16), each done as the README and --help say it.

On scikit-learn's data and, where RECONFORM_DATA names their folder, on the paper's eight data sets.
What a later issue completes is marked with its number.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.impute import SimpleImputer
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import OneClassSVM

from commands import run, run_json
from reconform import ConformalDetector, Prepare, ReferenceWarning, review
from reconform.cli import main
from reconform.study import PAPER_DATASETS, load

pytestmark = [
    pytest.mark.filterwarnings("ignore::reconform.ReferenceWarning"),
    pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning"),
]

QUICK = ["--detector", "knn", "--method", "full"]


@pytest.fixture(scope="module")
def tumours():
    """Last month (benign), and today (benign and 15 malignant), with names and times."""
    data = load_breast_cancer(as_frame=True)
    frame = data.data.iloc[:, :10].rename(columns=lambda name: name.replace(" ", "_"))
    frame.insert(0, "patient", [f"P{i:03d}" for i in range(len(frame))])
    benign, malignant = frame[data.target == 1], frame[data.target == 0]
    today = pd.concat([benign[250:], malignant[:15]]).sample(frac=1, random_state=0)
    return {"month": benign[:250], "today": today, "malignant": set(malignant["patient"])}


@pytest.fixture
def here(tumours, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("month", "today"):
        tumours[name].to_csv(f"{name}.csv", index=False)
    return tmp_path


def numbers(frame):
    return frame.drop(columns="patient")


# --- 1. today's file against last month's --------------------------------------------------------


def test_todays_file_against_last_months(here, tumours):
    told = run("detect", "month.csv", "today.csv", code=1).stderr
    assert "text in 1 column: 'patient'" in told
    assert "--id" in told  # the way out
    facts = run_json("detect", "month.csv", "today.csv", "--id", "patient", *QUICK, "--fdr", "0.2",
                     "--output", "flagged.csv", "--report", "report.html")  # fmt: skip
    flagged = pd.read_csv("flagged.csv").query("anomaly")
    assert len(flagged) == facts["flagged"] >= 5
    assert flagged["patient"].isin(tumours["malignant"]).mean() >= 0.7
    assert facts["assumption"]["verdict"] in ("holds", "doubtful")
    assert Path("report.html").read_text().startswith("<!doctype html>")


def test_there_is_always_something_to_look_at(here):
    strict = ["detect", "month.csv", "today.csv", "--id", "patient", *QUICK, "--fdr", "0.001"]
    facts = run_json(*strict)
    assert facts["flagged"] == 0
    assert "nothing can be flagged at 0.1%" in facts["why_nothing"]
    assert [row["anomaly"] for row in facts["top"]["rows"]] == [False] * 10
    said = run(*strict).stdout
    assert facts["top"]["rows"][0]["id"]["patient"] in said
    assert "The 10 rows that come first" in said


@pytest.mark.parametrize("name", PAPER_DATASETS)
def test_the_papers_data(name, data_folder):
    """A first look at each of the eight: some outliers are found, few normal rows are flagged."""
    data = load(name, data_folder)
    rng = np.random.default_rng(0)
    normal, odd = rng.permutation(data.normal)[:600], rng.permutation(data.outliers)[:30]
    n = len(normal) // 2
    rows = np.concatenate([normal[n:], odd])
    cad = ConformalDetector("knn", random_state=0).fit(data.X[normal[:n]])
    found = cad.discover(data.X[rows], fdr=0.2)
    anomalous = np.arange(len(rows)) >= len(normal) - n
    if found.count:
        assert (found.mask & ~anomalous).sum() <= max(2, 0.6 * found.count)
    else:
        assert found.why_nothing
    assert len(found.first(20).positions) == 20


# --- 2. is my reference clean? -------------------------------------------------------------------


def test_is_my_reference_clean(here, tumours):
    bad = numbers(tumours["today"][tumours["today"]["patient"].isin(tumours["malignant"])])[:4]
    dirty = pd.concat([numbers(tumours["month"]), bad])
    dirty.insert(0, "patient", [f"D{i:03d}" for i in range(len(dirty))])
    dirty.to_csv("dirty.csv", index=False)
    facts = run_json("clean", "dirty.csv", "--id", "patient", "--detector", "knn", "--show", "8",
                     "--output", "review.csv")  # fmt: skip
    assert len(facts["unusual"]) == 8
    review_file = pd.read_csv("review.csv")
    planted = review_file["patient"].isin([f"D{i:03d}" for i in range(250, 254)])
    assert planted.sum() >= 3
    review_file["anomaly"] = np.where(planted, "yes", "no")
    review_file.to_csv("review.csv", index=False)
    run("clean", "dirty.csv", "--marks", "review.csv", "--keep", "cleaned.csv", "--id", "patient")
    assert len(pd.read_csv("cleaned.csv")) == len(dirty) - planted.sum()
    cad = ConformalDetector("knn", "jackknife+").fit(dirty.drop(columns="patient"))
    assert set(review(cad).order[:8]) & set(range(250, 254))


# --- 3. explain a row ----------------------------------------------------------------------------


def test_explain_a_row(here, tumours):
    month, today = (tumours[name].set_index("patient") for name in ("month", "today"))
    found = ConformalDetector("knn", random_state=0).fit(month).discover(today, fdr=0.2)
    label = today.index[found.order[0]]
    told = found.explain(label)
    assert str(label) in told.headline
    assert {feature.name for feature in told.features} <= set(month.columns)
    assert "mean_area" in str(told)
    said = run("detect", "month.csv", "today.csv", "--id", "patient", *QUICK, "--fdr", "0.2",
               "--explain", label).stdout  # fmt: skip
    assert told.headline.split(":")[1].split(",")[0].strip() in said


# --- 4. a daily check ----------------------------------------------------------------------------


def test_a_daily_check(here):
    run("fit", "month.csv", "--id", "patient", *QUICK, "--fdr", "0.2", "--model", "plant.rcad")
    daily = ["check", "plant.rcad", "today.csv", "--only-anomalies", "--log", "checks.jsonl",
             "--output", "flagged-{date}.csv"]  # fmt: skip
    done = CliRunner().invoke(main, daily)
    assert done.exit_code == 3
    facts = json.loads(done.stdout)
    [line] = map(json.loads, Path("checks.jsonl").read_text().splitlines())
    assert line["flagged"] == facts["flagged"] > 0
    assert "patient" in pd.read_csv(facts["output"]).columns
    moved = pd.read_csv("today.csv")
    moved.iloc[:, 1:] = moved.iloc[:, 1:] * 3
    moved.to_csv("today.csv", index=False)
    assert CliRunner().invoke(main, [*daily, "--overwrite"]).exit_code == 4
    assert len(Path("checks.jsonl").read_text().splitlines()) == 2


# --- 5. LOF, ECOD, a pipeline, a function --------------------------------------------------------


def centre(X):
    middle, spread = np.median(X, axis=0), X.std(axis=0)
    return lambda rows: np.abs((rows - middle) / spread).sum(axis=1)


@pytest.mark.parametrize(
    ("detector", "given"),
    [
        ("lof", {}),
        (LocalOutlierFactor(novelty=True), {"method": "split"}),
        (make_pipeline(StandardScaler(), OneClassSVM()), {"method": "cv+"}),
        (centre, {"method": "cv+", "larger_is": "anomalous"}),
    ],
    ids=["lof", "LocalOutlierFactor", "pipeline", "function"],
)
def test_any_detector(tumours, detector, given):
    cad = ConformalDetector(detector, **given, random_state=0).fit(numbers(tumours["month"]))
    p = cad.p_values(numbers(tumours["today"]))
    bad = tumours["today"]["patient"].isin(tumours["malignant"])
    assert np.median(p[bad]) < 0.1 < np.median(p[~bad])


def test_ecod(tumours, here):
    pytest.importorskip("pyod", reason="PyOD is optional: reconform[pyod]")
    rows = ["--id", "patient", "--detector", "pyod:ECOD"]
    told = run("detect", "month.csv", "today.csv", *rows, code=1).stderr
    assert "--method full" in told  # the way out
    pd.read_csv("today.csv")[:12].to_csv("few.csv", index=False)
    facts = run_json("detect", "month.csv", "few.csv", *rows, "--method", "full", "--fdr", "0.3")
    assert facts["new"]["rows"] == 12


# --- 6. categories and missing values in Python --------------------------------------------------


def mixed(tumours, name):
    frame = numbers(tumours[name]).iloc[:, :4].copy()
    frame["ward"] = np.resize(["north", "south", "east"], len(frame))
    frame.iloc[::13, 1] = None
    return frame


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_categories_and_missing_values_in_python(tumours, library):
    month, today = mixed(tumours, "month"), mixed(tumours, "today")
    today.iloc[0, -1] = "west"  # a label that is new
    if library != "pandas":
        module = pytest.importorskip(library, reason=f"{library} is optional")
        make = module.from_pandas if library == "polars" else module.Table.from_pandas
        month, today = make(month), make(today)
    cad = ConformalDetector(Prepare("knn"), random_state=0).fit(month)
    found = cad.discover(today, fdr=0.2)
    assert type(found.to_frame()).__module__.split(".")[0] == library
    assert found.count > 0
    columns = ColumnTransformer([
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), list(month.columns[:4])
         if library != "pyarrow" else month.column_names[:4]),
        ("labels", OneHotEncoder(handle_unknown="ignore"), ["ward"]),
    ])  # fmt: skip
    svm = ConformalDetector(make_pipeline(columns, OneClassSVM()), method="split", random_state=0)
    assert len(svm.fit(month).p_values(today)) == len(today)


# --- 7. a notebook -------------------------------------------------------------------------------


def test_a_notebook(tumours):
    cad = ConformalDetector("knn", random_state=0).fit(numbers(tumours["month"]))
    found = cad.discover(numbers(tumours["today"]), fdr=0.2)
    shown = found._repr_html_()
    assert str(found.count) in shown
    assert "<table" in shown
    assert "<" in cad._repr_html_()
    assert f"{found.count} of {found.tested}" in str(found)


# --- 8. a stream ---------------------------------------------------------------------------------


def test_a_stream(tumours):
    from reconform.stream import ExchangeabilityMonitor, MicroBatches

    month, today = (numbers(tumours[name]).to_numpy() for name in ("month", "today"))
    cad = ConformalDetector("knn", method="split", random_state=0).fit(month)
    windows = MicroBatches(cad, rows=50, fdr=0.2)
    monitor = ExchangeabilityMonitor(cad)
    bad = tumours["today"]["patient"].isin(tumours["malignant"]).to_numpy()
    for part in np.array_split(today[~bad], 4):
        windows.update(part)
        monitor.update(part)
    assert not monitor.alarm
    windows.flush()
    windows.update(np.tile(today[bad], (2, 1)))
    assert any(window.mask.any() for window in windows.flush())
    for part in np.array_split(today * 2, 4):
        monitor.update(part)
    assert monitor.alarm


def test_a_stream_from_the_command_line(here, tumours):
    run("fit", "month.csv", "--id", "patient", "--detector", "knn", "--method", "split",
        "--model", "plant.rcad")  # fmt: skip
    given = ["stream", "plant.rcad", "--format", "csv", "--false-alarms", "1", "--per", "20"]
    done = CliRunner().invoke(main, given, input=Path("today.csv").read_text())
    assert done.exit_code == 0, done.stderr
    decisions = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(decisions) == len(tumours["today"])
    flagged = [one["patient"] for one in decisions if one["anomaly"]]
    assert len(set(flagged) & tumours["malignant"]) >= len(flagged) / 2 > 0


# --- 9. two million rows -------------------------------------------------------------------------


def test_two_million_rows(here, monkeypatch):
    """Scaled down by a hundred, with batches and limits scaled alike: what is in memory at a time
    is a batch, and the report carries the flagged rows and a sample of the others."""
    rng = np.random.default_rng(0)
    names = ["a", "b", "c"]
    pd.DataFrame(rng.normal(size=(5_000, 3)), columns=names).to_csv("normal.csv", index=False)
    rows = rng.normal(size=(20_000, 3))
    rows[:200] += 20
    pd.DataFrame(rng.permutation(rows), columns=names).to_csv("large.csv", index=False)
    seen = []
    of_detector = ConformalDetector.rank_rows

    def watched(self, rows, **given):
        seen.append(len(rows.X))
        return of_detector(self, rows, **given)

    monkeypatch.setattr(ConformalDetector, "rank_rows", watched)
    monkeypatch.setattr("reconform.files.reading.BATCH_ROWS", 2_000)
    facts = run_json(
        *("detect", "normal.csv", "large.csv", "--detector", "knn", "--method", "split"),
        *("--output", "found.csv", "--only-anomalies", "--report", "page.html"),
    )
    assert max(seen) <= 2_000 < facts["new"]["rows"] == 20_000
    assert facts["flagged"] >= 200
    assert len(pd.read_csv("found.csv")) == facts["flagged"]
    assert Path("page.html").stat().st_size < 20_000_000


# --- 10. the best 20 -----------------------------------------------------------------------------


def test_the_best_twenty(here, tumours):
    best = ["detect", "month.csv", "today.csv", "--id", "patient", "--detector", "knn", "--method",
            "split", "--top", "20", "--output", "best.csv"]  # fmt: skip
    facts = run_json(*best)
    written = pd.read_csv("best.csv")
    assert len(written) == len(facts["top"]["rows"]) == 20
    assert facts["top"]["false_bound"] <= 20
    assert facts["top"]["confidence"] == 0.95
    assert written["patient"].isin(tumours["malignant"]).sum() >= 8
    cad = ConformalDetector("knn", "split", random_state=0).fit(numbers(tumours["month"]))
    first = cad.discover(numbers(tumours["today"]), top=20).first()
    assert len(first.positions) == 20
    assert "false" in first.sentence
    allowed = run_json(*best[:-4], "--false-alarms", "2")
    assert allowed["decision"]["false_alarms"] == 2
    assert allowed["flagged"] > 0


# --- 11. compare on labels -----------------------------------------------------------------------


def test_compare_on_labels(here, tumours):
    labelled = pd.concat([tumours["month"], tumours["today"]])
    labelled["malignant"] = labelled["patient"].isin(tumours["malignant"]).astype(int)
    labelled.to_csv("labelled.csv", index=False)
    facts = run_json("study", "--dataset", "labelled.csv", "--label", "malignant", "--id",
                     "patient", "--detector", "knn", "--detector", "mahalanobis", "--method",
                     "auto", "--draws", "4", "--test-sets", "4")  # fmt: skip
    assert len(facts["ranking"]) == 2
    assert facts["ranking"][0]["power"]["mean"] >= facts["ranking"][1]["power"]["mean"]
    command = shlex.split(facts["recommendation"]["command"])
    command[command.index("new.csv")] = "today.csv"
    assert run_json(*command[1:])["new"]["rows"] == len(tumours["today"])


# --- 12. machine types ---------------------------------------------------------------------------


def test_machine_types(here):
    """What is normal for one type is an anomaly for the other."""
    rng = np.random.default_rng(0)

    def rows(n, far=()):
        kind = np.resize(["pump", "fan"], n)
        level = np.where((kind == "pump") ^ np.isin(np.arange(n), far), 0.0, 20.0)
        return pd.DataFrame({"type": kind, "heat": rng.normal(level), "flow": rng.normal(size=n)})

    rows(600).to_csv("machines.csv", index=False)
    rows(100, far=range(6)).to_csv("now.csv", index=False)
    files = ["detect", "machines.csv", "now.csv", "--detector", "knn", "--method", "split"]
    assert run_json(*files, "--drop", "type")["flagged"] == 0
    found = run_json(*files, "--group", "type", "--group-models", "--fdr", "0.2")
    assert {row["row"] for row in found["anomalies"]} >= set(range(1, 7))
    assert found["flagged"] <= 10
    assert [group["group"] for group in found["groups"]] == ["fan", "pump"]
    assert sum(group["flagged"] for group in found["groups"]) == found["flagged"]


# --- 13. shifted data ----------------------------------------------------------------------------


def test_shifted_data(here, tumours):
    moved = tumours["today"].copy()
    moved.iloc[:, 1:] *= 1.6
    moved.to_csv("moved.csv", index=False)
    said = run("detect", "month.csv", "moved.csv", "--id", "patient", *QUICK).stdout
    assert said.startswith("The assumption looks broken")
    facts = run_json("detect", "month.csv", "moved.csv", "--id", "patient", *QUICK)
    assert facts["assumption"]["verdict"] == "broken"
    assert facts["assumption"]["findings"]
    cad = ConformalDetector("knn", random_state=0).fit(numbers(tumours["month"]))
    assert cad.discover(numbers(moved)).verdict.word == "broken"


# --- 14. misuse ----------------------------------------------------------------------------------


def test_misuse(here, tumours):
    """Each has its sentence, with the way out, and leaves no file."""
    before = sorted(here.iterdir())
    files = ["detect", "month.csv", "today.csv", "--id", "patient", "--output", "out.csv"]
    for given, code, told in (
        (["--detector", "kn"], 2, "Did you mean 'knn'"),
        (["--fdr", "10"], 2, "0<x<1"),
        (["--top", "0"], 2, "--top"),
        (["--false-alarms", "0"], 2, "--false-alarms"),
        (["--false-alarms", "2", "--fdr", "0.1"], 2, "leave out --fdr"),
        (["--label", "mean_area"], 1, "labels must be 0 or false"),
        (["--label", "meanarea"], 1, "Did you mean 'mean_area'"),
        (["--drop", "maen_area"], 1, "Did you mean 'mean_area'"),
        (["--output", "month.csv"], 2, "same file"),
    ):
        assert told in run(*files, *given, code=code).stderr, given
    assert sorted(here.iterdir()) == before
    month, today = (numbers(tumours[name]) for name in ("month", "today"))
    with pytest.raises(ValueError, match="does not look at"):
        ConformalDetector("knn", "cv+").fit(month, blocks=np.arange(len(month)))
    with pytest.raises(ValueError, match="mean_area"):
        ConformalDetector("knn", "split").fit(month).p_values(today.drop(columns="mean_area"))
    dated = month.assign(when=pd.date_range("2026-10-01", periods=len(month)))
    with pytest.raises(ValueError, match=r"dates or times \('when'\)"):
        ConformalDetector("knn", "split").fit(dated)
    with pytest.warns(ReferenceWarning, match="never change"):
        ConformalDetector("knn", "split").fit(month.assign(site=1.0))
    small = ConformalDetector("knn", "split").fit(month[:20])
    with pytest.warns(ReferenceWarning, match="cannot be flagged"):
        small.discover(today)
