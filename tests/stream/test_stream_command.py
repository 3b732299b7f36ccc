"""`reconform stream`, rows as dicts, and rows that come again after a kill."""

import fcntl
import io
import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import csv
from sklearn.compose import make_column_transformer
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from commands import run
from reconform import ConformalDetector, Prepare
from reconform.cli import main
from reconform.files.lines import blocks_of_lines
from reconform.stream import ChangeMonitor, ExchangeabilityMonitor, FalseAlarmBudget, MicroBatches
from refusals import refused

NAMES = ["flow", "level", "valve"]


def rows_of(seed, count, share=0.05):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3)).round(3)
    X[rng.random(count) < share] += 8
    named = [dict(zip(NAMES, row, strict=True)) for row in X.tolist()]
    return [{"id": f"R{i}", **row} for i, row in enumerate(named)]


def as_json(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_csv(rows):
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of numbers, and one that was prepared: categories and missing values."""
    folder = tmp_path_factory.mktemp("stream")
    normal = rows_of(0, 3_000, share=0)
    (folder / "normal.csv").write_text(as_csv(normal))
    for row in normal:
        row["colour"] = "red" if row["flow"] > 0 else "blue"
    (folder / "messy.csv").write_text(as_csv(normal))
    quick = "--detector", "knn", "--method", "split"
    for name, more in (("normal", []), ("messy", ["--prepare"])):
        made = "--id", "id", "--model", folder / name
        run("fit", folder / f"{name}.csv", *made, *quick, *more)
    return folder


def stream(folder, *arguments, input, model="normal", code=0):
    result = CliRunner().invoke(main, ["stream", str(folder / model), *arguments], input=input)
    assert result.exit_code == code, result.output
    assert not re.search(r"`|\b[a-z_]+=\S", result.stderr), result.stderr
    return result


def decisions(result):
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- rows as dicts -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cad():
    frame = pd.DataFrame(rows_of(0, 1_000, share=0))[NAMES]
    return ConformalDetector("knn", "split", random_state=0).fit(frame)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "make",
    [
        lambda cad: FalseAlarmBudget(cad, 5, 100),
        lambda cad: ExchangeabilityMonitor(cad, random_state=0),
        lambda cad: ChangeMonitor(cad, random_state=0),
        lambda cad: MicroBatches(cad, 20),
    ],
)
def test_every_kind_of_rows_is_taken(cad, make):
    rows = rows_of(1, 20)
    frame = pd.DataFrame(rows)[["valve", "flow", "level"]]  # columns in another order
    kinds = [
        frame,
        pl.DataFrame(frame),
        pa.Table.from_pandas(frame),
        pa.RecordBatch.from_pandas(frame),
        rows,
        tuple(dict(reversed(row.items())) for row in rows),
        frame[NAMES].to_numpy(),
    ]
    p_values = []
    for kind in kinds:
        found = make(cad).update(kind)
        p_values.append((found[0] if isinstance(found, list) else found).p_values)
    assert all(np.array_equal(p_values[0], other) for other in p_values)
    stream = make(cad)
    for row in rows:
        stream.update(row)  # one dict
    assert stream.rows == 20


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"flow": 1, "level": 2}], r"row 0 lacks the key 'valve' of the reference"),
        (
            [dict.fromkeys(NAMES, 1), {"flow": 1, "levle": 2, "valve": 3}],
            "row 1 lacks the key 'level' .*Did you mean 'levle'",
        ),
        ([dict.fromkeys(NAMES, 1), [1, 2, 3]], "row 1 is list, and others are dicts"),
        ([{"flow": [1, 2], "level": 2, "valve": 3}], "'flow' holds a list; give one value"),
        ([{"flow": "high", "level": 2, "valve": 3}], "X holds text in the column 'flow'"),
        ([{"flow": None, "level": 2, "valve": 3}], "NaN"),
        ({}, "row 0 lacks the keys 'flow', 'level', 'valve'"),
    ],
)
def test_rows_that_cannot_be_used_get_a_sentence_and_spend_nothing(cad, rows, said):
    budget = FalseAlarmBudget(cad, 5, 100)
    refused(said, budget.update, rows)
    assert (budget.rows, budget.batches) == (0, 0)
    assert budget.update([dict.fromkeys(NAMES, 1)]).p_values.shape == (1,)


def test_dicts_with_text_and_missing_values():
    rows = rows_of(0, 300, share=0)
    for i, row in enumerate(rows):
        row["colour"] = ("red", "blue", None)[i % 3]
        row["flow"] = None if i % 50 == 7 else row["flow"]
        del row["id"]
    frame = pd.DataFrame(rows)
    cad = ConformalDetector(Prepare("knn"), "split", random_state=0).fit(frame)
    got = FalseAlarmBudget(cad, 5, 100).update(rows[:60]).p_values
    assert np.array_equal(got, cad.p_values(frame.iloc[:60]))
    encode = make_column_transformer((OneHotEncoder(handle_unknown="ignore"), ["colour"]))
    pipe = make_pipeline(encode, IsolationForest(random_state=0))
    piped = ConformalDetector(pipe, "split", random_state=0).fit(frame[["colour", "level"]])
    got = FalseAlarmBudget(piped, 5, 100).update(rows[:60]).p_values
    assert np.array_equal(got, piped.p_values(frame.iloc[:60][["colour", "level"]]))


# --- the command ---------------------------------------------------------------------------------


def test_one_decision_per_row(folder):
    rows = rows_of(2, 300)
    result = stream(folder, "--false-alarms", "5", "--per", "100", input=as_json(rows))
    found = decisions(result)
    assert [list(one) for one in found[:1]] == [["row", "line", "id", "p_value", "anomaly"]]
    assert [one["row"] for one in found] == list(range(300))
    assert [one["line"] for one in found] == list(range(1, 301))
    assert [one["id"] for one in found] == [row["id"] for row in rows]
    flagged = sum(one["anomaly"] for one in found)
    far = {row["id"] for row in rows if row["flow"] > 6}
    assert {one["id"] for one in found if one["anomaly"]} >= far
    assert "A row is flagged if fewer than" in result.stderr
    assert "At most 5 false alarms in any 100 rows expected" in result.stderr
    assert f"300 rows decided, {flagged} flagged; 0 lines skipped." in result.stderr
    quiet = stream(folder, "--false-alarms", "5", "--per", "100", "--quiet", input=as_json(rows))
    assert (quiet.stdout, quiet.stderr) == (result.stdout, "")


def test_identifiers_come_out_as_they_went_in(folder):
    rows = rows_of(17, 5)
    for row, name in zip(rows, ["é", "\ud800", 2**70, None, {"a": [1.5]}], strict=True):
        row["id"] = name
    found = decisions(stream(folder, input=as_json(rows)))
    assert [one["id"] for one in found] == [row["id"] for row in rows]


def test_csv_and_json_give_the_same_decisions(folder):
    rows = rows_of(3, 200)
    one = decisions(stream(folder, input=as_json(rows)))
    other = decisions(stream(folder, "--format", "csv", input=as_csv(rows)))
    for a, b in zip(one, other, strict=True):
        assert (a["p_value"], a["id"]) == (b["p_value"], b["id"])
        assert a["line"] + 1 == b["line"]  # after the header
    tabs = as_csv(rows).replace(",", "\t")
    assert decisions(stream(folder, "--format", "tsv", input=tabs)) == other


@pytest.mark.parametrize("format", ["jsonl", "csv"])
def test_a_prepared_model_takes_categories_and_missing_values(folder, format, tmp_path):
    rows = rows_of(4, 50)
    for i, row in enumerate(rows):
        row["colour"] = ("red", "blue", "mauve", None)[i % 4]
        row["flow"] = None if i % 7 == 0 else row["flow"]
    text = as_csv(rows).replace("None", "")
    (tmp_path / "new.csv").write_text(text)
    run("score", folder / "messy", tmp_path / "new.csv", "--output", tmp_path / "scored.csv")
    expected = csv.read_csv(tmp_path / "scored.csv")["p_value"].to_pylist()
    given = as_json(rows) if format == "jsonl" else text
    got = decisions(stream(folder, "--format", format, input=given, model="messy"))
    assert [one["p_value"] for one in got] == expected


@pytest.mark.parametrize(
    "options",
    [
        ["--by", "windows", "--window", "30"],
        ["--by", "windows", "--window", "30", "--false-alarms", "2"],
        ["--per", "864"],
    ],
)
def test_every_way_to_decide(folder, options):
    found = decisions(stream(folder, *options, input=as_json(rows_of(5, 100, share=0.3))))
    assert [one["row"] for one in found] == list(range(100))
    if options[1] == "windows":
        assert [one["window"] for one in found] == [i // 30 for i in range(100)]
    assert any(one["anomaly"] for one in found)


def test_a_budget_that_flags_nothing_is_said_once(folder):
    said = stream(folder, "--false-alarms", "0.001", input=as_json(rows_of(1, 3))).stderr
    assert said.count("calibration rows are too few for 0.001 false alarms") == 1


# --- lines that cannot be used -------------------------------------------------------------------

BAD = [
    ("oops", "it is not a JSON object: Expecting value at character 1"),
    ("[1, 2]", "it is a list and not a JSON object"),
    ('{"flow": 1, "level": 2, "id": 1}', "it lacks the key 'valve' of the reference"),
    ('{"flow": 1, "level": 2, "valve": 3}', "it lacks the key 'id' that --id names"),
    ('{"flow": "high", "level": 2, "valve": 3, "id": 1}', "'flow' is the text 'high'"),
    ('{"flow": null, "level": 2, "valve": 3, "id": 1}', "'flow' is missing"),
    ('{"flow": 1e999, "level": 2, "valve": 3, "id": 1}', "'flow' is inf, which is no finite"),
    ('{"flow": [1], "level": 2, "valve": 3, "id": 1}', "'flow' is a list; write one value"),
    ('{"flow": 1' + "0" * 400 + ', "level": 2, "valve": 3, "id": 1}', "that is too large"),
    ('{"flow": 1, "level": 2, "val', "it is not a JSON object: Unterminated string"),
    ("[" * 100_000, "it is not a JSON object|it cannot be read"),
]


@pytest.mark.parametrize(("line", "said"), BAD)
def test_a_bad_line_stops_after_all_before_it(folder, line, said):
    good = [json.dumps(row) for row in rows_of(7, 6)]
    text = "\n".join([*good[:4], "", line, *good[4:]])
    for options in ([], ["--by", "windows", "--window", "3"]):
        result = stream(folder, *options, input=text, code=1)
        assert [one["line"] for one in decisions(result)] == [1, 2, 3, 4]
        assert re.search(f"Error: standard input, line 6: .*{said}", result.stderr), result.stderr


def test_bad_lines_are_skipped_and_counted(folder):
    good = rows_of(8, 20)
    lines = [json.dumps(row) for row in good]
    for place, (line, _) in enumerate(BAD):
        lines.insert(2 * place, line)
    result = stream(folder, "--on-error", "skip", input="\n".join(lines))
    assert [one["id"] for one in decisions(result)] == [row["id"] for row in good]
    assert [one["row"] for one in decisions(result)] == list(range(20))
    for place, (_, said) in enumerate(BAD):
        sentence = f"Skipped: standard input, line {2 * place + 1}: .*({said})"
        assert re.search(sentence, result.stderr)
    assert "11 lines skipped." in result.stderr
    plain = decisions(stream(folder, input=as_json(good)))
    assert [one["p_value"] for one in decisions(result)] == [one["p_value"] for one in plain]


def test_very_many_bad_lines_are_only_counted(folder):
    result = stream(folder, "--on-error", "skip", input="oops\n" * 500)
    assert result.stderr.count("Skipped: standard input") == 100
    assert "0 rows decided, 0 flagged; 500 lines skipped." in result.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("A,1,2", "it has 3 fields, and the header has 4"),
        ("A,high,2,3", "'flow' is the text 'high', where the reference has numbers"),
        ("A,,2,3", "'flow' is missing; a model that was fitted with reconform fit --prepare"),
        ('"A,1,2,3', "a cell of a stream ends on its line"),
    ],
)
def test_bad_lines_of_csv(folder, line, said):
    text = "\n".join([as_csv(rows_of(9, 2)).strip(), line, "Z,1,1,1"])
    result = stream(folder, "--format", "csv", input=text, code=1)
    assert len(decisions(result)) == 2
    assert re.search(f"line 4: .*{re.escape(said)}", result.stderr), result.stderr
    result = stream(folder, "--format", "csv", "--on-error", "skip", input=text)
    assert [one["id"] for one in decisions(result)] == ["R0", "R1", "Z"]


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("id,flow,valve", "it lacks the column 'level' of the reference"),
        ("id,flow,level,valve,flow", "two columns are called 'flow'"),
    ],
)
def test_a_bad_header_is_never_skipped(folder, header, said):
    options = ["--format", "csv", "--on-error", "skip"]
    result = stream(folder, *options, input=header + "\n1,2,3\n", code=1)
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--per", "day"], "'day' is not a valid whole number"),
        (["--fdr", "0.1"], "--fdr goes with --by windows or decay; it is --by budget"),
        (["--by", "windows", "--per", "5"], "--per goes with --by budget"),
        (["--by", "windows", "--fdr", "0.2", "--false-alarms", "1"], "give one"),
        (["--false-alarms", "inf"], "must be a positive number; got inf"),
        (["--from", "3"], "--from goes with --journal"),
        (["--id", "row"], "--id names the key 'row'"),
    ],
)
def test_options_that_cannot_be(folder, options, said):
    result = stream(folder, *options, input=as_json(rows_of(0, 1)), code=2)
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert result.stdout == ""


# --- rows that come again ------------------------------------------------------------------------


@pytest.mark.parametrize("options", [[], ["--by", "windows", "--window", "30"]])
def test_a_journal_answers_rows_that_come_again(folder, tmp_path, options):
    rows = rows_of(10, 100)
    journal = ["--journal", str(tmp_path / "journal"), *options]
    whole = stream(folder, *options, input=as_json(rows)).stdout
    first = stream(folder, *journal, input=as_json(rows)).stdout
    assert first == whole
    again = stream(folder, *journal, input=as_json(rows))
    assert again.stdout == whole
    assert "has 100 rows; the first line is taken for row 0." in again.stderr
    later = decisions(stream(folder, *journal, "--from", "40", input=as_json(rows[40:])))
    assert [one["row"] for one in later] == list(range(40, 100))
    first = [json.loads(line)["p_value"] for line in whole.splitlines()]
    assert [one["p_value"] for one in later] == first[40:]
    more = rows_of(11, 5)
    grown = decisions(stream(folder, *journal, "--from", "100", input=as_json(more)))
    assert [one["row"] for one in grown] == list(range(100, 105))


def test_what_does_not_fit_a_journal_is_refused(folder, tmp_path):
    rows, path = rows_of(12, 30), str(tmp_path / "journal")
    stream(folder, "--journal", path, input=as_json(rows))
    before = (tmp_path / "journal").read_bytes()
    for options, said in (
        (["--from", "31"], "--from 31 skips rows: 30 were decided before"),
        (["--from", "2"], "row 2 was decided before, with other values"),
        (["--per", "500"], "begun with other options (per 1000, not 500)"),
        (["--by", "windows"], "must be a journal of MicroBatches"),
    ):
        result = stream(folder, "--journal", path, *options, input=as_json(rows), code=1)
        assert said in result.stderr
        assert result.stdout == ""
    assert (tmp_path / "journal").read_bytes() == before


# --- processes -----------------------------------------------------------------------------------

PROGRAM = [sys.executable, "-m", "reconform", "stream"]


def test_a_row_is_answered_while_the_pipe_is_open_and_a_closed_pipe_ends_quietly(folder):
    with subprocess.Popen(
        [*PROGRAM, str(folder / "normal")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        for number, row in enumerate(rows_of(13, 3)):
            process.stdin.write(json.dumps(row) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["row"] == number
        process.stdout.close()  # nobody reads any more
        process.stdin.write(as_json(rows_of(14, 50)))
        process.stdin.close()
        assert process.wait(timeout=60) == 0
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("closed", ["stdin", "stdout"])
def test_closed_streams_get_a_sentence(folder, closed, monkeypatch, capsys):
    monkeypatch.setattr(sys, closed, None)
    with pytest.raises(SystemExit) as ended:
        main(["stream", str(folder / "normal"), "--quiet"])
    assert ended.value.code == 1
    assert re.search("standard (in|out)put: it is closed", capsys.readouterr().err)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_whole_numbers_that_are_rounded_are_said_once(folder, form):
    rows = [{**row, "flow": 2**53 + 1} for row in rows_of(3, 4)]
    text = as_json(rows) if form == "jsonl" else pd.DataFrame(rows).to_csv(index=False)
    said = stream(folder, "--format", form, input=text).stderr
    assert said.count("whole numbers beyond 2^53 in the column 'flow' are rounded") == 1
    exact = [{**row, "flow": 2**53} for row in rows_of(3, 4)]
    assert "rounded" not in stream(folder, input=as_json(exact)).stderr


def test_a_second_process_on_one_journal_gets_a_sentence(folder, tmp_path):
    journal = tmp_path / "journal"
    stream(folder, "--journal", str(journal), input=as_json(rows_of(1, 5)))
    with journal.open("r+b") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        said = stream(folder, "--journal", str(journal), input="", code=1).stderr
    assert "is in use: another process" in said
    assert "Traceback" not in said


def test_blocks_are_what_is_there():
    class Slow(io.BytesIO):
        def read1(self, size=-1):
            return super().read1(3)

    text = b'{"a": 1}\n\n{"b": 2}\r\n{"c": 3}'
    assert list(blocks_of_lines(Slow(text))) != [[]]
    lines = [line for block in blocks_of_lines(Slow(text)) for line in block]
    assert lines == [(1, b'{"a": 1}'), (3, b'{"b": 2}\r'), (4, b'{"c": 3}')]
