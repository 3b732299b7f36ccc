"""A dirty reference: the review, the review file, and what is refused."""

import csv
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import KFold

from commands import run
from commands import run_json as said
from reconform import ConformalDetector, Resampling, load, review
from reconform import save as save_model
from reconform.cleaning import to_look_at
from reconform.detectors import KNN
from reconform.files import open_output
from reconform.methods import Bootstrap
from refusals import refused

NAMES = ["temperature", "flow", "pressure"]
BY_KNN = ["--detector", "knn"]
N, DIRT = 400, 8


def rows(rng, normal, anomalies):
    """Normal rows, and anomalies that lie far away and not close together."""
    strange = rng.normal(0, 3, size=(anomalies, 3)) + 12
    return np.vstack([rng.normal(size=(normal, 3)), strange])


@pytest.fixture(scope="module")
def tables():
    """A reference with 2 % anomalies in places that a seed chose, and new rows with 10 %."""
    rng = np.random.default_rng(3)
    X = rows(rng, N - DIRT, DIRT)
    order = rng.permutation(N)
    X, dirty = X[order], np.flatnonzero(order >= N - DIRT)
    new = rows(rng, 180, 20)
    ids = {"machine": [f"M{i:03}" for i in range(N)]}
    known = pa.table({**ids, **dict(zip(NAMES, X.T, strict=True))})
    names = [f"N{i:03}" for i in range(200)]
    unknown = pa.table({"machine": names, **dict(zip(NAMES, new.T, strict=True))})
    return known, unknown, dirty


def save(table, path):
    with open_output(path, table.schema, overwrite=True) as write:
        write(table)


@pytest.fixture
def here(tmp_path, monkeypatch, tables):
    monkeypatch.chdir(tmp_path)
    for suffix in (".csv", ".parquet"):
        save(tables[0], tmp_path / f"normal{suffix}")
        save(tables[1], tmp_path / f"new{suffix}")
    return tmp_path


def fill_in(path, marks, column="mark", row="row"):
    """Do what a person does: write into a CSV file beside row numbers, from 1."""
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line[column] = marks(int(line[row]))
    write_lines(path, lines)


def write_lines(path, lines):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


def truth(dirty, yes="yes", no="no"):
    return lambda row: yes if row - 1 in dirty else no


# --- the function --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "method", ["full", "jackknife", "jackknife+", "cv", "cv+", "jab", "jab+", Resampling(KFold(5))]
)
def test_a_review_against_brute_force(method, rng):
    X = np.round(rng.normal(size=(40, 2)), 1)
    X[7] = X[3]  # rows of one score
    cad = ConformalDetector("knn", method, random_state=0).fit(X)
    seen = review(cad)
    scores = dict(zip(cad.calibration_.rows.tolist(), cad.calibration_.scores, strict=True))
    assert [scores[i] for i in range(40)] == seen.scores.tolist()
    for i in range(40):
        assert seen.p_values[i] == sum(scores[j] <= scores[i] for j in range(40)) / 40
    assert seen.order.tolist() == sorted(range(40), key=lambda i: (scores[i], i))
    assert len(seen) == 40


@pytest.mark.parametrize("method", ["split", "prefit"])
def test_methods_that_do_not_score_every_row_are_refused(method):
    X = np.random.default_rng(0).normal(size=(30, 2))
    detector = "knn" if method == "split" else _Fixed()
    cad = ConformalDetector(detector, method, random_state=0).fit(X)
    refused(f"{method} has one of the calibration rows only", review, cad)


class _Fixed:
    """A model that was fitted elsewhere."""

    def fit(self, X, y=None):
        return self

    def score_samples(self, X):
        return -np.abs(np.asarray(X)).sum(axis=1)


def test_rows_that_no_model_held_out_are_refused():
    X = np.random.default_rng(0).normal(size=(30, 2))
    cad = ConformalDetector("knn", Bootstrap(draws=2), random_state=0).fit(X)
    missing = 30 - len(cad.calibration_)
    assert missing
    refused(f"{missing} of 30 rows were held out by none", review, cad)


@pytest.mark.filterwarnings("ignore:all 2 calibration scores are equal")
def test_anomalies_that_resemble_each_other_are_looked_at(rng):
    """For a few neighbours they are normal, and no row of them would be in the review file."""
    X = np.vstack([rng.normal(size=(980, 3)), rng.normal(5, 0.01, size=(20, 3))])
    X[3, 1] = np.nan
    X[:, 2] = 7.0  # constant
    seen = review(ConformalDetector("knn", "jackknife+").fit(np.nan_to_num(X)))
    look = to_look_at(seen, X)
    assert not (seen.order[:50] >= 980).any()
    assert (look[:50] >= 980).sum() == 20
    assert look[0] == seen.order[0]
    assert np.array_equal(np.sort(look), np.arange(1000))
    X = np.array([[0.0], [1.0]])
    seen = review(ConformalDetector(KNN(n_neighbors=1), "jackknife+").fit(X))
    assert to_look_at(seen, X).tolist() == [0, 1]


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_whole_loop(here, tables, suffix):
    dirty = tables[2]
    normal, new = (f"{name}{suffix}" for name in ("normal", "new"))
    judge = ["detect", normal, new, "--id", "machine", *BY_KNN, "--method", "jackknife+"]
    facts = said("clean", normal, "--id", "machine", *BY_KNN, "--output", "review.csv")
    assert said(*judge)["flagged"] <= 2
    assert {one["row"] - 1 for one in facts["unusual"][:DIRT]} == set(dirty.tolist())
    assert facts["unusual"][0]["id"]["machine"] == f"M{facts['unusual'][0]['row'] - 1:03}"
    with open("review.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 20
    assert list(lines[0]) == [
        "row", "mark", "score", "p_value", "most_unusual", "seal", "machine", *NAMES,
    ]  # fmt: skip
    assert all(line["mark"] == "" for line in lines)
    assert [int(line["row"]) for line in lines] == [one["row"] for one in facts["unusual"]]
    assert float(lines[0]["p_value"]) == 1 / N
    assert "left out" not in said(*judge, "--marks", "review.csv")["guarantee"]

    fill_in("review.csv", truth(dirty))
    stay = np.setdiff1d(np.arange(N), dirty)
    save(tables[0].take(stay), here / f"kept{suffix}")
    found = said(*judge, "--marks", "review.csv", "--output", "out.csv")
    by_hand = said("detect", f"kept{suffix}", *judge[2:], "--output", "same.csv")
    assert (here / "out.csv").read_text() == (here / "same.csv").read_text()
    assert found["flagged"] == by_hand["flagged"] >= 20
    assert found["reference"]["sha256"] == by_hand["reference"]["sha256"]
    # The list says it, and so does a model.
    left = "8 of 400 reference rows were marked as anomalies and left out"
    assert found["reference"]["left_out"] == DIRT
    assert found["guarantee"].startswith(f"Measured, not proven: {left}. (If these are all")
    run("fit", normal, "--model", "m.rcad", *judge[3:7], "--marks", "review.csv",
        "--method", "split")  # fmt: skip
    later = said("score", "m.rcad", new, "--id", "machine")
    assert later["guarantee"].startswith(f"Measured, not proven: {left}")
    assert later["false_bound"] is None
    assert left in run("inspect", "m.rcad").stdout.replace("\n", " ")
    assert load("m.rcad").left_out_ == DIRT
    told = run("update", "m.rcad", "--marks", "review.csv", "--output", "n.rcad", code=1).stderr
    assert "it marks rows of a reference, which leave when a detector is fitted" in told


def test_rounds_add_up_and_keep_the_numbers_of_rows(here, tables):
    ask = ["clean", "normal.csv", "--id", "machine", *BY_KNN]
    first = said(*ask, "--output", "r.csv", "--top", "3")
    worst = {one["row"] for one in first["unusual"][:3]}
    assert len((here / "r.csv").read_text().splitlines()) == 4
    fill_in("r.csv", lambda _: "real")
    text = " ".join(run(*ask, "--marks", "r.csv", "--output", "s.csv").stdout.split())
    assert "The 20 most unusual of 397 reference rows" in text
    assert "real ones out. Next: `reconform clean normal.csv --detector knn --id machine" in text
    assert "--marks r.csv --marks s.csv`" in text
    fill_in("s.csv", truth(tables[2]))
    with open("s.csv", newline="") as file:
        marked = {int(one["row"]) for one in csv.DictReader(file) if one["mark"] == "yes"}
    assert marked | worst == set((tables[2] + 1).tolist())
    assert not marked & worst
    marks = "--marks", "r.csv", "--marks", "s.csv"
    facts = said("detect", "normal.csv", "new.csv", *ask[2:], *marks)
    assert facts["reference"]["left_out"] == DIRT


def test_labels_and_marks_leave_together(here, tables):
    labelled = tables[0].append_column("broken", pa.array([i < 5 for i in range(N)]))
    save(labelled, here / "labelled.csv")
    rows = [1, 2, 9, 10]
    (here / "marks.csv").write_text("row,mark\n" + "".join(f"{row},real\n" for row in rows))
    (here / "named.csv").write_text("id,mark\n" + "".join(f"M{row - 1:03},x\n" for row in rows))
    ask = ["detect", "labelled.csv", "new.csv", "--id", "machine", *BY_KNN, "--label", "broken"]
    for marks in ("marks.csv", "named.csv"):
        facts = said(*ask, "--marks", marks)["reference"]
        assert (facts["rows"], facts["left_out"]) == (N - 7, 2 + 2)


def test_lists_of_a_cleaned_reference_say_what_is_still_proven(tmp_path, rng):
    X, new = rng.normal(size=(285, 2)), rng.normal(size=(60, 2))
    cad = ConformalDetector("knn", "split", random_state=0).fit(X, left_out=15)
    save_model(cad, tmp_path / "m.rcad")
    for one in (cad, load(tmp_path / "m.rcad")):
        assert (one.left_out_, one.provenance().left_out) == (15, 15)
        assert "if the marks were right: 15 of 300 reference rows" in str(one.guarantee_)
        for options in ({}, {"procedure": "by"}, {"false_alarms": 2}, {"conditional": "simes"}):
            claim = one.discover(new, **options).claim
            assert "(measured, not proven: 15 of 300 reference rows were" in claim.promise("10%")
            told = claim.full
            assert told.startswith("Measured, not proven: 15 of 300 reference rows were marked")
            assert "(If these are all of its anomalies, and no normal rows: " in told
        found = one.discover(new)
        refused(r"fdp_bound is not proven .* 15 were", found.fdp_bound)
        assert found.first().bound is None
        assert "confidence" not in str(found.first())
    assert "Measured" not in cad.fit(X).discover(new).claim.full
    refused("left_out must be an integer of at least 0", cad.fit, X, left_out=-1)


def test_what_it_says(here):
    text = run("clean", "normal.csv", "--id", "machine", *BY_KNN).stdout
    assert text.startswith("The 20 most unusual of 400 reference rows (knn, jackknife+)\n")
    assert re.search(r"^ *\d+ +M\d{3} +-[\d.]+ +0\.0025 +\w+ [\d.]+ \(\+[\d.]+\)", text, re.M)
    assert len(re.findall(r"^ *\d+ +M\d{3} ", text, re.M)) == 20
    result = run("clean", "normal.csv", "--id", "machine", *BY_KNN, "--output", "-")
    assert result.stdout.startswith("row,mark,score,p_value,most_unusual,seal,machine,")
    assert "The 20 most unusual" in result.stderr


def test_a_review_file_of_parquet(here, tables):
    run("clean", "normal.csv", "--id", "machine", *BY_KNN, "--output", "r.parquet")
    table = pq.read_table("r.parquet")
    marks = pa.array([row - 1 in tables[2] for row in table.column("row").to_pylist()])
    pq.write_table(table.set_column(1, "mark", marks), "filled.parquet")
    assert left_out("filled.parquet") == DIRT


def left_out(marks, reference="normal.csv", *options):
    ask = ["clean", reference, "--id", "machine", *BY_KNN, "--marks", marks, *options]
    return said(*ask)["reference"]["left_out"]


def test_other_delimiters_and_decimal_signs(here, tables):
    german = ["--delimiter", ";", "--decimal", ","]
    lines = (here / "normal.csv").read_text().replace(",", ";").replace(".", ",")
    (here / "de.csv").write_text(lines)
    run("clean", "de.csv", "--id", "machine", *BY_KNN, *german, "--output", "r.csv")
    text = (here / "r.csv").read_text().splitlines()
    assert text[0].startswith("row;mark;")
    filled = [text[0]]
    for line in text[1:]:
        row, _, rest = line.split(";", 2)
        filled.append(f"{row};{truth(tables[2])(int(row))};{rest}")
    (here / "r.csv").write_text("\n".join(filled))
    assert left_out("r.csv", "de.csv", *german) == DIRT


def test_columns_of_the_same_names_are_told_apart(here, tables):
    table = tables[0].rename_columns(["row", "batch", "anomaly", "pressure"])
    save(table, here / "clash.csv")
    run("clean", "clash.csv", "--id", "row", *BY_KNN, "--output", "r.csv")
    assert "result_row,result_batch,result_anomaly,pressure" in (here / "r.csv").read_text()
    fill_in("r.csv", truth(tables[2]))
    ask = ["clean", "clash.csv", "--id", "row", *BY_KNN, "--marks", "r.csv"]
    assert said(*ask)["reference"]["left_out"] == DIRT


# --- what is refused -----------------------------------------------------------------------------


@pytest.fixture
def filled(here, tables):
    """A review file that was filled in."""
    run("clean", "normal.csv", "--id", "machine", *BY_KNN, "--output", "r.csv")
    fill_in("r.csv", truth(tables[2]))
    return here / "r.csv"


def changed(path, change):
    with open(path, newline="") as file:
        lines = list(csv.DictReader(file))
    write_lines(path, change(lines))


def with_cell(i, name, value):
    def change(lines):
        lines[i][name] = value
        return lines

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (with_cell(2, "row", "401"), "there is no row 401; it has 400 rows"),
        (with_cell(2, "row", "0"), "'row' must be the number of a row, from 1; got '0'"),
        (with_cell(2, "mark", "perhaps"), "a mark must be real, false, unsure .* got 'perhaps'"),
        (lambda lines: [*lines, lines[0]], "is there a second time"),
        (lambda lines: [{k: line[k] for k in [*line][1:]} for line in lines], "does not say which"),
        (with_cell(2, "row", "17"), "row 17 of normal.csv does not hold what it held"),
        (lambda lines: [{**line, "batch": "b"} for line in lines], "marks rows that were judged"),
    ],
)
def test_review_files_that_are_refused(here, filled, change, sentence):
    changed(filled, change)
    ask = ["detect", "normal.csv", "new.csv", "--id", "machine", *BY_KNN, "--output", "out.csv"]
    assert re.search(sentence, run(*ask, "--marks", "r.csv", code=1).stderr)
    assert not (here / "out.csv").exists()


def test_numbers_as_a_spreadsheet_writes_them_are_the_same(filled):
    def rewritten(lines):
        for line in lines:
            line["flow"] = f"{float(line['flow']):.15g}"
            line["row"] = f"{line['row']}.0"
        return lines

    changed(filled, rewritten)
    assert left_out("r.csv") == DIRT


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("normal.csv --method split", 2, "--method split scores its calibration rows only"),
        ("-", 2, "REFERENCE must be a file"),
        ("normal.csv --output normal.csv --overwrite", 2, "are the same file"),
        ("normal.csv --marks r.csv --output r.csv --overwrite", 2, "are the same file"),
        ("normal.csv --set calibration=0.5", 2, "--set calibration goes with --method split"),
        ("normal.csv --output r.csv", 1, "r.csv: it exists already; replace it with --overwrite"),
        ("normal.csv --output o.xlsx", 1, "such files are read, not written"),
        ("moved.csv --marks r.csv", 1,
         "of moved.csv does not hold what it held when it was reviewed"),
    ],
)  # fmt: skip
def test_uses_that_are_refused(filled, tables, arguments, code, sentence):
    here = filled.parent
    save(pa.concat_tables([tables[0].slice(1), tables[0].slice(0, 1)]), here / "moved.csv")
    before = {path: path.read_bytes() for path in here.iterdir()}
    told = run("clean", *arguments.split(), "--id", "machine", code=code).stderr
    assert sentence in re.sub(r"\s+", " ", told)
    assert {path: path.read_bytes() for path in here.iterdir()} == before


FORMULAS = ["=1+1", "+cmd", "-x", "@sum", "\tx", "'=quoted", "-3.5", "＝1", "plain", "x=1"]


def test_review_files_hold_no_formulas_and_are_read_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(40, 2)).round(3)
    X[:10] -= 90.0
    notes = FORMULAS + ["plain"] * 30
    save(pa.table({"=id": notes, "a": X[:, 0], "b": X[:, 1]}), "normal.csv")
    ask = ["clean", "normal.csv", "--id", "=id", *BY_KNN]
    run(*ask, "--output", "review.csv")
    with open("review.csv", newline="") as file:
        names, *lines = csv.reader(file)
    cells = {line[names.index("'=id")] for line in lines}
    assert {"'=1+1", "'+cmd", "'-x", "'@sum", "'\tx", "''=quoted", "-3.5", "'＝1"} <= cells
    for cell in (cell for line in lines for cell in line):
        assert cell[:1] not in tuple("=+@\t\r")
        assert cell[:1] != "-" or float(cell)
    marked = [int(line[0]) for line in lines if int(line[0]) <= 10]
    fill_in("review.csv", lambda row: "yes" if row in marked else "no")
    assert said(*ask, "--marks", "review.csv")["reference"]["left_out"] == len(marked) > 0
    # In other outputs, where that is asked for.
    judge = ["detect", "normal.csv", "normal.csv", "--id", "=id", *BY_KNN, "--output"]
    run(*judge, "raw.csv")
    run(*judge, "safe.csv", "--safe-cells")
    run(*judge, "safe.parquet", "--safe-cells")
    raw, safe = (pa.csv.read_csv(name) for name in ("raw.csv", "safe.csv"))
    assert raw["=id"].to_pylist() == notes
    shown = ["'=1+1", "'+cmd", "'-x", "'@sum", "'\tx", "''=quoted", "-3.5"]
    assert safe.column(0).to_pylist()[:7] == shown
    assert safe.select(range(1, 7)) == raw.select(range(1, 7))
    assert pq.read_table("safe.parquet")["=id"].to_pylist() == notes
