"""The way from new rows to ranks and counts, whatever the rows come from.

RowsPart come in parts: an array is one part, a file many, a Dask collection as many as it has
partitions. An ensemble says how it ranks a row (`Ensemble.ranks_rows`), and that decides how often
the parts are looked at and what waits in between:

- *alone*: every part is ranked when it comes.
- *pool*: notes are taken of every part, the notes of all parts are surveyed, and then the rows are
  ranked by their notes. Where an ensemble takes no notes, the rows themselves are looked at twice.
- *batch*: all rows have to be in memory at once.

Counts of ranks add up over parts, and decide for all rows as if they had been one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from .arrays import FloatArray, IndexArray
from .ensemble import Ensemble, Survey, surveyed
from .statistics.fdr import RankCounts
from .statistics.ranks import ChoiceCounts, Ranks

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class RowsPart(NamedTuple):
    """Some of the new rows, as the detector sees them, and their groups where there are any."""

    X: Any
    groups: IndexArray | None = None


class Parts(Protocol[T_co]):
    """Something of every part of the new rows, in their order: rows, notes or ranks."""

    def each(self, work: Callable[[T_co], U]) -> Parts[U]:
        """Do something to every part; what comes of it waits where the parts are."""
        ...

    def total(self, work: Callable[[T_co], U], merge: Callable[[U, U], U]) -> U:
        """Do something to every part, and add up what comes of it."""
        ...


class RowSource(Parts[RowsPart], Protocol):
    """New rows in parts."""

    @property
    def in_memory(self) -> bool:
        """Whether all rows are in memory anyway: then a survey is made of all of them at once."""
        ...

    def whole(self) -> RowsPart:
        """All rows in memory; refuse if they are too many."""
        ...

    def cut(self, ranks: Ranks) -> Parts[Ranks]:
        """The ranks of all rows, in parts."""
        ...


@dataclass(frozen=True, eq=False)
class InMemory(Generic[T]):
    """Parts in memory."""

    parts: Sequence[T]

    def each(self, work: Callable[[T], U]) -> InMemory[U]:
        """Do something to every part."""
        return InMemory([work(part) for part in self.parts])

    def total(self, work: Callable[[T], U], merge: Callable[[U, U], U]) -> U:
        """Add up what comes of it."""
        return reduce(merge, map(work, self.parts))


@dataclass(frozen=True, eq=False)
class Counted:
    """What a decision needs of all rows: counts of their ranks, and of what was chosen."""

    ranks: RankCounts
    choice: ChoiceCounts | None = None

    @classmethod
    def of(cls, found: Ranks, none: RankCounts) -> Counted:
        """Count the rows of one part; `none` are counts of no rows."""
        counts = RankCounts(none.n_calibration, none.fingerprint).add(found.at_most)
        if found.choice is None:
            return cls(counts)
        return cls(counts, ChoiceCounts(found.choice.names, none.n_calibration).add(found.choice))

    def merge(self, other: Counted) -> Counted:
        """Add up two parts."""
        ranks = self.ranks.merge(other.ranks)
        if self.choice is None or other.choice is None:
            return Counted(ranks)
        return Counted(ranks, self.choice.merge(other.choice))


@dataclass(frozen=True, eq=False)
class Scanned:
    """The ranks of all new rows, in parts, and their counts.

    Attributes
    ----------
    ranked : Parts of Ranks
    counted : Counted
    together : Ranks or None
        Of all rows where these were ranked with the batch; after a survey only what all parts
        share.
    survey : Survey or None
    """

    ranked: Parts[Ranks]
    counted: Counted
    together: Ranks | None = None
    survey: Survey | None = None

    def chosen(self, cad: Any, positions: IndexArray, X: FloatArray) -> IndexArray:
        """Say by which of several detectors some of the rows were ranked."""
        if self.together is not None and self.together.choice is not None:
            return self.together.choice.chosen[positions]
        assert self.survey is not None
        choice = self.survey.ranks(cad.ensemble_.notes(cad.of_file(X))).choice
        assert choice is not None
        return choice.chosen


_NOTHING = np.empty(0, dtype=np.int64)


def scan(cad: Any, source: RowSource) -> Scanned:
    """Rank all new rows of a source, and count the ranks.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, and the one that judges so many rows (`ConformalDetector.for_rows`).
    source : RowSource
    """
    ensemble, count = cad.ensemble_, partial(Counted.of, none=cad.no_counts())
    if ensemble.ranks_rows == "alone":
        ranked = source.each(cad.rank_rows)
        return Scanned(ranked, ranked.total(count, Counted.merge))
    if ensemble.ranks_rows == "batch" or source.in_memory:
        together = cad.rank_rows(source.whole(), together=True)
        return Scanned(source.cut(together), count(together), together)
    parts: Parts[Any] = source.each(partial(_notes, ensemble)) if ensemble.takes_notes else source
    survey = surveyed(
        ensemble.survey(), lambda begun: parts.total(partial(_seen, begun), type(begun).merge)
    )
    ranked = parts.each(partial(_ranked, survey))
    if ensemble.takes_notes:
        counted = parts.total(partial(_counted, survey, cad.no_counts()), Counted.merge)
    else:
        counted = ranked.total(count, Counted.merge)
    shared = Ranks(_NOTHING, None, np.empty(0), against=survey.against)
    return Scanned(ranked, counted, None if survey.against is None else shared, survey)


# Named, not nested: they are sent to the workers of a cluster.


def _notes(ensemble: Ensemble, rows: RowsPart) -> FloatArray | None:
    return ensemble.notes(rows.X)


def _part(given: RowsPart | FloatArray) -> FloatArray:
    return given.X if isinstance(given, RowsPart) else given


def _seen(survey: Survey, given: RowsPart | FloatArray) -> Survey:
    return survey.seen(_part(given))


def _ranked(survey: Survey, given: RowsPart | FloatArray) -> Ranks:
    return survey.ranks(_part(given))


def _counted(survey: Survey, none: RankCounts, notes: FloatArray) -> Counted:
    return Counted.of(survey.ranks(notes), none)
