"""Columns of every type that Arrow has: what is read, and that an unused one never matters."""

import contextlib
import json

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from arrow_types import ROWS, ZOO
from reconform.cli import main
from reconform.errors import ReconformError
from reconform.files import open_batches, open_output
from reconform.tables import Feature
from reconform.tables.cells import plain_schema, plain_table, to_python, words
from refusals import refused
from rows import read_reference


@pytest.mark.parametrize("name", ZOO)
def test_every_type_comes_in_as_a_plain_one(name):
    if name == "runs":
        pytest.importorskip("pyarrow", "26.0", reason="older versions count no nulls in runs")
    for column in (ZOO[name], ZOO[name].slice(1, 4), ZOO[name].slice(0, 0)):
        batch = pa.record_batch({"x": column})
        table = plain_table(batch)
        assert (table.schema, len(table)) == (plain_schema(batch.schema), len(column))
        assert table["x"].null_count == sum(not v for v in column.is_valid().to_pylist())
        table.take(np.arange(len(column))[::-1])
        assert len(to_python(table["x"])) == len(words(table["x"])) == len(column)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".arrow"])
def test_every_type_can_be_written(tmp_path, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", "26.0", reason="older versions write no nulls of runs")
    for name, column in ZOO.items():
        table = plain_table(pa.record_batch({"a": pa.array(range(ROWS)), "x": column}))
        path = tmp_path / f"{name}{suffix}"
        with open_output(path, table.schema) as write:
            write(table)
        with open_batches(path, [Feature("a")]) as batches:
            assert pa.concat_tables(batches.tables()).num_rows == ROWS


def test_values_are_what_they_were():
    table = plain_table(pa.record_batch(ZOO))
    assert table["runs"].to_pylist() == ["x", "x", None, None, None, None]
    assert table["dictionary of views"].to_pylist() == ["a", "b"] * 3
    assert table["struct of views"].to_pylist() == [{"b": "x"}, None] * 3
    assert table["list of dictionaries"].to_pylist() == [["a"], None, ["b"]] * 2
    assert json.loads(table["list_view of views"][0].as_py()) == ["a"]
    assert table["unknown zone"].type.tz == "UTC"
    assert table["unknown zone"].cast(pa.int64()).to_pylist() == [1, 2, None] * 2
    # What is no text stays different where it was.
    assert table["bad text"].to_pylist()[:3] == [r"caf\xe9", r"caf\xe8", "b"]
    assert words(table["binary_view"]).to_pylist()[:3] == ["a", r"\xff", None]


def test_times_that_no_calendar_has_are_written_as_numbers():
    # Arrow writes "<value out of range>" for the first, and for one in a zone a wrong date.
    for zone in (None, "Europe/Berlin"):
        column = pa.array([10**12, 0], pa.timestamp("s", zone))
        far, near = words(column).to_pylist()
        assert far == "1000000000000 s since 1970"
        assert near.startswith("1970-01-01")
    assert words(pa.array([10**9], pa.date32())).to_pylist() == ["86400000000000 s since 1970"]


def zoo_files(tmp_path, suffix, columns=ZOO):
    """Normal rows, and new ones of which the last are far away, with every type beside them."""
    rng = np.random.default_rng(0)
    repeats = 20
    normal = {"x": rng.normal(size=ROWS * repeats), "y": rng.normal(size=ROWS * repeats)}
    new = {"x": np.r_[rng.normal(size=ROWS - 2), 50, 60], "y": rng.normal(size=ROWS)}
    paths = []
    for name, numbers, times in (("normal", normal, repeats), ("new", new, 1)):
        batches = []
        for i in range(times):
            part = {n: v[ROWS * i : ROWS * (i + 1)] for n, v in numbers.items()}
            batches.append(pa.record_batch({**part, **columns}))
        path = tmp_path / f"{name}{suffix}"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batches[0].schema) as file:
            for batch in batches:
                file.write_batch(batch)
        paths.append(str(path))
    return paths


def run(*arguments):
    return CliRunner().invoke(main, [*map(str, arguments), "--detector", "knn", "--method", "cv+"])


@pytest.mark.parametrize("output", [None, "out.csv", "out.parquet", "out.arrow"])
def test_unused_columns_of_any_type_do_not_matter(tmp_path, output):
    options = ["--columns", "x", "--columns", "y", "--fdr", "0.1"]
    alone = run("detect", *zoo_files(tmp_path, ".arrow", {}), *options).output.splitlines()[:2]
    normal, new = zoo_files(tmp_path, ".arrow")
    written = [] if output is None else ["--output", tmp_path / output]
    done = run("detect", normal, new, *options, *written, "--report", tmp_path / "r.html")
    assert done.exit_code == 0, done.output
    assert "of 6 rows flagged" in alone[0]
    assert done.output.splitlines()[:2] == alone


def test_any_type_may_identify_rows(tmp_path):
    normal, new = zoo_files(tmp_path, ".arrow")
    ids = [word for name in ZOO for word in ("--id", f'"{name}"')]
    files = ["detect", normal, new, *ids, "--fdr", "0.3", "--report", tmp_path / "r.html"]
    done = run(*files, "--json")
    assert done.exit_code == 0, done.output
    flagged = json.loads(done.output)["anomalies"]
    assert {tuple(record["id"]) for record in flagged} == {tuple(ZOO)}


@pytest.mark.parametrize("options", [{}, {"categories": ["what"]}], ids=str)
def test_any_type_as_a_feature_is_read_or_refused_in_a_sentence(tmp_path, options):
    read = 0
    for column in ZOO.values():
        normal, new = zoo_files(tmp_path, ".arrow", {"what": column})
        with contextlib.suppress(ReconformError):  # and nothing else
            table = read_reference(normal, **options)
            read += 1
            with open_batches(new, table.features, allow_missing=True) as batches:
                list(batches)
    assert read >= 4  # numbers of odd types


def test_text_that_polars_wrote(tmp_path, rng):
    paths = tmp_path / "normal.arrow", tmp_path / "new.arrow"
    for path, rows in zip(paths, (60, 5), strict=True):
        columns = {"x": rng.normal(size=rows), "who": [f"row {i}" for i in range(rows)]}
        kind = polars.lit("a").cast(polars.Categorical)
        frame = polars.DataFrame(columns).with_columns(kind=kind)
        # As Polars does by default with its newest layout.
        frame.write_ipc(path, compat_level=polars.CompatLevel.newest())
    out = tmp_path / "out.parquet"
    done = run("detect", *paths, "--id", "who", "--drop", "kind", "--output", out)
    assert done.exit_code == 0, done.output
    assert pq.read_table(out)["who"].to_pylist() == [f"row {i}" for i in range(5)]


def test_a_damaged_array_is_refused(tmp_path):
    good = pa.array(["ab", "cd", "ef"])
    offsets = pa.py_buffer(np.array([0, 2, 1_000_000, 6], np.int32))
    broken = pa.Array.from_buffers(pa.string(), 3, [None, offsets, good.buffers()[2]])
    refused("the column 's'", plain_table, pa.record_batch({"s": broken}), error=pa.ArrowInvalid)
    indices = pa.DictionaryArray.from_arrays(pa.array([0, 9, 1]), good, safe=False)
    refused("the column 's'", plain_table, pa.record_batch({"s": indices}), error=pa.ArrowInvalid)
