"""Rows of queries, and tables as outputs: DuckDB, SQLite, and patterns of files."""

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
import pytest

from reconform import ConformalDetector
from reconform.cli import main
from reconform.errors import ExtraImportError, ReconformError
from reconform.files import (
    InputError,
    Layout,
    open_output,
    read_reference,
    sqlite_files,
    tables,
    writing,
)
from reconform.files.address import query_of, table_of
from reconform.files.judge import ReadOptions, WriteOptions, judge_file
from reconform.files.source import open_source, opened_once
from reconform.study import datasets
from reconform.whole import append_line, together, write_whole
from test_cli import CliRunner, run, run_json

duckdb = pytest.importorskip("duckdb", reason="needs reconform[sql]")

NAMES = ["a", "b"]
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
    found = judge_file(cad, query, f"{place}#flagged", read=read)
    assert found.path == query
    assert sorted(found.flagged.table["id"].to_pylist()) == [f"N{i:03d}" for i in range(6)]
    with open_output("same.csv", pa.schema([("id", "string"), ("a", "f8"), ("b", "f8")])) as write:
        columns = list(zip(*reversed(rows_of(4, 60, far=6)), strict=True))
        write(pa.table([pa.array(c) for c in columns], names=["id", "a", "b"]))
    file = judge_file(cad, "same.csv", read=read)
    assert found.fingerprint == file.fingerprint
    np.testing.assert_array_equal(found.to_discoveries().scores, file.to_discoveries().scores)
    kept = ask(place, "select id, note, p_value, anomaly from flagged")
    assert [row[0] for row in kept] == [row[1] for row in kept] == list(columns[0])
    np.testing.assert_array_equal([row[2] for row in kept], file.to_discoveries().p_values)
    np.testing.assert_array_equal([bool(row[3]) for row in kept], file.to_discoveries().mask)


def test_rows_come_in_batches(here, monkeypatch):
    monkeypatch.setattr("reconform.files.duckdb_files.BATCH_ROWS", 2048)
    monkeypatch.setattr("reconform.files.sqlite_files.BATCH_ROWS", 1000)
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
    monkeypatch.setattr(sqlite_files, "BATCH_ROWS", 2)
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
    """From DuckDB and back: the text of every value is what it was; in SQLite it can be read."""
    cad, _ = fitted()
    ids = {f"k{j}": (kind, text) for j, (kind, text) in enumerate(TYPES.items())}
    cells = ", ".join(f"'{text.replace(chr(39), chr(39) * 2)}'::{kind} as {name}"
                      for name, (kind, text) in ids.items())  # fmt: skip
    query = f"plant.duckdb#select a, b, {cells}, null as nothing from new"
    read = ReadOptions(id_columns=list(ids))
    judge_file(cad, query, "plant.duckdb#kept", read=read)
    told = ", ".join(f"{name}::varchar" for name in ids)
    assert ask("plant.duckdb", f"select distinct {told} from kept") == ask(
        "plant.duckdb", f"select distinct {told} from ({query.partition('#')[2]})"
    )
    judge_file(cad, query, "kept.sqlite#kept", read=read)
    (row,) = ask("kept.sqlite", f"select distinct {', '.join(ids)} from kept")
    assert row[:3] == ("12345678901234567.125", TYPES["hugeint"], TYPES["ubigint"])
    assert row[3:5] == (TYPES["bignum"], TYPES["date"])


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        ("'x' as c", "`prepare=True`"),
        ("null as c", "c"),
        ("case when id = 'N003' then null else a end as c", "missing"),
        ("current_date as c", "c"),
        ("[a, b] as c", "c"),
    ],
)
def test_columns_that_no_detector_can_use_are_refused_as_in_files(here, column, sentence):
    said = refused(f"plant.duckdb#select a, {column} from normal")
    assert said.startswith(f"plant.duckdb#select a, {column} from normal: ")
    assert "'c'" in said
    assert sentence in said


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
    """Without `allow_extensions`: no other file, no variable of Python, no extension."""
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
        trusting = Layout(allow_extensions=True)
        read = read_reference(f"{place}#select * from read_csv('secret.csv')", layout=trusting)
        assert read.X.ravel().tolist() == [1.0, 2.0] * 20
    run("fit", "plant.duckdb#select * from 'secret.csv'", "--model", "m.rcad", code=1)


def test_a_file_whose_name_has_the_sign_is_that_file(here):
    for name in ("plant.duckdb#normal", "a#b.csv", "x.csv#select 1.csv"):
        Path(name).write_text("a\n1\n2\n")
        assert (query_of(name) is None) == (table_of(name) is None)
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
        with pytest.raises(InputError, match="cannot write the table: IO Error: Could not set"):
            writing.check_free("plant.duckdb#flagged", overwrite=False)
        process.communicate(b"\n")
    assert "DuckDB cannot open plant.duckdb: IO Error: Could not set lock" in said
    monkeypatch.setattr(sqlite_files, "PATIENCE", 0.05)
    with connect("plant.sqlite") as connection:
        connection.execute("begin exclusive")
        assert "database is locked." in refused("plant.sqlite#normal")
        with pytest.raises(InputError, match="SQLite cannot write the table: database is locked"):
            writing.check_free("plant.sqlite#flagged", overwrite=False)
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
    for call in (
        lambda: read_reference("lake/*.parquet#files"),
        lambda: writing.check_free("new.duckdb#flagged", overwrite=False),
    ):
        with pytest.raises(ExtraImportError, match=r"needs DuckDB: pip install 'reconform\[sql\]'"):
            call()
    assert len(read_reference("plant.sqlite#select a from normal")) == 200


# --- writing -------------------------------------------------------------------------------------

ROWS = pa.table({"x": [1, 2], "say": ['ja, "so"', None], "good": [True, False]})


def write(address, rows=ROWS, **options):
    with open_output(address, rows.schema, **options) as add:
        add(rows)
        add(rows.slice(0, 0))


@pytest.mark.parametrize("place", [*BOTH, "new.duckdb", "new.sqlite", "new.db"])
def test_a_table_is_written_whole_or_not_at_all(here, place):
    known = Path(place).exists()

    def there():
        return Path(place).exists() and [row[0] for row in ask(place, "select x from out")]

    def fail(**options):
        with open_output(f"{place}#out", ROWS.schema, **options) as add:
            add(ROWS)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert Path(place).exists() == known
    write(f"{place}#out")
    assert there() == [1, 2]
    with pytest.raises(InputError, match="the table exists already; replace it with `overwrite"):
        write(f"{place}#out")
    more = pa.concat_tables([ROWS, ROWS])
    write(f"{place}#out", more, overwrite=True)
    assert there() == [1, 2, 1, 2]
    with pytest.raises(RuntimeError):
        fail(overwrite=True)
    assert there() == [1, 2, 1, 2]
    if known:
        assert ask(place, "select count(*) from seen") == [(60,)]


@pytest.mark.parametrize("place", BOTH)
def test_tables_and_files_appear_together(here, place):
    """Also after the table is committed: a log that cannot be written takes it back."""

    def write_all(address, overwrite):
        with together():
            write(address, pa.concat_tables([ROWS, ROWS]), overwrite=overwrite)
            write_whole("page", b"content")
            append_line("log", "done")

    write(f"{place}#out")
    Path("log").mkdir()
    for overwrite, name in ((True, "out"), (False, "fresh")):
        with pytest.raises(OSError, match="log"):
            write_all(f"{place}#{name}", overwrite)
        assert not Path("page").exists()
        assert ask(place, "select x from out") == [(1,), (2,)]
        with open_source(f"{place}#out", Layout()) as source:
            assert source.schema.names == ROWS.column_names
    with together():
        write(f"{place}#out", ROWS.slice(1), overwrite=True)
        write_whole("page", b"content")
        assert ask(place, "select x from out") == [(1,), (2,)]
    assert ask(place, "select x from out") == [(2,)]
    names = "information_schema.tables" if place.endswith("duckdb") else "sqlite_master"
    column = "table_name" if place.endswith("duckdb") else "name"
    kept = {row[0] for row in ask(place, f"select {column} from {names}")}
    assert {"normal", "new", "seen", "out"} <= kept
    assert not {name for name in kept if name.startswith("reconform")} | (kept & {"fresh"})


def test_views_go_on_to_see_a_table_that_is_replaced(here):
    for place in BOTH:
        write(f"{place}#out")
        ask(place, "create view outs as select * from out")
        with together():
            write(f"{place}#out", ROWS.slice(1), overwrite=True)
            write_whole("page", b"", overwrite=True)
        assert ask(place, "select x from outs") == [(2,)]


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("plant.duckdb#seen", "it is a view, not a table"),
        ("plant.sqlite#seen", "it is a view, not a table"),
        ("plant.duckdb#far.out", "DuckDB cannot write the table: Catalog Error: Schema with name "
         "far does not exist!"),
        ("fresh.duckdb#far.out", "far does not exist!"),
        ("plant.sqlite#far.out", "SQLite cannot write the table: no such table: far.sqlite_master"),
        ("plant.sqlite#sqlite_x", "SQLite cannot write the table: object name reserved"),
        ("plant.duckdb#select 1", "what follows # must be the name of a table to write"),
        ("lake/0.csv#out", "tables are written to databases (.duckdb"),
        ("lake/0.parquet#select 1", "tables are written to databases"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_written_is_refused_before_any_work(here, address, sentence):
    before = sorted(os.listdir())
    with pytest.raises(InputError) as caught:
        writing.check_output(address, ROWS.schema, overwrite=True)
    assert sentence in str(caught.value)
    assert sorted(os.listdir()) == before


def test_a_table_with_an_index_is_not_replaced(here):
    """DuckDB could not bring it back if the run failed after all."""
    ask("plant.duckdb", "create index i on new(a)")
    with pytest.raises(InputError, match="cannot write the table: Dependency Error"):
        writing.check_free("plant.duckdb#new", overwrite=True)
    assert ask("plant.duckdb", "select count(*) from new") == [(60,)]


def test_places_that_cannot_be_written_to(here, monkeypatch):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        writing.check_free("gone/new.duckdb#out", overwrite=False)
    Path("folder.duckdb").mkdir()
    with pytest.raises(InputError, match=r"folder\.duckdb is not a file"):
        writing.check_free("folder.duckdb#out", overwrite=False)
    # The tests may be run by root, whom no permission stops.
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    for place in (*BOTH, "new.duckdb", "new.sqlite"):
        with pytest.raises(PermissionError, match="cannot be written to"):
            writing.check_free(f"{place}#out", overwrite=False)
        assert Path(place).exists() == (place in BOTH)
    assert len(read_reference("plant.duckdb#select a from normal")) == 200


@pytest.mark.parametrize("place", BOTH)
def test_an_output_must_not_be_what_is_read(here, place):
    cad, read = fitted(f"{place}#normal")
    for query in ("new", "select * from NEW where a < 5", "seen",
                  "select count(*) as a, 1 as b, 'x' as id from seen",
                  "select n.* from normal n join new using (id)"):  # fmt: skip
        with pytest.raises(ReconformError, match="reads this table; an output must have a table"):
            judge_file(cad, f"{place}#{query}", f"./{place}#New", read=read,
                       write=WriteOptions(overwrite=True))  # fmt: skip
    for source, output in ((f"{place}#new", place), ("lake/*.parquet#files", "lake/0.parquet")):
        with pytest.raises(ReconformError, match="are the same file"):
            judge_file(cad, source, output, read=read, write=WriteOptions(overwrite=True))
    with pytest.raises(ReconformError, match="are the same file"):
        tables.check_separate({"output": f"{place}#x", "report": place}, {}, Layout())
    assert ask(place, "select count(*) from new") == [(60,)]


def test_columns_of_every_type_can_be_written(here):
    """What a database has no type for becomes text; a NaN is missing in SQLite."""
    odd = pa.table(
        {
            "nothing": pa.nulls(2),
            "half": pa.array(np.array([1.5, np.nan], dtype=np.float16)),
            "wide": pa.array([None, 10**60], pa.decimal256(70, 0)),
            "list": pa.array([[1], None]),
            "raw": pa.array([b"\x00", None], pa.large_binary()),
            "day": pa.array([0, None], pa.date32()),
            "lapse": pa.array([60, None], pa.duration("s")),
            "big": pa.array([2**64 - 1, None], pa.uint64()),
        }
    )
    write("plant.duckdb#odd", odd)
    write("plant.sqlite#odd", odd)
    (first, _) = ask("plant.duckdb", "select * from odd")
    assert first[:3] == (None, 1.5, None)
    assert first[3:5] == ([1], b"\x00")
    assert first[-1] == 2**64 - 1
    first, second = ask("plant.sqlite", "select * from odd")
    assert first == (None, 1.5, None, "[1]", b"\x00", "1970-01-01", "60", str(2**64 - 1))
    assert second[2] == str(10**60)


# --- the commands --------------------------------------------------------------------------------


def test_all_commands_take_queries(here):
    """A model by a table, checks by a query, the flagged rows as a table."""
    facts = run_json("fit", "plant.duckdb#normal", *QUICK, "--model", "plant.rcad")
    assert facts["reference"]["path"] == "plant.duckdb#normal"
    query = "plant.duckdb#select * from new where id >= 'N000'"
    told = run_json("score", "plant.rcad", query, "--output", "plant.duckdb#scored", "--report",
                    "page.html")  # fmt: skip
    assert told["new"]["path"] == query
    assert told["flagged"] == 6
    assert ask("plant.duckdb", "select count(*) from scored where anomaly") == [(6,)]
    assert "Anomalies in plant.duckdb#select * from new" in Path("page.html").read_text()
    done = CliRunner().invoke(
        main,
        ["check", "plant.rcad", query, "--only-anomalies", "--output",
         "plant.duckdb#flagged_{date}", "--log", "log"],
    )  # fmt: skip
    assert done.exit_code == 3, done.output
    line = json.loads(Path("log").read_text())
    assert line["new"]["path"] == query
    assert line["output"]["sha256"] is None
    table = line["output"]["path"].partition("#")[2]
    assert ask("plant.duckdb", f'select count(*) from "{table}"') == [(6,)]
    told = run_json("detect", "plant.sqlite#normal", "lake/*.csv#files", *QUICK)
    assert told["new"]["rows"] == 200
    long = "plant.sqlite#select * from new where " + " and ".join(["a < 99"] * 60)
    assert run_json("detect", "plant.sqlite#normal", long, *QUICK)["flagged"] == 6


def test_detect_reads_new_rows_once(here, monkeypatch):
    """The header is looked at before the fit, and the rows are judged that were there then."""
    runs = []
    whole = sqlite_files.SQLite.run
    monkeypatch.setattr(
        sqlite_files.SQLite, "run", lambda *given: runs.append(given[1].text) or whole(*given)
    )
    run("detect", "plant.sqlite#normal", "plant.sqlite#new", *QUICK)
    assert runs == ["normal", "new"]
    lacking = run("detect", "plant.sqlite#normal", "plant.sqlite#select a from new", "--detector",
                  "knn", "--drop", "id", code=1)  # fmt: skip
    assert "it lacks the column 'b'" in lacking.stderr


def test_rows_of_a_query_on_standard_output_are_csv(here):
    done = run("detect", "plant.duckdb#normal", "plant.duckdb#new", *QUICK, "--output", "-",
               "--only-anomalies")  # fmt: skip
    header, *rows = done.stdout.splitlines()
    assert header == "id,a,b,score,p_value,q_value,anomaly"
    assert len(rows) == 6


def test_clean_reviews_a_query_and_keeps_a_table(here):
    query = "plant.sqlite#select * from normal order by id"
    quick = ["--detector", "mahalanobis", "--id", "id"]
    run("clean", query, *quick, "--output", "review.csv")
    lines = Path("review.csv").read_text().splitlines()
    assert lines[0].startswith("row,anomaly,")
    first = lines[1].split(",")
    first[1] = "yes"
    Path("review.csv").write_text("\n".join([lines[0], ",".join(first), *lines[2:]]) + "\n")
    run("clean", query, "--id", "id", "--marks", "review.csv", "--keep", "plant.sqlite#cleaned")
    assert ask("plant.sqlite", "select count(*) from cleaned") == [(199,)]
    ask("plant.sqlite", "update normal set a = a + 1")
    said = run("clean", query, "--id", "id", "--marks", "review.csv", "--keep",
               "plant.sqlite#cleaned", "--overwrite", code=1)  # fmt: skip
    assert ask("plant.sqlite", "select count(*) from cleaned") == [(199,)]
    assert "plant.sqlite#select" in said.stderr


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

PAGE = Path(__file__).parent.parent / "docs" / "queries.md"


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
    with pytest.raises(ReconformError, match=r"endless: the table is too large.*Has it an end"):
        read_reference(f"{place}#endless")


def test_a_place_that_is_no_utf_8_is_opened(tmp_path):
    place = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.sqlite")
    with connect(place.encode("utf-8", "surrogateescape")) as connection:
        connection.execute("create table t (a, b)")
        connection.execute("insert into t values (1, 2), (3, 4)")
    assert read_reference(f"{place}#t").X.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(InputError, match="not UTF-8 text"):
        read_reference(f"{place}#select '\udcff' as a")
