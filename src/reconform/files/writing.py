"""Results on disk, whole or not at all.

An output is written to a temporary file in its own folder and moved into place at the end. An
exception, Ctrl-C or a polite kill removes the temporary file; the output itself is never half
there, and never touched if it exists and `overwrite` was not given.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .cells import BoolArray, FloatArray, words
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
    _check_place(path, overwrite)


def _check_place(path: str | Path, overwrite: bool) -> None:
    if is_standard(path):
        return
    target = Path(path)
    if target.is_dir():
        raise InputError(path, "the output is a folder; give the name of a file.")
    if not target.absolute().parent.is_dir():
        raise InputError(path, f"there is no folder {str(target.parent)!r} to write to.")
    if target.is_file() and not overwrite:
        raise _exists(path)


def _exists(path: str | Path) -> InputError:
    return InputError(path, "the output exists already; replace it with `overwrite=True`.")


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
    _check_place(path, overwrite)
    with (
        stops_by_exception(),
        _moved_into_place(path, overwrite) as temporary,
        ExitStack() as stack,
    ):
        if format == "parquet":
            held = _parquet_schema(schema)
            put = stack.enter_context(pq.ParquetWriter(temporary, held)).write_table
            write = _fitting(path, put, held)
        elif format == "arrow":
            sink = stack.enter_context(pa.OSFile(str(temporary), "wb"))
            write = stack.enter_context(pa.ipc.new_file(sink, schema)).write_table
        else:
            compression = "gzip" if is_compressed(path) else None
            stream = pa.output_stream(str(temporary), compression=compression)
            stack.enter_context(stream)
            write = _text_writer(stream, schema, layout.delimiter_of(format), layout.decimal)
        yield write


@contextmanager
def stops_by_exception() -> Iterator[None]:
    """Let a polite kill raise `SystemExit`, so that temporary files are removed on the way out."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signals = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    # Whoever handles a signal already knows better.
    ours = [s for s in signals if s is not None and signal.getsignal(s) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _moved_into_place(path: str | Path, overwrite: bool) -> Iterator[Path]:
    special = not is_standard(path) and Path(path).exists() and not Path(path).is_file()
    if is_standard(path) or special:  # a stream or a device: there is no place to move to
        with tempfile.TemporaryDirectory(prefix="reconform-") as folder:
            temporary = Path(folder, "output")
            yield temporary
            with ExitStack() as stack:
                sink = stack.enter_context(open(path, "wb")) if special else sys.stdout.buffer
                shutil.copyfileobj(stack.enter_context(temporary.open("rb")), sink, 1 << 20)
                sink.flush()
        return
    target = Path(os.path.realpath(path))  # a link stays, and what it points to is replaced
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if overwrite:
            os.replace(temporary, target)
        else:
            _place(temporary, target, path)
    finally:
        temporary.unlink(missing_ok=True)


def _place(temporary: Path, target: Path, path: str | Path) -> None:
    """Give the file its name, unless another file got it meanwhile."""
    try:
        os.link(temporary, target)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:  # a file system without hard links
        if target.exists():
            raise _exists(path) from error
        os.replace(temporary, target)


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
    names = pa.table({str(j): [name] for j, name in enumerate(schema.names)})
    stream.write(_lines(names, delimiter, "."))

    def write(table: Any) -> None:
        if table.num_rows:
            stream.write(_lines(table, delimiter, decimal))

    return write


def _lines(table: Any, delimiter: str, decimal: str) -> Any:
    """Rows of a table as one buffer of text; quotes only where a cell needs them."""
    cells = [_as_text(column.combine_chunks(), delimiter, decimal) for column in table.columns]
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
