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
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from itertools import combinations, product
from pathlib import Path
from types import FrameType
from typing import BinaryIO, NoReturn

from .errors import ReconformError

# Of every temporary file that lies beside its target; see `sweep`.
TEMPORARY = ".reconform-*.tmp"

# So much may always be written to temporary files.
FEW_BYTES = 1 << 24

OpenSink = Callable[[], AbstractContextManager[BinaryIO]]


@contextmanager
def atomic_file(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Write a file that appears when the block ends well, and not otherwise.

    Parameters
    ----------
    path : str or Path
        A link stays, and what it points to is replaced. To a device or a named pipe the finished
        content is copied.
    overwrite : bool
        Replace a file that exists.

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
    check_place(path, overwrite=overwrite)
    if os.path.exists(path) and not os.path.isfile(path):
        with atomic_stream(lambda: open(path, "wb"), path) as temporary:
            yield temporary
        return
    with _added(_File(path, overwrite)) as temporary:
        yield temporary


@contextmanager
def atomic_stream(open_sink: OpenSink, path: str | Path) -> Iterator[Path]:
    """Write to a stream that gets nothing before everything is there; `path` names it in errors."""
    with _added(_Stream(open_sink, path)) as temporary:
        yield temporary


@contextmanager
def _added(output: _File | _Stream) -> Iterator[Path]:
    """Add an output to the group when it is finished."""
    with atomic_group() as group:
        try:
            yield output.temporary
            output.finish()
        except BaseException:
            output.discard()
            raise
        group.outputs.append(output)


def write_atomic(path: str | Path, content: bytes, *, overwrite: bool = False) -> None:
    """Write bytes to a file, all or none of them."""
    with atomic_file(path, overwrite=overwrite) as draft, blamed_on(path, draft):
        draft.write_bytes(content)


# --- several at once -----------------------------------------------------------------------------


class AtomicGroup:
    """Finished outputs that wait for their names."""

    def __init__(self) -> None:
        self.outputs: list[_Output] = []

    def draft_of(self, path: str | Path) -> Path:
        """Where the content of a file is until it has its name."""
        name = os.fspath(path)
        return next(one.temporary for one in self.outputs if os.fspath(one.path) == name)

    def appear(self) -> None:
        """Give all files their final names, or none of them."""
        # What was written to a stream cannot be taken back. Streams come first: when one fails, no
        # file has appeared that would have to be removed.
        done: list[_Output] = []
        try:
            for output in sorted(self.outputs, key=lambda output: output.turn):
                done.append(output)
                output.appear()
        except BaseException:
            for output in reversed(done):
                output.undo()
            raise


_group: ContextVar[AtomicGroup | None] = ContextVar("reconform_atomic_group", default=None)


@contextmanager
def atomic_group() -> Iterator[AtomicGroup]:
    """Let all files that are written in a block appear at its end: all of them, or none.

    Every file is finished, and on the disk, before the first gets its name. Within the block they
    cannot be read under their names. A block within a block is part of it.

    Yields
    ------
    AtomicGroup

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
    group = AtomicGroup()
    token = _group.set(group)
    try:
        with stops_by_exception():
            try:
                yield group
                group.appear()
            finally:
                for output in group.outputs:
                    output.discard()
    finally:
        _group.reset(token)


# --- one of them ---------------------------------------------------------------------------------


class _Output:
    """What is written under a temporary name, or waits for its turn to be written."""

    turn: int

    def __init__(self, path: str | Path, temporary: Path) -> None:
        self.path, self.temporary = path, temporary
        weakref.finalize(self, _remove, temporary, os.getpid())

    def finish(self) -> None:
        """Make the content durable."""

    def appear(self) -> None:
        """Let the content be seen."""

    def undo(self) -> None:
        """Take it back, where that is possible."""

    def discard(self) -> None:
        """Remove what is temporary."""
        _remove(self.temporary)


class _File(_Output):
    """A file under a temporary name."""

    turn = 1

    def __init__(self, path: str | Path, overwrite: bool) -> None:
        self.overwrite = overwrite
        self.target = Path(os.path.realpath(path))
        super().__init__(path, self._beside())
        self._old = self._beside()
        self._appeared = False
        with blamed_on(path, self.temporary):
            self.replaced = self.target.stat() if self.target.exists() else None
            # What takes the place of a private file is private from its first byte on.
            mode = 0o666 if self.replaced is None else 0o600
            os.close(os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))

    def _beside(self) -> Path:
        return self.target.with_name(TEMPORARY.replace("*", secrets.token_hex(8)))

    def finish(self) -> None:
        with blamed_on(self.path, self.temporary):
            with self.temporary.open("rb+") as file:
                os.fsync(file.fileno())
            if self.replaced is not None:
                os.chmod(self.temporary, stat.S_IMODE(self.replaced.st_mode))

    def appear(self) -> None:
        with blamed_on(self.path, self.temporary):
            if self.overwrite:
                with suppress(OSError):  # it is not there, or cannot have a second name
                    os.link(self.target, self._old)
                os.replace(self.temporary, self.target)
            else:
                self._take_name()
            self._appeared = True
        _sync_folder(self.target.parent)

    def _take_name(self) -> None:
        """Give the file its name, unless another file got it meanwhile."""
        try:
            os.link(self.temporary, self.target)
        except OSError as error:
            if os.path.lexists(self.target):
                raise _exists(self.path) from error
            os.replace(self.temporary, self.target)  # a file system without hard links

    def undo(self) -> None:
        with suppress(OSError):
            if self._appeared and self.replaced is None:
                self.target.unlink()
            elif self._appeared:
                os.replace(self._old, self.target)

    def discard(self) -> None:
        super().discard()
        _remove(self._old)


class _Stream(_Output):
    """Content that is written to a stream when it is complete."""

    turn = 0

    def __init__(self, open_sink: OpenSink, path: str | Path) -> None:
        self._open_sink = open_sink
        handle, name = tempfile.mkstemp(prefix="reconform-")
        os.close(handle)
        super().__init__(path, Path(name))

    def appear(self) -> None:
        with (
            blamed_on(self.path),
            self.temporary.open("rb") as file,
            self._open_sink() as sink,
        ):
            shutil.copyfileobj(file, sink, 1 << 20)
            sink.flush()


def _remove(temporary: Path, process: int | None = None) -> None:
    """Remove a temporary file, also at the exit of a process; not at that of a forked child."""
    if process in (None, os.getpid()):
        with suppress(OSError):
            temporary.unlink()


def sweep(folder: Path) -> None:
    """Remove temporary files that runs left which were killed, after a day."""
    for path in folder.glob(TEMPORARY):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > 86_400:
                path.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a new name durable too, where folders can be synced (not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
        there = _stat(path)
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise IsADirectoryError(f"{path}: it is a folder; give the name of a file.")
    if there is not None and stat.S_ISREG(there.st_mode) and not overwrite:
        raise _exists(path)
    if (there is None or stat.S_ISREG(there.st_mode)) and not os.access(folder, os.W_OK):
        raise PermissionError(f"{path}: its folder cannot be written to.")


def check_apart(outputs: Mapping[str, str | Path], inputs: Mapping[str, str | Path]) -> None:
    """Refuse outputs that would replace an input or each other, by whatever names.

    Parameters
    ----------
    outputs, inputs : mapping of str to path
        Keys say what each is, for the message.

    Examples
    --------
    >>> check_apart({"output": "a.csv", "report": "b/../a.csv"}, {})
    Traceback (most recent call last):
    ...
    reconform.errors.ReconformError: output a.csv and report b/../a.csv are the same file; an output
    must have a file of its own.
    """
    for (one, path), (other, its) in [
        *product(outputs.items(), inputs.items()),
        *combinations(outputs.items(), 2),
    ]:
        if _same_file(path, its):
            raise ReconformError(
                f"{one} {path} and {other} {its} are the same file; an output must have a file of "
                "its own."
            )


def _same_file(one: str | Path, other: str | Path) -> bool:
    try:
        there, its = _stat(one), _stat(other)
    except OSError:  # opening it will raise an error that says what is wrong
        return False
    if there is not None and its is not None:  # links of both kinds, and whatever case counts here
        return stat.S_ISREG(there.st_mode) and os.path.samestat(there, its)
    # Of two new files, names that differ in case only are one on many systems.
    names = {os.path.realpath(path).casefold() for path in (one, other)}
    return there is its is None and len(names) == 1


def _stat(path: str | Path) -> os.stat_result | None:
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


def blamed_on_temporary_files() -> AbstractContextManager[None]:
    """Let errors name the folder of temporary files, and how to choose another."""
    folder = tempfile.gettempdir()
    return blamed_on(f"temporary files in {folder} (set TMPDIR for another folder)")


def check_room(used: int, what: str) -> None:
    """Refuse to fill the disk: temporary files may take half of what was free, and no more."""
    folder = tempfile.gettempdir()
    if used > FEW_BYTES and used > shutil.disk_usage(folder).free:
        raise ReconformError(
            f"{what} is too large: {used / 1e9:,.1f} GB are in {folder} already, more than is left "
            "there. Take fewer rows, or set TMPDIR to a folder with more room."
        )


def _exists(path: str | Path) -> FileExistsError:
    return FileExistsError(
        f"{path}: it exists already; replace it with `overwrite=True`, or choose another name."
    )
