"""Streams that survive a crash: every batch has a number, and is decided once.

The journal of a stream is a file of plain JSON, one object per line. The first, the head, says what
the stream is; every further line is a batch, on disk before its decisions are returned. A batch
that comes again gets the decisions it got before, and one that skips a number is refused. To go on
after a crash, make the stream again with the same journal: every line is decided again and
compared, so that a file is never trusted and runs no code. A line's seal is a digest of its content
and of the seal before it: a line that was damaged, lost or moved does not go unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from sklearn.utils.validation import check_is_fitted

from ..arrays import BoolArray, FloatArray
from ..assumption.order import order_findings
from ..assumption.verdict import Verdict
from ..atomic import write_atomic
from ..detector import ConformalDetector
from ..errors import ReconformError, ReferenceWarning, check_count, warn_once
from ..frames import are_records
from ..statistics.ranks import Ranks

try:
    import fcntl
except ImportError:  # Windows: nothing keeps two processes from one journal there
    fcntl = None  # type: ignore[assignment]

Content = dict[str, Any]

FORMAT = "reconform stream 1"


class Line(NamedTuple):
    """One whole line: its content, its seal, and where in the file it ends."""

    content: Content
    seal: str
    end: int


class Journal:
    """A journal that is open for more lines, by one process at a time.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> journal = Journal(Path(folder.name, "stream.journal"), {"kind": "example"})
    >>> journal.append({"batch": 0})
    >>> [line.content for line in journal.lines()]
    [{'kind': 'example'}, {'batch': 0}]
    >>> journal.close()
    >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, head: Content) -> None:
        """Open a journal; one that does not exist begins with this head."""
        self.path = Path(os.path.realpath(path))
        if not self.path.exists():
            write_atomic(self.path, _sealed("", head)[0])
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
        except OSError as error:
            raise ReconformError(
                f"{self.path} is in use: another process, or an object in this one that was not "
                "closed, is adding to it. End the other one, or give this stream a journal of its "
                "own."
            ) from error

    def lines(self) -> Iterator[Line]:
        """Read the head and all batches, and stop before a line that was not written to its end.

        A line is on disk, with its end, before its decisions are returned; so a line without an end
        was never acted upon, and is as good as never begun.
        """
        seal, end = "", 0
        with self.path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if not raw.endswith(b"\n"):
                    return
                try:
                    line = json.loads(raw)
                    content, stated = line["content"], line["seal"]
                    seal = _seal(seal, content)
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    raise _damaged(self.path, number) from error
                if seal != stated or not isinstance(content, dict):
                    raise _damaged(self.path, number)
                end += len(raw)
                yield Line(content, seal, end)

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


def _seal(previous: str, content: Content) -> str:
    # Python writes a float with all its digits, so what was read is written the same again.
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256((previous + text).encode()).hexdigest()[:32]


def _damaged(path: Path, number: int) -> ReconformError:
    return ReconformError(
        f"{path}, line {number:,}: this line is damaged, or not one of a stream's journal. Restore "
        "an undamaged copy of the file. If it is the last line and the machine lost power while it "
        "was written, its decisions were never returned: delete the line and start again."
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class StreamDecisions:
    """The decisions on one batch of a stream, or on one window.

    Attributes
    ----------
    row : int
        Position of its first row in the stream, from 0.
    mask : bool array
        Which rows are flagged.
    p_values : float array
    level : float
        The largest p-value that is flagged; 0.0 if none is.
    guarantee : str
        What holds, in words.
    batch, window : int or None
        The number of the batch, or of the window, from 0.
    """

    row: int
    mask: BoolArray = field(repr=False)
    p_values: FloatArray = field(repr=False)
    level: float
    guarantee: str
    batch: int | None = None
    window: int | None = None

    @property
    def count(self) -> int:
        """Number of flagged rows."""
        return int(self.mask.sum())

    def __len__(self) -> int:
        return len(self.mask)


class ResumableStream(ABC):
    """What decisions and monitors have in common: numbered batches, and a journal."""

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
        self.settings: Content = {}
        self._last: Content | None = None
        self._journal: Journal | None = None
        self._refusal = ""  # why nothing more can be decided here; empty as long as it can

    def _begin(self, journal: str | Path | None, settings: Content) -> None:
        """What a constructor does at its end: go on where the journal ends, if there is one."""
        self.settings = settings
        if journal is not None:
            self._journal = self._replayed(journal)
        self._warn()
        order = Verdict.of(order_findings(self.cad.state_.order, None, self.cad.names))
        self._heed(order)
        for finding in order.findings:
            warn_once(self.cad.ensemble_, "order", finding.sentence, ReferenceWarning)

    def _heed(self, order: Verdict) -> None:  # noqa: B027 - a monitor promises nothing of rows
        """Take a promise back where the order of the reference rows speaks against it."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} after {self.rows:,} rows in {self.batches:,} batches>"

    # --- what a kind of stream says of itself ---

    @abstractmethod
    def _decide(self, given: list[Any]) -> Content:
        """Decide one batch; the same state and the same batch must give the same content."""

    @abstractmethod
    def _is_given(self, value: Any) -> bool:
        """Whether a journal may say this of a row."""

    @abstractmethod
    def _same(self, given: list[Any], recorded: list[Any]) -> bool:
        """Whether a batch that comes again is the one that was decided."""

    def _warn(self) -> None:  # noqa: B027 - most have nothing to say
        """Say what the caller should know before the next batch; called from public methods."""

    def _rank(self, X: Any, *, checked: bool = False) -> Ranks:
        """Rank rows: an array, a frame, an Arrow batch, a dict, or a list of dicts."""
        if are_records(X):
            X = self.cad.of_records(X)
        return self.cad.rank(X, checked=checked)

    # --- batches ---

    def _submit(self, given: list[Any], batch: int | None) -> Content:
        """Decide a batch, or recall it; return what is recorded of it."""
        if self._refusal:
            raise RuntimeError(
                f"{self._refusal}; make the stream again, with its journal if it has one."
            )
        number = self.batches if batch is None else check_count("batch", batch, least=0)
        if number > self.batches:
            raise ReconformError(
                f"batch={number} skips batches: the next one is {self.batches}. Batches are "
                "numbered from 0, in the order in which they are decided."
            )
        if number < self.batches:
            return self._recall(number, given)
        self._refusal = "an update was interrupted, and it is not known what it has decided"
        record = {"batch": number, "row": self.rows, "given": given, "found": self._decide(given)}
        if self._journal is not None:
            self._journal.append(record)
        self._count(record)
        self._refusal = ""
        return record

    def _count(self, record: Content) -> None:
        self.batches += 1
        self.rows += len(record["given"])
        self._last = record

    def _recall(self, number: int, given: list[Any]) -> Content:
        record = self._last if self._last is not None and self._last["batch"] == number else None
        if record is None and self._journal is not None:
            record = next(islice(self._journal.lines(), number + 1, None)).content
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

    # --- the journal ---

    def close(self) -> None:
        """Close the journal; afterwards another process can go on with it."""
        if self._journal is not None:
            self._journal.close()
        self._refusal = "the stream was closed"

    def _replayed(self, path: str | Path) -> Journal:
        """Open a journal and decide all its batches again: they must come out as they were."""
        head = {
            "format": FORMAT,
            "kind": self.kind,
            "reconform": version("reconform"),
            "calibration": self.cad.calibration_.fingerprint,
            "settings": self.settings,
        }
        journal = Journal(path, head)
        try:
            lines = journal.lines()
            first = next(lines, None)
            self._check_head(path, {} if first is None else first.content, head)
            for line in lines:
                self._replay(path, line.content)
        except BaseException:
            journal.close()
            raise
        return journal

    def _check_head(self, path: str | Path, found: Content, own: Content) -> None:
        if any(found.get(name) != own[name] for name in ("format", "kind")):
            got = f"{found.get('kind')!r}, {found.get('format')!r}" if found else "no whole line"
            raise ReconformError(
                f"{path} must be a journal of {type(self).__name__} ({FORMAT!r}); got {got}."
            )
        if found.get("calibration") != own["calibration"]:
            raise ReconformError(
                f"{path} belongs to another calibration ({str(found.get('calibration'))[:12]}; cad "
                f"has {own['calibration'][:12]}). Go on with the detector it was made with, or "
                "begin a new journal."
            )
        theirs, ours = found.get("settings"), own["settings"]
        if theirs != ours or json.dumps(theirs) != json.dumps(ours):
            theirs = theirs if isinstance(theirs, dict) else {}
            differences = ", ".join(
                f"{name.replace('_', ' ')} {_plain(theirs.get(name))}, not {_plain(value)}"
                for name, value in ours.items()
                if theirs.get(name) != value
            )
            raise ReconformError(
                f"{path} was begun with other options ({differences or 'unknown ones'}). Give the "
                "same ones, or begin a new journal."
            )

    def _replay(self, path: str | Path, record: Content) -> None:
        given = record.get("given")
        place = record.get("batch"), record.get("row")
        if (
            place != (self.batches, self.rows)
            or not isinstance(given, list)
            or not all(map(self._is_given, given))
        ):
            raise ReconformError(
                f"{path}: batch {self.batches} was not written by reconform, or was altered, "
                "although its checksum is right. Restore an unaltered copy of the file, or begin "
                "a new journal."
            )
        if self._decide(given) != record.get("found"):
            raise ReconformError(
                f"{path}: batch {self.batches} does not come out as it was recorded. It may have "
                "been written by another version of reconform (the first line says which); go on "
                "with that one."
            )
        self._count(record)


def _plain(value: Any) -> str:
    return "none" if value is None else str(value)[:40]


class DecisionStream(ResumableStream):
    """Streams that decide about every row by its rank."""

    discoveries: int
    guarantee: str
    withdrawn = False
    waiting = 0

    def _heed(self, order: Verdict) -> None:
        self.withdrawn = order.word == "broken"
        self.guarantee = order.promise(self.guarantee)

    @property
    def promise(self) -> str:
        """The guarantee, or what everybody should know of it."""
        return self.guarantee

    @property
    @abstractmethod
    def outlook(self) -> str:
        """What can be found with this reference, in words."""

    def given(self, X: Any, *, checked: bool = False) -> list[int]:
        """What is recorded of rows: their ranks; `checked` as in `ConformalDetector.rank`."""
        ranks: list[int] = self._rank(X, checked=checked).at_most.tolist()
        return ranks

    def _is_given(self, value: Any) -> bool:
        return type(value) is int and 1 <= value <= self.cad.n_calibration_ + 1

    def _same(self, given: list[Any], recorded: list[Any]) -> bool:
        return given == recorded

    @abstractmethod
    def _decisions(self, record: Content) -> Sequence[StreamDecisions]:
        """What a recorded batch decided."""

    def told(self, record: Content) -> list[Content]:
        """Say what a recorded batch decided, row by row and in their order, as plain data."""
        return [
            {"row": row, "p_value": p, "anomaly": flagged}
            | ({"window": decided.window} if decided.window is not None else {})
            for decided in self._decisions(record)
            for row, (p, flagged) in enumerate(
                zip(decided.p_values.tolist(), decided.mask.tolist(), strict=True),
                start=decided.row,
            )
        ]

    def submit(self, given: list[int]) -> list[Content]:
        """Decide about the next rows by their ranks; return what `told` says."""
        return self.told(self._submit(given, None))

    def history(self) -> Iterator[Content]:
        """Read all batches that the journal has by now, from its beginning."""
        if self._journal is not None:
            for line in islice(self._journal.lines(), 1, self.batches + 1):
                yield line.content


class Delivery:
    """Rows that may come again, in any blocks, from any row on that is not ahead of the journal.

    Rows that were decided before get their decisions again. They are recognised one by one, by
    their ranks: blocks need not be those of the first time. `start` is the position in the stream
    of the first row that will come.

    Examples
    --------
    >>> import numpy as np
    >>> from reconform import ConformalDetector
    >>> from reconform.stream import FalseAlarmBudget
    >>> rng = np.random.default_rng(0)
    >>> cad = ConformalDetector("knn", "split", random_state=0).fit(rng.normal(size=(4_000, 2)))
    >>> delivery = Delivery(FalseAlarmBudget(cad))
    >>> [(told["row"], told["anomaly"]) for told in delivery.add([[0.3, 0.1], [9.0, 9.0]])]
    [(0, False), (1, True)]
    """

    def __init__(self, stream: DecisionStream, start: int = 0) -> None:
        if start > stream.rows:
            raise ReconformError(
                f"`start={start}` skips rows: {stream.rows:,} were decided before, and the next "
                f"one is row {stream.rows}."
            )
        self.stream = stream
        self.next_row = start
        self.known = stream.rows  # rows before this one were decided before
        self._history: Iterator[Content] = stream.history()
        self._expected: deque[int] = deque()  # ranks, from `next_row` on
        self._ready: deque[Content] = deque()
        self._start = start

    def add(self, X: Any, *, checked: bool = False) -> list[Content]:
        """Take the next rows; return all decisions that are known with them, in order of rows."""
        ranks = self.stream.given(X, checked=checked)
        old = max(0, min(len(ranks), self.known - self.next_row))
        for rank in ranks[:old]:
            self._compare(rank)
        if self.next_row >= self.known:
            self._read_all()  # a window may have been closed after its last row
        if ranks[old:]:
            self.next_row += len(ranks) - old
            self._ready.extend(self.stream.submit(ranks[old:]))
        return self._told()

    def finish(self) -> list[Content]:
        """Decide about rows that wait for their window."""
        if self.next_row < self.known:
            return []
        self._read_all()
        if self.stream.waiting:
            self._ready.extend(self.stream.submit([]))
        return self._told()

    def _compare(self, rank: int) -> None:
        """Check that a row that comes again is the one that was decided."""
        while not self._expected:
            if not self._read_one():
                raise ReconformError(
                    f"row {self.next_row} was decided before, and there is no journal that has it. "
                    f"Give rows from row {self.known} on."
                )
        if self._expected.popleft() != rank:
            raise ReconformError(
                f"row {self.next_row} was decided before, with other values: these are not the "
                "rows that the journal was written with, or they begin with another row than "
                f"`start={self._start}`."
            )
        self.next_row += 1

    def _read_one(self) -> bool:
        """Read one more batch of the journal."""
        record = next(self._history, None)
        if record is None:
            return False
        self._expected.extend(record["given"][max(0, self._start - record["row"]) :])
        self._ready.extend(told for told in self.stream.told(record) if told["row"] >= self._start)
        return True

    def _read_all(self) -> None:
        while self._read_one():
            pass

    def _told(self) -> list[Content]:
        found = []
        while self._ready and self._ready[0]["row"] < self.next_row:
            found.append(self._ready.popleft())
        return found
