"""The course of the evidence, in as many numbers as a chart can show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..arrays import FloatArray, IntArray

MOST_POINTS = 2048


@dataclass(frozen=True, eq=False)
class Evidence:
    """The highest evidence within each stretch of rows; no peak is ever lost.

    Attributes
    ----------
    row : int array
        First row of each stretch.
    log10 : float array
        The highest log10 evidence in it.
    every : int
        Rows in a stretch; 1 for short streams.
    """

    row: IntArray
    log10: FloatArray
    every: int


class EvidenceHistory:
    """Keep the course of the evidence; when there is too much of it, merge neighbours.

    Parameters
    ----------
    most : int
        Numbers to keep at most; even.

    Examples
    --------
    >>> history = EvidenceHistory(most=4)
    >>> history.extend(np.array([0.0, 1.0, 0.5, 3.0, 2.0]))
    >>> history.evidence.row, history.evidence.log10
    (array([0, 2, 4]), array([1., 3., 2.]))
    """

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._highest = np.full(most, -np.inf)
        self._every = 1
        self._rows = 0

    @property
    def evidence(self) -> Evidence:
        """The course so far."""
        used = -(-self._rows // self._every)
        row = np.arange(used, dtype=np.int64) * self._every
        return Evidence(row, self._highest[:used].copy(), self._every)

    def extend(self, log10: FloatArray) -> None:
        """Add the evidence after each of the next rows."""
        rows = self._rows + len(log10)
        while rows > len(self._highest) * self._every:
            merged = self._highest.reshape(-1, 2).max(axis=1)
            self._highest = np.append(merged, np.full(len(merged), -np.inf))
            self._every *= 2
        stretch = np.arange(self._rows, rows) // self._every
        np.maximum.at(self._highest, stretch, log10)
        self._rows = rows

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data."""
        kept = self.evidence
        return {
            "most": len(self._highest),
            "every": kept.every,
            "rows": self._rows,
            "highest": kept.log10.tolist(),
        }

    @classmethod
    def restore(cls, snapshot: dict[str, Any]) -> Self:
        """Make a history as it was when its snapshot was taken."""
        history = cls(snapshot["most"])
        history._every, history._rows = snapshot["every"], snapshot["rows"]
        history._highest[: len(snapshot["highest"])] = snapshot["highest"]
        return history
