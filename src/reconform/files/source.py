"""One re-readable table per format: its column names, and its rows in batches."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ..whole import blamed_on_temporary_files
from .errors import InputError, listed
from .plain import plain_schema, plain_table
from .text import TextSource

TEXT_FORMATS = ("csv", "tsv")
FORMATS = (*TEXT_FORMATS, "parquet", "arrow")
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}

# Pages of a column chunk are read through a buffer of this size: a file that is one huge row
# group must not be in memory at once.
PARQUET_BUFFER = 1 << 20

# Batches of an Arrow file are read one by one. Where they are larger than this the file is mapped
# instead, and the system decides what part of it stays in memory.
LARGE_BATCH = 1 << 28


DELIMITER = "one ASCII character, and no quote or end of a line"


@dataclass(frozen=True)
class Layout:
    """How a file is written, where its name does not say it.

    Attributes
    ----------
    format : {"csv", "tsv", "parquet", "arrow"} or None
        By default it follows from the suffix; standard input and output are CSV.
    delimiter : str or None
        Of a text file: by default a comma for CSV, a tab for TSV.
    decimal : {".", ","}
        The decimal sign of a text file.
    missing : tuple of str
        Cells of a text file that mean "missing", besides the usual ones.

    Examples
    --------
    >>> Layout(delimiter=";", decimal=",").format_of("new.csv.gz")
    'csv'
    """

    format: str | None = None
    delimiter: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ValueError(f"format must be one of {listed(FORMATS)}; got {self.format!r}.")
        if self.delimiter is not None and not is_delimiter(self.delimiter):
            raise ValueError(f"delimiter must be {DELIMITER}; got {self.delimiter!r}.")
        if self.decimal not in (".", ","):
            raise ValueError(f"decimal must be '.' or ','; got {self.decimal!r}.")

    def format_of(self, path: str | Path) -> str:
        """Return the format of a file, by this layout or else by the file's name."""
        if self.format is not None:
            return self.format
        if is_standard(path):
            return "csv"
        suffixes = [suffix.lower() for suffix in Path(path).suffixes]
        if is_compressed(path):
            suffixes.pop()
        found = SUFFIXES.get(suffixes[-1]) if suffixes else None
        if found is None or (is_compressed(path) and found not in TEXT_FORMATS):
            raise InputError(
                path,
                "its name does not tell its format. Name it .csv, .tsv (these also .gz), "
                f".parquet or .arrow, or give `format`, one of {', '.join(FORMATS)}.",
            )
        return found

    def delimiter_of(self, format: str) -> str:
        """Return the delimiter of a text format."""
        return self.delimiter or {"csv": ",", "tsv": "\t"}[format]


def is_delimiter(text: str) -> bool:
    """Whether a text can be between the columns of a text file."""
    return len(text) == 1 and text.isascii() and text not in '\0\n\r"'


def is_standard(path: str | Path) -> bool:
    """Whether the path is ``-``, standard input or output."""
    return str(path) == "-"


def is_compressed(path: str | Path) -> bool:
    """Whether a text file is compressed with gzip."""
    return Path(path).suffix.lower() == ".gz"


class Source(Protocol):
    """A table that can be read from its start any number of times."""

    @property
    def path(self) -> Path:
        """Where it is read from: the file, or the spool of a pipe."""
        ...

    @property
    def label(self) -> str:
        """What to call the file in messages."""
        ...

    @property
    def schema(self) -> Any:
        """Arrow's schema."""
        ...

    @property
    def rows(self) -> int | None:
        """Number of rows, where the file tells it beforehand."""
        ...

    @property
    def is_text(self) -> bool:
        """Whether every cell is text that is yet to be read as a number."""
        ...

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of about `rows` rows, with these columns at least."""
        ...

    def line(self, row: int) -> int | None:
        """Line of a row (from 0) in a text file, from 1."""
        ...


class ParquetSource:
    """A Parquet file."""

    is_text = False

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        with _open_as(label, "Parquet"):
            file = self._open()
            self.schema = plain_schema(file.schema_arrow)
            self.rows: int | None = file.metadata.num_rows

    def _open(self) -> Any:
        return pq.ParquetFile(
            pa.OSFile(os.fsencode(self.path)), pre_buffer=False, buffer_size=PARQUET_BUFFER
        )

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of at most `rows` rows."""
        with _open_as(self.label, "Parquet"):
            for batch in self._open().iter_batches(batch_size=rows, columns=list(columns)):
                yield plain_table(batch)

    def line(self, row: int) -> int | None:
        """Return None: there are no lines."""
        return None


class ArrowSource:
    """An Arrow IPC file, which is also Feather, or an Arrow IPC stream."""

    is_text = False
    rows: int | None = None

    def __init__(self, path: Path, label: str) -> None:
        self.path = path
        self.label = label
        with self._reader() as reader:
            self.schema = plain_schema(reader.schema)

    @contextmanager
    def _reader(self) -> Iterator[Any]:
        with _open_as(self.label, "Arrow"), ExitStack() as stack:
            file = stack.enter_context(pa.OSFile(os.fsencode(self.path)))
            try:
                reader = pa.ipc.open_file(file)
            except pa.ArrowInvalid:  # no footer: perhaps a stream
                file.seek(0)
                yield stack.enter_context(pa.ipc.open_stream(file))
                return
            if self.path.stat().st_size > LARGE_BATCH * max(1, reader.num_record_batches):
                reader = pa.ipc.open_file(
                    stack.enter_context(pa.memory_map(os.fsencode(self.path)))
                )
            yield reader

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables of at most `rows` rows."""
        with self._reader() as reader:
            if isinstance(reader, pa.RecordBatchFileReader):
                batches = map(reader.get_batch, range(reader.num_record_batches))
            else:
                batches = iter(reader)
            for batch in batches:
                wanted = batch.select(list(columns))
                for start in range(0, wanted.num_rows, rows):
                    yield plain_table(wanted.slice(start, rows))

    def line(self, row: int) -> int | None:
        """Return None: there are no lines."""
        return None


@contextmanager
def _open_as(label: str, format: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    # A name that is no text, a number that is too large: Arrow's own errors of a damaged file.
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(
            label, f"it cannot be read as {format} ({str(error).rstrip('. ')})."
        ) from error


@contextmanager
def open_source(path: str | Path, layout: Layout) -> Iterator[Source]:
    """Open a table that can be read more than once; standard input is spooled to disk.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard input.
    layout : Layout

    Yields
    ------
    Source
    """
    format = layout.format_of(path)
    label = "standard input" if is_standard(path) else str(path)
    with _spooled(path) as local:
        if not local.exists():
            raise InputError(label, "there is no such file.")
        if local.is_dir():
            raise InputError(label, "it is a folder, not a file.")
        if local.is_file() and not os.path.getsize(local):
            raise InputError(label, "the file is empty.")
        source: Source
        if format == "parquet":
            source = ParquetSource(local, label)
        elif format == "arrow":
            source = ArrowSource(local, label)
        else:
            delimiter = layout.delimiter_of(format)
            source = TextSource(
                local, label, delimiter, layout.delimiter is not None, is_compressed(path)
            )
        _check_names(label, source.schema.names)
        yield source


def _check_names(label: str, names: Sequence[str]) -> None:
    if not names:
        raise InputError(label, "it has no columns.")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            label,
            f"these column names occur more than once: {listed(twice)}. Columns are matched by "
            "name, so every name must be different; rename them in the file.",
            column=twice[0] if len(twice) == 1 else None,
        )


@contextmanager
def _spooled(path: str | Path) -> Iterator[Path]:
    """A file that can be read twice: what comes through a pipe is written to disk first."""
    if not is_standard(path) and not Path(path).is_fifo():
        yield Path(path)
        return
    if is_standard(path) and sys.stdin is None:
        raise InputError("standard input", "it is closed; name a file, or send the rows there.")
    with tempfile.TemporaryDirectory(prefix="reconform-") as folder:
        spool = Path(folder, "spool")
        with blamed_on_temporary_files(), ExitStack() as stack, spool.open("wb") as file:
            pipe = sys.stdin.buffer if is_standard(path) else stack.enter_context(open(path, "rb"))
            shutil.copyfileobj(pipe, file, 1 << 20)
        yield spool
