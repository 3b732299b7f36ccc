"""Tables on disk, whole or not at all (see `whole`)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..whole import blamed_on, check_place, whole_file, whole_stream
from .cells import BoolArray, FloatArray, blocks, words
from .errors import InputError, listed
from .source import Layout, is_compressed, is_standard

RESULT_NAMES = ("score", "p_value", "q_value", "anomaly")


def add_results(
    table: Any,
    scores: FloatArray,
    p_values: FloatArray,
    q_values: FloatArray,
    mask: BoolArray,
    *,
    prefix: str = "",
) -> Any:
    """Append `score`, `p_value`, `q_value` and `anomaly` to an Arrow table.

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> one = np.array([0.5])
    >>> add_results(pa.table({"x": [7]}), one, one, one, one > 1).column_names
    ['x', 'score', 'p_value', 'q_value', 'anomaly']
    """
    arrays = (scores, p_values, q_values, mask)
    for name, array in zip(RESULT_NAMES, arrays, strict=True):
        table = table.append_column(prefix + name, pa.array(array))
    return table


def check_output(
    path: str | Path,
    schema: Any,
    *,
    layout: Layout | None = None,
    overwrite: bool = False,
    prefix: str = "",
) -> None:
    """Refuse an output before any work is done for it.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard output.
    schema : pyarrow.Schema
        Of the table that the results are added to.
    layout : Layout, optional
    overwrite : bool
    prefix : str
        Of the added columns.
    """
    clash = [prefix + name for name in RESULT_NAMES if prefix + name in schema.names]
    if clash:
        raise InputError(
            path,
            f"the results would be written to columns {listed(clash)}, which the input has "
            "already. Rename these in the input, or give a `prefix` for the names of the results.",
            column=clash[0] if len(clash) == 1 else None,
        )
    (layout or Layout()).format_of(path)
    if is_standard(path):
        _standard_output()
    else:
        check_place(path, overwrite=overwrite)


@contextmanager
def open_output(
    path: str | Path, schema: Any, *, layout: Layout | None = None, overwrite: bool = False
) -> Iterator[Callable[[Any], None]]:
    """Open an output for tables of one schema; it appears when the block ends well.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard output, which gets nothing before everything is there.
    schema : pyarrow.Schema
    layout : Layout, optional
        Format, delimiter and decimal sign, where the name of the file does not say them.
    overwrite : bool
        Replace a file that exists.

    Yields
    ------
    callable
        Writes an Arrow table.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = pa.table({"x": [1.5, 2.0], "note": ["a, b", None]})
    >>> path = Path(folder.name, "out.csv")
    >>> with open_output(path, table.schema) as write:
    ...     write(table)
    >>> print(path.read_text())
    x,note
    1.5,"a, b"
    2,
    >>> folder.cleanup()
    """
    layout = layout or Layout()
    format = layout.format_of(path)
    name = "standard output" if is_standard(path) else path
    if is_standard(path):
        _standard_output()
        whole = whole_stream(_standard_output, name)
    else:
        whole = whole_file(path, overwrite=overwrite)
    with whole as draft, ExitStack() as stack:

        def opened(thing: Any) -> Any:
            return stack.enter_context(_closed_at_the_end(thing, name))

        with blamed_on(name, draft):
            # By bytes, since Arrow takes a name for UTF-8, which that of the folder need not be.
            sink = opened(pa.OSFile(os.fsencode(draft), "wb"))
            if format == "parquet":
                held = _parquet_schema(schema)
                write = _fitting(path, opened(pq.ParquetWriter(sink, held)).write_table, held)
            elif format == "arrow":
                write = opened(pa.ipc.new_file(sink, schema)).write_table
            else:
                if is_compressed(path):
                    sink = opened(pa.CompressedOutputStream(sink, "gzip"))
                write = _text_writer(sink, schema, layout.delimiter_of(format), layout.decimal)

        def write_or_blame(table: Any) -> None:
            with blamed_on(name):
                write(table)

        yield write_or_blame


@contextmanager
def _closed_at_the_end(thing: Any, name: str | Path) -> Iterator[Any]:
    try:
        yield thing
    finally:
        with blamed_on(name):  # closing writes, too
            thing.close()


def _standard_output() -> AbstractContextManager[BinaryIO]:
    if sys.stdout is None:
        raise OSError("standard output: it is closed, and cannot be written to.")
    return nullcontext(sys.stdout.buffer)


# --- Parquet -------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _parquet_holds(type: Any) -> bool:
    table = pa.table([pa.array([], type)], names=["x"])
    try:
        pq.write_table(table, pa.BufferOutputStream())
    except pa.ArrowException:
        return False
    return True


def _parquet_schema(schema: Any) -> Any:
    """Columns of types that Parquet does not have are written as text."""
    for i, column in enumerate(schema):
        if not _parquet_holds(column.type):
            schema = schema.set(i, column.with_type(pa.large_string()))
    return schema


def _fitting(path: str | Path, put: Callable[[Any], None], schema: Any) -> Callable[[Any], None]:
    def write(table: Any) -> None:
        columns = [
            column if column.type == field.type else pc.cast(words(column), field.type)
            for column, field in zip(table.columns, schema, strict=True)
        ]
        try:
            put(pa.table(columns, schema=schema))
        except pa.ArrowInvalid as error:  # a time that Parquet's units are too small for
            raise InputError(
                path, f"the rows cannot be written as Parquet ({error}); write .arrow or .csv."
            ) from error

    return write


# --- text ----------------------------------------------------------------------------------------


def _text_writer(stream: Any, schema: Any, delimiter: str, decimal: str) -> Callable[[Any], None]:
    names = pa.table([[name] for name in schema.names], names=schema.names)
    stream.write(_lines(names, delimiter, "."))

    def write(table: Any) -> None:
        if table.num_rows:
            stream.write(_lines(table, delimiter, decimal))

    return write


def _lines(table: Any, delimiter: str, decimal: str) -> Any:
    """Rows of a table as one buffer of text; quotes only where a cell needs them."""
    cells: list[Any] = [None] * table.num_columns
    for where, column in blocks(table.columns):
        written = _as_text(column.combine_chunks(), delimiter, decimal)
        for i, j in enumerate(where):
            cells[j] = written.slice(i * table.num_rows, table.num_rows)
    rows = pc.binary_join_element_wise(
        *cells, _text(delimiter), null_handling="replace", null_replacement=""
    )
    return pc.binary_join_element_wise(rows, _text(""), _text("\n")).buffers()[2]


def _as_text(column: Any, delimiter: str, decimal: str) -> Any:
    cells = pc.cast(words(column), pa.large_string())
    if decimal == "," and pa.types.is_floating(column.type):
        cells = pc.replace_substring(cells, ".", ",")
    special = pc.match_substring_regex(cells, f'["\r\n{_escaped(delimiter)}]')
    if not pc.any(special).as_py():
        return cells
    doubled = pc.replace_substring(cells, '"', '""')
    quoted = pc.binary_join_element_wise(_text('"'), doubled, _text('"'), _text(""))
    return pc.if_else(special, quoted, cells)


def _text(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


def _escaped(delimiter: str) -> str:
    return "\\" + delimiter if delimiter in "\\]^-[" else delimiter
