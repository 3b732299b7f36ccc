"""A dirty reference: the review, the review file, and what is refused."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from sklearn.model_selection import KFold

from commands import run
from commands import run_json as said
from reconform import ConformalDetector, ReconformError, Resampling, load, review
from reconform import save as save_model
from reconform.cleaning import most_leaving, staying, to_look_at
from reconform.detectors import KNN
from reconform.files import open_output, read_reference
from reconform.methods import Bootstrap

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
    unknown = pa.table(
        {"machine": [f"N{i:03}" for i in range(200)], **dict(zip(NAMES, new.T, strict=True))}
    )
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


def fill_in(path, marks, column="anomaly", row="row"):
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
    with pytest.raises(ReconformError, match=f"{method} has one of the calibration rows only"):
        review(cad)


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
    with pytest.raises(ReconformError, match=f"{missing} of 30 rows were held out by none"):
        review(cad)


def test_who_stays():
    seen = review(ConformalDetector("knn", "jackknife+").fit(np.arange(40.0)[:, None]))
    assert seen.without([39, 5]).tolist() == [i for i in range(40) if i not in (5, 39)]
    assert seen.without(np.arange(40) == 7).tolist() == [i for i in range(40) if i != 7]
    assert seen.without([]).tolist() == list(range(40))
    assert seen.without([3, 3], budget=0.025).tolist() == [i for i in range(40) if i != 3]


@pytest.mark.parametrize(
    ("marked", "budget", "sentence"),
    [
        ([1, 2, 3], 0.05, "3 of 40 reference rows .* lets at most 2 leave"),
        ([1, 2], 0.02, "lets at most 1 leave"),
        ([40], 0.05, "0 to 39; got 40 to 40"),
        ([-1], 0.05, "got -1 to -1"),
        ([0.5], 0.05, "integers; got float64"),
        ([True, False], 0.05, r"one value per reference row, 40; got shape \(2,\)"),
        (range(39), 0.99, "at least 2 rows must stay"),
        ([1], 1.0, "budget must be a number strictly between 0 and 1"),
    ],
)
def test_marks_that_are_refused(marked, budget, sentence):
    with pytest.raises(ReconformError, match=sentence):
        staying(40, list(marked), budget)


def test_the_budget_is_exact():
    assert [most_leaving(n, 0.29) for n in (99, 100, 101)] == [29, 29, 30]
    assert [most_leaving(n, 0.07) for n in (100, 200)] == [7, 14]  # 0.07 * 100 > 7


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
    known, _, dirty = tables
    normal, new, kept = (f"{name}{suffix}" for name in ("normal", "new", "kept"))
    before = said("detect", normal, new, "--id", "machine", *BY_KNN, "--method", "jackknife+")
    facts = said("clean", normal, "--id", "machine", *BY_KNN, "--output", "review.csv")
    assert before["flagged"] <= 2
    assert {one["row"] - 1 for one in facts["unusual"][:DIRT]} == set(dirty.tolist())
    assert facts["unusual"][0]["id"]["machine"] == f"M{facts['unusual'][0]['row'] - 1:03}"
    with open("review.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == facts["most_leaving"] == 20
    assert list(lines[0]) == [
        "row", "anomaly", "score", "p_value", "most_unusual", "seal", "machine", *NAMES,
    ]  # fmt: skip
    assert all(line["anomaly"] == "" for line in lines)
    assert [int(line["row"]) for line in lines] == [one["row"] for one in facts["unusual"]]
    assert float(lines[0]["p_value"]) == 1 / N

    fill_in("review.csv", truth(dirty))
    done = said("clean", normal, "--marks", "review.csv", "--keep", kept, "--id", "machine")
    assert done["left_out"] == (dirty + 1).tolist()
    assert done["kept"] == N - DIRT
    stay = np.setdiff1d(np.arange(N), dirty)
    expected, cleaned = (read_reference(path, id_columns=["machine"]) for path in (normal, kept))
    assert np.array_equal(cleaned.X, expected.X[stay])
    assert cleaned.ids.equals(expected.ids.take(stay))
    if suffix == ".parquet":
        assert pq.read_table(kept).equals(known.take(stay))
    else:
        lines = (here / normal).read_text().splitlines()
        assert (here / kept).read_text().splitlines() == [lines[0], *(lines[1 + i] for i in stay)]
    after = said("detect", kept, new, "--id", "machine", *BY_KNN, "--method", "jackknife+")
    assert after["flagged"] >= 20
    # The file remembers, and so does a model that is made of it.
    left = "8 of 400 reference rows were marked as anomalies and left out"
    assert after["guarantee"].startswith(f"Measured, not proven: {left}. (If these are all")
    run("fit", kept, "--model", "m.rcad", "--id", "machine", *BY_KNN, "--method", "split")
    later = said("score", "m.rcad", new, "--id", "machine")
    assert later["guarantee"].startswith(f"Measured, not proven: {left}")
    assert later["false_bound"] is None
    assert left in run("inspect", "m.rcad").stdout.replace("\n", " ")
    assert load("m.rcad").left_out_ == DIRT


def test_a_reference_that_is_cleaned_again_adds_up(here):
    run("clean", "normal.csv", "--id", "machine", *BY_KNN, "--output", "r.csv")
    with open("r.csv", newline="") as file:
        worst = [int(line["row"]) for line in csv.DictReader(file)][:3]
    fill_in("r.csv", lambda row: "yes" if row in worst else "no")
    told = run("clean", "normal.csv", "--marks", "r.csv", "--keep", "once.csv").stdout
    assert "once.csv.cleaned.json beside it: it notes that 3 rows left" in " ".join(told.split())
    run("clean", "once.csv", "--id", "machine", *BY_KNN, "--output", "s.csv")
    with open("s.csv", newline="") as file:
        worst = [int(line["row"]) for line in csv.DictReader(file)][:2]
    fill_in("s.csv", lambda row: "yes" if row in worst else "no")
    run("clean", "once.csv", "--marks", "s.csv", "--keep", "twice.csv")
    facts = said("detect", "twice.csv", "new.csv", "--id", "machine", *BY_KNN, "--method", "split")
    assert "5 of 400 reference rows were marked as anomalies and left out" in facts["guarantee"]
    (here / "twice.csv.cleaned.json").write_text('{"left_out": "many"}')
    wrong = run("detect", "twice.csv", "new.csv", "--id", "machine", *BY_KNN, code=1)
    assert "twice.csv.cleaned.json: it is not the note that" in " ".join(wrong.stderr.split())


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
        with pytest.raises(ReconformError, match=r"fdp_bound is not proven .* 15 were"):
            found.fdp_bound()
        assert found.first().bound is None
        assert "confidence" not in str(found.first())
    assert "Measured" not in cad.fit(X).discover(new).claim.full
    with pytest.raises(ReconformError, match="left_out must be an integer of at least 0"):
        cad.fit(X, left_out=-1)


def test_what_it_says(here):
    text = run("clean", "normal.csv", "--id", "machine", *BY_KNN).stdout
    assert text.startswith("The 20 most unusual of 400 reference rows (knn, jackknife+)\n")
    assert re.search(r"^ *\d+ +M\d{3} +-[\d.]+ +0\.0025 +\w+ [\d.]+ \(\+[\d.]+\)", text, re.M)
    assert len(re.findall(r"^ *\d+ +M\d{3} ", text, re.M)) == 20


def test_what_it_says_of_files(here, tables):
    text = run("clean", "normal.csv", "--id", "machine", *BY_KNN, "--output", "r.csv").stdout
    assert "Review file: r.csv (20 rows)" in text
    assert "write yes for every anomaly (at most 20)" in text
    fill_in("r.csv", truth(tables[2]))
    text = run("clean", "normal.csv", "--marks", "r.csv", "--keep", "kept.csv").stdout
    assert text.startswith("8 of 400 reference rows are marked as anomalies and left out; 392 stay")
    again = run("clean", "normal.csv", "--marks", "r.csv", "--keep", "k.csv", "--json").stdout
    assert "P(p ≤ α) ≤ ⌊α(n0 + n1 + 1)⌋/(n0 + 1)" in json.loads(again)["proven"]
    assert "measured, not proven" in text
    assert text.endswith("8 rows left.\n")


def test_a_review_file_has_at_least_the_rows_that_are_shown(here):
    ask = ["clean", "normal.csv", "--id", "machine", *BY_KNN]
    run(*ask, "--output", "r.csv", "--budget", "0.01")
    assert len((here / "r.csv").read_text().splitlines()) == 21
    result = run(*ask, "--output", "-")
    assert result.stdout.startswith("row,anomaly,score,p_value,most_unusual,seal,machine,")
    assert "The 20 most unusual" in result.stderr


@pytest.mark.parametrize(
    ("yes", "no"),
    [("1", "0"), ("TRUE", "False"), ("x", ""), (" Yes ", ""), ("1.0", "0.0"), ("no", "no")],
)
def test_marks_in_other_words(here, filled, tables, yes, no):
    fill_in("r.csv", truth(tables[2], yes, no))
    facts = said("clean", "normal.csv", "--marks", "r.csv", "--keep", "kept.csv")
    if yes == "no":  # nobody is an anomaly
        assert (facts["left_out"], facts["kept"]) == ([], N)
        assert (here / "kept.csv").read_text() == (here / "normal.csv").read_text()
    else:
        assert facts["left_out"] == (tables[2] + 1).tolist()


def test_a_review_file_of_parquet_and_a_reference_of_another_format(here, tables):
    run("clean", "normal.csv", "--id", "machine", *BY_KNN, "--output", "r.parquet")
    table = pq.read_table("r.parquet")
    marks = pa.array([row - 1 in tables[2] for row in table.column("row").to_pylist()])
    at = table.column_names.index("anomaly")
    pq.write_table(table.set_column(at, "anomaly", marks), "filled.parquet")
    facts = said(
        "clean", "normal.csv", "--marks", "filled.parquet", "--keep", "kept.csv", "--id", "machine"
    )
    assert facts["left_out"] == (tables[2] + 1).tolist()
    ask = ["clean", "normal.csv", "--marks", "filled.parquet", "--keep", "kept.parquet"]
    assert "are text; let this file be CSV or TSV, too" in run(*ask, code=1).stderr
    assert not (here / "kept.parquet").exists()


def test_other_delimiters_and_decimal_signs(here, tables):
    german = ["--delimiter", ";", "--decimal", ","]
    lines = (here / "normal.csv").read_text().replace(",", ";").replace(".", ",")
    (here / "de.csv").write_text(lines)
    run("clean", "de.csv", "--id", "machine", *BY_KNN, *german, "--output", "r.csv")
    text = (here / "r.csv").read_text().splitlines()
    assert text[0].startswith("row;anomaly;")
    filled = [text[0]]
    for line in text[1:]:
        row, _, rest = line.split(";", 2)
        filled.append(f"{row};{truth(tables[2])(int(row))};{rest}")
    (here / "r.csv").write_text("\n".join(filled))
    facts = said("clean", "de.csv", *german, "--marks", "r.csv", "--keep", "kept.csv")
    assert facts["left_out"] == (tables[2] + 1).tolist()
    assert (here / "kept.csv").read_text().splitlines()[1] in lines.splitlines()


def test_columns_of_the_same_names_are_told_apart(here, tables):
    table = tables[0].rename_columns(["row", "score", "anomaly", "pressure"])
    save(table, here / "clash.csv")
    told = run("clean", "clash.csv", "--id", "row", *BY_KNN, "--output", "r.csv").stdout
    assert "its column 'result_anomaly'" in told
    fill_in("r.csv", truth(tables[2]), "result_anomaly", "result_row")
    facts = said("clean", "clash.csv", "--marks", "r.csv", "--keep", "kept.csv")
    assert facts["left_out"] == (tables[2] + 1).tolist()


# --- what is refused -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reviewed(tables, tmp_path_factory):
    """What a person made of the review file."""
    folder = tmp_path_factory.mktemp("reviewed")
    save(tables[0], folder / "normal.csv")
    review = folder / "r.csv"
    run("clean", folder / "normal.csv", "--id", "machine", *BY_KNN, "--output", review)
    fill_in(review, truth(tables[2]))
    return review.read_bytes()


@pytest.fixture
def filled(here, reviewed):
    """A review file that was filled in."""
    (here / "r.csv").write_bytes(reviewed)
    return here / "r.csv"


def refused(here, *options):
    """Apply the marks; nothing may appear. Returns the sentence."""
    before = {path: path.read_bytes() for path in here.iterdir()}
    told = run(
        "clean", "normal.csv", "--marks", "r.csv", "--keep", "kept.csv", *options, code=1
    ).stderr
    assert {path: path.read_bytes() for path in here.iterdir()} == before
    return told


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
        (with_cell(2, "row", "401"), "it marks row 401, and normal.csv has 400 rows"),
        (with_cell(2, "row", "0"), "'row' must be the number of a row, from 1; got '0'"),
        (with_cell(2, "row", "7.5"), "got '7.5'"),
        (with_cell(2, "row", ""), "from 1; got"),
        (with_cell(2, "anomaly", "maybe"), "'anomaly' must be yes or no .* got 'maybe'"),
        (lambda lines: [*lines, lines[0]], "is there a second time"),
        (lambda lines: [dict(line, anomaly="") for line in lines], "its column .* is empty"),
        (
            lambda lines: [{k: v for k, v in line.items() if k != "row"} for line in lines],
            "it lacks the column 'row' of a review file. Write one with --output",
        ),
        (
            lambda lines: [{k: line[k] for k in ("row", "anomaly")} for line in lines],
            "it lacks the column 'seal' of a review file",
        ),
        (with_cell(2, "row", "17"), "row 17 of normal.csv does not hold what it held"),
    ],
)
def test_review_files_that_are_refused(here, filled, change, sentence):
    changed(filled, change)
    assert re.search(sentence, refused(here))


def test_numbers_as_a_spreadsheet_writes_them_are_the_same(here, filled, tables):
    def rewritten(lines):
        for line in lines:
            line["flow"] = f"{float(line['flow']):.15g}"
            line["row"] = f"{line['row']}.0"
        return lines

    changed(filled, rewritten)
    facts = said("clean", "normal.csv", "--marks", "r.csv", "--keep", "kept.csv")
    assert facts["left_out"] == (tables[2] + 1).tolist()


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("normal.csv --method split", 2, "--method split scores its calibration rows only"),
        ("-", 2, "REFERENCE must be a file"),
        ("normal.csv --marks r.csv", 2, "--keep goes with --marks"),
        ("normal.csv --keep k.csv", 2, "--keep goes with --marks"),
        ("normal.csv --marks r.csv --keep k.csv --output o.csv", 2, "leave it out with --marks"),
        ("normal.csv --marks r.csv --keep -", 2, "--keep must be the name of a file"),
        ("normal.csv --output normal.csv --overwrite", 2, "are the same file"),
        ("normal.csv --marks r.csv --keep r.csv --overwrite", 2, "are the same file"),
        ("normal.csv --set calibration=0.5", 2, "--set calibration goes with --method split"),
        ("normal.csv --budget 1", 2, "--budget"),
        ("normal.csv --output o.xlsx", 1, "such files are read, not written"),
        ("normal.csv --marks r.csv --keep k.csv --budget 0.01", 1,
         "8 of 400 reference rows are marked as anomalies, and --budget 0.01 lets at most 4 leave"),
        ("moved.csv --marks r.csv --keep k.csv", 1,
         "of moved.csv does not hold what it held when it was reviewed"),
    ],
)  # fmt: skip
def test_uses_that_are_refused(filled, tables, arguments, code, sentence):
    here = filled.parent
    save(pa.concat_tables([tables[0].slice(1), tables[0].slice(0, 1)]), here / "moved.csv")
    before = sorted(here.iterdir())
    told = run("clean", *arguments.split(), "--id", "machine", code=code).stderr
    assert sentence in re.sub(r"\s+", " ", told)
    assert sorted(here.iterdir()) == before


def test_files_that_exist_are_left_alone(here, filled):
    text = filled.read_text()
    told = run(
        "clean", "normal.csv", "--id", "machine", *BY_KNN, "--output", "r.csv", code=1
    ).stderr
    assert "r.csv: it exists already; replace it with --overwrite" in told
    assert filled.read_text() == text
    (here / "kept.csv").write_text("mine")
    assert "kept.csv: it exists already" in refused(here)
    run("clean", "normal.csv", "--marks", "r.csv", "--keep", "kept.csv", "--overwrite")
    assert len((here / "kept.csv").read_text().splitlines()) == N - DIRT + 1


def test_prepared_columns_are_described_by_their_labels(here, rng):
    kinds = rng.choice(["red", "blue"], size=60)
    flow = rng.normal(size=60)
    kinds[17], flow[17] = "green", 40.0
    save(pa.table({"kind": kinds, "flow": flow}), here / "mixed.csv")
    facts = said("clean", "mixed.csv", "--prepare", *BY_KNN)
    assert facts["unusual"][0]["row"] == 18
    assert "flow 40" in facts["unusual"][0]["most_unusual"]


FORMULAS = ["=1+1", "+cmd", "-x", "@sum", "\tx", "'=quoted", "-3.5", "＝1", "plain", "x=1"]


def test_review_files_hold_no_formulas_and_are_read_back(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(40, 2)).round(3)
    X[:10] -= 90.0
    notes = FORMULAS + ["plain"] * 30
    save(pa.table({"=id": notes, "a": X[:, 0], "b": X[:, 1]}), "normal.csv")
    ask = ["clean", "normal.csv", "--id", "=id", *BY_KNN, "--budget", "0.3"]
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
    run("clean", "normal.csv", "--id", "=id", "--marks", "review.csv", "--keep", "out.csv",
        "--budget", "0.3")  # fmt: skip
    kept = read_reference("out.csv", id_columns=["=id"])
    left = [note for i, note in enumerate(notes, 1) if i not in marked]
    assert kept.ids["=id"].to_pylist() == left
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
