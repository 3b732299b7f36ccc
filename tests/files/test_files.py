"""Tables on disk: what is read, what is refused and with which words, what is written."""

import csv
import datetime
import decimal
import gzip
import io
import lzma
import os
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconform.files import InputError, Layout, open_batches, open_output
from reconform.files import source as sources
from reconform.files.source import open_source, opened_once
from reconform.frames import label_code
from reconform.tables import Feature
from refusals import refused
from rows import read_reference

A_B = [Feature("a"), Feature("b")]
SUFFIXES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq", ".arrow", ".feather", ".ipc")


def save(table, path):
    with open_output(path, table.schema) as write:
        write(table)
    return path


def text_file(tmp_path, text, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def read_new(path, features=A_B, **options):
    with open_batches(path, features, **options) as batches:
        return np.vstack(list(batches))


def refusal(call, *arguments, **options):
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    return caught.value


# --- reading -------------------------------------------------------------------------------------


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": [f"{i:03d}" for i in range(50)],
            "a": rng.normal(size=50),
            "b": rng.integers(-5, 5, size=50),
            "c": rng.random(50) < 0.5,
        }
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_of_every_format(tmp_path, table, suffix):
    path = save(table, tmp_path / f"table{suffix}")
    expected = np.column_stack([table[name].to_numpy() for name in "abc"]).astype(float)
    read = read_reference(path, id_columns=["id"])
    assert read.names == ("a", "b", "c")
    assert np.array_equal(read.X, expected)
    assert read.ids.to_pydict() == table.select(["id"]).to_pydict()
    for batch_rows in (1, 7, 50, 1000):
        with open_batches(path, read.features, batch_rows=batch_rows) as batches:
            parts = list(batches)
            assert [len(part) for part in parts[:-1]] == [batch_rows] * (len(parts) - 1)
            assert np.array_equal(np.vstack(parts), expected)
            assert np.array_equal(np.vstack(list(batches)), expected)  # and once more
            whole = pa.concat_tables(list(batches.tables()))
        assert whole.column_names == table.column_names
        assert whole["id"].to_pylist() == table["id"].to_pylist()


def test_the_fingerprint_is_of_the_rows_and_not_of_the_format(tmp_path, table):
    paths = [save(table, tmp_path / f"table{suffix}") for suffix in SUFFIXES]
    prints = {read_reference(path, id_columns=["id"]).fingerprint for path in paths}
    assert len(prints) == 1
    other = save(table.slice(1), tmp_path / "other.csv")
    assert read_reference(other, id_columns=["id"]).fingerprint not in prints
    assert read_reference(paths[0], drop=["id", "c"]).fingerprint not in prints


def test_feather_and_streams_that_others_wrote(tmp_path, table):
    numbers = table.select(["a", "b"])
    pyarrow.feather.write_feather(numbers, tmp_path / "pandas.feather")  # compressed with lz4
    with pa.ipc.new_stream(str(tmp_path / "stream.arrow"), numbers.schema) as writer:
        writer.write_table(numbers, max_chunksize=7)
    for name in ("pandas.feather", "stream.arrow"):
        assert np.array_equal(read_new(tmp_path / name)[:, 0], table["a"].to_numpy())


def test_columns_drop_and_id(tmp_path):
    path = text_file(tmp_path, "id,a,b,c\nx,1,2,3\ny,4,5,7\n")
    assert read_reference(path, columns=["c", "a"]).names == ("a", "c")
    assert read_reference(path, drop=["b"], id_columns=["id"]).names == ("a", "c")
    assert read_reference(path, drop=["id"]).ids is None
    # The reference need not have the identifier of the new rows.
    assert read_reference(path, drop=["id"], id_columns=["serial"]).names == ("a", "b", "c")
    path = text_file(tmp_path, 'note,b,extra,a\nx,1,9,2\ny,3,"two\nlines",4\n')
    assert read_new(path).tolist() == [[2, 1], [4, 3]]  # by name
    path = text_file(tmp_path, "a;b\n1\n2\n")
    assert "`delimiter=" in str(refusal(read_reference, path))
    assert read_reference(path, layout=Layout(delimiter=",")).names == ("a;b",)
    for options in ({"format": "xlsx"}, {"delimiter": "||"}, {"decimal": "'"}):
        refused(next(iter(options)), Layout, **options)


def test_numbers_in_all_their_spellings(tmp_path):
    mixed = text_file(tmp_path, "\ufeffa,b\r\n1,2\n3,4\r5,6\r\n")
    assert read_new(mixed).tolist() == [[1, 2], [3, 4], [5, 6]]
    path = text_file(tmp_path, '\ufeffa,b\r\n 1 ,true\r\n+2.,FALSE\r\n\r\n.5,1e3\r\n"-1E-2",0\r\n')
    assert read_new(path).tolist() == [[1, 1], [2, 0], [0.5, 1000], [-0.01, 0]]


def test_integers_booleans_and_decimals_are_numbers(tmp_path):
    table = pa.table(
        {
            "i": pa.array([1, 2], pa.int8()),
            "u": pa.array([2**63, 1], pa.uint64()),
            "d": pa.array([decimal.Decimal("1.25"), decimal.Decimal("2.5")]),
            "f": pa.array([np.float16(0.5), np.float16(2)], pa.float16()),
            "t": [True, False],
        }
    )
    for suffix in (".parquet", ".arrow"):
        X = read_reference(save(table, tmp_path / f"numbers{suffix}")).X
        assert X.tolist() == [[1, 2.0**63, 1.25, 0.5, 1], [2, 1, 2.5, 2, 0]]


def test_decimal_commas_and_own_missing_values_on_request(tmp_path):
    path = text_file(tmp_path, "a;b\n1,5;2\n-3;?\n")
    layout = Layout(delimiter=";", decimal=",", missing=("?",))
    assert np.array_equal(
        read_new(path, layout=layout, allow_missing=True), [[1.5, 2], [-3, np.nan]], equal_nan=True
    )
    # A number that means missing is missing, too.
    path = text_file(tmp_path, "a,b\n-999,1\n2,3\n")
    X = read_new(path, layout=Layout(missing=("-999",)), allow_missing=True)
    assert np.isnan(X[0, 0])
    # With decimal commas a point is not a decimal sign: 1.500 may be one thousand and a half.
    path = text_file(tmp_path, "a;b\n1.500;2\n2,5;3\n")
    error = refusal(read_new, path, layout=Layout(delimiter=";", decimal=","))
    assert error.column == "a"


def test_text_columns_become_codes(tmp_path):
    path = text_file(tmp_path, "x,colour\n1,red\n,blue\n3,red\n4,NA\n")
    table = read_reference(path)
    assert table.features == (Feature("x"), Feature("colour", ("blue", "red")))
    red, blue, mauve = map(label_code, ("red", "blue", "mauve"))
    coded = [[1, red], [np.nan, blue], [3, red], [4, np.nan]]
    assert np.array_equal(table.X, coded, equal_nan=True)
    assert table.missing == {"x": 1, "colour": 1}
    new = text_file(tmp_path, "colour,x\nmauve,1\nred,2\n", "new.csv")
    assert read_new(new, table.features).tolist() == [[1, mauve], [2, red]]


def test_numbers_that_are_labels(tmp_path):
    path = text_file(tmp_path, "x,site\n1,10\n2,20\n3,A\n4,10\n")
    assert "'site' (1 of 4 rows, such as 'A' on line 4)" in str(refusal(read_reference, path))
    table = read_reference(path, categories=["site"])
    assert table.features[1].labels == ("10", "20", "A")


def test_dictionary_columns_may_differ_by_batch(tmp_path):
    batches = [
        pa.record_batch({"a": [1.0, 2.0], "k": pa.array(["x", "y"]).dictionary_encode()}),
        pa.record_batch({"a": [3.0, 4.0], "k": pa.array(["z", "x"]).dictionary_encode()}),
    ]
    with pa.ipc.new_stream(str(tmp_path / "k.arrow"), batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    pyarrow.parquet.write_table(pa.Table.from_batches(batches), tmp_path / "k.parquet")
    for suffix in (".arrow", ".parquet"):
        read = read_reference(tmp_path / f"k{suffix}")
        assert read.X[:, 1].tolist() == [label_code(label) for label in "xyzx"]


def test_a_wide_table_comes_in_small_batches(tmp_path):
    names = [f"x{j}" for j in range(3000)]
    path = save(pa.table({name: np.arange(1500.0) for name in names}), tmp_path / "wide.parquet")
    with open_batches(path, [Feature(name) for name in names]) as batches:
        assert max(X.nbytes for X in batches) <= 1 << 24


def test_standard_input_is_spooled_and_read_twice(tmp_path, monkeypatch, table):
    for format, suffix in (("csv", ".csv"), ("parquet", ".parquet"), ("arrow", ".arrow")):
        raw = save(table, tmp_path / f"table{suffix}").read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        with open_batches("-", A_B, layout=Layout(format=format)) as batches:
            spool = batches.source.path
            first, second = np.vstack(list(batches)), np.vstack(list(batches))
            assert np.array_equal(first, second)
            assert len(first) == 50
        assert not spool.exists()


def test_a_pipe_is_spooled_too(tmp_path):
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("a,b\n1,2\n3,4\n",))
    writer.start()
    with open_batches(pipe, A_B) as batches:
        assert [len(list(batches)), len(list(batches))] == [1, 1]
    writer.join()


# --- what is refused -----------------------------------------------------------------------------

BAD_REFERENCES = {
    "empty": ("", {}, "the file is empty", None),
    "blank lines": ("\n\n\n", {}, "the file is empty", None),
    "header only": ("a,b\n", {}, "a header and no rows", None),
    "header without end": ("a,b", {}, "a header and no rows", None),
    "one row": ("a,b\n1,2\n", {}, "1 row.*at least two", None),
    "duplicated names": ("a,b,a\n1,2,3\n2,3,4\n", {}, "more than once: 'a'", None),
    "semicolons": ("a;b\n1;2\n3\n", {}, r"semicolons.*`delimiter=';'`", None),
    "tabs": ("a\tb\n1\t2\n3\n", {}, "tabs.*`format='tsv'`", None),
    "bars": ("a|b\n1|2\n3\n", {}, r"bars.*`delimiter='\|'`", None),
    "latin-1": (b"a,b\n1,2\n3,\xe9\n", {}, "not UTF-8.*0xe9 at position 3.*iconv", 3),
    "latin-1 header": (b"a,\xe9\n1,2\n3,4\n", {}, "not UTF-8", 1),
    "cut character": (b"a,b\n1,2\n3,4\xc3", {}, "not UTF-8", 3),
    "utf-16": ("a,b\n1,2\n".encode("utf-16"), {}, "UTF-16", None),
    "zero bytes": ("a,b\n1,2\n".encode("utf-16-le"), {}, "zero bytes", None),
    "parquet as csv": (b"PAR1....", {}, "`format='parquet'`", None),
    "excel as csv": (b"PK\x03\x04...", {}, "Excel", None),
    "gzip as csv": (gzip.compress(b"a,b\n1,2\n"), {}, "ends? in .gz", None),
    "gzip in gzip as csv": (gzip.compress(gzip.compress(b"a,b\n1,2\n")), {}, "ends? in .gz", None),
    "xz as csv": (lzma.compress(b"a,b\n1,2\n"), {}, "not UTF-8", None),
    "too many fields": ("a,b\n1,2\n\n3,4,5\n", {}, "3 fields, and the header has 2", 4),
    "too few fields": ("a,b\n1,2\n3\n4,5\n", {}, "1 field, and the header has 2", 3),
    "ragged after a quoted break": ('a,b\n"1\n",2\n3\n', {}, "1 field,", 4),
    "open quote": ('a,b\n1,2\n3,"4\n5,6\n7,8\n', {}, "never closes", 3),
    "decimal commas unquoted": ("a,b\n1,5,2,5\n1,7,3,5\n", {}, "decimal commas", 2),
    "no header": ("1.5,2.5\n1,2\n3,4\n", {}, "add a header", 1),
    "stray text": ("a,b\n1,1\n2,2\n3,3\n4,err\n", {}, r"text among numbers.*'b' \(1 of 4 rows, "
                   r"such as 'err' on line 5\).*`missing`", 5),
    "decimal commas": ('a,b\n1,"1,5"\n2,"2,25"\n', {}, r"decimal commas in 1 column: 'b'.*'1,5' on "
                       r"line 2.*`decimal=','`", 2),
    "times of two kinds": ("a,t\n1,10:30\n2,10:40:15\n", {}, "dates or times", 2),
    "infinite": ("a,b\n1,1\n-inf,2\n3,1e999\n", {}, "infinite values in 2 columns: 'a'", None),
    "unknown column": ("a,b\n1,2\n3,4\n", {"columns": ["A"]}, "'A'.*Did you mean 'a'", None),
    "unknown drop": ("aa,b\n1,2\n3,4\n", {"drop": ["ab"]}, "`drop` names.*'ab'", None),
    "used and dropped": ("a,b\n1,2\n3,4\n", {"columns": ["a"], "drop": ["a"]}, "so does", None),
    "nothing left": ("a,b\n1,2\n3,4\n", {"drop": ["a", "b"]}, "no column is left", None),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_REFERENCES)
def test_bad_references(tmp_path, case):
    text, options, words, line = BAD_REFERENCES[case]
    path = text_file(tmp_path, text)
    error = refusal(read_reference, path, **options)
    assert str(error).startswith(str(path))
    assert re.search(words, str(error)), str(error)
    assert (error.line, error.path) == (line, str(path))


def test_everything_wrong_is_said_at_once(tmp_path):
    path = text_file(tmp_path, 'a,b,t\n1,"1,5",10:30\n2,"2,5",10:40:15\ninf,"3,5",10:50:15\n')
    message = str(refusal(read_reference, path))
    for words in ("decimal commas", "dates or times", "infinite values"):
        assert words.lower() in message.lower()
    infinite = 2 * ("\n" + ",".join(["inf"] * 40))
    many = text_file(tmp_path, ",".join(f"x{j}" for j in range(40)) + infinite)
    assert re.search("40 columns.* and 34 more", str(refusal(read_reference, many)))


BAD_NEW = {
    "column missing": ("A ,b\n1,2\n", "lacks the column 'a'.*Did you mean 'A '", None, "a"),
    "columns missing": ("x,y\n1,2\n", "lacks columns 'a', 'b'.*It has 'x', 'y'", None, None),
    "text": ("a,b\n1,2\n" + 5 * "3,oops\n", r"text where the reference has numbers.*'b' \(5 of 6 "
             r"rows, such as 'oops' on line 3\)", 3, "b"),
    "missing": ("a,b\n1,2\n3,\n,\n", r"missing values in 2 columns.*`prepare`", None, None),
    "infinite": ("a,b\n1,2\n3,inf\n", r"infinite values.*first on line 3", 3, "b"),
    "decimal commas": ('a,b\n1,2\n3,"4,5"\n', r"decimal commas.*'4,5'", 3, "b"),
    "header only": ("a,b\n", "no rows", None, None),
    "duplicated names": ("a,b,b\n1,2,3\n", "more than once", None, "b"),
    "ragged": ("a,b\n1,2\n1,2,3\n", "3 fields", 3, None),
}  # fmt: skip


@pytest.mark.parametrize("batch_rows", [1, 100])
@pytest.mark.parametrize("case", BAD_NEW)
def test_bad_new_rows(tmp_path, case, batch_rows):
    text, words, line, column = BAD_NEW[case]
    error = refusal(read_new, text_file(tmp_path, text), batch_rows=batch_rows)
    assert re.search(words, str(error)), str(error)
    assert (error.line, error.column) == (line, column)


def test_tables_with_types(tmp_path):
    table = pa.table(
        {
            "a": [1.0, None, 3.0],
            "s": ["x", "y", None],
            "t": [datetime.datetime(2024, 1, day) for day in (1, 2, 3)],
            "l": [[1], [2], [3]],
            "n": pa.array([None] * 3, pa.null()),
            "z": [5, 5, 5],
        }
    )
    for suffix in (".parquet", ".arrow"):
        path = save(table, tmp_path / f"bad{suffix}")
        said = {use.name: use.said.partition(":")[0] for use in read_reference(path).uses}
        assert said == {
            "a": "number, missing in 1 rows", "s": "category with 2 labels", "t": "date",
            "l": "neither numbers nor text", "n": "empty",
            "z": "constant, 5 in every reference row",
        }  # fmt: skip
        error = refusal(read_new, path, [Feature("l", ("x",))])
        assert "should hold labels" in str(error)


def test_typed_tables_with_trouble_in_their_names(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 2, names=["a", "a"])
    error = refusal(read_reference, save(twice, tmp_path / "twice.parquet"))
    assert "more than once" in str(error)
    nothing = save(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "nothing.parquet")
    assert "no rows" in str(refusal(read_reference, nothing))
    assert "no rows" in str(refusal(read_new, nothing, [Feature("a")]))
    columns = save(pa.table({}), tmp_path / "columns.parquet")
    assert "no columns" in str(refusal(read_reference, columns))


def test_files_that_are_not_what_they_are_called(tmp_path):
    for suffix, words in ((".parquet", "as Parquet"), (".arrow", "as Arrow")):
        path = text_file(tmp_path, "a,b\n1,2\n3,4\n", f"table{suffix}")
        assert words in str(refusal(read_reference, path))
    whole = save(pa.table({"a": np.arange(1e4)}), tmp_path / "whole.parquet").read_bytes()
    assert "Parquet" in str(
        refusal(read_reference, text_file(tmp_path, whole[: len(whole) // 2], "cut.parquet"))
    )
    packed = gzip.compress(b"a,b\n" + b"".join(b"%d,2\n" % i for i in range(99999)))
    for broken in (packed[:-20], packed[:40], b"a,b\n1,2\n"):
        path = text_file(tmp_path, broken, "broken.csv.gz")
        assert "cannot be read" in str(refusal(read_reference, path))


def test_names_that_do_not_tell_a_format(tmp_path):
    for name in ("table.docx", "table", "table.parquet.gz", "table.gz"):
        error = refusal(read_reference, text_file(tmp_path, "a,b\n1,2\n3,4\n", name))
        assert "`format`" in str(error)
    path = text_file(tmp_path, "a,b\n1,2\n3,4\n", "table.txt")
    assert len(read_reference(path, layout=Layout(format="csv"))) == 2
    assert "no such file" in str(refusal(read_reference, tmp_path / "absent.csv"))
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert "folder" in str(refusal(read_reference, folder))


def test_a_line_beyond_the_first_block_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("reconform.files.text.BLOCK_BYTES", 1 << 10)
    lines = ["a,b"] + [f"{i},{i}" for i in range(5000)]
    lines[4321] = "1,2,3"
    assert refusal(read_new, text_file(tmp_path, "\n".join(lines))).line == 4322
    lines[4321] = "1,x"
    assert refusal(read_new, text_file(tmp_path, "\n".join(lines))).line == 4322


# --- writing -------------------------------------------------------------------------------------


def test_long_cells_are_read_wherever_they_are(tmp_path):
    # Python's reader stops at 131,072 characters, Arrow's where a row does not fit into a block.
    for size in (200_000, 3_000_000):
        for place in (0, 1, 30):
            notes = ["short"] * 40
            notes[place] = "x" * size
            lines = "".join(f"{i},{i % 7},{note}\n" for i, note in enumerate(notes))
            path = text_file(tmp_path, "a,b,note\n" + lines)
            with open_batches(path, A_B) as batches:
                read = pa.concat_tables(batches.tables())
            assert read["note"].to_pylist() == notes
            assert read["a"].to_pylist() == [str(i) for i in range(40)]
            ragged = text_file(tmp_path, "a,b,note\n" + lines + "7\n", "ragged.csv")
            error = refusal(read_new, ragged)
            assert "the line has 1 field, and the header has 3" in str(error)
            assert error.line == 42


def test_text_goes_through_unchanged(tmp_path):
    text = 'id,a,b,note\n007,1.50,2,"a, ""b"""\n008,1e3,-0,\n009, 5 ,7,"two\nlines"\n'
    path = text_file(tmp_path, text)
    out = tmp_path / "out.csv"
    with open_batches(path, A_B) as batches, open_output(out, batches.source.schema) as write:
        for table in batches.tables():
            write(table)
    assert out.read_text() == text


def test_text_with_other_delimiters_and_decimals(tmp_path):
    table = pa.table({"a": [1.5, -2.0], "n": ["x;y", None], "k": [3, 4]})
    out = tmp_path / "out.csv"
    with open_output(out, table.schema, layout=Layout(delimiter=";", decimal=",")) as write:
        write(table)
    assert out.read_text() == 'a;n;k\n1,5;"x;y";3\n-2;;4\n'
    with open_output(out, table.schema, layout=Layout(decimal=","), overwrite=True) as write:
        write(table)
    assert out.read_text() == 'a,n,k\n"1,5",x;y,3\n-2,,4\n'
    for delimiter in "^-]|\\\t":
        layout = Layout(delimiter=delimiter)
        with open_output(out, table.schema, layout=layout, overwrite=True) as write:
            write(pa.table({"a": [1.5], "n": [f"x{delimiter}y"], "k": [3]}))
        assert f'"x{delimiter}y"' in out.read_text()


cells = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)


@given(st.lists(st.tuples(cells, cells), min_size=1, max_size=5), st.sampled_from(",;\t"))
def test_python_reads_what_is_written(tmp_path_factory, rows, delimiter):
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    table = pa.table({"a": [a for a, _ in rows], "b": [b for _, b in rows]})
    layout = Layout(delimiter=delimiter)
    with open_output(path, table.schema, layout=layout, overwrite=True) as write:
        write(table)
    with path.open(newline="", encoding="utf-8") as file:
        read = list(csv.reader(file, delimiter=delimiter))
    assert read == [["a", "b"], *map(list, rows)]


def test_written_floats_are_read_back_exactly(tmp_path):
    values = np.random.default_rng(0).random(1000) * 10.0 ** np.arange(-300, 300, 0.6)
    path = save(pa.table({"a": values, "b": -values}), tmp_path / "floats.csv")
    assert np.array_equal(read_new(path), np.column_stack([values, -values]))


CHILD = """
import sys
import pyarrow as pa
from reconform.files import open_output
table = pa.table({"a": list(range(1000))})
with open_output("-", table.schema) as write:
    write(table)
    if len(sys.argv) > 1: 1 / 0
"""


def test_standard_output_gets_everything_or_nothing(tmp_path):
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, check=False)
    assert done.stdout == b"a\n" + b"".join(b"%d\n" % i for i in range(1000))
    failed = subprocess.run([sys.executable, "-c", CHILD, "fail"], capture_output=True, check=False)
    assert failed.stdout == b""
    assert b"ZeroDivisionError" in failed.stderr


def test_without_pyarrow_the_error_says_what_to_install():
    code = "import sys; sys.modules['pyarrow'] = None; import reconform, reconform.files"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "files needs pyarrow: pip install pyarrow." in done.stderr


def test_signals_are_given_back(tmp_path, table):
    before = signal.getsignal(signal.SIGTERM)
    save(table, tmp_path / "out.csv")
    assert signal.getsignal(signal.SIGTERM) is before
    thread = threading.Thread(target=save, args=(table, tmp_path / "thread.csv"))
    thread.start()
    thread.join()
    assert (tmp_path / "thread.csv").exists()


# --- small files are read once -------------------------------------------------------------------


def test_a_pass_that_was_not_finished_is_not_remembered(tmp_path):
    path = tmp_path / "new.csv"
    path.write_text("a\n" + "12345\n" * 500_000)
    with open_source(path, Layout()) as source:
        remembered = sources.CachedSource(source, ["a"])
        assert next(remembered.tables(["a"], 10)).num_rows < 500_000
        for _ in range(2):
            assert sum(table.num_rows for table in remembered.tables(["a"], 10)) == 500_000


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_a_file_is_opened_once_in_a_command_unless_it_changes(tmp_path, suffix):
    path = save(pa.table({"a": [1.0, 2.0]}), tmp_path / f"new{suffix}")

    def opened(**options):
        with open_source(path, Layout(**options)) as source:
            return source

    with opened_once():
        first = opened()
        assert opened() is first
        assert opened(missing=("?",)) is not first
        path.unlink()
        save(pa.table({"b": [1.0, 2.0, 3.0]}), path)
        assert opened() is not first
        assert opened().schema.names == ["b"]
    assert opened() is not opened()


def test_batches_stay_small_where_cells_are_long(tmp_path, monkeypatch):
    monkeypatch.setattr("reconform.files.batches.BATCH_BYTES", 1 << 16)
    notes = [str(i) * 1_000 for i in range(500)]
    path = text_file(tmp_path, "a,b,note\n" + "".join(f"{i},1,{n}\n" for i, n in enumerate(notes)))
    with open_batches(path, A_B) as batches:
        parts = list(batches.tables())
    assert len(parts) > 1
    assert pa.concat_tables(parts)["note"].to_pylist() == notes
    assert max(part.nbytes for part in parts) < 1 << 21
