"""The command line's outputs: none replaces an input, and all appear or none does."""

import json
import os
import resource
import subprocess
import sys

import numpy as np
import pytest

from commands import run, run_json
from reconform.files import Layout
from refusals import refused

QUICK = ["--detector", "knn", "--method", "jackknife+"]
DETECT = ["detect", "normal.csv", "new.csv", *QUICK]


FIT = ["fit", "normal.csv", *QUICK]
BOTH = ["--output", "out.csv", "--report", "page.html"]


def write_rows(path, names, count, anomalous=0, seed=0):
    X = np.random.default_rng(seed).normal(size=(count, len(names)))
    X[:anomalous] += 9
    lines = [",".join(names), *(",".join(f"{value:.4f}" for value in row) for row in X)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "normal.csv", "ab", 60)
    write_rows(tmp_path / "new.csv", "ab", 40, anomalous=10, seed=1)
    return tmp_path


def shell(command, *arguments, **options):
    """Run a command of the shell, in which $@ is `reconform` with arguments."""
    program = [sys.executable, "-m", "reconform", *map(os.fsencode, map(str, arguments))]
    return subprocess.run(["bash", "-c", command, "bash", *program], capture_output=True, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        [*DETECT, "--report", "new.csv"],
        [*DETECT, "--output", "link.csv"],
        [*DETECT, "--output", "sub/../new.csv"],
        [*DETECT, "--output", "same.csv", "--report", "sub/../same.csv"],
        ["fit", "normal.csv", *QUICK, "--model", "normal.csv"],
        ["fit", "normal.csv", "--anomalies", "known.csv", "--model", "known.csv"],
        [*DETECT[:3], "--anomalies", "known.csv", "--output", "sub/../known.csv"],
        ["score", "plant.rcad", "new.csv", "--output", "plant.rcad", "--format", "csv"],
    ],
    ids=" ".join,
)
def test_no_output_replaces_an_input_or_another_output(here, arguments):
    run("fit", "normal.csv", *QUICK, "--model", "plant.rcad")
    (here / "sub").mkdir()
    (here / "link.csv").symlink_to("new.csv")
    (here / "known.csv").write_text((here / "new.csv").read_text())
    before = {path: path.read_bytes() for path in here.iterdir() if path.is_file()}
    assert "are the same file" in run(*arguments, "--overwrite", code=2).stderr
    assert {path: path.read_bytes() for path in here.iterdir() if path.is_file()} == before


def test_standard_input_may_be_a_file_too(here):
    before = (here / "new.csv").read_bytes()
    given = ["detect", "normal.csv", "-", *QUICK, "--output", "new.csv", "--overwrite"]
    assert shell('"$@" < new.csv', *given).returncode == 2
    assert (here / "new.csv").read_bytes() == before


@pytest.mark.parametrize("command", ['"$@" < rows.jsonl', '"$@" < /dev/null >> rows.jsonl'])
def test_a_journal_is_neither_input_nor_output(here, command):
    """Whatever else was in the file, the journal would cut it off."""
    run("fit", "normal.csv", *QUICK, "--model", "plant.rcad")
    (here / "rows.jsonl").write_text("")
    out = shell(command, "stream", "plant.rcad", "--journal", "rows.jsonl")
    assert out.returncode == 2
    assert b"are the same file" in out.stderr
    assert (here / "rows.jsonl").read_bytes() == b""


def test_a_page_has_the_name_of_a_file(here):
    for command in (["demo"], DETECT):
        assert "must be the name of a file" in run(*command, "--report", "-", code=2).stderr
    assert not (here / "-").exists()


@pytest.mark.parametrize("names", [("score", "anomaly"), ("p_value", "q_value")])
def test_columns_may_have_the_names_of_results(here, names):
    said = run(*DETECT).stdout
    plain, labelled = run_json(*DETECT), run_json(*DETECT, "--id", "a")
    write_rows(here / "normal.csv", names, 60)
    write_rows(here / "new.csv", names, 40, anomalous=10, seed=1)
    named = run(*DETECT, "--report", "page.html").stdout
    assert named.splitlines()[0] == said.splitlines()[0]
    assert run_json(*DETECT)["anomalies"] == plain["anomalies"] != []
    found = run_json(*DETECT, "--id", names[0], "--report", "page.html", "--overwrite")["anomalies"]
    by_name = [row["id"][names[0]] for row in found]
    assert by_name == [row["id"]["a"] for row in labelled["anomalies"]]
    run("fit", "normal.csv", *QUICK, "--model", "plant.rcad")
    assert run_json("score", "plant.rcad", "new.csv")["anomalies"] == plain["anomalies"]
    run(*DETECT, "--output", "out.csv")
    assert (here / "out.csv").read_text().splitlines()[0].endswith("result_anomaly")


CLOSED_IN, CLOSED = b"standard input: it is closed", b"standard output: it is closed"
FULL = b"standard output: it cannot be written"


@pytest.mark.parametrize(
    ("command", "given", "code", "words"),
    [
        ('"$@" >&-', [*DETECT, *BOTH], 1, CLOSED),
        ('"$@" >&-', [*DETECT, *BOTH, "--json"], 1, CLOSED),
        ('"$@" >&-', [*DETECT, *BOTH, "--quiet"], 0, b""),
        ('"$@" <&-', [*DETECT, *BOTH], 0, b""),
        ('"$@" 2>&-', [*DETECT, *BOTH], 0, b""),
        ('"$@" 2>/dev/full', [*DETECT, *BOTH], 0, b""),
        ('"$@" >/dev/full', [*DETECT, *BOTH], 1, FULL + b" (No space"),
        ('"$@" >/dev/full', [*DETECT, *BOTH, "--json"], 1, FULL + b" (No space"),
        # The reader is gone before the first word: the shell waits for that.
        ('{ sleep 0; "$@"; echo $? >code; } | exec true', [*DETECT, *BOTH], 1, b"standard output"),
        ('"$@" <&-', ["detect", "normal.csv", "-", *QUICK, *BOTH], 1, CLOSED_IN),
        ('"$@" <&-', ["detect", "-", "new.csv", *QUICK, *BOTH], 1, CLOSED_IN),
        ('"$@" >&-', [*DETECT, "--report", "page.html", "--output", "-", "--quiet"], 1, CLOSED),
        ('"$@" >/dev/full', [*DETECT, "--report", "page.html", "--output", "-"], 1, FULL),
        ('"$@" >/dev/full', ["--help"], 1, b"no space left on device"),
        ('"$@" >/dev/full', [*FIT, "--model", "m.rcad"], 1, b"standard output"),
        ('"$@" >/dev/full', ["demo", "--report", "page.html"], 1, FULL),
    ],
    ids=str,
)
def test_outputs_agree_with_the_exit_code(here, command, given, code, words):
    done = shell(command, *given)
    found = int((here / "code").read_text()) if "code" in command else done.returncode
    assert found == code, done.stderr
    assert words in done.stderr
    assert b"Traceback" not in done.stderr
    assert code == 0 or b"page.html" not in done.stderr  # it is not claimed either
    expected = {"out.csv", "page.html"} if code == 0 else set()
    assert set(os.listdir(here)) - {"normal.csv", "new.csv", "code"} == expected


@pytest.mark.parametrize(
    "name", ["out.csv", "out.csv.gz", "out.parquet", "out.arrow", "page.html", "plant.rcad"]
)
def test_a_file_that_cannot_be_written_is_named(here, name):
    """Writes fail for real: no file may grow beyond a size."""
    most = 20_000 if name == "page.html" else 1_000

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    option = "--report" if name == "page.html" else "--output"
    command = [*DETECT, option, name] if name != "plant.rcad" else [*FIT, "--model", name]
    done = shell('"$@"', *command, "--quiet", preexec_fn=small)
    assert done.returncode == 1
    assert done.stderr == f"Error: {name}: it cannot be written (File too large).\n".encode()
    assert sorted(os.listdir(here)) == ["new.csv", "normal.csv"]


def test_temporary_files_that_cannot_be_written_are_named(here):
    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))

    folder = here / "temporary"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    words = f"Error: temporary files in {folder} (set TMPDIR for another folder): it cannot be"
    given = ["detect", "normal.csv", "-", *QUICK, "--quiet"]
    done = shell('cat new.csv new.csv | "$@"', *given, preexec_fn=small, env=environment)
    assert done.returncode == 1
    assert done.stderr.decode().startswith(words)
    assert os.listdir(folder) == []


ODD = os.fsdecode(b"odd\xff\xfe")


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet", ".arrow"])
def test_names_of_files_are_any_bytes(here, suffix):
    folder = here / ODD
    folder.mkdir()
    run(*DETECT, "--output", folder / f"{ODD}{suffix}")
    assert os.listdir(os.fsencode(folder)) == [os.fsencode(ODD + suffix)]
    run("fit", "normal.csv", *QUICK, "--model", folder / f"{ODD}.rcad")
    again = run_json("score", folder / f"{ODD}.rcad", folder / f"{ODD}{suffix}")
    assert again["flagged"] == run_json(*DETECT)["flagged"] > 0
    if suffix == ".csv":
        os.rename("normal.csv", f"{ODD}-normal.csv")
        given = ["detect", f"{ODD}-normal.csv", f"{ODD}/{ODD}.csv", *QUICK, "--columns", "a,b"]
        for how in ([], ["--json"]):
            page = ["--report", f"{ODD}-{len(how)}.html"]
            done = shell('"$@"', *given, *page, *how)
            assert done.returncode == 0, done.stderr
            assert (here / page[1]).exists()
        assert json.loads(done.stdout)["new"]["path"] == f"{ODD}/{ODD}.csv"


@pytest.mark.parametrize("option", ["--missing", "--id", "--drop", "--delimiter"])
def test_other_values_are_text(here, option):
    done = shell('"$@"', *DETECT, "--output", "out.csv", option, os.fsdecode(b"\xff"))
    assert done.returncode == 2
    assert f"'{option}'".encode() in done.stderr
    assert b"Traceback" not in done.stderr
    assert not (here / "out.csv").exists()


@pytest.mark.parametrize("delimiter", ["é", "→", '"', "\n", "", "ab"])
def test_delimiters_that_cannot_be(here, delimiter):
    said = run(*DETECT, "--delimiter", delimiter, code=2).stderr
    assert "one ASCII character" in said
    refused("`delimiter` must be one ASCII character", Layout, delimiter=delimiter)
