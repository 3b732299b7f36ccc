"""Streams that survive a crash: every batch has a number, and is decided once.

An error budget must neither be lost nor spent twice. So batches are numbered; a batch that comes
again gets the decisions it got before, and one that skips a number is refused. With a journal, the
decisions of a batch are on disk before they are returned. What is stored is plain data; reading it
back runs no code, and all batches of a journal are decided again and compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from ..detector import ConformalDetector
from ..errors import check_count
from .journal import Content, Journal, lines_of, write_head

FORMAT, FORMAT_VERSION = "reconform stream", 1


class ResumableStream(ABC):
    """What decisions and monitors have in common: numbered batches, `save`, `resume`, a journal.

    Attributes
    ----------
    cad : ConformalDetector
        Fitted.
    batches, rows : int
        How many were decided so far; `batches` is the number of the next batch.
    """

    kind: ClassVar[str]

    def __init__(self, cad: ConformalDetector) -> None:
        check_is_fitted(cad, "ensemble_")
        self.cad = cad
        self.batches = 0
        self.rows = 0
        self._last: Content | None = None
        self._journal: Journal | None = None
        self._interrupted = False

    # What a kind of stream says of itself, in plain data.

    @abstractmethod
    def _settings(self) -> Content:
        """The arguments that make this object again."""

    @abstractmethod
    def _snapshot(self) -> Content:
        """All that the past has left behind."""

    @abstractmethod
    def _restore(self, snapshot: Content) -> None:
        """Go where a snapshot was taken."""

    @abstractmethod
    def _decide(self, given: list[Any]) -> Content:
        """Move on by one batch; the same past and the same batch must give the same content."""

    def _same(self, given: list[Any], recorded: list[Any]) -> bool:
        """Whether a batch that comes again is the one that was decided."""
        return given == recorded

    # What all kinds do.

    def _submit(self, given: list[Any], batch: int | None) -> Content:
        """Decide a batch, or recall it; return what is recorded of it."""
        if self._interrupted:
            raise RuntimeError(
                "an earlier update was interrupted, and what it spent is unknown here; "
                f"use {type(self).__name__}.resume with the journal or the last saved state."
            )
        number = self.batches if batch is None else check_count("batch", batch, least=0)
        if number > self.batches:
            raise ValueError(
                f"batch={number} skips batches: the next one is {self.batches}. Batches are "
                "numbered from 0 in the order in which they are decided."
            )
        if number < self.batches:
            return self._recall(number, given)
        self._interrupted = True  # until everything below is done
        record = {"batch": number, "row": self.rows, "given": given, "found": self._decide(given)}
        if self._journal is not None:
            self._journal.append(record)
        self._count(record)
        self._interrupted = False
        return record

    def _count(self, record: Content) -> None:
        self.batches += 1
        self.rows += len(record["given"])
        self._last = record

    def _recall(self, number: int, given: list[Any]) -> Content:
        record = self._recorded(number)
        if record is None:
            raise ValueError(
                f"batch={number} was decided already, and its decisions are not kept: the next "
                f"batch is {self.batches}. A journal (journal=...) keeps all since it was made."
            )
        if not self._same(given, record["given"]):
            raise ValueError(
                f"batch={number} was decided already, with other rows; the next batch is "
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

    def save(self, path: str | Path) -> None:
        """Write the state, whole or not at all.

        Parameters
        ----------
        path : str or Path
            A file of that name is replaced. The path of the stream's own journal makes the
            journal short again: it then begins here, and earlier batches but the last can no
            longer be recalled.
        """
        self._submit_possible()
        journal = self._journal
        if journal is None or Path(path).resolve() != journal.path:
            write_head(path, self._head(journal=False), replace=True)
            return
        write_head(path, self._head(journal=True), replace=True)
        journal.close()
        self._journal = self._open(path)

    def close(self) -> None:
        """Let go of the journal, if there is one; another process can then resume from it."""
        if self._journal is not None:
            self._journal.close()
            self._interrupted = True
