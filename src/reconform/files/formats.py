"""What the name of a table says: one of a few formats.

There is one row of `FORMATS` for each format; reading, writing, messages and the command line's
help follow from the rows, and `Layout` chooses among them. Nothing is opened here.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ..errors import InputError, ReconformError, listed
from ..tables import Source, Written
from .columnar import ArrowSource, ParquetSource, ParquetWriter
from .text import TextSource, TextWriter

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
