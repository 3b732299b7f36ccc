"""A file format is one row: this follows the recipe of docs/architecture.md with a toy format."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from reconform import ConformalDetector
from reconform.files import FORMATS, InputError, Layout, open_output, read_reference
from reconform.files.formats import Format, suffixes_in_words, titles_in_words


class JsonLinesSource:
    """One JSON object per line."""

    is_text = False
    rows = None

    def __init__(self, file, layout):
        self.path, self.label = file.path, file.label
        self.schema = self._table().schema

    def _table(self):
        lines = self.path.read_text().splitlines()
        return pa.Table.from_pylist([json.loads(line) for line in lines])

    def tables(self, columns, rows):
        table = self._table().select(list(columns))
        for start in range(0, len(table), rows):
            yield table.slice(start, rows)

    def line(self, row):
        return row + 1


class JsonLinesWriter:
    def __init__(self, sink, schema, label, layout):
        self.sink = sink

    def write_table(self, table):
        for row in table.to_pylist():
            self.sink.write(json.dumps(row).encode() + b"\n")

    def close(self):
        pass


ROW = Format("JSON lines", (".toyrows",), False, JsonLinesSource, JsonLinesWriter)


@pytest.fixture
def toyrows(monkeypatch):
    monkeypatch.setitem(FORMATS, "toyrows", ROW)


def write_lines(path, X):
    path.write_text("".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in X.tolist()))
    return path


@pytest.fixture
def files(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[-1] = 9.0
    parts = {"normal": X[:40], "new": X[40:]}
    return tuple(write_lines(tmp_path / f"{name}.toyrows", rows) for name, rows in parts.items())


def test_without_the_row_the_format_is_unknown(files):
    with pytest.raises(InputError, match=r"Name it \.csv, \.tsv \(these also \.gz\), \.parquet or"):
        read_reference(files[0])


def test_the_row_is_all_that_reading_and_writing_need(toyrows, files, tmp_path):
    table = read_reference(files[0])
    assert (table.names, table.X.shape) == (("a", "b"), (40, 2))
    assert Layout().format_of("x.toyrows") == "toyrows"
    assert Layout(format="toyrows").format == "toyrows"
    with open_output(tmp_path / "out.toyrows", table.frame.schema) as write:
        write(table.frame)
    np.testing.assert_array_equal(read_reference(tmp_path / "out.toyrows").X, table.X)


def test_messages_name_it(toyrows, tmp_path):
    assert suffixes_in_words().endswith(".parquet, .arrow or .toyrows")
    assert titles_in_words().endswith("Parquet, Arrow or JSON lines")
    with pytest.raises(InputError, match=r"or \.toyrows, or give `format`, one of .*, toyrows\."):
        read_reference(tmp_path / "x.txt")


def test_the_command_line_takes_it(files, tmp_path):
    """In a process of its own: the help is made when the command line is imported."""
    program = (
        f"import sys; sys.path[:0] = {[*map(str, Path(__file__).parents[:2])]!r}\n"
        "from test_formats import FORMATS, ROW\n"
        "FORMATS['toyrows'] = ROW\n"
        "from reconform.cli import main\n"
        "main()"
    )

    def run(*arguments):
        command = [sys.executable, "-c", program, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    shown = " ".join(run("detect", "--help").split())
    assert "Parquet, Arrow or JSON lines" in shown
    assert "parquet|arrow|toyrows" in shown.replace("| ", "|")
    out = tmp_path / "out.toyrows"
    run("detect", *files, "--detector", "knn", "--method", "split", "--output", out, "--quiet")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 20
    cad = ConformalDetector("knn", "split", random_state=0)
    cad.fit(read_lines(files[0]))
    assert [row["p_value"] for row in rows] == list(cad.p_values(read_lines(files[1])))


def read_lines(path):
    return pa.Table.from_pylist([json.loads(line) for line in path.read_text().splitlines()])
