"""What columns are used as where nobody says it: ordinary tables, ugly cells, dates."""

import bz2
import datetime
import gzip
import lzma
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import fs

from commands import run, run_json
from reconform import ConformalDetector
from reconform.errors import InputError
from reconform.files import Layout, check_output, open_batches
from reconform.files.judge import judge_file
from reconform.frames import calendar_part, calendar_parts
from reconform.tables import TYPED, Feature, Written, describe, restore
from reconform.tables.cells import DATE_FORMATS, numbers, seconds
from refusals import refused
from rows import read_reference


def ordinary(rng, n, start="2024-01-01"):
    """A table as people have it: ids, text, a date, gaps, a constant, a code for missing."""
    frame = pd.DataFrame(
        {
            "uid": rng.permutation(10 * n)[:n] + 1000,
            "serial": [f"L{i:06d}" for i in rng.permutation(10**5)[:n]],
            "when": pd.date_range(start, periods=n, freq="41min").astype(str),
            "kind": rng.choice(["low", "medium", "high"], n),
            "pressure": rng.normal(10, 1, n).round(2),
            "price": [f"{x:,.2f}" for x in rng.lognormal(8, 1, n)],
            "humidity": [f"{x:.1f}%" for x in rng.uniform(0, 100, n)],
            "fault": np.zeros(n, dtype=int),
            "sensor": np.where(rng.random(n) < 0.1, -200, rng.normal(50, 5, n).round(1)),
            "note": [f"the pump number {i} was looked at by somebody again" for i in range(n)],
            "empty": [None] * n,
        }
    )
    frame.loc[rng.random(n) < 0.05, "pressure"] = np.nan
    return frame


SAID = {
    "uid": "id, different in every row: left out",
    "serial": "id, different in most rows: left out",
    "when": "date: hour and weekday",
    "kind": "category with 3 labels",
    "pressure": "number, missing in",
    "price": "number",
    "humidity": "number",
    "fault": "constant, 0 in every reference row",
    "sensor": "a code for missing? If it is, say --missing -200",
    "note": "free text: left out",
    "empty": "empty: left out",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    ordinary(rng, 1200).to_csv("a.csv", index=False)
    new = ordinary(rng, 1100, "2024-03-01")
    new.loc[:19, "fault"] = 3
    new.to_csv("b.csv", index=False)
    return tmp_path


def test_two_ordinary_files_run_at_once(here):
    facts = run_json("detect", "a.csv", "b.csv")
    columns = facts["reference"]["columns"]
    assert list(columns) == list(SAID)
    said = run("detect", "a.csv", "b.csv").stdout
    for name, words in SAID.items():
        assert words in columns[name]
        assert words == "number" or f"Column '{name}': " in said
    assert "say --missing -200" in said
    assert "2 columns 'price', 'humidity': numbers." in said
    found = {row["id"]["uid"] for row in facts["anomalies"]}
    assert set(pd.read_csv("b.csv")["uid"][:20].astype(str)) <= found
    assert "fault 3 (it was 0 in all 1,200 reference rows)" in said


def test_options_overrule(here):
    said = run_json("detect", "a.csv", "b.csv", "--drop", "note,empty", "--id", "serial",
                    "--category", "sensor", "--elapsed", "when", "--missing", "-200")  # fmt: skip
    columns = said["reference"]["columns"]
    assert set(SAID) - set(columns) == {"note", "empty", "serial"}
    assert columns["when"] == "date: elapsed"
    assert columns["sensor"].startswith("category with")
    kept = run_json("detect", "a.csv", "b.csv", "--columns", "uid,pressure")
    assert kept["reference"]["features"] == ["uid", "pressure"]


def test_a_row_is_found_by_any_of_its_names(here):
    rows = pd.read_csv("b.csv")
    names = [str(rows["uid"][3]), rows["serial"][3], f"{rows['uid'][3]}, {rows['serial'][3]}"]
    quick = ["detect", "a.csv", "b.csv", "--detector", "knn", "--method", "split", "--explain"]
    facts = [run_json(*quick, name) for name in [*names, "4"]]
    explained = [fact["explanations"][0] for fact in facts]
    assert {one["row"] for one in explained} == {names[2]}
    assert "no row" in run(*quick, "nobody", code=1).stderr


def test_a_model_remembers_how_dates_are_written(here):
    run("fit", "a.csv", "--columns", "when,kind,pressure", "--detector", "knn", "--method", "split",
        "--model", "m.rcad")  # fmt: skip
    run("score", "m.rcad", "b.csv", "--output", "out.csv")
    bad = pd.read_csv("b.csv")
    bad["when"] = "soon"
    bad.to_csv("bad.csv", index=False)
    assert "something else than dates" in run("score", "m.rcad", "bad.csv", code=1).stderr
    features = read_reference("a.csv").features
    assert restore(describe(features)) == features


@pytest.mark.parametrize(
    ("cell", "number"),
    [("1,565.00", 1565), ("1,234,567", 1234567), ("12.5%", 12.5), ("12.5 %", 12.5), ("−3", -3),
     ("-1,565.5", -1565.5), ("1,565", None), ("12,5", None), ("1,56.00", None), ("%", None)],
)  # fmt: skip
def test_numbers_as_people_write_them(cell, number):
    values, unreadable = numbers(pa.chunked_array([[cell]]), Written())
    assert unreadable[0] == (number is None)
    assert number is None or values[0] == number


@pytest.mark.parametrize(
    ("cell", "written", "expected"),
    [
        ("2024-02-29 13:05:09", "iso", datetime.datetime(2024, 2, 29, 13, 5, 9)),
        ("2024-02-29T13:05:09.123456789+02:00", "iso", datetime.datetime(2024, 2, 29, 13, 5, 9)),
        ("29/02/2024 13:05", "%d/%m/%Y %H:%M", datetime.datetime(2024, 2, 29, 13, 5)),
        ("2024-02-30", "iso", None),
        ("31.13.2024", "%d.%m.%Y", None),
        ("2024-02-29 later", "iso", None),
    ],
)
def test_dates_as_people_write_them(cell, written, expected):
    read, wrong = seconds(pa.chunked_array([[cell, ""]]), written, Written())
    assert wrong.tolist() == [expected is None, False]
    if expected is not None:
        assert int(read[0]) == expected.replace(tzinfo=datetime.UTC).timestamp()


def test_typed_times_are_those_that_are_written():
    when = datetime.datetime(2024, 5, 17, 23, 59, 30)
    expected = seconds(pa.chunked_array([[str(when)]]), "iso", Written())[0]
    for unit in ("s", "ms", "us", "ns"):
        cells = pa.chunked_array([pa.array([when], pa.timestamp(unit))])
        assert seconds(cells, "typed", TYPED)[0] == expected
    for cells in (pa.array([when.time()]), pa.array([when.date()])):
        read = seconds(pa.chunked_array([cells]), "typed", TYPED)[0]
        assert read[0] % 86_400 == (expected[0] % 86_400 if cells.type != pa.date32() else 0)
    assert "iso" in DATE_FORMATS


def test_a_calendar_is_a_clock():
    monday = np.array([datetime.date(2024, 1, 1).toordinal() - 719_163]) * 86_400.0
    for part in ("hour", "weekday", "month"):
        assert calendar_part(monday, f"{part} (cos)")[0] == pytest.approx(1, abs=0.01)
        assert calendar_part(monday, f"{part} (sin)")[0] == pytest.approx(0, abs=0.02)
    days = np.arange(0, 40 * 86_400.0, 3600)
    assert calendar_parts([days]) == ["hour", "weekday"]
    assert calendar_parts([days, days[:30]]) == []
    assert calendar_parts([np.arange(0, 4.1 * 366) * 86_400]) == ["weekday", "month"]


def test_columns_without_a_name_and_files_without_a_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,,\n1,,\n2,,\n3.5,,\n4,,\n")
    table = read_reference(path)
    assert table.names == ("x",)
    assert [use.said for use in table.uses[1:]] == ["empty: left out"] * 2
    path.write_text("1.5,2\n3,4\n2,7\n")
    refused("no_header=True", read_reference, path, error=InputError)
    layout = Layout(no_header=True)
    table = read_reference(path, layout=layout)
    assert table.X.tolist() == [[1.5, 2], [3, 4], [2, 7]]
    assert table.names == ("column 1", "column 2")
    path.write_text("1.5,2\n3,4\n2,x\n")
    refused("line 3", read_reference, path, layout=layout, error=InputError)
    with open_batches(path, [Feature("column 1")], layout=layout) as batches:
        assert np.concatenate(list(batches)).tolist() == [[1.5], [3], [2]]
    path.write_text("1,2\n3\n")
    refused("1 field, and the header has 2", read_reference, path, layout=layout, error=InputError)


def test_a_column_that_only_one_file_has_may_be_dropped(here):
    frame = pd.read_csv("b.csv")
    frame.assign(extra=1).to_csv("more.csv", index=False)
    run("detect", "a.csv", "more.csv", "--drop", "extra,note")
    assert "'nothing'" in run("detect", "a.csv", "b.csv", "--drop", "nothing", code=1).stderr


# --- files as they come --------------------------------------------------------------------------

ROWS = pd.DataFrame({"x": np.arange(30) % 7 + 0.5, "kind": ["a", "b", "c"] * 10})


def written(folder, name):
    """The same rows in a file of another kind."""
    path, text = folder / name, ROWS.to_csv(index=False).encode()
    if name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("rows.csv", text)
    elif name.endswith(".zst"):
        with pa.CompressedOutputStream(pa.OSFile(str(path), "wb"), "zstd") as sink:
            sink.write(text)
    elif name.endswith((".xz", ".bz2")):
        path.write_bytes((lzma if name.endswith(".xz") else bz2).compress(text))
    elif name.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
        ROWS.to_excel(path, index=False)
    elif name.endswith("l"):
        path.write_text(ROWS.to_json(orient="records", lines=True))
    elif name.endswith(".json"):
        path.write_text(ROWS.to_json(orient="records"))
    else:  # a folder
        path.mkdir()
        for k in range(3):
            part, file = ROWS[10 * k : 10 * k + 10], path / f"{k}{Path(name).suffix}.parquet"
            if "csv" in name:
                part.to_csv(file.with_suffix(".csv"), index=False)
            else:
                part.to_parquet(file, index=False)
    return path


KINDS = ("r.csv.zip", "r.csv.zst", "r.csv.xz", "r.csv.bz2", "r.xlsx", "r.jsonl", "r.json")


@pytest.mark.parametrize("name", [*KINDS, "folder", "folder_csv"])
def test_the_same_rows_in_any_file(tmp_path, name):
    path = written(tmp_path, name)
    expected = read_reference(save_csv(tmp_path))
    for one in (path, tmp_path / "*/*") if path.is_dir() else (path,):
        assert read_reference(one).fingerprint == expected.fingerprint


def save_csv(folder):
    ROWS.to_csv(folder / "plain.csv", index=False)
    return folder / "plain.csv"


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_get_a_sentence(tmp_path, name):
    path = written(tmp_path, name)
    content = path.read_bytes()
    for bad in (content[: len(content) // 2 - 5], b"nothing of the kind", b""):
        path.write_bytes(bad)
        refused(r"r\.(csv|xlsx|json)", read_reference, path, error=InputError)
    refused("read, not written", check_output, path, overwrite=True, error=InputError)


def test_files_of_a_folder_have_the_same_columns(tmp_path):
    path = written(tmp_path, "folder")
    ROWS.assign(more=1).to_parquet(path / "9.parquet")
    refused(r"other columns than .*'more'", read_reference, path, error=InputError)
    (tmp_path / "nothing").mkdir()
    refused("has no files of rows", read_reference, tmp_path / "nothing", error=InputError)


@pytest.mark.parametrize("kind", ["json", "jsonl", "xlsx"])
def test_a_small_file_never_becomes_a_large_table(tmp_path, kind):
    """Every row names a column of its own; a sheet has one cell at its far end."""
    path = tmp_path / f"r.{kind}"
    rows = [f'{{"c{i}": 1}}' for i in range(7_000)]
    if kind == "json":
        path.write_text(f"[{','.join(rows)}]")
    elif kind == "jsonl":
        path.write_text("\n".join(rows))
    else:
        book = pytest.importorskip("openpyxl").Workbook()
        book.active["A1"], book.active.cell(6_000, 16_384).value = "a", 1
        book.save(path)
    with pytest.raises(InputError, match=r"more than 33,554,432 cells.* save it as Parquet or CSV"):
        read_reference(path)


def test_what_is_no_table_of_objects(tmp_path):
    for content, said in (('{"a": 1}', "list of objects"), ("[1, 2]", "row 1 must be an object")):
        (tmp_path / "r.json").write_text(content)
        refused(said, read_reference, tmp_path / "r.json", error=InputError)


@pytest.mark.parametrize("name", ["plant.duckdb", "plant.sqlite", "plant.db"])
def test_a_database_is_a_sentence_with_the_statement_that_writes_a_file(name, tmp_path):
    (tmp_path / name).write_bytes(b"SQLite format 3\0")
    with pytest.raises(InputError, match=r"COPY \(SELECT \* FROM readings\) TO 'rows.parquet'"):
        read_reference(tmp_path / name)


@pytest.mark.parametrize("ordered", ["when", "size"])
def test_a_column_made_of_the_time_says_nothing_of_the_order(ordered, here, rng):
    """Hours follow the rows by themselves; another column that does is found."""
    for name, n, start in (("a", 400, "2024-01-01"), ("b", 200, "2024-03-01")):
        frame = pd.DataFrame(
            {
                "when": pd.date_range(start, periods=n, freq="41min").astype(str),
                "size": rng.normal(size=n) + (np.sin(np.arange(n) / 9) if ordered == "size" else 0),
                "other": rng.normal(size=n),
            }
        )
        frame.to_csv(f"{name}.csv", index=False)
    said = run("detect", "a.csv", "b.csv", "--detector", "knn").stdout
    assert "Column 'when': date: hour." in said
    assert ("Neighbouring rows are alike" in said) == (ordered == "size")
    assert "when: hour" not in said.split("flagged")[0]


def test_the_hour_alone_is_not_advised_as_the_time(here, rng):
    """Where the day stands in another column, an hour comes again every day."""
    for name, n in (("a", 400), ("b", 100)):
        hours = [f"{k % 24:02d}.00.00" for k in range(n)]
        waves = np.sin(np.arange(n) / 9) + 0.1 * rng.normal(size=n)
        pd.DataFrame({"hour": hours, "size": waves}).to_csv(f"{name}.csv", index=False)
    said = run("detect", "a.csv", "b.csv", "--detector", "knn").stdout
    assert "Column 'hour': date: hour" in said
    assert "--time rows`" in said


def test_tables_in_object_stores(here, monkeypatch):
    """By a store whose root is a folder here; a real one differs in its address only."""
    lake = here / "bucket" / "lake"
    lake.mkdir(parents=True)
    pd.DataFrame({"x": np.arange(60.0) % 7}).to_parquet(lake / "a.parquet")
    pd.DataFrame({"x": np.arange(60.0) % 5}).to_parquet(lake / "b.parquet")
    (lake / "notes.txt").write_text("no table")
    (here / "bucket" / "new.csv.gz").write_bytes(gzip.compress(b"x,id\n3,a\n99,b\n4,c\n"))
    assert len(read_reference(f"file://{lake}/a.parquet")) == 60
    store = fs.SubTreeFileSystem(str(here), fs.LocalFileSystem())
    known = {"s3": lambda address: (store, address.removeprefix("s3://"))}
    monkeypatch.setattr(
        "reconform.files.source._store_of",
        lambda one: known.get(one.partition(":")[0], fs.FileSystem.from_uri)(one),
    )
    table = read_reference("s3://bucket/lake/a.parquet")
    assert (table.path, len(table)) == ("s3://bucket/lake/a.parquet", 60)
    assert len(read_reference("s3://bucket/lake")) == 120
    (lake / "b.parquet").write_bytes(b"PAR1 and nothing else")
    damaged = "s3://bucket/lake/b.parquet: it cannot be read as Parquet"
    refused(damaged, read_reference, "s3://bucket/lake", error=InputError)
    refused("no such file", read_reference, "s3://bucket/gone.csv", error=InputError)
    refused("stores that Arrow knows", read_reference, "https://a.b/c.csv", error=InputError)
    given = ["detect", "s3://bucket/lake/a.parquet", "s3://bucket/new.csv.gz", "--output"]
    run(*given, "out.csv", "--detector", "knn", "--fdr", "0.3")
    assert pd.read_csv("out.csv")["anomaly"].tolist() == [False, True, False]


def test_json_is_bounded_before_it_is_parsed(tmp_path):
    path = tmp_path / "r.json"
    with path.open("wb") as file:
        file.truncate(1 << 27)
    refused(r"more than 67,108,864 bytes.*\.jsonl", read_reference, path, error=InputError)


@pytest.mark.parametrize(
    ("text", "words", "rows"),
    [
        ("a;b\n1,5;2\n2,25;3\n", "semicolons separate.* decimal commas", [[1.5, 2], [2.25, 3]]),
        ("a;b\n1.5;2\n2.25;3\n", r"its columns\. `delimiter`", [[1.5, 2], [2.25, 3]]),
        ("a\tb\n1,5\t2\n2,5\t3\n", "tabs separate.* decimal commas", [[1.5, 2], [2.5, 3]]),
    ],
)
def test_delimiters_and_decimal_commas_are_guessed(tmp_path, text, words, rows):
    """Where they are plain."""
    path, judged = tmp_path / "r.csv", tmp_path / "out.csv"
    path.write_text(text)
    with pytest.warns(UserWarning, match=words) as told:
        assert read_reference(path, columns=["a", "b"]).X.tolist() == rows
    assert len(told) == 1
    # What is written in the same format is laid out alike.
    normal = pd.DataFrame(rows * 9, columns=["a", "b"], dtype=float)
    cad = ConformalDetector("iforest", "split", random_state=0).fit(normal)
    with pytest.warns(UserWarning, match=words):
        judge_file(cad, path, judged)
    assert judged.read_text().startswith(text.partition("\n")[0])


def test_what_was_said_of_delimiters_overrules_the_guess_unless_it_is_wrong(tmp_path):
    path = tmp_path / "r.csv"
    path.write_text("a;b\n1,5;2,5\n3,5;1,5\n")
    said = Layout(delimiter=";")  # and nothing is guessed: these are no numbers
    refused("decimal commas", read_reference, path, columns=["a"], layout=said, error=InputError)
    path.write_text("a;b\n1,565;2\n3,565;3\n")  # thousands, perhaps
    with pytest.warns(UserWarning, match="semicolons separate its columns"):
        refused("decimal commas", read_reference, path, columns=["a"], error=InputError)
    path.write_text("a,b\n1,2\n3,4\n")
    wrong = "makes one column of it, and commas separate its columns"
    refused(wrong, read_reference, path, layout=said, error=InputError)


def test_a_row_in_the_place_of_the_names_is_suspected(here):
    (here / "a.csv").write_text("A1,1.5\nA2,2.5\nA3,3.25\nA4,4.75\n")
    (here / "b.csv").write_text("B1,1.25\nB2,2.75\n")
    said = run("detect", "a.csv", "b.csv", "--detector", "knn", code=1).stderr
    assert "Is the first line a row? Then give --no-header." in said
