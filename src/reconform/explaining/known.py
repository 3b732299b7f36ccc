"""The reference rows that a row is explained by: all of them, or a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..arrays import IndexArray
from ..assumption import reference_positions
from ..content import Contents
from ..errors import ReconformError

# A fitted detector keeps all its reference rows for explanations up to so many cells (16 MB).
MOST_CELLS = 2_000_000


@dataclass(frozen=True, eq=False)
class Known:
    """Reference rows, as the detector sees them.

    Attributes
    ----------
    rows : float array of shape (s, d), or FrameRows
    of : int
        Rows that the reference has in all.
    positions : int array of shape (s,), or None
        Which of them these are; None where that is not known, as in a model file.
    labels : sequence of length `of`, or None
        What to call all of them; by default their positions.
    """

    rows: Any
    of: int
    positions: IndexArray | None = None
    labels: Sequence[Any] | None = None

    @classmethod
    def of_fit(cls, X: Any, labels: Any, contents: Contents) -> Known:
        """Keep the rows of a fit, or a sample where they are very many."""
        n, d = X.shape
        if n * d <= MOST_CELLS:
            return cls(X, n, np.arange(n), labels)
        positions = reference_positions(contents)
        return cls(X[positions], n, positions, labels)

    def named(self, labels: Sequence[Any]) -> Known:
        """Return the same rows under other names: one for every row of the reference."""
        if len(labels) != self.of:
            raise ReconformError(
                f"`labels` must be one for every reference row: there are {self.of:,} rows, and "
                f"{len(labels):,} labels."
            )
        return replace(self, labels=labels)

    def label(self, i: int) -> str | None:
        """What to call row i; None where that is not known."""
        if self.positions is None:
            return None
        position = int(self.positions[i])
        return str(position if self.labels is None else self.labels[position])

    @property
    def sentence(self) -> str:
        """Say which rows these are."""
        if len(self.rows) == self.of:
            return f"Compared with all {self.of:,} reference rows."
        return (
            f"Compared with {len(self.rows):,} of the {self.of:,} reference rows, a sample: the "
            "others were not kept."
        )
