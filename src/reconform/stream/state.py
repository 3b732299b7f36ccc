"""Streams that survive a crash: every batch has a number, and is decided once.

An error budget must neither be lost nor spent twice. So batches are numbered; a batch that comes
again gets the decisions it got before, and one that skips a number is refused. With a journal, the
decisions of a batch are on disk before they are returned. What is stored is plain data: reading it
back runs no code, and every batch of a journal is decided again and compared. Whoever can write a
file can write matching seals, so nothing in it is trusted: see `refusing`.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from importlib.metadata import version
from itertools import islice, repeat
from pathlib import Path
from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from ..arrays import BoolArray
from ..detector import ConformalDetector
from ..errors import ReconformError, check_count
from ..frames import are_records
from ..statistics.ranks import Ranks
from .journal import AlteredError, Content, Journal, as_text, lines_of, write_head

FORMAT = "reconform stream 1"

# Levels are written as two integers; `Fraction` would take "1e50000000", too, and compute it.
_FRACTION = re.compile(r"\d{1,1000}(/\d{1,1000})?")


def fraction_of(text: Any) -> Fraction:
    """Read a level from a state.

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
    reconform.stream.journal.AlteredError: rows is -3
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


class DecidedRows:
    """Rows that were decided about: how many they are, and how many are flagged."""

    mask: BoolArray

    @property
    def count(self) -> int:
        """Number of flagged rows."""
        return int(self.mask.sum())

    def __len__(self) -> int:
        return len(self.mask)


class ResumableStream(ABC):
    """What decisions and monitors have in common: numbered batches, `save`, `resume`, a journal.

    Attributes
    ----------
    cad : ConformalDetector
        Fitted.
    batches, rows : int
        How many were decided so far; `batches` is also the number of the next batch.
    """

    kind: ClassVar[str]

    def __init__(self, cad: ConformalDetector) -> None:
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

    @classmethod
    @abstractmethod
    def _make(cls, cad: ConformalDetector, settings: Content) -> Self:
        """Make an object that has seen no rows yet; do not warn again."""

    @abstractmethod
    def _settings(self) -> Content:
        """The arguments that make this object again."""

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
            stream = cls._make(cad, head["settings"])
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
    """Streams that decide about every row by its rank.

    Attributes
    ----------
    discoveries : int
        Rows flagged so far.
    guarantee : str
        What holds, in words.
    outlook : str
        What can be found with this reference, in words, before the first row.
    """

    discoveries: int
    guarantee: str

    @property
    @abstractmethod
    def outlook(self) -> str:
        """What can be found with this reference, in words."""

    def given(self, X: Any, *, checked: bool = False) -> list[Any]:
        """What is recorded of rows: their ranks.

        Parameters
        ----------
        X : array-like, frame, dict or list of dicts
        checked : bool
            X was made by a reader of files, as in `ConformalDetector.rank`.
        """
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
