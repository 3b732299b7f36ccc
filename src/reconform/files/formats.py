"""Formats of tables, by their names; and outputs, which appear whole or not at all (see `atomic`).

There is one row of `FORMATS` for each format; reading, writing, messages and the command line's
help follow from the rows, and `Layout` chooses among them. Inputs are opened in `source`.
"""

from __future__ import annotations

import glob
import os
import stat
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from ..arrays import BoolArray, FloatArray
from ..atomic import atomic_file, blamed_on, check_place, status_of
from ..errors import InputError, ReconformError, listed
from ..tables import Source, Written
from .columnar import ArrowSource, ParquetSource, ParquetWriter
from .text import TextSource, TextWriter, safe_table

DATABASES = (".duckdb", ".ddb", ".sqlite", ".sqlite3", ".db")
PARQUET_FILES = (".parquet", ".pq")
FILES_OF_ROWS = (*PARQUET_FILES, ".csv", ".tsv", ".csv.gz", ".tsv.gz")


def files_in(path: str | Path) -> list[str]:
    """The files of rows that a folder or a pattern stands for, sorted; none for any other name."""
    name = os.fspath(path)
    if os.path.isdir(name):
        several = (os.path.join(name, one) for one in os.listdir(name))
        return sorted(one for one in several if one.lower().endswith(FILES_OF_ROWS))
    if glob.has_magic(name) and not os.path.lexists(name):
        return sorted(glob.glob(name, recursive=True))
    return []


# --- formats -------------------------------------------------------------------------------------

# Files that are unpacked before they are read, and tables that are read and never written.
UNPACKED = (".zst", ".xz", ".bz2", ".zip")
CONVERTED = (".jsonl", ".ndjson", ".json", ".xlsx")

DELIMITER = "one ASCII character, and no quote or end of a line"


@dataclass(frozen=True, kw_only=True)
class Layout(Written):
    """How a file is written, where its name does not say it.

    Attributes
    ----------
    format : str or None
        A name in `FORMATS`; by default it follows from the suffix, and standard input and output
        are CSV.
    delimiter : str or None
        Of a text file: by default a comma for CSV, a tab for TSV.
    decimal : {".", ","}
        The decimal sign of a text file.
    missing : tuple of str
        Cells of a text file that mean "missing", besides the usual ones.
    no_header : bool
        Whether a text file begins with its first row: columns are called "column 1" and so on.

    Examples
    --------
    >>> Layout(delimiter=";", decimal=",").format_of("new.csv.gz")
    'csv'
    """

    format: str | None = None
    delimiter: str | None = None
    no_header: bool = False

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ReconformError(f"format must be one of {listed(FORMATS)}; got {self.format!r}.")
        if self.delimiter is not None and not is_delimiter(self.delimiter):
            raise ReconformError(f"`delimiter` must be {DELIMITER}; got {self.delimiter!r}.")
        if self.decimal not in (".", ","):
            raise ReconformError(f"decimal must be '.' or ','; got {self.decimal!r}.")

    def format_of(self, path: str | Path) -> str:
        """Return the format of a file, by this layout or else by the file's name."""
        if self.format is not None:
            return self.format
        if is_standard(path):
            return "csv"
        suffixes = [suffix.lower() for suffix in Path(path).suffixes]
        if is_compressed(path) or suffixes[-1:] in ([one] for one in UNPACKED):
            suffixes.pop()
        if suffixes and suffixes[-1] in CONVERTED:
            return "arrow"
        for name, format in FORMATS.items():
            if suffixes and suffixes[-1] in format.suffixes:
                if is_compressed(path) and not format.is_text:
                    break
                return name
        if suffixes[-1:] and suffixes[-1] in DATABASES:
            raise InputError(
                path,
                "it is a database, and tables are files. Write the rows to one, in DuckDB (which "
                "opens SQLite too) by: COPY (SELECT * FROM readings) TO 'rows.parquet'.",
            )
        raise InputError(
            path,
            f"its name does not tell its format. Name it {suffixes_in_words()}, or give "
            f"`format`, one of {', '.join(FORMATS)}.",
        )


def layout_like(path: str | Path, layout: Layout | None, output: str | Path) -> Layout:
    """Lay an output for which nothing was said out like the input, if it has the same format.

    Examples
    --------
    >>> layout_like("a.csv", Layout(delimiter=";"), "b.csv").delimiter
    ';'
    >>> layout_like("a.csv", Layout(delimiter=";"), "b.parquet").delimiter
    """
    layout = layout or Layout()
    format = layout.format_of(path)
    if is_standard(output) or Layout().format_of(output) == format:
        return replace(layout, format=format)
    return Layout()


def is_delimiter(text: str) -> bool:
    """Whether a text can be between the columns of a text file."""
    return len(text) == 1 and text.isascii() and text not in '\0\n\r"'


def is_standard(path: str | Path) -> bool:
    """Whether the path is ``-``, standard input or output."""
    return str(path) == "-"


def is_compressed(path: str | Path) -> bool:
    """Whether a text file is compressed with gzip."""
    return Path(path).suffix.lower() == ".gz"


class Stored(NamedTuple):
    """A file to read.

    Attributes
    ----------
    path : Path
        Where it is.
    label : str
        What to call it in messages.
    compressed : bool
        Whether it is compressed by gzip, which only text may be.
    """

    path: Path
    label: str
    compressed: bool


@dataclass(frozen=True)
class Format:
    """All that is to be known about a format of tables.

    Attributes
    ----------
    title : str
        What people call it.
    suffixes : tuple of str
        How the names of such files end, the usual one first.
    is_text : bool
        Whether cells are text that is yet to be read as numbers; then the file may be compressed
        by gzip.
    open : callable
        Makes a `Source` of a `Stored` file and a `Layout`.
    create : callable
        Makes a writer (`write_table`, `close`) of a binary stream, an Arrow schema, the name of
        the file for messages and a `Layout`.
    signature : bytes or None
        With what every such file begins: one that is taken for text is recognised by it.
    """

    title: str
    suffixes: tuple[str, ...]
    is_text: bool
    open: Callable[[Stored, Layout], Source]
    create: Callable[[Any, Any, str, Layout], Any]
    signature: bytes | None = None


def _text(title: str, suffix: str, delimiter: str) -> Format:
    return Format(
        title,
        (suffix,),
        is_text=True,
        open=lambda file, layout: TextSource(file, layout, delimiter),
        create=lambda sink, schema, _, layout: TextWriter(
            sink, schema, layout.delimiter or delimiter, layout.decimal
        ),
    )


# The first is that of standard input and output.
FORMATS: dict[str, Format] = {
    "csv": _text("CSV", ".csv", ","),
    "tsv": _text("TSV", ".tsv", "\t"),
    "parquet": Format(
        "Parquet",
        (".parquet", ".pq"),
        is_text=False,
        open=lambda file, _: ParquetSource(file.path, file.label),
        create=lambda sink, schema, label, _: ParquetWriter(sink, schema, label),
        signature=b"PAR1",
    ),
    "arrow": Format(
        "Arrow",
        (".arrow", ".feather", ".ipc"),
        is_text=False,
        open=lambda file, _: ArrowSource(file.path, file.label),
        create=lambda sink, schema, _, __: pa.ipc.new_file(sink, schema),
        signature=b"ARROW1",
    ),
}


def titles_in_words() -> str:
    """Name all formats in a sentence.

    Examples
    --------
    >>> titles_in_words()
    'CSV, TSV (these also .gz), Parquet or Arrow'
    """
    return _in_words([format.title for format in FORMATS.values()])


def suffixes_in_words() -> str:
    """Name the usual suffixes of all formats in a sentence.

    Examples
    --------
    >>> suffixes_in_words()
    '.csv, .tsv (these also .gz), .parquet or .arrow'
    """
    return _in_words([format.suffixes[0] for format in FORMATS.values()])


def _in_words(names: list[str]) -> str:
    rows = list(zip(names, FORMATS.values(), strict=True))
    texts = [name for name, row in rows if row.is_text]
    texts[-1] += " (these also .gz)"
    every = texts + [name for name, row in rows if not row.is_text]
    return f"{', '.join(every[:-1])} or {every[-1]}"


# --- outputs -------------------------------------------------------------------------------------

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
