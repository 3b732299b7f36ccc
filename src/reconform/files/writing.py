"""Outputs: files of rows, whole or not at all (see `atomic`)."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from ..arrays import BoolArray, FloatArray
from ..atomic import atomic_file, blamed_on, check_place, status_of
from ..errors import InputError, ReconformError
from .formats import (
    CONVERTED,
    FORMATS,
    UNPACKED,
    Layout,
    files_in,
    is_compressed,
    is_standard,
    suffixes_in_words,
)
from .text import safe_table

RESULT_NAMES = ("score", "p_value", "q_value", "anomaly")
# Beside a certified list, which is proven at its own level only.
CERTIFIED_NAMES = ("score", "p_value", "nominal_q_value", "anomaly")


@dataclass(frozen=True)
class WriteOptions:
    """How the results are written.

    Attributes
    ----------
    only_anomalies : bool
        Write only the flagged rows, the most anomalous first: by p-value, then by raw score.
    overwrite : bool
        Replace an output that exists.
    layout : Layout, optional
        How the output is laid out, where its name does not say it. By default an output in the
        format of the input is laid out like it, and standard output is in this format.
    safe_cells : bool
        Write an apostrophe before texts that a spreadsheet would take for formulas, in CSV and TSV.
    """

    only_anomalies: bool = False
    overwrite: bool = False
    layout: Layout | None = None
    safe_cells: bool = False


def add_results(
    table: Any,
    scores: FloatArray,
    p_values: FloatArray,
    q_values: FloatArray,
    mask: BoolArray,
    *,
    names: tuple[str, ...] = RESULT_NAMES,
) -> Any:
    """Append `score`, `p_value`, `q_value` and `anomaly` to an Arrow table (see `free_names`).

    Examples
    --------
    >>> import numpy as np, pyarrow as pa
    >>> one = np.array([0.5])
    >>> add_results(pa.table({"x": [7]}), one, one, one, one > 1).column_names
    ['x', 'score', 'p_value', 'q_value', 'anomaly']
    """
    arrays = (scores, p_values, q_values, mask)
    for name, array in zip(free_names(names, table.column_names), arrays, strict=True):
        table = table.append_column(name, pa.array(array))
    return table


def free_names(names: Sequence[str], taken: Collection[str]) -> list[str]:
    """Put "result_" before the names of added columns if the table has one of them already.

    Examples
    --------
    >>> free_names(RESULT_NAMES, ["flow", "score"])
    ['result_score', 'result_p_value', 'result_q_value', 'result_anomaly']
    """
    found = list(names)
    while set(found) & set(taken):
        found = [f"result_{name}" for name in found]
    return found


def check_output(
    path: str | Path, *, layout: Layout | None = None, overwrite: bool = False
) -> None:
    """Refuse an output before any work is done for it.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard output.
    layout : Layout, optional
    overwrite : bool
    """
    (layout or Layout()).format_of(path)
    if Path(path).suffix.lower() in (*UNPACKED, *CONVERTED):
        raise InputError(path, f"such files are read, not written; name it {suffixes_in_words()}.")
    if is_standard(path):
        _standard_output()
    else:
        check_place(path, overwrite=overwrite)


def check_separate(
    outputs: Mapping[str, str | Path | None], inputs: Mapping[str, str | Path | None]
) -> None:
    """Refuse outputs that would replace an input or each other, by whatever names.

    Keys say what each is, for the message.

    Examples
    --------
    >>> check_separate({"output": "a.csv", "report": "b/../a.csv"}, {})
    Traceback (most recent call last):
    ...
    reconform.errors.ReconformError: output a.csv and report b/../a.csv are the same file; an output
    must have a file of its own.
    """
    written = [(o, path) for o, path in outputs.items() if path is not None and path != "-"]
    read = [
        (name, file)
        for name, path in inputs.items()
        if path is not None
        # Standard input may be a file, and that is an input too.
        for file in files_in(path) or ["/dev/stdin" if is_standard(path) else str(path)]
    ]
    for (one, path), (other, its) in [*product(written, read), *combinations(written, 2)]:
        if _same_file(path, its):
            raise ReconformError(
                f"{one} {path} and {other} {its} are the same file; an output must have a file of "
                "its own."
            )


def _same_file(one: str | Path, other: str | Path) -> bool:
    try:
        there, its = status_of(one), status_of(other)
    except OSError:  # opening it will raise an error that says what is wrong
        return False
    if there is not None and its is not None:  # links of both kinds, and whatever case counts here
        return stat.S_ISREG(there.st_mode) and os.path.samestat(there, its)
    # Of two new files, names that differ in case only are one on many systems.
    names = {os.path.realpath(path).casefold() for path in (one, other)}
    return there is its is None and len(names) == 1


@contextmanager
def open_output(
    path: str | Path,
    schema: Any,
    *,
    layout: Layout | None = None,
    overwrite: bool = False,
    safe_cells: bool = False,
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
    safe_cells : bool
        In a text file, write an apostrophe before texts that a spreadsheet would take for formulas.

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
    format = FORMATS[layout.format_of(path)]
    name = "standard output" if is_standard(path) else path
    sink = _standard_output if is_standard(path) else None
    with atomic_file(name, overwrite=overwrite, open_sink=sink) as draft, ExitStack() as stack:

        def opened(thing: Any) -> Any:
            return stack.enter_context(_closed_at_the_end(thing, name))

        with blamed_on(name, draft):
            # By bytes, since Arrow takes a name for UTF-8, which that of the folder need not be.
            file = opened(pa.OSFile(os.fsencode(draft), "wb"))
            if format.is_text and is_compressed(path):
                file = opened(pa.CompressedOutputStream(file, "gzip"))
            safe = safe_table if safe_cells and format.is_text else lambda table: table
            writer = opened(
                format.create(file, safe(schema.empty_table()).schema, str(path), layout)
            )

        def write_or_blame(table: Any) -> None:
            with blamed_on(name):
                writer.write_table(safe(table))

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
