"""Anomalies that are known from elsewhere: they shape scores and choices, never the calibration.

For a detector that compares new rows with each other, and for the choice between detectors, known
anomalies stand beside the other new rows: rows that look like them have companions, and a detector
that finds them has more evidence. They are never ranked, and nothing is ranked among them. So
p-values are as exact as without, if the reference and a new row are exchangeable given the other
new rows *and the known anomalies* (docs/guarantees). That fails for rows of the reference itself:
who was confirmed as an anomaly there was looked at, and copies of such rows are refused. A new row
whose values are those of a known anomaly is only one more of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import FloatArray, IndexArray, RankArray
from ..content import Contents
from ..errors import ReconformError
from ..frames import stacked
from ..statistics.conditional_calibration import Exchanges, StepUp
from ..statistics.ranks import Calibration, Ranks
from . import Ensemble, Sight, Survey, worlds_by_sight


@dataclass(eq=False)
class WithAnomalies(Ensemble):
    """An ensemble that uses the batch, with known anomalies beside every batch.

    Attributes
    ----------
    inner : Ensemble
    anomalies : float array of shape (a, d)
    """

    inner: Ensemble
    anomalies: FloatArray

    @property
    def calibration(self) -> Calibration:  # type: ignore[override]
        """As without anomalies."""
        return self.inner.calibration

    @property
    def ranks_rows(self) -> str:
        """As without anomalies."""
        return self.inner.ranks_rows

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank every new row by itself, as without anomalies."""
        return self.inner.ranks(X, variant=variant, strictly=strictly)

    def raw_scores(self, X: FloatArray) -> FloatArray:
        """Score rows, as without anomalies."""
        return self.inner.raw_scores(X)

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank new rows; the anomalies are among the rows that these are compared with."""
        rows = np.arange(len(X)) if rows is None else rows
        return self.inner.batch_ranks(self._beside(X), rows=rows, strictly=strictly)

    def see_with_each(self, X: FloatArray, rows: IndexArray) -> Iterator[Sight]:
        """Score all rows, the anomalies standing beside them."""
        for sight in self.inner.see_with_each(self._beside(X), rows):
            yield replace(sight, others=np.ascontiguousarray(sight.others[:, : len(X)]))

    def worlds(
        self, X: FloatArray, rows: RankArray, step: StepUp
    ) -> Iterator[tuple[int, Exchanges]]:
        """Go through all worlds of some new rows; the anomalies are in none of the lists."""
        return worlds_by_sight(self.see_with_each(X, rows), step)

    @property
    def takes_notes(self) -> bool:
        """As without anomalies."""
        return self.inner.takes_notes

    def notes(self, X: FloatArray) -> FloatArray:
        """As without anomalies."""
        return self.inner.notes(X)

    def survey(self) -> Survey:
        """Begin a survey in which the anomalies stand beside the new rows."""
        part = self.inner.notes(self.anomalies) if self.takes_notes else self.anomalies
        return self.inner.survey().beside(part)

    def _beside(self, X: FloatArray) -> FloatArray:
        both: FloatArray = stacked(X, self.anomalies)
        return both


def without_anomalies(ensemble: Ensemble) -> Ensemble:
    """Return an ensemble as it is without known anomalies beside it."""
    return ensemble.inner if isinstance(ensemble, WithAnomalies) else ensemble


def refuse_copies(anomalies: FloatArray, reference: FloatArray) -> None:
    """Refuse known anomalies that are rows of the reference.

    Parameters
    ----------
    anomalies : float array of shape (a, d)
    reference : float array of shape (n, d)

    Examples
    --------
    >>> import numpy as np
    >>> refuse_copies(np.array([[9.0, 9.0]]), np.array([[0.0, 1.0], [9.0, 9.0]]))
    Traceback (most recent call last):
        ...
    reconform.errors.ReconformError: `anomalies` has 1 row that is also in the reference, row 1 of
    it (counted from 1). Anomalies that were confirmed there were looked at, and with these p-values
    would no longer hold: they have to come from elsewhere. Take such rows out of both.
    """
    both = Contents.of(np.vstack([np.asarray(reference), np.asarray(anomalies)]))
    there = np.unique(both.group[: len(reference)])
    copies = np.flatnonzero(np.isin(both.group[len(reference) :], there))
    if len(copies):
        one = len(copies) == 1
        rows = "1 row that is" if one else f"{len(copies):,} rows that are"
        first = "row" if one else "the first is row"
        raise ReconformError(
            f"`anomalies` has {rows} also in the reference, {first} {copies[0] + 1:,} of it "
            "(counted from 1). Anomalies that were confirmed there were looked at, and with these "
            "p-values would no longer hold: they have to come from elsewhere. Take such rows out "
            "of both."
        )
