"""Rows of queries: DuckDB, SQLite, and patterns of files."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from commands import run, run_json
from reconform import ConformalDetector
from reconform.cli import main
from reconform.errors import ExtraImportError, ReconformError
from reconform.files import InputError, Layout, databases, open_output, read_reference, writing
from reconform.files.formats import query_of
from reconform.files.judge import ReadOptions, WriteOptions, judge_file
from reconform.files.source import open_source, opened_once
from reconform.study import datasets

duckdb = pytest.importorskip("duckdb", reason="needs reconform[sql]")

QUICK = ["--detector", "knn", "--method", "split", "--id", "id"]
BOTH = ("plant.duckdb", "plant.sqlite")


def rows_of(seed, rows, far=0):
    X = np.random.default_rng(seed).normal(size=(rows, 2)).round(4)
    X[:far] += 30.0
    return [(f"N{i:03d}", *map(float, x)) for i, x in enumerate(X)]


def connect(path):
    """Write to a database as its owner does."""
    if str(path).endswith(".duckdb"):
        return closing(duckdb.connect(str(path)))
    return closing(sqlite3.connect(path, isolation_level=None))


def ask(path, query):
    with connect(path) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("queries")
    for name in BOTH:
        with connect(place / name) as connection:
            for table, rows in {"normal": rows_of(0, 200), "new": rows_of(4, 60, far=6)}.items():
                cells = ", ".join(map(str, rows))
                connection.execute(f"create table {table} (id text, a double, b double)")
                connection.execute(f"insert into {table} values {cells}")
            connection.execute("create view seen as select * from new")
    (place / "lake").mkdir()
    with closing(duckdb.connect(str(place / "plant.duckdb"))) as connection:
        for part in range(2):
            for kind in ("parquet", "csv"):
                where = place / "lake" / f"{part}.{kind}"
                connection.execute(
                    f"copy (select * from normal limit 100 offset {100 * part}) to '{where}'"
                )
    return place


@pytest.fixture
def here(folder, tmp_path, monkeypatch):
    """Copies of the databases; nothing may stay in the folder of temporary files."""
    for path in folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "lake").symlink_to(folder / "lake")
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield tmp_path
    assert list(temporary.iterdir()) == []
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.endswith((".wal", ".tmp"))) == []


def refused(address, layout=None, **options):
    """The sentence with which a reference is refused."""
    before = sorted(os.listdir())
    with pytest.raises(InputError) as caught:
        read_reference(address, layout=layout, **options)
    assert sorted(os.listdir()) == before
    return str(caught.value)


def fitted(address="plant.duckdb#normal"):
    reference = read_reference(address, id_columns=["id"])
    cad = ConformalDetector("knn", "split", random_state=0).fit(reference.frame)
    return cad, ReadOptions(reference.features, ["id"])


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "plant.duckdb#normal",
        "plant.duckdb#main.normal",
        "plant.duckdb#select * from normal; -- all of it",
        "plant.duckdb#with n as (from normal) select * from n",
        "plant.sqlite#normal",
        "plant.sqlite# /* all */ select * from normal",
        "lake/*.parquet#files",
        "lake/*.csv#select * from files",
    ],
)
def test_every_source_gives_the_same_rows(here, address):
    table = read_reference(address, id_columns=["id"])
    assert table.path == address
    assert table.names == ("a", "b")
    ids, *columns = zip(*rows_of(0, 200), strict=True)
    assert table.ids["id"].to_pylist() == list(ids)
    np.testing.assert_array_equal(table.X, np.transpose(columns))


@pytest.mark.parametrize("place", BOTH)
def test_a_query_is_judged_like_a_file(here, place):
    cad, read = fitted(f"{place}#normal")
    query = f"{place}#select b, a, id, upper(id) as note from seen order by id desc"
    found = judge_file(cad, query, "flagged.parquet", read=read)
    assert found.path == query
    assert sorted(found.flagged.table["id"].to_pylist()) == [f"N{i:03d}" for i in range(6)]
    with open_output("same.csv", pa.schema([("id", "string"), ("a", "f8"), ("b", "f8")])) as write:
        columns = list(zip(*reversed(rows_of(4, 60, far=6)), strict=True))
        write(pa.table([pa.array(c) for c in columns], names=["id", "a", "b"]))
    file = judge_file(cad, "same.csv", read=read)
    assert found.fingerprint == file.fingerprint
    np.testing.assert_array_equal(found.to_discoveries().scores, file.to_discoveries().scores)
    kept = pq.read_table("flagged.parquet")
    assert kept["id"].to_pylist() == kept["note"].to_pylist() == list(columns[0])
    np.testing.assert_array_equal(kept["p_value"], file.to_discoveries().p_values)
    np.testing.assert_array_equal(kept["anomaly"], file.to_discoveries().mask)


def test_rows_come_in_batches(here, monkeypatch):
    monkeypatch.setattr("reconform.files.databases.DUCKDB_ROWS", 2048)
    monkeypatch.setattr("reconform.files.databases.SQLITE_ROWS", 1000)
    with connect("plant.sqlite") as connection:
        connection.execute("create table many as with recursive c(i) as (select 0 union all "
                           "select i + 1 from c where i < 9999) select i from c")  # fmt: skip
    for address in ("plant.duckdb#select range as i from range(10000)", "plant.sqlite#many"):
        with open_source(address, Layout()) as source:
            parts = list(source.tables(["i"], 1 << 20))
            assert source.rows == 10_000
        assert len(parts) > 4
        assert pa.concat_tables(parts)["i"].to_pylist() == list(range(10_000))


@pytest.mark.parametrize("place", BOTH)
def test_a_query_runs_once_however_often_it_is_read(here, place):
    """Of a random number that would be another in a second run; in one block for all who ask."""
    query = f"{place}#select random() as a from normal"

    def rows(source):
        return pa.concat_tables(source.tables(["a"], 50))

    with open_source(query, Layout()) as source:
        first = rows(source)
        assert rows(source) == first
    with opened_once():
        with open_source(query, Layout()) as source:
            second = rows(source)
        with open_source(query, Layout()) as source:
            assert rows(source) == second
    assert first != second


@pytest.mark.parametrize("place", BOTH)
def test_a_table_that_changes_between_the_passes_changes_nothing(here, place):
    cad, read = fitted(f"{place}#normal")
    before = judge_file(cad, f"{place}#new", read=read)
    changed = []

    def change(stage, done, total):
        if not changed:  # after the first batch of ranks
            changed.append(stage)
            with connect(place) as connection:
                connection.execute("delete from new where id < 'N030'")
                connection.execute("update new set a = 1000")

    judge_file(cad, f"{place}#new", "out.csv", read=read, progress=change)
    assert changed == ["ranking"]
    assert ask(place, "select count(*), min(a) from new") == [(30, 1000.0)]
    after = judge_file(cad, "out.csv", read=ReadOptions(read.features, ["id"]))
    assert after.fingerprint == before.fingerprint
    assert [line.split(",")[0] for line in Path("out.csv").read_text().split()[1:]] == [
        f"N{i:03d}" for i in range(60)
    ]


def test_columns_of_sqlite_are_what_their_cells_are(here, monkeypatch):
    monkeypatch.setattr(databases, "SQLITE_ROWS", 2)
    cells = {
        "whole": [1, 2, None, 2**62, 5, 6],
        "late": [None, None, None, 1, 2.5, 3],
        "mixed": [1, 2, 3.5, "x", b"\xff", None],
        "raw": [b"a", None, b"b", b"c", b"d", b"e"],
        "empty": [None] * 6,
    }
    with connect("plant.sqlite") as connection:
        connection.execute(f"create table odd ({', '.join(cells)})")
        connection.executemany(
            "insert into odd values (?, ?, ?, ?, ?)", list(zip(*cells.values(), strict=True))
        )
    with open_source("plant.sqlite#odd", Layout()) as source:
        table = pa.concat_tables(source.tables(list(cells), 100))
    assert [str(kind) for kind in table.schema.types] == [
        "int64", "double", "large_string", "large_binary", "null",
    ]  # fmt: skip
    assert table["whole"].to_pylist() == cells["whole"]
    assert table["late"].to_pylist() == [None, None, None, 1.0, 2.5, 3.0]
    assert table["mixed"].to_pylist() == ["1", "2", "3.5", "x", "\\xff", None]


def test_decimals_large_integers_and_sums_are_numbers(here):
    with pytest.warns(UserWarning, match=r"beyond 2\^53 in the column 'most' are rounded"):
        table = read_reference(
            "plant.duckdb#select sum(hash(id) // 8) as total, avg(a)::decimal(18, 3) as price, "
            "max(18446744073709551615::ubigint) as most, bool_or(a > 0) as any_hot "
            "from normal group by id"
        )
    assert table.X.shape == (200, 4)
    assert (table.X[:, 2] == float(2**64 - 1)).all()


TYPES = {
    "decimal(20, 3)": "12345678901234567.125",
    "hugeint": "12345678901234567890123456789012345",
    "ubigint": "18446744073709551615",
    "bignum": "123456789012345678901234567890123456789012345",
    "date": "2026-11-16",
    "timestamp": "2026-11-16 06:30:00",
    "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "bit": "0101",
    "time": "06:30:00",
    "interval": "1 month",
    "integer[]": "[1, 2]",
    "struct(p integer, q varchar)": "{'p': 1, 'q': x}",
    "enum('x', 'y')": "y",
}


def test_identifiers_of_any_type_are_kept(here):
    """From DuckDB through a file and back: the text of every value is what it was."""
    cad, _ = fitted()
    ids = {f"k{j}": (kind, text) for j, (kind, text) in enumerate(TYPES.items())}
    cells = ", ".join(f"'{text.replace(chr(39), chr(39) * 2)}'::{kind} as {name}"
                      for name, (kind, text) in ids.items())  # fmt: skip
    query = f"plant.duckdb#select a, b, {cells}, null as nothing from new"
    read = ReadOptions(id_columns=list(ids))
    judge_file(cad, query, "kept.csv", read=read)
    (row,) = ask("plant.duckdb", f"select distinct {', '.join(ids)} from read_csv('kept.csv', "
                 "all_varchar = true)")  # fmt: skip
    kept = dict(zip(TYPES, row, strict=True))
    other = {"interval", "struct(p integer, q varchar)"}
    for kind in set(TYPES) - other:
        assert re.sub(r"\.0+$", "", kept[kind]) == TYPES[kind]
    assert kept["struct(p integer, q varchar)"] == '{"p": 1, "q": "x"}'


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("gone.duckdb#select 1", "gone.duckdb#select 1: there is no database gone.duckdb."),
        ("gone.sqlite#t", "gone.sqlite#t: there is no database gone.sqlite."),
        ("lake/*.pq#files", "lake/*.pq#files: there is no file lake/*.pq."),
        ("plant.duckdb#gone", "plant.duckdb#gone: DuckDB refuses the query: Catalog Error: Table "
         "with name gone does not exist!"),
        ("plant.sqlite#gone", "plant.sqlite#gone: SQLite refuses the query: no such table: gone."),
        ("plant.duckdb#selec * from normal", "DuckDB refuses the query: Parser Error: syntax error "
         'at or near "selec"'),
        ("plant.sqlite#select * fro normal", 'SQLite refuses the query: near "fro": syntax error.'),
        ("plant.duckdb#", "what follows # must be one query that only reads"),
        ("plant.sqlite#", "what follows # must be one query that only reads"),
        ("plant.sqlite#-- nothing", "what follows # must be one query that only reads"),
        ("plant.duckdb#-- nothing", "what follows # must be one query that only reads"),
        ("plant.duckdb#select a as x, b as x from new", "the query gives the column 'x' more than "
         "once. Columns are matched by name: give it another name, with AS."),
        ("plant.sqlite#select a as x, b as x from new", "the query gives the column 'x' more than "
         "once."),
        ("plant.duckdb#select * exclude (a, b, id) from new", "SELECT list is empty"),
        ("plant.duckdb#select a from new where a > 999", "it has 0 row(s); a reference needs at "
         "least two."),
        ("plant.sqlite#select a from new where a > 999", "it has 0 row(s); a reference needs at "
         "least two."),
        ("plant.duckdb#select case when range = 299999 then error('cell 55') else 1 end as c from "
         "range(300000)", "DuckDB stopped: Invalid Input Error: cell 55."),
        ("plant.sqlite#select abs(case when id = 'N055' then -9223372036854775807 - 1 else 1 end) "
         "as c from new", "SQLite stopped: integer overflow."),
        ("plant.duckdb", "it is a database. Say which rows of it: 'plant.duckdb#select * from "
         "TABLE'"),
        ("lake#select 1", "its name does not tell its format."),
        ("none.csv#1.csv", "none.csv#1.csv: there is no file none.csv."),
    ],
)  # fmt: skip
def test_a_query_that_cannot_be_run_is_a_sentence(here, address, sentence):
    assert sentence in refused(address)


WRITES = [
    "insert into new values ('x', 1, 2)",
    "delete from new",
    "create table t (x int)",
    "drop table new",
    "attach 'other.db' as other",
    "pragma table_info('new')",
    "vacuum into 'copy.db'",
    "begin transaction",
    "explain select 1",
    "select 1; select 2",
    "select 1; drop table new",
    "with x as (select 1) insert into new select 'x', 1, 2",
]


@pytest.mark.parametrize(
    "statement",
    [*WRITES, "copy new to 'out.csv'", "install httpfs", "load httpfs", "set threads = 1",
     "export database 'out'", "call pragma_version()"],
)  # fmt: skip
def test_duckdb_runs_nothing_but_one_select(here, statement):
    if statement.startswith("pragma") and duckdb.__version__ < "2":
        pytest.skip("DuckDB 1 makes a select of it, which only reads")
    before = Path("plant.duckdb").read_bytes()
    said = refused(f"plant.duckdb#{statement}")
    assert "what follows # must be one query that only reads" in said or "Parser Error" in said
    assert Path("plant.duckdb").read_bytes() == before


@pytest.mark.parametrize("statement", [*WRITES, "select load_extension('x')", "reindex new"])
def test_sqlite_runs_nothing_but_one_select(here, statement):
    before = Path("plant.sqlite").read_bytes()
    said = refused(f"plant.sqlite#{statement}")
    assert "what follows # must be one query that only reads" in said or "one statement" in said
    assert Path("plant.sqlite").read_bytes() == before


def test_a_query_reads_its_own_files_and_nothing_else(here):
    """No other file, no variable of Python, no extension."""
    Path("secret.csv").write_text("a\n" + "1\n2\n" * 20)
    secret = pa.table({"a": [1.0, 2.0]})
    assert len(secret)
    for place in ("plant.duckdb", "lake/*.parquet"):
        for query in (
            "select * from read_csv('secret.csv')",
            "select * from 'secret.csv'",
            "select * from read_text('/etc/hostname')",
            "select * from glob('*')",
        ):
            assert "disabled" in refused(f"{place}#{query}")
        assert "does not exist" in refused(f"{place}#select * from secret")
        for setting in (
            "enable_external_access",
            "autoload_known_extensions",
            "autoinstall_known_extensions",
            "allow_community_extensions",
            "allow_unsigned_extensions",
            "python_enable_replacements",
        ):
            query = f"{place}#select current_setting('{setting}')::integer as a from range(3)"
            assert not read_reference(query).X.any(), setting
    run("fit", "plant.duckdb#select * from 'secret.csv'", "--model", "m.rcad", code=1)


def test_a_file_whose_name_has_the_sign_is_that_file(here):
    for name in ("plant.duckdb#normal", "a#b.csv", "x.csv#select 1.csv"):
        Path(name).write_text("a\n1\n2\n")
        layout = Layout(format="csv")
        assert read_reference(name, layout=layout).X.ravel().tolist() == [1.0, 2.0]
        Path(name).unlink()
    folder = Path("my#data.csv#x")
    folder.mkdir()
    Path("plant.duckdb").rename(folder / "plant.duckdb")
    assert len(read_reference(f"{folder}/plant.duckdb#select a from normal")) == 200
    assert query_of("new#1.csv") is None


def test_files_of_a_pattern_are_matched_by_name(here):
    lake = Path("other")
    lake.mkdir()
    (lake / "1.csv").write_text("a;b\n1,5;2\n3;NA\n")
    (lake / "2.csv").write_text("b;a\n4;3\n6;5\n")
    layout = Layout(delimiter=";", decimal=",", missing=("NA",))
    table = read_reference(
        "other/*.csv#select a, b from files order by a, b nulls last", layout=layout, prepare=True
    )
    np.testing.assert_array_equal(table.X, [[1.5, 2], [3, 4], [3, np.nan], [5, 6]])


def test_a_long_query_is_cut_in_messages_and_noted_in_full(here):
    query = "plant.duckdb#select a, b from normal where " + " and ".join(["a < 999\n"] * 60)
    assert read_reference(query).path == query
    said = refused(query.replace("from normal", "from gone"))
    assert said.startswith("plant.duckdb#select a, b from gone where a < 999 and a < 999 ")
    assert "…: DuckDB refuses" in said
    assert "\n" not in said
    run("clean", query, "--detector", "mahalanobis")


def test_a_database_that_others_hold_is_a_sentence(here, monkeypatch):
    holder = "import duckdb; c = duckdb.connect('plant.duckdb'); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        said = refused("plant.duckdb#normal")
        process.communicate(b"\n")
    assert "DuckDB cannot open plant.duckdb: IO Error: Could not set lock" in said
    monkeypatch.setattr(databases, "PATIENCE", 0.05)
    with connect("plant.sqlite") as connection:
        connection.execute("begin exclusive")
        assert "database is locked." in refused("plant.sqlite#normal")
        connection.execute("rollback")


@pytest.mark.parametrize("name", ["broken.duckdb", "broken.sqlite", "broken.db"])
def test_a_file_that_is_no_database_is_a_sentence(here, name):
    Path(name).write_text("a,b\n1,2\n" * 500)
    said = refused(f"{name}#t")
    assert "not a valid DuckDB database" in said or "file is not a database" in said
    Path(name).write_bytes(b"")
    assert f"the file {name} is empty." in refused(f"{name}#t")


def test_the_kind_of_a_database_is_told_by_its_bytes(here):
    for name in BOTH:
        Path("same.db").write_bytes(Path(name).read_bytes())
        assert len(read_reference("same.db#select a from normal")) == 200


def test_without_duckdb_the_way_to_it_is_named(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(ExtraImportError, match=r"needs DuckDB: pip install 'reconform\[sql\]'"):
        read_reference("lake/*.parquet#files")
    assert len(read_reference("plant.sqlite#select a from normal")) == 200


# --- outputs -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address", ["plant.duckdb#new", "new.sqlite#out", "plant.duckdb#select 1", "lake/0.csv#out"]
)
def test_tables_of_databases_are_read_and_not_written(here, address):
    before = sorted(os.listdir())
    said = r"not written\. An output is a file \(CSV, TSV .*Arrow\) or -"
    cad, read = fitted()
    rows = pa.table({"x": [1]})
    with pytest.raises(InputError, match=said):
        writing.check_output(address, rows.schema, overwrite=True)
    with pytest.raises(InputError, match=said), open_output(address, rows.schema) as write:
        write(rows)
    with pytest.raises(InputError, match=said):
        judge_file(cad, "plant.duckdb#new", address, read=read)
    told = run("detect", "plant.duckdb#normal", "plant.duckdb#new", *QUICK, "--output", address,
               code=1)  # fmt: skip
    assert "tables of databases are read, not written" in told.stderr
    assert sorted(os.listdir()) == before
    assert ask("plant.duckdb", "select count(*) from new") == [(60,)]


@pytest.mark.parametrize(
    ("source", "output"),
    [(f"{place}#new", place) for place in BOTH] + [("lake/*.parquet#files", "lake/0.parquet")],
)
def test_an_output_must_not_be_what_is_read(here, source, output):
    cad, read = fitted()
    with pytest.raises(ReconformError, match="are the same file"):
        judge_file(cad, source, output, read=read, write=WriteOptions(overwrite=True))


# --- the commands --------------------------------------------------------------------------------


def test_all_commands_take_queries(here):
    """A model by a table, checks by a query, the flagged rows in a file."""
    facts = run_json("fit", "plant.duckdb#normal", *QUICK, "--model", "plant.rcad")
    assert facts["reference"]["path"] == "plant.duckdb#normal"
    query = "plant.duckdb#select * from new where id >= 'N000'"
    told = run_json("score", "plant.rcad", query, "--output", "scored.parquet", "--report",
                    "page.html")  # fmt: skip
    assert told["new"]["path"] == query
    assert told["flagged"] == 6
    assert sum(pq.read_table("scored.parquet")["anomaly"].to_pylist()) == 6
    assert "Anomalies in plant.duckdb#select * from new" in Path("page.html").read_text()
    done = CliRunner().invoke(
        main,
        ["check", "plant.rcad", query, "--only-anomalies", "--output",
         "flagged_{date}.csv"],
    )  # fmt: skip
    assert done.exit_code == 3, done.output
    line = json.loads(done.stdout)
    assert line["new"]["path"] == query
    assert len(Path(line["output"]).read_text().splitlines()) == 1 + 6
    told = run_json("detect", "plant.sqlite#normal", "lake/*.csv#files", *QUICK)
    assert told["new"]["rows"] == 200
    long = "plant.sqlite#select * from new where " + " and ".join(["a < 99"] * 60)
    assert run_json("detect", "plant.sqlite#normal", long, *QUICK)["flagged"] == 6


def test_a_study_draws_from_a_query(here):
    query = "plant.duckdb#select a, b::decimal(9, 4) as b, id < 'N006' as label from new"
    made = datasets.read(query)
    assert made.name == "plant"
    assert (made.X.shape, int(made.y.sum())) == ((60, 2), 6)
    (same,) = datasets.resolve_datasets([query])
    assert same.digest == made.digest
    with pytest.raises(ReconformError, match="label"):
        datasets.read("plant.sqlite#select a, b from new")


# --- the recipe ----------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "queries.md"


def test_the_recipe_of_the_page_appends_the_flagged_rows_of_yesterday(here, capsys):
    """Run on two mornings, and twice on the second: nothing is lost, nothing is there twice."""
    setting, fitting, recipe = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    for block in (setting, fitting, recipe):
        exec(compile(block, str(PAGE), "exec"), {})
    first = ask("warehouse.duckdb", "select id, p_value, anomaly from alarms order by id")
    flagged = {row[0] for row in first}
    assert flagged >= {100, 120, 140, 160, 180}
    assert "flagged" in capsys.readouterr().out
    # The next morning: yesterday is the day before, and the rows of the day after it are new.
    ask("warehouse.duckdb", "update readings set day = day - 1, id = id + 5000")
    ask("warehouse.duckdb", "update alarms set day = day - 1, id = id + 5000")
    for _ in range(2):
        exec(compile(recipe, str(PAGE), "exec"), {})
    later = ask("warehouse.duckdb", "select id from alarms order by id")
    assert [row[0] + 5000 for row in first] == [i for (i,) in later if i >= 5100]
    assert len(later) == len(set(later))
    ask("warehouse.duckdb", "delete from readings where day = current_date - 1")
    with pytest.raises(InputError, match="it has no rows"):
        exec(compile(recipe, str(PAGE), "exec"), {})
    assert ask("warehouse.duckdb", "select id from alarms order by id") == later


def test_rows_that_would_fill_the_disk_are_refused(tmp_path, monkeypatch):
    place = tmp_path / "endless.sqlite"
    with connect(place) as connection:
        connection.execute(
            "create view endless as with recursive c(i) as (select 1 union all select i + 1 "
            "from c) select i as a, i as b from c"
        )
    free = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("shutil.disk_usage", lambda _: free)
    with pytest.raises(ReconformError, match=r"endless: the table is too large.*Take fewer rows"):
        read_reference(f"{place}#endless")


def test_a_place_that_is_no_utf_8_is_opened(tmp_path):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.sqlite")
    with connect(place.encode("utf-8", "surrogateescape")) as connection:
        connection.execute("create table t (a, b)")
        connection.execute("insert into t values (1, 2), (3, 4)")
    assert read_reference(f"{place}#t").X.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_reference(f"{place}#select '\udcff' as a")
