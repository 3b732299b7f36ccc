"""Atomic writes: a file is written whole, or not at all.

A file is written under a temporary name in the folder where it belongs, and gets its own name when
it is finished. An exception, Ctrl-C or a polite kill removes the temporary file. Several files that
belong together get their names together: see `atomic_group`.

The temporary name is short and does not depend on the name of the file; every error names the file
that was asked for. A file that is replaced passes its permissions on to its successor.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import stat
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn, cast

from .errors import ReconformError

# Of every temporary file that lies beside its target.
TEMPORARY = ".reconform-*.tmp"

# So much may always be written to temporary files.
FEW_BYTES = 1 << 24

OpenSink = Callable[[], AbstractContextManager[BinaryIO]]


@contextmanager
def atomic_file(
    path: str | Path, *, overwrite: bool = False, open_sink: OpenSink | None = None
) -> Iterator[Path]:
    """Write a file that appears when the block ends well, and not otherwise.

    Parameters
    ----------
    path : str or Path
        A link stays, and what it points to is replaced. To a device or a named pipe the finished
        content is copied.
    overwrite : bool
        Replace a file that exists.
    open_sink : callable, optional
        Opens a stream that gets nothing before everything is there; `path` names it in errors.

    Yields
    ------
    Path
        Where to write: an empty file that is there already.

    Raises
    ------
    OSError
        Naming `path`, if it cannot be written or exists.

    Examples
    --------
    >>> folder = tempfile.TemporaryDirectory()
    >>> target = Path(folder.name, "out.txt")
    >>> with atomic_file(target) as draft:
    ...     _ = draft.write_text("all of it")
    ...     target.exists()
    False
    >>> target.read_text()
    'all of it'
    >>> with atomic_file(target) as draft:
    ...     pass
    Traceback (most recent call last):
    ...
    FileExistsError: ...out.txt: it exists already; replace it with `overwrite=True`, or choose
    another name.
    >>> folder.cleanup()
    """
    if open_sink is None:
        check_place(path, overwrite=overwrite)
        if os.path.exists(path) and not os.path.isfile(path):
            open_sink = cast("OpenSink", partial(open, path, "wb"))
    output = _Output(path, overwrite, open_sink)
    with atomic_group() as group:
        try:
            yield output.temporary
        except BaseException:
            output.discard()
            raise
        group.append(output)


def write_atomic(path: str | Path, content: bytes, *, overwrite: bool = False) -> None:
    """Write bytes to a file, all or none of them."""
    with atomic_file(path, overwrite=overwrite) as draft, blamed_on(path, draft):
        draft.write_bytes(content)


Group = list["_Output"]
_group: ContextVar[Group | None] = ContextVar("reconform_atomic_group", default=None)


@contextmanager
def atomic_group() -> Iterator[Group]:
    """Let all files that are written in a block appear at its end: all of them, or none.

    Every file is on the disk before the first gets its name. Within the block they cannot be read
    under their names (see `draft_of`). A block within a block is part of it.

    Examples
    --------
    >>> folder = tempfile.TemporaryDirectory()
    >>> try:
    ...     with atomic_group():
    ...         write_atomic(Path(folder.name, "a"), b"first")
    ...         write_atomic(Path(folder.name, "b"), b"second")
    ...         raise RuntimeError("something else went wrong")
    ... except RuntimeError:
    ...     os.listdir(folder.name)
    []
    >>> folder.cleanup()
    """
    outer = _group.get()
    if outer is not None:
        yield outer
        return
    group: Group = []
    done: Group = []
    with stops_by_exception():
        token = _group.set(group)
        try:
            yield group
            for output in group:
                output.sync()
            # What was written to a stream cannot be taken back. Streams come first: when one fails,
            # no file has appeared that would have to be removed.
            for output in sorted(group, key=lambda one: one.open_sink is None):
                done.append(output)
                output.appear()
        except BaseException:
            for output in reversed(done):
                output.undo()
            raise
        finally:
            _group.reset(token)
            for output in group:
                output.discard()


def draft_of(path: str | Path) -> Path:
    """Where the content of a file of this group is until it has its name."""
    name = os.fspath(path)
    return next(one.temporary for one in _group.get() or () if os.fspath(one.path) == name)


class _Output:
    """Content under a temporary name: of a file, or of a stream that it is copied to at the end."""

    def __init__(self, path: str | Path, overwrite: bool, open_sink: OpenSink | None) -> None:
        self.path, self.overwrite, self.open_sink = path, overwrite, open_sink
        self.target = Path(os.path.realpath(path))
        folder = self.target.parent if open_sink is None else tempfile.gettempdir()
        self.temporary, self.old = (
            Path(folder, TEMPORARY.replace("*", secrets.token_hex(8))) for _ in range(2)
        )
        self.appeared = False
        self.discard = weakref.finalize(self, _remove, (self.temporary, self.old), os.getpid())
        with blamed_on(path, self.temporary):
            known = open_sink is None and self.target.exists()
            self.replaced = self.target.stat() if known else None
            # What takes the place of a private file is private from its first byte on.
            mode = 0o600 if known or open_sink is not None else 0o666
            os.close(os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))

    def sync(self) -> None:
        """Make the content of a file durable."""
        if self.open_sink is None:
            with blamed_on(self.path, self.temporary), self.temporary.open("rb+") as file:
                os.fsync(file.fileno())
                if self.replaced is not None:
                    os.chmod(self.temporary, stat.S_IMODE(self.replaced.st_mode))

    def appear(self) -> None:
        """Let the content be seen."""
        with blamed_on(self.path, self.temporary):
            if self.open_sink is not None:
                with self.temporary.open("rb") as file, self.open_sink() as sink:
                    shutil.copyfileobj(file, sink, 1 << 20)
                    sink.flush()
                return
            if self.overwrite:
                with suppress(OSError):  # it is not there, or cannot have a second name
                    os.link(self.target, self.old)
                os.replace(self.temporary, self.target)
            else:
                try:
                    os.link(self.temporary, self.target)
                except OSError as error:
                    if os.path.lexists(self.target):  # another file got the name meanwhile
                        raise _exists(self.path) from error
                    os.replace(self.temporary, self.target)  # a file system without hard links
            self.appeared = True
        with suppress(OSError):  # the new name is durable, too, where folders can be synced
            handle = os.open(self.target.parent, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    def undo(self) -> None:
        """Take a file back, where that is possible."""
        with suppress(OSError):
            if self.appeared and self.replaced is None:
                self.target.unlink()
            elif self.appeared:
                os.replace(self.old, self.target)


def _remove(paths: Iterable[Path], process: int) -> None:
    """Remove temporary files, also at the exit of a process; not at that of a forked child."""
    if process == os.getpid():
        for path in paths:
            with suppress(OSError):
                path.unlink()


@contextmanager
def stops_by_exception() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise `SystemExit`, so that temporary files are removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signals = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    # A signal that the program handles itself is left alone.
    ours = [s for s in signals if s is not None and signal.getsignal(s) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


# --- what is refused -----------------------------------------------------------------------------


def check_place(path: str | Path, *, overwrite: bool) -> None:
    """Refuse to write to a place, before any work is done for it."""
    folder = os.path.dirname(os.path.realpath(path))
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"{path}: there is no folder {folder!r} to write to.")
    with blamed_on(path, path):
        there = status_of(path)
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(f"{path}: it is a folder; give the name of a file.")
    if there is not None and stat.S_ISREG(there.st_mode) and not overwrite:
        raise _exists(path)
    if (there is None or stat.S_ISREG(there.st_mode)) and not os.access(folder, os.W_OK):
        raise PermissionError(f"{path}: its folder cannot be written to.")


def status_of(path: str | Path) -> os.stat_result | None:
    """What the system knows of a file; None if there is none."""
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


@contextmanager
def blamed_on(path: str | Path, draft: str | Path | None = None) -> Iterator[None]:
    """Let errors of the system that name no file, or the draft of this one, name this one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, draft, str(draft)):
            raise  # a sentence already, or about another file
        reason = f"it cannot be written ({os.strerror(error.errno)})"
        raise OSError(error.errno, reason, str(path)) from error


@contextmanager
def in_temporary_files(used: int, what: str) -> Iterator[None]:
    """Write more to temporary files than is used already, but never fill the disk.

    Errors name their folder, and how to choose another.
    """
    folder = tempfile.gettempdir()
    if used > FEW_BYTES and used > shutil.disk_usage(folder).free:
        raise ReconformError(
            f"{what} is too large: {used / 1e9:,.1f} GB are in {folder} already, more than is left "
            "there. Take fewer rows, or set TMPDIR to a folder with more room."
        )
    with blamed_on(f"temporary files in {folder} (set TMPDIR for another folder)"):
        yield


def _exists(path: str | Path) -> FileExistsError:
    return FileExistsError(
        f"{path}: it exists already; replace it with `overwrite=True`, or choose another name."
    )
