"""The journal of a stream: a file of plain JSON, one object per line, each with a checksum.

The first line, the head, says what the stream is and where it stood when the file was made. Every
further line is a batch decided since then. A file without further lines is a saved state; a file
that lines are added to is a journal. A line's seal is a digest of its content and of the seal
before it, so a line that was damaged, lost or moved does not go unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from ..atomic import write_atomic
from ..errors import ReconformError

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two processes from one journal there
    fcntl = None  # type: ignore[assignment]

Content = dict[str, Any]


class AlteredError(Exception):
    """A line holds what cannot have been written; whoever reads the file says which file it is."""


class Line(NamedTuple):
    """One whole line: its content, its seal, and where in the file it ends."""

    content: Content
    seal: str
    end: int


def lines_of(file: IO[bytes], path: Path) -> Iterator[Line]:
    """Read line after line, and stop before one that was not written to its end.

    A line is on disk, with its end, before its decisions are returned; so a line without an end
    was never acted upon, and is as good as never begun.

    Parameters
    ----------
    file : binary file
        At its beginning.
    path : Path
        For messages.
    """
    seal, end = "", 0
    for number, raw in enumerate(file, start=1):
        if not raw.endswith(b"\n"):
            return
        try:
            line = json.loads(raw)
            content, stated = line["content"], line["seal"]
            seal = _seal(seal, content)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise _damaged(path, number) from error
        if seal != stated or not isinstance(content, dict):
            raise _damaged(path, number)
        end += len(raw)
        yield Line(content, seal, end)


def write_head(path: str | Path, head: Content, *, replace: bool) -> None:
    """Make a file with a head only, whole or not at all.

    Parameters
    ----------
    path : str or Path
    head : dict
        Plain data.
    replace : bool
        Whether a file of that name may be replaced.
    """
    try:
        write_atomic(path, _sealed("", head)[0], overwrite=replace)
    except FileExistsError as error:
        raise FileExistsError(
            f"{path} exists already: resume from it, or give the journal another name."
        ) from error


class Journal:
    """A journal that is open for more lines, by one process at a time.

    Parameters
    ----------
    path : str or Path
        A file made by `write_head`.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "stream.journal")
    >>> write_head(path, {"kind": "example"}, replace=False)
    >>> journal = Journal(path)
    >>> [line.content for line in journal.lines()]
    [{'kind': 'example'}]
    >>> journal.append({"batch": 0})
    >>> [line.content for line in journal.lines()]
    [{'kind': 'example'}, {'batch': 0}]
    >>> journal.close()
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(os.path.realpath(path))
        self._file = self.path.open("r+b")
        try:
            self._lock()
            self._seal, self._end = "", 0
            for line in self.lines():
                self._seal, self._end = line.seal, line.end
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process that held the lock may have put a shorter journal in its place.
            free = os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())
        except OSError:
            free = False
        if not free:
            raise ReconformError(
                f"{self.path} is in use: another process, or an object in this one that was not "
                "closed, is adding to it. Two would spend the same error budget twice; end the "
                "other one, or give this stream a journal of its own."
            )

    def lines(self) -> Iterator[Line]:
        """Read the head and all batches from the beginning."""
        self._file.seek(0)
        yield from lines_of(self._file, self.path)

    def append(self, content: Content) -> None:
        """Add a line, and return only when it is on the disk."""
        raw, seal = _sealed(self._seal, content)
        self._file.seek(self._end)
        self._file.truncate()  # a line that was never finished
        self._file.write(raw)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._seal, self._end = seal, self._end + len(raw)

    def close(self) -> None:
        """Let another process have the file."""
        self._file.close()


def _sealed(previous: str, content: Content) -> tuple[bytes, str]:
    seal = _seal(previous, content)
    line = json.dumps({"content": content, "seal": seal}, allow_nan=False)
    return line.encode() + b"\n", seal


def as_text(content: Content) -> str:
    """Write content in one way: equal texts are equal contents, of equal types."""
    # Python writes a float with all its digits, so what was read is written the same again.
    return json.dumps(content, sort_keys=True)


def _seal(previous: str, content: Content) -> str:
    return hashlib.sha256((previous + as_text(content)).encode()).hexdigest()[:32]


def _damaged(path: Path, number: int) -> ReconformError:
    return ReconformError(
        f"{path}, line {number:,}: this line is damaged or no line of a stream's state. Take a "
        "copy of the file that is whole. If it is the last line and the machine lost power while "
        "it was written, its decisions were never returned: delete the line and resume."
    )
