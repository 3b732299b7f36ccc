"""Tables of many columns: what is done once per block of columns is not done once per column."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from reconform.explain import features
from reconform.files import open_batches, open_output, read_reference, text
from reconform.tables import Feature, cells

COLUMNS = 2_000
ROWS = 10


@pytest.fixture
def wide():
    values = np.random.default_rng(0).normal(size=(COLUMNS, ROWS))
    return pa.table(list(values), names=[f"x{j}" for j in range(COLUMNS)])


@pytest.fixture
def calls(monkeypatch):
    """Count calls of functions that would be slow once per column."""
    counted = Counter()

    def count(module, name):
        real = getattr(module, name)

        def counting(*arguments, **options):
            counted[name] += 1
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, counting)

    count(cells, "numbers")
    count(text, "_as_text")
    count(cells, "_plain")
    count(features, "robust_scales")
    for name in ("cast", "match_substring_regex"):
        count(cells.pc, name)
    assert text.pc is cells.pc
    return counted


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_few_calls_read_and_write_many_columns(tmp_path, wide, calls, suffix):
    path = tmp_path / f"wide{suffix}"
    with open_output(path, wide.schema) as write:
        write(wide)
    read = read_reference(path)
    assert read.X.shape == (ROWS, COLUMNS)
    np.testing.assert_array_equal(read.X, np.column_stack([c.to_numpy() for c in wide.columns]))
    with open_batches(path, [Feature(name) for name in wide.column_names[::-1]]) as batches:
        np.testing.assert_array_equal(np.vstack(list(batches)), read.X[:, ::-1])
        typed = batches.typed(next(batches.tables()))
        assert typed.schema.types == [pa.float64()] * COLUMNS
    assert sum(calls.values()) < 50, calls


def test_missing_cells_do_not_make_it_one_call_per_column(tmp_path, wide, calls):
    holes = wide.slice(0, 1).to_pylist()[0]
    table = pa.concat_tables([wide, pa.Table.from_pylist([dict.fromkeys(holes)], wide.schema)])
    path = tmp_path / "wide.csv"
    with open_output(path, table.schema) as write:
        write(table)
    read = read_reference(path, allow_missing=True)
    assert np.isnan(read.X[-1]).all()
    assert read.missing == dict.fromkeys(wide.column_names, 1)
    assert sum(calls.values()) < 60, calls


def test_columns_of_other_types_stay_where_they_are(tmp_path, rng):
    table = pa.table(
        {
            f"c{j}": [f"a{i}, {j}" for i in range(ROWS)] if j % 3 else rng.normal(size=ROWS)
            for j in range(300)
        }
    )
    for name in ("wide.csv", "wide.parquet"):
        with open_output(tmp_path / name, table.schema) as write:
            write(table)
        numbers = [f"c{j}" for j in range(0, 300, 3)]
        with open_batches(tmp_path / name, [Feature(n) for n in numbers]) as batches:
            assert batches.typed(next(batches.tables())).equals(table)
        assert read_reference(tmp_path / name, columns=numbers).names == tuple(numbers)
