"""Rows that may come again, after a crash: those that were decided get their decisions again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from time import monotonic
from time import time as clock
from typing import Any

from ..errors import ReconformError
from .state import Content, DecisionStream
from .windows import MicroBatches


class Delivery:
    """Take rows in any blocks, from any row on that is not ahead of the journal; tell decisions.

    Blocks need not be those of the first time: rows are recognised one by one, by their ranks.

    Parameters
    ----------
    stream : DecisionStream
        New, or resumed.
    start : int
        The position in the stream of the first row that will come.

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
        self._expected: deque[tuple[int, Any]] = deque()
        self._ready: deque[Content] = deque()
        self._start = start
        last = stream.last_time if isinstance(stream, MicroBatches) else None
        self._began = (clock() if last is None else max(clock(), last)) - monotonic()

    def now(self) -> float:
        """The time, for windows of seconds: never before the last row, and never set back.

        Where the clock was ahead when the last row came, time goes on from there at its pace;
        waiting for the clock to catch up would keep windows from closing.
        """
        return self._began + monotonic()

    def add(self, X: Any, *, checked: bool = False, time: float | None = None) -> list[Content]:
        """Take the next rows; return all decisions that are known with them, in order of rows.

        `checked` is as in `ConformalDetector.rank`; `time`, when they came, is for windows of
        seconds, and rows that were decided before keep theirs.
        """
        stream = self.stream
        ranks = DecisionStream.given(stream, X, checked=checked)
        old = max(0, min(len(ranks), self.known - self.next_row))
        for rank in ranks[:old]:
            self._compare(rank)
        if self.next_row >= self.known:
            self._read_all()  # a window may have been closed after its last row
        new: list[Any] = ranks[old:]
        if new:
            if isinstance(stream, MicroBatches) and stream.seconds is not None:
                assert time is not None
                came = max(time, stream.last_time or time)
                new = [[rank, came] for rank in new]
            self.next_row += len(new)
            self._ready.extend(stream.submit(new))
        return self._told()

    def finish(self, *, now: float | None = None) -> list[Content]:
        """Decide about rows that wait for their window: all of them, or those due by a time."""
        if self.next_row < self.known:
            return []
        self._read_all()
        if isinstance(self.stream, MicroBatches) and self.stream.is_due(now):
            self._ready.extend(self.stream.submit([]))
        return self._told()

    def _compare(self, rank: int) -> None:
        """Check that a row that comes again is the one that was decided."""
        while not self._expected:
            if not self._read_one():
                raise ReconformError(
                    f"the journal does not have row {self.next_row} any more: it was made short, "
                    f"or is none. Give rows from row {self.known} on."
                )
        row, known = self._expected.popleft()
        if row != self.next_row:
            raise ReconformError(
                f"the journal begins with row {row}, and does not have row {self.next_row}; give "
                f"`start={row}` or a later one, and the rows from there on."
            )
        if known != rank:
            raise ReconformError(
                f"row {row} was decided before, with other values: these are not the rows that "
                "the journal was written with, or they begin with another row than "
                f"`start={self._start}`."
            )
        self.next_row += 1

    def _read_one(self) -> bool:
        """Read one more batch of the journal."""
        record = next(self._history, None)
        if record is None:
            return False
        for place, given in enumerate(record["given"], start=record["row"]):
            if place >= self._start:
                self._expected.append((place, given[0] if isinstance(given, list) else given))
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
