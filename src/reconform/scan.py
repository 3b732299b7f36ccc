"""The way from new rows to ranks and counts, whatever the rows come from.

RowsPart come in parts: an array is one part, a file many, a Dask collection as many as it has
partitions. An ensemble says how it ranks a row (`Ensemble.ranks_rows`), and that decides how often
the parts are looked at and what waits in between:

- *alone*: every part is ranked when it comes.
- *pool*: all parts are surveyed, and then the rows are ranked: they are looked at twice.
- *batch*: all rows have to be in memory at once.

Counts of ranks add up over parts, and decide for all rows as if they had been one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from .arrays import IndexArray
from .ensemble import Survey, surveyed
from .statistics.fdr import RankCounts
from .statistics.ranks import Choice, Chosen, Ranks

T_co = TypeVar("T_co", covariant=True)
U = TypeVar("U")


class RowsPart(NamedTuple):
    """Some of the new rows, as the detector sees them, and their groups where there are any."""

    X: Any
    groups: IndexArray | None = None


class Parts(Protocol[T_co]):
    """Something of every part of the new rows, in their order: rows or ranks."""

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
class Scanned:
    """The ranks of all new rows, in parts, and their counts.

    Attributes
    ----------
    ranked : Parts of Ranks
    counts : RankCounts
    together : Ranks or None
        Of all rows where these were ranked with the batch; after a survey only what all parts
        share.
    choice : Choice, Chosen or None
        Where there were several detectors: which of them ranked every row, or all rows.
    """

    ranked: Parts[Ranks]
    counts: RankCounts
    together: Ranks | None = None
    choice: Choice | Chosen | None = None

    def chosen(self, positions: IndexArray) -> IndexArray:
        """Say by which of several detectors some of the rows were ranked."""
        assert self.choice is not None
        if isinstance(self.choice, Chosen):
            return self.choice.for_rows(len(positions)).chosen
        return self.choice.chosen[positions]


_NOTHING = np.empty(0, dtype=np.int64)


def scan(cad: Any, source: RowSource) -> Scanned:
    """Rank all new rows of a source, and count the ranks.

    Parameters
    ----------
    cad : ConformalDetector
        Fitted, and the one that judges so many rows (`ConformalDetector.for_rows`).
    source : RowSource
    """
    ensemble, count = cad.ensemble_, partial(_counted, cad.no_counts())
    if ensemble.ranks_rows == "alone":
        ranked = source.each(cad.rank_rows)
        return Scanned(ranked, ranked.total(count, RankCounts.merge))
    if ensemble.ranks_rows == "batch" or source.in_memory:
        together = cad.rank_rows(source.whole(), together=True)
        return Scanned(source.cut(together), count(together), together, together.choice)
    survey = surveyed(
        ensemble.survey(), lambda begun: source.total(partial(_seen, begun), type(begun).merge)
    )
    ranked = source.each(partial(_ranked, survey))
    counts = ranked.total(count, RankCounts.merge)
    shared = Ranks(_NOTHING, None, np.empty(0), against=survey.against)
    return Scanned(ranked, counts, shared, survey.chosen)


# Named, not nested: they are sent to the workers of a cluster.


def _counted(none: RankCounts, found: Ranks) -> RankCounts:
    return RankCounts(none.n_calibration, none.fingerprint).add(found.at_most)


def _seen(survey: Survey, rows: RowsPart) -> Survey:
    return survey.seen(rows.X)


def _ranked(survey: Survey, rows: RowsPart) -> Ranks:
    return survey.ranks(rows.X)
