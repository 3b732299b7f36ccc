"""`open_source`: a table that can be read more than once, whatever its format.

Within `opened_once`, as in a command, every table is opened once.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path

from ..errors import InputError, listed
from ..whole import blamed_on_temporary_files, check_room
from .address import query_of
from .formats import FORMATS, Layout, Source, Stored, is_compressed, is_standard
from .snapshot import take_snapshot

# A table of more columns takes gigabytes for their names and types alone.
MOST_COLUMNS = 1 << 17

# What people take for a text file, by its first bytes; our own formats are recognised too.
SIGNATURES = {
    b"PK\x03\x04": "an Excel or zip file: save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel file: save the table as CSV",
    b"\x1f\x8b": "compressed with gzip: let its name end in .gz",
    b"\xff\xfe": "UTF-16 text: save it as UTF-8",
    b"\xfe\xff": "UTF-16 text: save it as UTF-8",
}


@contextmanager
def open_source(path: str | Path, layout: Layout) -> Iterator[Source]:
    """Open a table that can be read more than once; standard input is spooled to disk.

    Parameters
    ----------
    path : str or Path
        ``-`` for standard input. A query (`address.query_of`) runs once, and its rows are kept on
        disk meanwhile.
    layout : Layout

    Yields
    ------
    Source
    """
    query = query_of(path)
    if query is not None:
        with _kept_open((query, layout), partial(take_snapshot, query, layout)) as rows:
            yield rows
        return
    format = FORMATS[layout.format_of(path)]
    label = "standard input" if is_standard(path) else str(path)
    with _spooled(path) as local:
        if not local.exists():
            why = ": it is a link to nothing, or to itself" if local.is_symlink() else ""
            raise InputError(label, f"there is no such file{why}.")
        if local.is_dir():
            raise InputError(label, "it is a folder, not a file.")
        if not local.is_file():
            raise InputError(label, "it is a device, not a file; send its rows through a pipe.")
        if not os.path.getsize(local):
            raise InputError(label, "the file is empty.")
        file = Stored(local, label, is_compressed(path))

        def opened(_: ExitStack) -> Source:
            if format.is_text:
                _refuse_other_formats(file)
            source = format.open(file, layout)
            _check_names(label, source.schema.names)
            return source

        # The header of a wide table takes a while to read; one that changed is another table.
        known = os.stat(local)
        state = (known.st_ino, known.st_size, known.st_mtime_ns)
        with _kept_open((local, label, layout, state), opened) as source:
            yield source


def _refuse_other_formats(file: Stored) -> None:
    with file.path.open("rb") as stream:
        start = stream.read(1 << 12)
    ours = {
        format.signature: f"{_article(format.title)} {format.title} file: give `format={name!r}`"
        for name, format in FORMATS.items()
        if format.signature is not None
    }
    for signature, words in {**ours, **SIGNATURES}.items():
        if start.startswith(signature) and not (file.compressed and signature == b"\x1f\x8b"):
            raise InputError(file.label, f"this is not a text file but seems to be {words}.")
    if not file.compressed and b"\0" in start:
        raise InputError(
            file.label, "this is not UTF-8 text: it contains zero bytes. Save it as UTF-8."
        )


def _article(word: str) -> str:
    return "an" if word[0] in "AEIOU" else "a"


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
            while part := pipe.read(1 << 20):
                check_room(file.tell(), "what comes through the pipe")
                file.write(part)
        yield spool


# --- once per command ----------------------------------------------------------------------------


class _Opened:
    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack
        self.opened: dict[Hashable, Source] = {}


_kept: ContextVar[_Opened | None] = ContextVar("reconform_sources", default=None)


@contextmanager
def opened_once() -> Iterator[None]:
    """Let every table in a block be opened once: all who open a query see the same rows.

    A block within a block is part of it.
    """
    if _kept.get() is not None:
        yield
        return
    with ExitStack() as stack:
        token = _kept.set(_Opened(stack))
        try:
            yield
        finally:
            _kept.reset(token)


@contextmanager
def _kept_open(key: Hashable, opened: Callable[[ExitStack], Source]) -> Iterator[Source]:
    """Open a table, or take it from before it in the same block of `opened_once`.

    Parameters
    ----------
    key : hashable
        What makes it the same table.
    opened : callable
        Opens it; what has to be closed afterwards goes on the stack that it is given.
    """
    kept = _kept.get()
    if kept is None:
        with ExitStack() as stack:
            yield opened(stack)
        return
    if key not in kept.opened:
        kept.opened[key] = opened(kept.stack)
    yield kept.opened[key]
