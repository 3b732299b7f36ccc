"""Tables that can be read more than once, and what waits between two passes over them.

`open_source` opens a table whatever its format; within `opened_once`, as in a command, every table
is opened once. What comes through a pipe, is packed or is JSON or Excel is stored on disk first.
Rows and ranks wait in memory while they are few, then on disk.
"""

from __future__ import annotations

import bz2
import json
import lzma
import os
import re
import sys
import tempfile
import weakref
import zipfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..arrays import IntArray
from ..atomic import in_temporary_files
from ..errors import InputError, listed
from ..extras import extra
from ..statistics.ranks import Ranks
from ..tables import Source, Written
from ..tables.cells import is_text, varies, words
from .formats import (
    CONVERTED,
    FILES_OF_ROWS,
    FORMATS,
    UNPACKED,
    Layout,
    Stored,
    files_in,
    is_compressed,
    is_standard,
)

# A table of more columns takes gigabytes for their names and types alone.
MOST_COLUMNS = 1 << 17

# What people take for a text file, by its first bytes; our own formats are recognised too.
SIGNATURES = {
    b"PK\x03\x04": "an Excel or zip file: let its name end in .xlsx or .zip",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the table as CSV",
    b"\x1f\x8b": "compressed with gzip: let its name end in .gz",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}


@contextmanager
def open_source(path: str | Path, layout: Layout) -> Iterator[Source]:
    """Open a table that can be read more than once, or take it from before it in `opened_once`."""
    kept = _kept.get()
    if kept is None:
        with ExitStack() as stack:
            yield _open(path, layout, stack)
        return
    # The header of a wide table takes a while to read; one that changed is another table.
    state = os.stat(path) if not is_standard(path) and os.path.isfile(path) else None
    of_file = state and (state.st_ino, state.st_size, state.st_mtime_ns)
    key = (os.path.abspath(path), layout, of_file)
    stack, opened = kept
    if key not in opened:
        opened[key] = _open(path, layout, stack)
    yield opened[key]


def _open(path: str | Path, layout: Layout, stack: ExitStack, label: str = "") -> Source:
    if is_remote(path):
        return _open(_fetched(str(path), stack), layout, stack, str(path))
    several = files_in(path)
    if several:
        names = [f"{label}/{os.path.basename(one)}" if label else one for one in several]
        files = zip(several, names, strict=True)
        return SeveralFiles(
            label or str(path), [_open(one, layout, stack, name) for one, name in files]
        )
    if Path(path).is_dir():
        several_words = ", ".join(FILES_OF_ROWS)
        said = f"it is a folder, not a file, and has no files of rows ({several_words})."
        raise InputError(label or path, said)
    format = FORMATS[layout.format_of(path)]
    label = label or ("standard input" if is_standard(path) else str(path))
    # What comes through a pipe is written to disk first, so that it can be read twice.
    piped = is_standard(path) or Path(path).is_fifo()
    local = _spooled(path, stack) if piped else Path(path)
    if not local.exists():
        why = ": it is a link to nothing, or to itself" if local.is_symlink() else ""
        raise InputError(label, f"there is no such file{why}.")
    if not local.is_file():
        raise InputError(label, "it is a device, not a file; send its rows through a pipe.")
    if not os.path.getsize(local):
        raise InputError(label, "the file is empty.")
    suffixes = [suffix.lower() for suffix in Path(label).suffixes]
    packed = suffixes[-1] if suffixes and suffixes[-1] in UNPACKED else None
    inner = suffixes[-2] if packed and len(suffixes) > 1 else (suffixes or [""])[-1]
    if packed is not None or inner in CONVERTED:
        local = _unpacked(local, label, packed, inner, stack)
    file = Stored(local, label, is_compressed(path))
    if format.is_text:
        _refuse_other_formats(file)
    source = format.open(file, layout)
    if not format.is_text:
        source.layout = Written(missing=layout.missing, typed=True)
    _check_names(label, source.schema.names)
    return source


def is_remote(path: str | Path) -> bool:
    """Whether a name says where in an object store a table is, such as ``s3://bucket/new.csv``."""
    return re.match("[a-z][a-z0-9+.-]+://", str(path)) is not None


def _store_of(address: str) -> tuple[Any, str]:
    """The store, and the place in it."""
    from pyarrow.fs import FileSystem  # slow to import

    found: tuple[Any, str] = FileSystem.from_uri(address)
    return found


def _fetched(address: str, stack: ExitStack) -> str:
    """Copy a file, or a folder of them, from an object store to disk, through Arrow."""
    from pyarrow import fs

    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reconform-"))
    try:
        store, place = _store_of(address)
        found = store.get_file_info(place)
        if found.type == fs.FileType.NotFound:
            raise InputError(address, "there is no such file, nor a folder, in this store.")
        several = found.type == fs.FileType.Directory
        inside = store.get_file_info(fs.FileSelector(place)) if several else [found]
        for one in inside:
            if one.is_file and (not several or one.path.lower().endswith(FILES_OF_ROWS)):
                with in_temporary_files(one.size or 0, "what is in the store"):
                    copy = os.path.join(folder, one.base_name)
                    fs.copy_files(one.path, copy, store, fs.LocalFileSystem())
    except pa.ArrowInvalid as error:
        raise InputError(
            address,
            "tables are read from files, and from stores that Arrow knows: s3://, gs://, abfs://, "
            "hdfs:// and file://. Download it first.",
        ) from error
    except OSError as error:
        raise InputError(address, f"it cannot be read there ({error}).") from error
    return folder if several else copy


def _refuse_other_formats(file: Stored) -> None:
    with file.path.open("rb") as stream:
        start = stream.read(1 << 12)
    ours = {
        format.signature: f"in the format {format.title}: give `format={name!r}`"
        for name, format in FORMATS.items()
        if format.signature is not None
    }
    for signature, seems in {**ours, **SIGNATURES}.items():
        if start.startswith(signature) and not (file.compressed and signature == b"\x1f\x8b"):
            raise InputError(file.label, f"this is not UTF-8 text; it seems to be {seems}.")
    if not file.compressed and b"\0" in start:
        raise InputError(
            file.label, "this is not UTF-8 text: it contains zero bytes. Save it as UTF-8."
        )


class SeveralFiles(Source):
    """Files with the same columns, one after the other."""

    def __init__(self, label: str, sources: Sequence[Source]) -> None:
        self.label, self._sources, self.path = label, sources, sources[0].path
        names = sources[0].schema.names
        for other in sources[1:]:
            if set(other.schema.names) != set(names):
                raise InputError(
                    other.label,
                    f"it has other columns than {sources[0].label}: "
                    f"{listed(sorted(set(names) ^ set(other.schema.names)))}.",
                )
        self.layout = sources[0].layout
        written = {(one.is_text, one.layout.decimal) for one in sources}
        if len(written) > 1:
            raise InputError(
                label,
                "some files are text and others are not, or their decimal signs differ; read them "
                "apart.",
            )
        schemas = [pa.schema([one.schema.field(name) for name in names]) for one in sources]
        try:
            self.schema = pa.unify_schemas(schemas, promote_options="permissive")
        except pa.ArrowException as error:
            raise InputError(
                label, f"the files have different types of columns ({error})."
            ) from error
        counts = [one.rows for one in sources]
        self.rows = None if None in counts else sum(count or 0 for count in counts)

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield the tables of all files."""
        wanted = pa.schema([self.schema.field(name) for name in columns])
        for source in self._sources:
            for table in source.tables(columns, rows):
                yield _widened(table.select(list(columns)), wanted)


def _unpacked(path: Path, label: str, packed: str | None, inner: str, stack: ExitStack) -> Path:
    """A file as it can be read: unpacked, or converted to Arrow, in a temporary folder."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reconform-"))
    try:
        if packed is not None:
            path = _unpack(path, label, packed, Path(folder, "unpacked"))
        if inner in CONVERTED:
            path = _convert(path, label, inner, Path(folder, "table.arrow"))
    except InputError:
        raise
    except DAMAGED as error:
        raise InputError(label, f"it cannot be read as {packed or inner} ({error}).") from error
    return path


# What libraries say of a file that is not what its name says.
DAMAGED = (
    *(OSError, EOFError, ValueError, KeyError, RuntimeError),
    *(lzma.LZMAError, zipfile.BadZipFile, pa.ArrowException),
)


def _unpack(path: Path, label: str, packed: str, to: Path) -> Path:
    """Unpack a file; of a zip file, the only one in it."""
    with ExitStack() as stack:
        if packed == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            inside = [one for one in archive.infolist() if not one.is_dir()]
            if len(inside) != 1:
                raise InputError(label, f"it holds {len(inside)} files; zip one table by itself.")
            source: Any = stack.enter_context(archive.open(inside[0]))
        elif packed == ".zst":
            raw = stack.enter_context(pa.OSFile(os.fsencode(path)))
            source = stack.enter_context(pa.CompressedInputStream(raw, "zstd"))
        else:
            source = stack.enter_context({".xz": lzma, ".bz2": bz2}[packed].open(path, "rb"))
        with to.open("wb") as sink:
            while part := source.read(1 << 20):
                with in_temporary_files(sink.tell(), "what is unpacked"):
                    sink.write(part)
    return to


# Cells of a table of JSON or Excel, which is held in memory; bytes that a workbook unpacks to, and
# of JSON that is parsed at once, which takes twenty times as many.
MOST_CELLS, MOST_UNPACKED, MOST_PARSED = 1 << 25, 1 << 30, 1 << 26


def _convert(path: Path, label: str, kind: str, to: Path) -> Path:
    """Write a table of JSON or Excel as Arrow."""
    names, columns = _from_excel(path, label) if kind == ".xlsx" else _from_json(path, label, kind)
    table = pa.table([_cells(column) for column in columns], names=names)
    if not table.num_rows:
        raise InputError(label, "it has no rows.")
    with pa.OSFile(os.fsencode(to), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return to


def _from_excel(path: Path, label: str) -> tuple[list[str], list[Sequence[Any]]]:
    """Read the first sheet of a workbook, column by column."""
    with zipfile.ZipFile(path) as archive:  # which never unpacks more than it says
        if sum(one.file_size for one in archive.infolist()) > MOST_UNPACKED:
            raise _too_large(label)
    workbook = extra("openpyxl", "excel", "reading Excel files").load_workbook(
        path, read_only=True, data_only=True
    )
    rows = workbook.active.iter_rows(values_only=True)
    names = [str(name) if name is not None else "" for name in next(rows, ())]
    every, cells = [], 0
    for row in rows:
        every.append(row)
        cells += len(row)
        if cells > MOST_CELLS:
            raise _too_large(label)
    workbook.close()
    _check_names(label, names)
    return names, list(zip(*every, strict=True)) or [()] * len(names)


def _from_json(path: Path, label: str, kind: str) -> tuple[list[str], list[Sequence[Any]]]:
    """Read a list of objects, or an object per line; what one of them does not have is missing."""
    columns: dict[str, list[Any]] = {}
    if kind == ".json" and path.stat().st_size > MOST_PARSED:
        raise InputError(
            label,
            f"it has more than {MOST_PARSED:,} bytes, the most that is parsed at once; write an "
            "object per line (.jsonl), or save it as Parquet or CSV.",
        )
    with path.open("rb") as file:
        every = json.load(file) if kind == ".json" else map(json.loads, filter(bytes.strip, file))
        if not isinstance(every, list | map):
            raise InputError(label, "it must be a list of objects, one for each row.")
        for k, row in enumerate(every):
            if not isinstance(row, dict):
                raise InputError(label, f"row {k + 1} must be an object with a value per column.")
            for name, value in row.items():
                columns.setdefault(name, [None] * k).append(value)
            if len(columns) * (k + 1) > MOST_CELLS:
                raise _too_large(label)
            for column in columns.values():
                if len(column) == k:
                    column.append(None)
    return list(columns), list(columns.values())


def _too_large(label: str) -> InputError:
    return InputError(
        label,
        f"as a table it has more than {MOST_CELLS:,} cells, and such files are read whole; save it "
        "as Parquet or CSV, which are read in parts.",
    )


def _cells(column: Sequence[Any]) -> Any:
    """Cells of one type where they have one; otherwise all as text."""
    try:
        return pa.array(column)
    except pa.ArrowException:
        return pa.array([None if cell is None else str(cell) for cell in column], pa.string())


def _check_names(label: str, names: Sequence[str]) -> None:
    if not names:
        raise InputError(label, "it has no columns.")
    if len(names) > MOST_COLUMNS:
        raise InputError(
            label,
            f"it has {len(names):,} columns, and at most {MOST_COLUMNS:,} are read; write a file "
            "of those that matter.",
        )
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            label,
            f"these column names occur more than once: {listed(twice)}. Columns are matched by "
            "name, so every name must be different; rename them in the file.",
            column=twice[0] if len(twice) == 1 else None,
        )


def _spooled(path: str | Path, stack: ExitStack) -> Path:
    if is_standard(path) and sys.stdin is None:
        raise InputError("standard input", "it is closed; name a file, or send the rows there.")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="reconform-"))
    spool = Path(folder, "spool")
    with in_temporary_files(0, ""), ExitStack() as opened, spool.open("wb") as file:
        pipe = sys.stdin.buffer if is_standard(path) else opened.enter_context(open(path, "rb"))
        while part := pipe.read(1 << 20):
            with in_temporary_files(file.tell(), "what comes through the pipe"):
                file.write(part)
    return spool


# --- once per command ----------------------------------------------------------------------------


# The tables that are open, and what closes them.
_kept: ContextVar[tuple[ExitStack, dict[Hashable, Source]] | None] = ContextVar(
    "reconform_sources", default=None
)


@contextmanager
def opened_once() -> Iterator[None]:
    """Let every table in a block be opened once.

    A block within a block is part of it.
    """
    if _kept.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = _kept.set((stack, {}))
        try:
            yield
        finally:
            _kept.reset(token)


def _widened(table: Any, schema: Any) -> Any:
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        if is_text(field.type):
            column = words(column)
        columns.append(pc.cast(column, field.type, safe=False))
    return pa.table(columns, schema=schema)


# Ranks and scores wait in memory up to this size, and beyond on disk.
SPILL_BYTES = 1 << 24

T = TypeVar("T")


def row_sizes(table: Any) -> IntArray:
    """Bytes of every row of a table: of its texts and bytes exactly, of other cells on average."""
    sizes = np.full(table.num_rows, 8 * table.num_columns, dtype=np.int64)
    for column in table.columns:
        if varies(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
        elif pa.types.is_nested(column.type) and table.num_rows:
            sizes += column.nbytes // table.num_rows
    return sizes


# A table that is not larger, on disk and as Arrow holds it, is read once and stays in memory.
REMEMBERED_BYTES = SPILL_BYTES


class CachedSource(Source):
    """A source that is read once if it is small; a larger one is read again for every pass."""

    def __init__(self, source: Source, columns: Sequence[str]) -> None:
        self._source = source
        self._columns = list(columns)
        self._small = source.path.stat().st_size <= REMEMBERED_BYTES
        self._tables: list[Any] | None = None
        self.path = source.path
        self.label = source.label
        self.schema = source.schema
        self.rows = source.rows
        self.layout = source.layout

    def tables(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """Yield Arrow tables with these columns at least, from memory where they are there."""
        if self._tables is not None:
            yield from self._tables
            return
        if not self._small:
            yield from self._source.tables(columns, rows)
            return
        seen: list[Any] = []
        size = 0
        for table in self._source.tables(self._columns, rows):
            if self._small:
                seen.append(table)
                size += table.nbytes
                if size > REMEMBERED_BYTES:  # it was compressed
                    self._small = False
                    seen.clear()
            yield table
        if self._small:
            self._tables = seen

    def line(self, row: int) -> int | None:
        """Line of a row (from 0) in a text file, from 1."""
        return self._source.line(row)


RANKED = np.dtype([("rank", "<i8"), ("score", "<f8")])


class Spill:
    """Ranks and scores of every part of the rows, in order: in memory if few, otherwise on disk."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPILL_BYTES)  # noqa: SIM115
        weakref.finalize(self, self._file.close)  # gives up the disk
        self._sizes: list[int] = []

    def add(self, part: Ranks) -> None:
        """Append the ranks and scores of a part."""
        self._sizes.append(len(part.at_most))
        rows = np.empty(len(part.at_most), RANKED)
        rows["rank"], rows["score"] = part.at_most, part.scores
        with in_temporary_files(self._file.tell(), "what is kept of every row"):
            self._file.write(rows.tobytes())

    def part(self, start: int, stop: int) -> Ranks:
        """The ranks and scores of some rows, by their positions."""
        self._file.seek(start * RANKED.itemsize)
        rows = np.frombuffer(self._file.read((stop - start) * RANKED.itemsize), RANKED)
        return Ranks(rows["rank"].astype(np.int64), None, rows["score"].astype(np.float64))

    def __iter__(self) -> Iterator[Ranks]:
        start = 0
        for size in self._sizes:
            yield self.part(start, start + size)
            start += size

    def each(self, work: Callable[[Any], Any]) -> Spill:
        """As `Parts` has it."""
        made = Spill()
        for part in self:
            made.add(work(part))
        return made

    def total(self, work: Callable[[Any], T], merge: Callable[[T, T], T]) -> T:
        """As `Parts` has it."""
        return reduce(merge, map(work, self))
