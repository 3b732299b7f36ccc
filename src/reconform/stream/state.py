"""Streams that survive a crash: every batch has a number, and is decided once.

An error budget must neither be lost nor spent twice. So batches are numbered; a batch that comes
again gets the decisions it got before, and one that skips a number is refused. With a journal, the
decisions of a batch are on disk before they are returned. What is stored is plain data: reading it
back runs no code, and every batch of a journal is decided again and compared. Whoever can write a
file can write matching seals, so nothing in it is trusted: see `refusing`.

The journal is a file of plain JSON, one object per line. The first, the head, says what the stream
is and where it stood when the file was made; every further line is a batch decided since then. A
file without further lines is a saved state. A line's seal is a digest of its content and of the
seal before it, so a line that was damaged, lost or moved does not go unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from importlib.metadata import version
from itertools import islice, repeat
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple, Self

from sklearn.utils.validation import check_is_fitted

from ..arrays import BoolArray, FloatArray
from ..atomic import write_atomic
from ..detector import ConformalDetector
from ..errors import ReconformError, check_count
from ..frames import are_records
from ..statistics.ranks import Ranks

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
    """Make a file with a head only, whole or not at all."""
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


FORMAT = "reconform stream 1"

# Levels are written as two integers; `Fraction` would take "1e50000000", too, and compute it.
_FRACTION = re.compile(r"\d{1,1000}(/\d{1,1000})?")


def fraction_of(text: Any) -> Fraction:
    """Read a level from a state, where it is two integers.

    Examples
    --------
    >>> fraction_of("1/10")
    Fraction(1, 10)
    """
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise AlteredError(f"{str(text)[:40]!r} is no level")
    return Fraction(text)


# What a value of a state looks like: a test of it, a list with the shape of every item, a tuple
# with one shape for each item, or a dict with one for each name.
Shape = Any


def check_shape(value: Any, shape: Shape, name: str) -> None:
    """Refuse a value of a state that is not of the shape that is written there.

    Examples
    --------
    >>> check_shape({"rows": 3, "ranks": [1, 2]}, {"rows": is_count, "ranks": [is_count]}, "state")
    >>> check_shape({"rows": -3}, {"rows": is_count}, "state")
    Traceback (most recent call last):
    ...
    reconform.stream.state.AlteredError: rows is -3
    """
    if isinstance(shape, dict):
        claim(isinstance(value, dict) and value.keys() == shape.keys(), f"{name} is no {name}")
        for key, inner in shape.items():
            check_shape(value[key], inner, key)
    elif isinstance(shape, list | tuple):
        alike = isinstance(shape, list) or (isinstance(value, list) and len(value) == len(shape))
        claim(isinstance(value, list) and alike, f"{name} is no list, or of another length")
        inside = repeat(shape[0]) if isinstance(shape, list) else shape
        for item, inner in zip(value, inside, strict=False):
            check_shape(item, inner, name)
    elif not shape(value):
        raise AlteredError(f"{name} is {str(value)[:40]}")


def claim(holds: bool, otherwise: str) -> None:
    """Refuse a state that claims what cannot be."""
    if not holds:
        raise AlteredError(otherwise)


def is_count(value: Any) -> bool:
    """Whether it is a number of rows, or of what has rows."""
    return type(value) is int and 0 <= value < 1 << 63


def is_finite(value: Any) -> bool:
    """Whether it is a number."""
    return type(value) in (int, float) and math.isfinite(value)


def optional(test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """Whether there is none, or one that passes a test."""
    return lambda value: value is None or test(value)


@contextmanager
def refusing(path: str | Path) -> Iterator[None]:
    """Turn whatever goes wrong inside, on lines that anyone may have written, into a refusal."""
    try:
        yield
    except (ReconformError, ImportError, OSError, RuntimeError):
        raise
    except Exception as error:
        kind = "" if isinstance(error, AlteredError) else f"{type(error).__name__}: "
        raise ReconformError(
            f"{path} was not written by reconform, or was altered, although its checksums are "
            f"right ({kind}{str(error)[:200].rstrip('.')}). Take a copy of the file as it was "
            "written, or begin a new stream."
        ) from error


@dataclass(frozen=True, eq=False, kw_only=True)
class DecidedRows:
    """Rows that were decided about together: where they stand, and which of them are flagged."""

    row: int
    mask: BoolArray = field(repr=False)
    p_values: FloatArray = field(repr=False)
    level: float
    guarantee: str

    @property
    def count(self) -> int:
        """Number of flagged rows."""
        return int(self.mask.sum())

    def __len__(self) -> int:
        return len(self.mask)


class ResumableStream(ABC):
    """What decisions and monitors have in common: numbered batches, `save`, `resume`, a journal."""

    kind: ClassVar[str]

    def _begin(self, cad: ConformalDetector, journal: str | Path | None, **settings: Any) -> None:
        """What a constructor does: begin with these settings, and a journal if there is one."""
        self._set_up(cad, settings)
        if journal is not None:
            self._begin_journal(journal)
        self._warn()

    def _set_up(self, cad: ConformalDetector, settings: Content) -> None:
        """Begin without a row; do not warn. The settings are those of `_settings`."""
        check_is_fitted(cad, "ensemble_")
        if cad.grouping_ is not None:
            raise ReconformError(
                "rows of a stream are ranked without groups, and this detector was fitted with "
                "them; fit a detector for each group and give each a stream of its own, or judge "
                "the rows in batches, with `groups`."
            )
        self.cad = cad
        self.batches = 0
        self.rows = 0
        self._last: Content | None = None
        self._journal: Journal | None = None
        self._refusal = ""  # why nothing more can be decided here; empty as long as it can

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self.rows:,} rows in {self.batches:,} batches>"

    # --- what a kind of stream says of itself, in plain data ---

    @abstractmethod
    def _settings(self) -> Content:
        """The arguments that make this object again, as plain data."""

    @abstractmethod
    def _snapshot(self) -> Content:
        """Return the state after all rows so far, as plain data."""

    @abstractmethod
    def _restore(self, snapshot: Content) -> None:
        """Restore the state of a snapshot that has its shape; refuse one that cannot be."""

    @abstractmethod
    def _decide(self, given: list[Any]) -> Content:
        """Decide one batch; the same state and the same batch must give the same content."""

    def _warn(self) -> None:  # noqa: B027 - most have nothing to say
        """Say what the caller should know before the next batch; called from public methods."""

    @abstractmethod
    def _shapes(self) -> tuple[Shape, Shape, Shape]:
        """Return the shapes of what is given for a row, found in a batch, and in a snapshot."""

    def _same(self, given: list[Any], recorded: list[Any]) -> bool:
        """Whether a batch that comes again is the one that was decided."""
        return given == recorded

    def _rank(self, X: Any, *, checked: bool = False) -> Ranks:
        """Rank rows: an array, a frame, an Arrow batch, a dict, or a list of dicts."""
        if are_records(X):
            X = self.cad.of_records(X)
        return self.cad.rank(X, checked=checked)

    @property
    def settings(self) -> Content:
        """What the stream was begun with, as plain data."""
        return self._settings()

    # --- batches ---

    def _submit(self, given: list[Any], batch: int | None) -> Content:
        """Decide a batch, or recall it; return what is recorded of it."""
        self._check_usable()
        number = self.batches if batch is None else check_count("batch", batch, least=0)
        if number > self.batches:
            raise ReconformError(
                f"batch={number} skips batches: the next one is {self.batches}. Batches are "
                "numbered from 0, in the order in which they are decided."
            )
        if number < self.batches:
            return self._recall(number, given)
        self._refusal = "an update was interrupted, and what it has spent is not known here"
        record = {"batch": number, "row": self.rows, "given": given, "found": self._decide(given)}
        if self._journal is not None:
            self._journal.append(record)
        self._count(record)
        self._refusal = ""
        return record

    def _check_usable(self) -> None:
        if self._refusal:
            raise RuntimeError(
                f"{self._refusal}; go on with {type(self).__name__}.resume(cad, path), from the "
                "journal or the state that was saved last."
            )

    def _count(self, record: Content) -> None:
        self.batches += 1
        self.rows += len(record["given"])
        self._last = record

    def _recall(self, number: int, given: list[Any]) -> Content:
        record = self._recorded(number)
        if record is None:
            raise ReconformError(
                f"batch={number} was decided before, and its decisions were not kept; the next "
                f"batch is {self.batches}. A journal (journal=...) keeps the decisions of all."
            )
        if not self._same(given, record["given"]):
            raise ReconformError(
                f"batch={number} was decided before, with other rows; the next batch is "
                f"{self.batches}."
            )
        return record

    def _recorded(self, number: int) -> Content | None:
        if self._last is not None and self._last["batch"] == number:
            return self._last
        if self._journal is not None:
            for line in self._journal.lines():
                if line.content.get("batch") == number:
                    return line.content
        return None

    # --- files ---

    def save(self, path: str | Path) -> None:
        """Write the state, whole or not at all.

        Parameters
        ----------
        path : str or Path
            A file of that name is replaced. The path of the stream's own journal makes the journal
            short again: it then begins here, and of the batches before only the last is kept.
        """
        self._check_usable()
        own = self._journal is not None and Path(path).resolve() == self._journal.path
        write_head(path, self._head(journal=own), replace=True)
        if self._journal is not None and own:
            self._journal.close()
            self._journal = Journal(path)

    def close(self) -> None:
        """Close the journal; afterwards another process can resume from it."""
        if self._journal is not None:
            self._journal.close()
        self._refusal = "the stream was closed"

    def _begin_journal(self, path: str | Path) -> None:
        write_head(path, self._head(journal=True), replace=False)
        self._journal = Journal(path)

    def _head(self, *, journal: bool) -> Content:
        return {
            "format": FORMAT,
            "kind": self.kind,
            "journal": journal,
            "reconform": version("reconform"),
            "calibration": self.cad.calibration_.fingerprint,
            "settings": self._settings(),
            "batches": self.batches,
            "rows": self.rows,
            "last": self._last,
            "state": self._snapshot(),
        }

    @classmethod
    def resume(
        cls, cad: ConformalDetector, path: str | Path, *, journal: str | Path | None = None
    ) -> Self:
        """Continue from a saved state or a journal.

        Parameters
        ----------
        cad : ConformalDetector
            The one that the stream began with: same calibration, same model.
        path : str or Path
            What `save` wrote, or a journal. A journal goes on being written.
        journal : str or Path, optional
            Begin a journal with a state that `save` wrote.

        Returns
        -------
        Same class
            Its `batches` says which batch comes next.
        """
        check_is_fitted(cad, "ensemble_")
        with Path(path).open("rb") as file, refusing(path):
            lines = lines_of(file, Path(path))
            first = next(lines, None)
            head = cls._check_head({} if first is None else first.content, cad, path)
            stream = cls.__new__(cls)
            stream._set_up(cad, head["settings"])
            claim(as_text(stream._settings()) == as_text(head["settings"]), "settings are others")
            keeps_journal = head["journal"]
            claim(type(keeps_journal) is bool, "journal is neither true nor false")
        if not keeps_journal:
            with refusing(path):
                stream._go_to(head)
            if journal is not None:
                stream._begin_journal(journal)
            stream._warn()
            return stream
        if journal is not None:
            raise ReconformError(
                f"journal={str(journal)!r} would be a second one: {path} is a journal already, "
                "and goes on being written."
            )
        stream._journal = Journal(path)
        try:
            with refusing(path):
                records = stream._journal.lines()
                stream._go_to(next(records).content)
                for record in records:
                    stream._replay(record.content, path)
        except BaseException:
            stream._journal.close()
            raise
        stream._warn()
        return stream

    @classmethod
    def _check_head(cls, head: Content, cad: ConformalDetector, path: str | Path) -> Content:
        if head.get("format") != FORMAT or head.get("kind") != cls.kind:
            got = f"{head.get('kind')!r}, {head.get('format')!r}" if head else "no whole first line"
            raise ReconformError(
                f"{path} must hold a state of {cls.__name__} ({FORMAT!r}); got {got}."
            )
        own = cad.calibration_.fingerprint
        if head["calibration"] != own:
            raise ReconformError(
                f"{path} belongs to another calibration ({head['calibration'][:12]}; cad has "
                f"{own[:12]}). Its error budget cannot go on with other p-values: resume with "
                "the detector it was made with, or begin a new stream."
            )
        return head

    def _go_to(self, head: Content) -> None:
        check_shape([head["batches"], head["rows"]], [is_count], "a number of batches or rows")
        check_shape(head["state"], self._shapes()[2], "state")
        self.batches, self.rows = head["batches"], head["rows"]
        self._last = last = head["last"]
        if last is None:
            claim(self.batches == self.rows == 0, "the last batch is missing")
        else:
            self._check_record(last)
            end = (last["batch"] + 1, last["row"] + len(last["given"]))
            claim(end == (self.batches, self.rows), "the last batch is another one")
        self._restore(head["state"])

    def _check_record(self, record: Content) -> None:
        given, found, _ = self._shapes()
        shape = {"batch": is_count, "row": is_count, "given": [given], "found": found}
        check_shape(record, shape, "record")

    def _replay(self, record: Content, path: str | Path) -> None:
        """Decide a recorded batch again: it must come out as it was."""
        self._check_record(record)
        place = (record["batch"], record["row"])
        again = place == (self.batches, self.rows) and self._decide(record["given"])
        if again is False or again != record["found"]:
            raise ReconformError(
                f"{path}: batch {record['batch']} does not come out as it was recorded. Another "
                "version of reconform may be at work than the one that wrote it "
                "(the first line says which); resume with that one."
            )
        self._count(record)


class DecisionStream(ResumableStream):
    """Streams that decide about every row by its rank."""

    discoveries: int
    guarantee: str

    @property
    @abstractmethod
    def outlook(self) -> str:
        """What can be found with this reference, in words."""

    def given(self, X: Any, *, checked: bool = False) -> list[Any]:
        """What is recorded of rows: their ranks; `checked` as in `ConformalDetector.rank`."""
        ranks: list[Any] = self._rank(X, checked=checked).at_most.tolist()
        return ranks

    def _is_rank(self, value: Any) -> bool:
        return type(value) is int and 1 <= value <= self.cad.n_calibration_ + 1

    @abstractmethod
    def told(self, record: Content) -> list[Content]:
        """Say what a recorded batch decided, row by row and in their order, as plain data."""

    def submit(self, given: list[Any]) -> list[Content]:
        """Decide about the next rows by what `given` says of them; return what `told` says."""
        return self.told(self._submit(given, None))

    def history(self) -> Iterator[Content]:
        """Read all batches that the journal has, from its beginning."""
        if self._journal is None:
            return
        most = self.batches
        with self._journal.path.open("rb") as file:
            for line in islice(lines_of(file, self._journal.path), 1, None):
                if line.content["batch"] < most:
                    yield line.content
