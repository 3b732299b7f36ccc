"""Tables of many columns: read right, and in time that grows with their cells."""

import time

import numpy as np
import pyarrow as pa
import pytest

from reconform.files import open_batches, open_output
from reconform.tables import Feature
from rows import read_reference

COLUMNS, ROWS = 4_000, 10
SECONDS = 5.0  # of the processor, to write and read; it takes about one


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_many_columns_are_read_and_written_in_time(tmp_path, rng, suffix):
    """Also where a row has no value at all."""
    values = rng.normal(size=(COLUMNS, ROWS))
    wide = pa.table(list(values), names=[f"x{j}" for j in range(COLUMNS)])
    empty = pa.Table.from_pylist([dict.fromkeys(wide.column_names)], wide.schema)
    for table in (wide, pa.concat_tables([wide, empty])):
        path, began = tmp_path / f"{table.num_rows}{suffix}", time.process_time()
        with open_output(path, table.schema) as write:
            write(table)
        read = read_reference(path)
        np.testing.assert_array_equal(read.X[:ROWS], values.T)
        if table is wide:
            with open_batches(path, [Feature(name) for name in wide.column_names[::-1]]) as batches:
                np.testing.assert_array_equal(np.vstack(list(batches)), values[::-1].T)
                typed = batches.typed(next(batches.tables()))
                assert typed.schema.types == [pa.float64()] * COLUMNS
        else:
            assert np.isnan(read.X[-1]).all()
            assert read.missing == dict.fromkeys(wide.column_names, 1)
        assert time.process_time() - began < SECONDS


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
