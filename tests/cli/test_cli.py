"""The command line: what it says and writes, what it refuses and with which exit code."""

import gc
import json
import os
import re
import shlex
import signal
import subprocess
import time
import warnings
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from sklearn.svm import OneClassSVM

import reconform
from commands import PROGRAM, run, run_json, shell
from reconform import ConformalDetector, cli, methods
from reconform import models as model_files
from reconform.cli import judging, main, options
from reconform.cli.declare import in_options
from reconform.extras import extra
from reconform.files import open_output

NAMES = ["temperature", "flow", "pressure"]
RESULTS = ["score", "p_value", "q_value", "anomaly"]
PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
QUICK = ["--detector", "knn", "--method", "jackknife+"]


def save(table, path):
    with open_output(path, table.schema) as write:
        write(table)


def read(path):
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".arrow":
        return pa.feather.read_table(path)
    tab = pa.csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
    return pa.csv.read_csv(path, parse_options=tab)


def make_rows(rng, count, anomalous=0):
    """Normal rows, then anomalies, in a random order; rounded as in a real file."""
    X = rng.normal([20, 5, 100], [2, 1, 10], size=(count + anomalous, 3))
    X[count:] += [12, 0, 40]
    return np.round(X[rng.permutation(count + anomalous)], 3)


@pytest.fixture(scope="module")
def tables():
    rng = np.random.default_rng(0)
    normal, new = make_rows(rng, 200), make_rows(rng, 280, 20)

    def named(letter, X):
        names = [f"{letter}{i:03d}" for i in range(len(X))]
        return pa.table({"machine": names, **dict(zip(NAMES, X.T, strict=True))})

    return {"normal": named("M", normal), "new": named("N", new)}


def make_messy(rng, count, anomalous=()):
    """Times, missing numbers, and a category of which the anomalies have a new label."""
    far = np.isin(np.arange(count), anomalous)
    flow = [f"{v:.3f}" for v in rng.normal(5 + 9 * far)]
    temperature = [f"{v:.3f}" for v in rng.normal(20 + 9 * far)]
    state = np.where(far, "mauve", rng.choice(["idle", "run", "stop"], count)).tolist()
    for i in range(3, count, 17):
        flow[i] = ""
    times = [f"2024-01-01 00:{i // 60:02d}:{i % 60:02d}" for i in range(count)]
    return pa.table({"time": times, "flow": flow, "temperature": temperature, "state": state})


@pytest.fixture(scope="module")
def folder(tables, tmp_path_factory):
    """Files to read; tests write elsewhere."""
    place = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(1)
    dirty = make_rows(np.random.default_rng(2), 196, 4)
    machines = {"machine": [f"D{i:03d}" for i in range(200)]}
    tables = {
        **tables,
        "dirty": pa.table({**machines, **dict(zip(NAMES, dirty.T, strict=True))}),
        "messy": make_messy(rng, 120),
        "messy_new": make_messy(rng, 100, anomalous=range(0, 100, 9)),
    }
    for name, table in tables.items():
        for suffix in (".csv", ".tsv", ".parquet", ".arrow"):
            save(table, place / f"{name}{suffix}")
    return place


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    """A folder of one's own, with the files in it."""
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def expected(tables, method="jackknife+", detector="knn", seed=0, **decision):
    cad = ConformalDetector(detector, method, random_state=seed)
    cad.fit(tables["normal"].select(NAMES))
    return cad.discover(tables["new"].select(NAMES), **decision)


# --- detect --------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow"])
def test_detect_writes_what_discover_finds(here, tables, suffix):
    said = run(
        "detect", f"normal{suffix}", f"new{suffix}", "--id", "machine", *QUICK,
        "--output", f"out{suffix}",
    )  # fmt: skip
    found = expected(tables)
    written = read(here / f"out{suffix}")
    assert written.column_names == ["machine", *NAMES, *RESULTS]
    assert written["machine"].to_pylist() == tables["new"]["machine"].to_pylist()
    assert np.array_equal(written["p_value"].to_numpy(), found.p_values)
    assert np.array_equal(written["q_value"].to_numpy(), found.q_values)
    assert np.array_equal(written["score"].to_numpy(), found.scores)
    assert np.array_equal(written["anomaly"].to_numpy(zero_copy_only=False), found.mask)
    assert f"{found.count} of 300 rows flagged\n{found.promise}\n" in said.stdout
    assert f"Rows: out{suffix}" in said.stdout
    assert 0 < found.count < 300


def test_detect_shows_the_most_unusual_rows(here, tables):
    said = run("detect", "normal.csv", "new.csv", "--id", "machine", *QUICK).stdout
    found = expected(tables)
    rows = re.findall(r"^(N\d+) ", said, flags=re.MULTILINE)
    names = [f"N{i:03d}" for i in found.order[: found.count]]
    assert rows == names[: judging.MOST_SHOWN]
    first = said.splitlines()[[line.startswith(rows[0]) for line in said.splitlines()].index(True)]
    assert "temperature" in first  # what is unusual about it
    assert f"{found.p_values.min():.4g}" in first
    more = f"... and {found.count - judging.MOST_SHOWN:,} more" in said
    assert more == (found.count > judging.MOST_SHOWN)
    numbered = run("detect", "normal.csv", "new.csv", "--drop", "machine", *QUICK).stdout
    top = re.search(r"^ *(\d+) +-", numbered, flags=re.MULTILINE)[1]
    assert int(top) == found.order[0] + 1


def test_infinite_scores_are_null_in_json(tmp_path):
    normal = "x,y\n" + "".join(f"{i % 7},{i % 11}\n" for i in range(60))
    (tmp_path / "normal.csv").write_text(normal)
    (tmp_path / "new.csv").write_text("x,y\n1,2\n1e300,-1e300\n")
    given = (tmp_path / "normal.csv", tmp_path / "new.csv", "--detector", "knn", "--method", "cv+")
    facts = run_json("detect", *given, "--report", tmp_path / "report.html", "--fdr", 0.3)
    assert [(row["row"], row["score"]) for row in facts["anomalies"]] == [(2, None)]


@pytest.mark.parametrize(
    ("given", "method", "decision"),
    [
        ("--method split --set calibration=0.25", methods.Split(0.25), {}),
        ("--method split --set calibration=40", methods.Split(40), {}),
        ("--method split --set repeats=3", methods.Split(repeats=3), {}),
        ("--method cv+ --set folds=4", methods.CrossValidation(4), {}),
        ("--method jab --set draws=7", methods.Bootstrap(7, variant="basic"), {}),
        ("--method full", "full", {}),
        ("--method jackknife --jobs 2", "jackknife", {}),
        ("--method split --procedure by", "split", {"procedure": "by"}),
        ("--method split --procedure storey", "split", {"procedure": "storey"}),
        ("--method split --validity proven", "split", {"validity": "proven"}),
    ],
)
def test_methods_and_decisions(here, tables, given, method, decision):
    common = ["detect", "normal.csv", "new.csv", "--drop", "machine", "--detector", "knn"]
    facts = run_json(*common, *given.split(), "--seed", "5", "--fdr", "0.4")
    found = expected(tables, method, seed=5, fdr=0.4, **decision)
    assert (facts["flagged"], facts["p_threshold"]) == (found.count, found.p_threshold)
    assert facts["method"] == (method if isinstance(method, str) else repr(method))
    assert facts["guarantee"] == in_options(found.guarantee)
    assert facts["decision"] == {"fdr": 0.4, "procedure": "bh", "validity": "auto", **decision}


def test_the_list_at_hand_is_bounded_for_a_split(here, tables):
    common = ["detect", "normal.csv", "new.csv", "--drop", "machine", "--detector", "knn"]
    facts = run_json(*common, "--method", "split", "--fdr", "0.3")
    found = expected(tables, "split", fdr=0.3)
    assert facts["false_bound"] == round(found.fdp_bound() * found.count)
    assert run_json(*common, "--method", "jackknife+", "--fdr", "0.3")["false_bound"] is None


def test_columns_are_chosen(here):
    common = ["detect", "normal.csv", "new.csv", "--detector", "knn"]
    for given in (["--columns", "flow,pressure"], ["--drop", "machine", "--drop", "temperature"]):
        assert run_json(*common, *given)["reference"]["features"] == ["flow", "pressure"]
    save(pa.table({"a,b": np.arange(9.0), "c": np.arange(9) % 3}), here / "odd.csv")
    odd = ["detect", "odd.csv", "odd.csv", *QUICK]
    facts = run_json(*odd, "--columns", '"a,b"', "--id", "c")
    assert facts["reference"]["features"] == ["a,b"]
    run(*odd, "--category", "c")


def test_columns_are_prepared(here):
    common = ["detect", "messy.csv", "messy_new.csv", "--detector", "knn", "--method", "cv+"]
    facts = run_json(*common, "--id", "time", "--set", "folds=4")
    said = facts["reference"]["columns"]
    assert said == {"flow": "number, missing in 7 rows", "temperature": "number",
                    "state": "category with 3 labels"}  # fmt: skip
    assert (facts["new"]["missing"], facts["new"]["unseen"]) == ({"flow": 6}, {"state": 12})
    assert facts["flagged"] == 12
    said = run(*common, "--id", "time", "--set", "folds=4").stdout
    assert said.startswith("Column 'flow': number, missing in 7 rows.\n")
    assert "'state' has labels that the reference does not have, in 12 of" in said
    assert "'mauve' (12)" in said
    assert "state mauve (never in the reference)" in said


def test_why_nothing_is_flagged_is_said_once(here):
    common = ["detect", "normal.csv", "new.csv", "--drop", "machine", *QUICK, "--fdr", "0.001"]
    said = run(*common)
    assert said.stderr == ""
    assert said.stdout.count("With 200 reference rows and 300 new ones") == 1
    assert "or a higher --fdr.\n" in said.stdout
    assert "0 of 300 rows flagged" in said.stdout
    facts = run_json(*common)
    assert facts["why_nothing"].startswith("With 200 reference rows and 300 new ones")
    assert facts["warnings"] == []
    rows = pd.read_csv("normal.csv")
    rows.loc[7, ["temperature", "pressure"]] *= 100
    rows.to_csv("dirt.csv", index=False)
    given = ["detect", "dirt.csv", "new.csv", "--id", "machine", *QUICK]
    why = run_json(*given)["why_nothing"]
    assert why.startswith("Without the most unusual reference row")
    assert run(*given).stdout.count(why) == 1


def test_warnings_of_the_library_are_said_plainly(here):
    """Whatever the environment says of warnings: PYTHONWARNINGS=ignore is for other programs."""
    rows = pa.table({"x": [1.0] * 30 + [2.0] * 30, "y": [1.0] * 30 + [2.0] * 30})
    save(rows, here / "same.csv")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said = run("detect", "same.csv", "same.csv", *QUICK).stderr
    assert said.count("all 60 calibration scores are equal") == 1
    assert "detector.py" not in said
    assert "UserWarning" not in said


def test_reports(here):
    prepared = ["--detector", "knn", "--method", "split", "--report"]
    run("detect", "messy.csv", "messy_new.csv", "--id", "time", *prepared, "file.html")
    with open("messy_new.csv", "rb") as new:
        run("detect", "messy.csv", "-", "--drop", "time", *prepared, "pipe.html", input=new)
    page = (here / "file.html").read_text()
    assert "Anomalies in messy_new.csv" in page
    assert "2024-01-01 00:00:09" in page  # an identifier
    for text in (page, (here / "pipe.html").read_text()):
        assert "mauve" in text  # an unusual value, as it is in the file
        assert "never in the reference" in text
    common = ["detect", "normal.csv", "new.csv", "--id", "machine", *QUICK, "--report"]
    run(*common, "report.html")
    page = (here / "report.html").read_text()
    assert "--validity proven gives a proven list" in page
    assert "validity=" not in page
    run(*common, "strict.html", "--fdr", 0.001)
    assert "or a higher --fdr." in (here / "strict.html").read_text()


def test_a_report_looks_at_so_many_cells(here, monkeypatch):
    common = ["detect", "normal.csv", "new.csv", "--drop", "machine", *QUICK, "--report"]
    for limit, warned in ((900, False), (899, True)):
        monkeypatch.setattr(judging, "MOST_CELLS", limit)
        said = run(*common, f"{limit}.html").stderr
        warning = "The report names unusual features of the first 20 rows only: new"
        assert (f"{warning}.csv has more than 899 cells" in said) == warned


FULL = "--detector knn --method full"


@pytest.mark.parametrize(
    ("suffix", "given", "refused"),
    [
        (".csv", "--detector contrast --method full", True),
        (".parquet", "--detector contrast", True),
        (".csv", "--method full", True),  # a choice
        (".csv", f"{FULL} --validity proven", True),
        (".csv", "--detector iforest --method cv+ --validity proven", True),
        (".csv", f"{FULL} --report report.html", True),
        (".parquet", f"{FULL} --report report.html", True),
        (".csv", FULL, False),
        (".csv", f"{FULL} --validity proven --procedure by", False),  # from counts
    ],
)
def test_as_many_rows_as_can_be_judged_together(here, monkeypatch, suffix, given, refused):
    files = ["detect", f"normal{suffix}", f"new{suffix}", "--drop", "machine"]
    monkeypatch.setattr("reconform.files.result.MOST_DISCOVERIES", 299)
    said = run(*files, *given.split(), "--output", "out.csv", code=int(refused)).stderr
    assert ("more than 299 rows" in said) == refused
    assert (here / "out.csv").exists() != refused
    assert not (here / "report.html").exists()
    if "--report" in given:
        monkeypatch.setattr("reconform.files.result.MOST_DISCOVERIES", 300)
        run(*files, *given.split())


# --- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["split", "cv", "jab+"])
def test_fit_and_score_are_detect(here, method):
    chosen = ["--detector", "iforest", "--method", method, "--seed", "3"]
    said = run("fit", "normal.parquet", "--drop", "machine", *chosen, "--model", "plant.rcad")
    assert re.search(r"Model: plant\.rcad \([\d.]+ (kB|MB)\)", said.stdout)
    decide = ["--fdr", "0.2", "--id", "machine"]
    once = run_json("detect", "normal.csv", "new.csv", "--id", "machine", *chosen, "--fdr", "0.2")
    later = run_json("score", "plant.rcad", "new.parquet", *decide, "--output", "scored.parquet")
    for name in ("flagged", "anomalies", "p_threshold", "guarantee"):
        assert once[name] == later[name]
    assert once["new"]["sha256"] == later["new"]["sha256"]
    assert read(here / "scored.parquet").num_rows == 300


def test_a_prepared_model(here):
    chosen = ["--id", "time", "--detector", "knn", "--method", "cv+"]
    run("fit", "messy.csv", *chosen, "--model", "messy.rcad")
    once = run_json("detect", "messy.csv", "messy_new.csv", *chosen)
    later = run_json("score", "messy.rcad", "messy_new.csv", "--id", "time")
    assert (later["anomalies"], later["new"]) == (once["anomalies"], once["new"])
    said = run("inspect", "messy.rcad").stdout
    assert "of messy.csv, knn" in said
    assert "flow, temperature, state (3 labels)" in said


def test_inspect(here):
    run("fit", "normal.csv", "--id", "machine", *QUICK, "--model", "plant.rcad")
    said = run("inspect", "plant.rcad").stdout
    for words in ("knn", "jackknife+", "200 reference rows", "fit of normal.csv", ", ".join(NAMES)):
        assert words in said
    facts = run_json("inspect", "plant.rcad")
    assert facts["n_calibration"] == 200
    assert ("P(p <=" in facts["guarantee"], "P(p <=" in said) == (True, False)  # no theorem yet


def test_foreign_types_must_be_trusted(here):
    pytest.importorskip("skops", reason="foreign models are saved through skops")
    pytest.importorskip("pyod", reason="needs a type that skops does not trust")
    given = ["--drop", "machine", "--detector", "pyod:HBOS", "--method", "split"]
    said = run("fit", "normal.csv", *given, "--model", "foreign.rcad").stdout
    assert "score, check and stream need --trust-objects" in said
    refused = run("score", "foreign.rcad", "new.csv", code=1).stderr
    assert "pyod.models.hbos.HBOS" in refused
    assert refused.rstrip().endswith("give --trust-objects.")
    run("score", "foreign.rcad", "new.csv", "--trust-objects")
    run("check", "foreign.rcad", "new.csv", "--trust-objects", "--fail-on", "")
    assert "pyod.models.hbos.HBOS" in run("inspect", "foreign.rcad").stdout


# --- demo -----------------------------------------------------------------------------------------


def test_demo(here):
    said = run("demo").stdout
    assert re.search(r"^\d+ of 229 rows flagged\nOn average at most 10% of them are", said, re.M)
    assert "(proven, if normal new rows come from the same process as the reference).\n" in said
    assert re.search(r"^Ranked by .*, chosen among \d+ detectors\.$", said, re.M)
    assert "benign rows as reference, 229 new rows" in said
    facts = run_json("demo", "--report", "demo.html")
    assert facts["tested"] == 229
    assert 0 <= facts["false_share"] <= 1
    page = (here / "demo.html").read_text()
    assert "Tumours" in page
    assert "On average at most 10% of them are false alarms (proven" in page
    run("demo", "--report", "demo.html", code=1)
    run("demo", "--report", "demo.html", "--overwrite", "--quiet")
    assert reconform.__version__ in run("--version").stdout


# --- streams -------------------------------------------------------------------------------------


def test_a_pipe(here, tables):
    run("fit", "normal.csv", "--id", "machine", *QUICK, "--model", "plant.rcad")
    piped = shell(
        "score", "plant.rcad", "-", "--id", "machine", "--output", "-", "--only-anomalies",
        input=Path("new.csv").read_bytes(),
    )  # fmt: skip
    assert piped.returncode == 0
    lines = piped.stdout.decode().splitlines()
    found = expected(tables)
    assert lines[0] == ",".join(["machine", *NAMES, *RESULTS])
    first = [line.split(",")[0] for line in lines[1:]]
    assert first == [f"N{i:03d}" for i in found.order[: found.count]]
    said = piped.stderr.decode()
    assert f"{found.count} of 300 rows flagged" in said
    assert "\x1b" not in said  # neither colours nor bars
    normal = Path("normal.csv").read_bytes()
    facts = run_json("detect", "-", "new.csv", "--id", "machine", *QUICK, input=normal)
    assert (facts["reference"]["path"], facts["new"]["rows"]) == ("standard input", 300)


def test_binary_formats_in_a_pipe(here, tables):
    new = Path("new.parquet").read_bytes()
    common = ["detect", "normal.csv", "-", "--drop", "machine", *QUICK]
    piped = shell(*common, "--format", "parquet", "--output", "-", input=new)
    assert piped.returncode == 0
    written = pq.read_table(pa.BufferReader(piped.stdout))
    assert np.array_equal(written["q_value"].to_numpy(), expected(tables).q_values)


def test_what_format_is_about():
    def layouts(format, *paths):
        files = options.Files((), format, None, ".", ())
        return [layout.format for layout in files.layouts(*paths)]

    assert layouts("parquet", "normal.csv", "-") == [None, "parquet"]
    assert layouts("tsv", "normal.csv", "new.data") == [None, "tsv"]
    assert layouts("parquet", "wrong.csv", "names.csv") == ["parquet", "parquet"]
    assert layouts(None, "normal.csv", "new.data") == [None, None]
    files = options.Files((), "tsv", None, ".", ())
    assert files.output_layout("out.data").format == "tsv"
    assert files.output_layout("out.csv") is None
    assert files.output_layout("-") is None


def test_layouts_of_text(here):
    text = Path("normal.csv").read_text()
    Path("german.csv").write_text(text.replace(",", ";").replace(".", ","))
    said = run_json(
        "detect", "german.csv", "german.csv", "--id", "machine", "--delimiter", ";",
        "--decimal", ",", *QUICK,
    )  # fmt: skip
    plain = run_json("detect", "normal.csv", "normal.csv", "--id", "machine", *QUICK)
    assert said["reference"]["sha256"] == plain["reference"]["sha256"]
    Path("tab.csv").write_text(text.replace(",", "\t"))
    tabs = run_json("detect", "tab.csv", "tab.csv", "--id", "machine", "--delimiter", "tab", *QUICK)
    assert tabs["reference"]["sha256"] == plain["reference"]["sha256"]


# --- tones ---------------------------------------------------------------------------------------


def test_quiet(here):
    common = ["detect", "normal.csv", "new.csv", "--drop", "machine", *QUICK, "--quiet"]
    said = run(*common, "--fdr", "0.001", "--output", "out.csv")
    assert (said.stdout, said.stderr) == ("", "")
    assert (here / "out.csv").exists()
    assert json.loads(run(*common, "--json").stdout)["flagged"] > 0
    assert "no such file" in run("detect", "gone.csv", "new.csv", "--quiet", code=1).stderr


def test_the_shape_of_json(here, tables):
    facts = run_json(
        "detect", "normal.csv", "new.csv", "--id", "machine", *QUICK,
        "--output", "out.csv", "--report", "report.html",
    )  # fmt: skip
    found = expected(tables)
    assert set(facts) == {
        "reconform", "command", "reference", "new", "detector", "method", "seed", "n_reference",
        "n_calibration", "decision", "flagged", "p_threshold", "false_bound", "guarantee",
        "assumption", "choice", "scheme", "why_nothing", "anomalies", "top", "output", "report",
        "warnings", "promise", "sample", "seen", "next",
    }  # fmt: skip
    assert (facts["command"], facts["detector"], facts["method"]) == ("detect", "knn", "jackknife+")
    assert (facts["output"], facts["report"]) == ("out.csv", "report.html")
    assert facts["p_threshold"] == found.p_threshold
    first = found.order[0]
    assert facts["anomalies"][0] == {
        "row": first + 1,
        "id": {"machine": f"N{first:03d}"},
        "score": found.scores[first],
        "p_value": found.p_values[first],
        "q_value": found.q_values[first],
    }
    assert len(facts["anomalies"]) == found.count


def test_cells_cannot_command_the_terminal(here, tables):
    evil = pa.array([f"\x1b[2J\u202e{i}" for i in range(300)])
    save(tables["new"].append_column("evil", evil), here / "evil.csv")
    said = run("detect", "normal.csv", "evil.csv", "--drop", "machine", "--id", "evil", *QUICK)
    assert "\x1b" not in said.stdout
    assert "\u202e" not in said.stdout
    assert "\ufffd[2J" in said.stdout


def test_a_terminal_gets_colours_and_narrow_lines(here):
    pytest.importorskip("pty", reason="needs a terminal to pretend")
    import pty

    main_end, other_end = pty.openpty()
    arguments = ["detect", "normal.csv", "new.csv", "--id", "machine", *QUICK]
    environment = {**os.environ, "COLUMNS": "60", "TERM": "xterm"}
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdout=other_end, stderr=other_end, env=environment
    ) as process:
        os.close(other_end)
        said = b""
        while True:
            try:
                said += os.read(main_end, 1 << 16)
            except OSError:  # how Linux says that the other end is closed
                break
        assert process.wait() == 0
    os.close(main_end)
    text = said.decode()
    assert "Reading normal.csv" in text
    assert "ranking" in text  # a bar
    assert "\x1b[1m" in text
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text).replace("\r", "\n").splitlines()
    table = [line for line in shown if re.match(r"N\d{3} ", line)]
    assert len(table) == 20
    assert all(len(line.rstrip()) <= 60 for line in table)
    assert any(line.rstrip().endswith("…") for line in table)  # the words are cut, not the numbers


# --- exit codes ----------------------------------------------------------------------------------

GOOD = "a,b\n" + "".join(f"{i},{i * i % 7}\n" for i in range(12))
# A table, and what is said of it as a reference, and as new rows; all sentences: test_files.py.
BAD = {
    "no file": (None, "there is no such file", "there is no such file"),
    "text": (b"a,b\n1,2\n2,3\nx,3\n", "text among numbers in 1 column: 'a' (1 of 3 rows, such as",
             "text where the reference has numbers"),
    "delimiter": (b"a;b\n1;2\n2\n", "--delimiter ';'", None),
    "bytes": (b"a,b\n1,2\n\xff,3\n", "line 3: this is not UTF-8 text", "line 3: this is not UTF-8"),
    "decimal commas": (b'a,b\n"1,5",2\n"2,5",3\n', "--decimal ','", "--decimal ','"),
    "no header": (b"1.5,2\n3,4.5\n5,6\n", "--no-header", "--no-header"),
    "Parquet as CSV": (b"PAR1 and so on", "--format parquet", None),
    "column missing": (b"a,c\n1,2\n", None, "it lacks the column 'b' of the reference"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("command", ["detect", "fit", "detect new", "score"])
def test_bad_tables(tmp_path, monkeypatch, kind, command):
    monkeypatch.chdir(tmp_path)
    content, as_reference, as_new = BAD[kind]
    words = as_reference if command in ("detect", "fit") else as_new
    if words is None:
        return
    if content is not None:
        Path("bad.csv").write_bytes(content)
    Path("good.csv").write_text(GOOD)
    if command == "score":
        run("fit", "good.csv", *QUICK, "--model", "good.rcad")
    arguments = {
        "detect": ["detect", "bad.csv", "good.csv", "--output", "out.csv", "--report", "out.html"],
        "fit": ["fit", "bad.csv", "--model", "out.rcad"],
        "detect new": ["detect", "good.csv", "bad.csv", *QUICK, "--output", "out.csv"],
        "score": ["score", "good.rcad", "bad.csv", "--output", "out.csv"],
    }
    said = run(*arguments[command], code=1).stderr
    assert said.startswith("Error: ")
    assert command in ("detect new", "score") or said.startswith("Error: bad.csv")
    assert words in said
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ("detect", 2, ""),
        ("detect normal.csv", 2, ""),
        ("no-such-command", 2, ""),
        ("detect - -", 2, ""),
        ("fit normal.csv", 2, ""),
        ("fit normal.csv --model -", 2, ""),
        ("score plant.rcad", 2, ""),
        ("score x.rcad new.csv --report -", 2, ""),
        ("--no-such-option", 2, ""),
        ("--fdr 1.5", 2, "0<x<1"),
        ("--fdr low", 2, "'low' is not a valid number."),
        ("--top 2.5", 2, "'2.5' is not a valid whole number."),
        ("--top 0", 2, "--top"),
        ("--false-alarms two", 2, "'two' is not a valid number."),
        ("--false-alarms 0", 2, "0.0 is not in the range x>0"),
        ("--false-alarms 2 --fdr 0.1", 2, "leave out --fdr"),
        ("--false-alarms 2 --procedure bh", 2, "leave out --procedure"),
        ("--false-alarms nan", 2, "false_alarms must be a positive number; got nan"),
        ("--false-alarms inf", 2, "must be a positive number; got inf"),
        ("--detector knnn", 2, "Did you mean 'knn'"),
        ("--method prefit", 2, ""),
        ("--set folds=5", 2, ""),
        ("--method cv --set draws=5", 2, ""),
        ("--only-anomalies", 2, ""),
        ("--output x.csv --top 5 --only-anomalies", 2, "--top and --only-anomalies both choose"),
        ("--output - --json", 2, ""),
        ("--output x.csv --report x.csv", 2, ""),
        ("--output normal.csv", 2, "same file"),
        ("--delimiter ab", 2, ""),
        ("--columns 'a\"b,\"c'", 2, ""),
        ("--jobs 0", 2, ""),
        ("--id machin", 1, "Did you mean 'machine'?"),
        ("--label flow", 1, "labels must be 0 or false"),
        ("--label flw", 1, "Did you mean 'flow'"),
        ("--drop flw", 1, "Did you mean 'flow'"),
        ("--validity proven --method jab+", 1, "--validity nominal"),
        ("--set folds=500 --method cv+", 1, "--set folds=500"),
        ("--set calibration=200 --method split", 1, "calibration=200"),
        ("--output no/such/out.csv", 1, "there is no folder"),
        ("--report no/such/out.html", 1, "there is no folder"),
        ("--output out.xls", 1, "or give --format, one of"),
        ("--columns machine", 1, "--columns names 'machine', and so does"),
        # A place is looked at before anything is read.
        ("detect gone.csv new.csv --output old.csv", 1, "old.csv: it exists already"),
        ("inspect gone.rcad", 1, "Error: gone.rcad: no such file"),
        ("inspect empty.rcad", 1, "it is not a zip"),
        ("score cut.rcad new.csv", 1, "cut short"),
    ],
)
def test_refusals(here, given, code, words):
    (here / "old.csv").write_text("precious")
    (here / "empty.rcad").write_bytes(b"")
    (here / "cut.rcad").write_bytes(b"PK\x03\x04 and so on")
    before = set(os.listdir(here))
    if given.startswith("--"):
        given = f"detect normal.csv new.csv --drop machine --detector knn {given}"
    said = run(*shlex.split(given), code=code).stderr
    assert words in said
    assert "Usage: " in said if code == 2 else len(said.splitlines()) == 1
    assert set(os.listdir(here)) == before


def test_nothing_is_overwritten_unasked(here):
    for name in ("out.csv", "report.html", "plant.rcad"):
        (here / name).write_text("precious")
    common = ["detect", "normal.csv", "new.csv", "--drop", "machine", *QUICK]
    fit = ["fit", "normal.csv", "--drop", "machine", *QUICK, "--model", "plant.rcad"]
    for command in ([*common, "--output", "out.csv"], [*common, "--report", "report.html"], fit):
        assert "--overwrite" in run(*command, code=1).stderr
    names = ("out.csv", "report.html", "plant.rcad")
    assert {(here / name).read_text() for name in names} == {"precious"}
    run(*common, "--output", "out.csv", "--report", "report.html", "--overwrite")
    run(*fit, "--overwrite")
    assert read(here / "out.csv").num_rows == 300
    assert model_files.inspect(here / "plant.rcad").n_reference == 200


def interrupted_and_failing():
    try:
        raise KeyboardInterrupt
    finally:  # as a pool of processes may, when it is ended
        raise RuntimeError("cannot schedule new futures after shutdown")


def raising(error):
    def accident():
        raise error

    return accident


@pytest.mark.parametrize(
    ("accident", "code", "words"),
    [
        (lambda: 1 / 0, cli.BUG, "Traceback.*this is a bug in reconform"),
        (raising(PermissionError(13, "Permission denied", "new.csv")), 1,
         r"^Error: new\.csv: permission denied\.\n$"),
        (raising(KeyboardInterrupt()), cli.INTERRUPTED, "Interrupted\\."),
        (interrupted_and_failing, cli.INTERRUPTED, "^Interrupted\\."),
    ],
)  # fmt: skip
def test_what_is_raised_meanwhile(here, monkeypatch, accident, code, words):
    monkeypatch.setattr(judging, "judge_file", lambda *_, **__: accident())
    said = run("detect", "normal.csv", "new.csv", "--drop", "machine", *QUICK, code=code).stderr
    assert re.search(words, said, re.DOTALL), said


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_leaves_nothing(here, number, code):
    run("fit", "normal.csv", "--drop", "machine", *QUICK, "--model", "plant.rcad")
    (here / "out.csv").write_text("precious")
    spool = here / "temporary"
    spool.mkdir()
    arguments = ["score", "plant.rcad", "-", "--output", "out.csv", "--overwrite"]
    before = set(os.listdir(here))
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(spool)},
    ) as process:
        # More than a pipe holds: when it is written, the command is reading, and then waits for
        # more. Python looks at signals between two reads, and in one that waits.
        process.stdin.write(Path("new.csv").read_bytes() * 100)
        process.stdin.flush()
        time.sleep(0.5)
        process.send_signal(number)
        assert process.wait(timeout=60) == code
        said = process.stderr.read().decode()
    assert "Traceback" not in said
    assert (set(os.listdir(here)), (here / "out.csv").read_text()) == (before, "precious")
    assert os.listdir(spool) == []


# --- documents -----------------------------------------------------------------------------------


def options_of(command):
    return sorted(
        name
        for parameter in command.params
        if isinstance(parameter, click.Option)
        for name in parameter.opts
        if name.startswith("--")
    )


def sections():
    """The page cut at its headings, by the anchor of each."""
    parts = re.split(r"^## (.+)$", PAGE.read_text(), flags=re.MULTILINE)
    return {
        heading.lower().replace(" ", "-"): text
        for heading, text in zip(parts[1::2], parts[2::2], strict=True)
    }


COMMANDS = {name: main.get_command(None, name) for name in main.list_commands(None)}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name):
    found = sections()
    text = found[f"reconform-{name}"]
    # The section of the command itself, and those that it refers to.
    text += "".join(found[anchor] for anchor in re.findall(r"\]\(#([\w-]+)\)", text))
    rows = "\n".join(re.findall(r"^\| (`.+?) \| ", text, flags=re.MULTILINE))
    missing = [name for name in options_of(COMMANDS[name]) if f"`{name}" not in rows]
    assert missing == []


def test_nothing_is_documented_that_does_not_exist():
    known = {name for command in COMMANDS.values() for name in options_of(command)}
    rows = re.findall(r"^\| (`--.+?) \| ", PAGE.read_text(), flags=re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(--[\w-]+)", row)}
    assert named - known == set()
    anchors = {*sections(), *re.findall(r"^# (\w+)", PAGE.read_text())}
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE.read_text())) <= anchors


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example(name):
    said = run(name, "--help").stdout
    command = COMMANDS[name]
    assert command.examples
    for example in command.examples:
        assert example in said
        assert example.startswith(f"reconform {name} ") or example == f"reconform {name}"
    assert all(option in said for option in options_of(command))
    assert all(p.help for p in command.params if isinstance(p, click.Option))


def test_examples_of_the_help_run(here, tables):
    for name in ("normal", "new"):
        for suffix in (".csv", ".parquet"):
            (here / f"{name}{suffix}").unlink()
            save(tables[name].drop_columns("machine"), here / f"{name}{suffix}")
    for name in ("detect", "fit", "score", "inspect", "demo"):
        for example in COMMANDS[name].examples:
            run(*shlex.split(example)[1:])


def test_examples_of_the_page_run(here):
    """Every ``console`` block: its commands run, and say what the page shows."""
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    commands = 0
    for block in blocks:
        for line in block.splitlines():
            if line.startswith("$ "):
                said = run(*shlex.split(line)[2:]).stdout.splitlines()
                commands += 1
            elif line != "...":
                assert line in said
    assert commands >= 11


def test_names_that_are_offered_are_known():
    assert {*options.METHODS, "prefit"} == set(methods.method_names())


def test_completion(here):
    result = shell(env={**os.environ, "_RECONFORM_COMPLETE": "bash_source"})
    assert b"_RECONFORM_COMPLETE=bash_complete" in result.stdout


def test_accidents_are_told_from_sentences():
    def error_of(call):
        with pytest.raises(Exception) as caught:
            call()
        return caught.value

    blames = cli.blames_input
    svm = ConformalDetector(OneClassSVM(), "split").fit(np.arange(20.0)[:, None])
    assert blames(error_of(lambda: svm.predict([[1.0, 2.0]])))  # scikit-learn's own validation
    assert blames(error_of(lambda: extra("no_such_package", "online", "Drawing charts")))
    assert not blames(ImportError("cannot import name 'x'"))
    assert not blames(error_of(lambda: np.zeros(2) + np.zeros(3)))
    assert not blames(error_of(lambda: [].index(3)))
    assert not blames(ModuleNotFoundError("No module named 'numpy'"))
    assert not blames(KeyError("x"))


def test_a_command_is_imported_with_the_garbage_collector_on_afterwards():
    assert cli._home("colorsys") is cli._home("colorsys")
    assert gc.isenabled()
    with pytest.raises(ModuleNotFoundError):
        cli._home("reconform.cli.no_such_command")
    assert gc.isenabled()
    gc.disable()
    try:
        cli._home("colorsys")
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_whole_numbers_beyond_two_to_the_53_are_said_to_be_rounded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbers = [2**60 + i for i in range(40)]
    frame = pd.DataFrame({"id": numbers, "a": np.arange(40) % 7, "b": np.arange(40) * 0.5})
    frame.to_csv("normal.csv", index=False)
    quick = ["detect", "normal.csv", "normal.csv", "--detector", "knn", "--method", "split"]
    told = run(*quick).stderr
    assert "whole numbers beyond 2^53 in the column 'id' are rounded" in told
    assert "--id" in told
    kept = run(*quick, "--id", "id", "--output", "o.parquet")
    assert "2^53" not in kept.stderr
    assert pq.read_table("o.parquet")["id"].to_pylist() == list(map(str, numbers))
    frame.assign(id=[2**54 + 4 * i for i in range(40)]).to_csv("normal.csv", index=False)
    assert "2^53" not in run(*quick).stderr  # all of them are float64
