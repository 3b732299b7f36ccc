"""What has to be known of all new rows before any of them can be ranked, on a split.

The models are fixed, so the evidence for a detector follows from how the scores of the new rows lie
among those of the reference. Nearly all of it follows from counts: how many new rows lie between
two neighbouring reference scores, in a *gap*. Only in the few gaps in which a list may end does it
matter which new row of the gap comes first, and only there scores are needed. Counts and scores of
parts of the rows merge to those of all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import BoolArray, FloatArray, IndexArray, IntArray
from ...ensemble import Survey
from ...errors import ReconformError
from ...statistics.ranks import Choice, Ranks
from .choosing import LEVELS, choose, stands_first


def gaps_of(n: int) -> int:
    """Count the gaps among n reference scores that a list may reach into, from the lowest on.

    Examples
    --------
    >>> gaps_of(99)  # no list at level 0.2 holds a row with more than 20 reference rows below it
    21
    """
    return int(max(LEVELS) * (n + 1)) + 1


class LowScores:
    """New rows that a list may hold: how many lie in every gap, and the scores of some of them.

    Parameters
    ----------
    detectors : int
    n : int
        Reference rows that are ranked among.
    gaps : bool array of shape (detectors, gaps_of(n))
        The gaps whose scores are kept.

    Attributes
    ----------
    m : int
        All new rows, the others included.
    counts : int array of shape (detectors, gaps_of(n))
    kept : list of float arrays
        For every detector.
    """

    def __init__(self, detectors: int, n: int, gaps: BoolArray) -> None:
        shape = (detectors, gaps_of(n))
        self.n, self.m = n, 0
        self.gaps = gaps
        self.counts = np.zeros(shape, dtype=np.int64)
        self._parts: list[list[FloatArray]] = [[] for _ in range(detectors)]

    @property
    def kept(self) -> list[FloatArray]:
        """The scores that are kept, of every detector."""
        return [np.concatenate([np.empty(0), *parts]) for parts in self._parts]

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        scores = sum(part.nbytes for parts in self._parts for part in parts)
        return int(self.counts.nbytes + self.gaps.nbytes + scores)

    def add(self, references: Sequence[FloatArray], scores: FloatArray) -> LowScores:
        """Add some rows; return itself.

        Parameters
        ----------
        references : sequence of float arrays
            The calibration scores of every detector, in increasing order.
        scores : float array of shape (detectors, rows)
        """
        self.m += scores.shape[1]
        size = self.counts.shape[1]
        for k, (reference, parts) in enumerate(zip(references, self._parts, strict=True)):
            # To look up only scores that are low enough saves most of the time.
            low = scores[k, scores[k] < reference[size - 1]]
            gap = np.searchsorted(reference, low, side="right")
            self.counts[k] += np.bincount(gap, minlength=size)
            wanted = low[self.gaps[k, gap]]
            if len(wanted):
                parts.append(wanted)
        return self

    def merge(self, other: LowScores) -> LowScores:
        """Add up two parts of the rows, of which scores are kept for the same gaps."""
        both = LowScores(len(self._parts), self.n, self.gaps)
        both.m, both.counts = self.m + other.m, self.counts + other.counts
        both._parts = [a + b for a, b in zip(self._parts, other._parts, strict=True)]
        return both

    def undecided(self) -> BoolArray:
        """Say in which gaps the evidence differs from row to row: (detectors, gaps)."""
        return np.array([_Lists(counts, self.n, self.m).differs for counts in self.counts])


class _Lists:
    """Lengths of the lists of one detector, if a new row joins those that are ranked among.

    The row then leaves the new rows, stands in every list with rank 0, and raises the rank of all
    rows after it by one. With `place` rows before it, a list of k rows is one of two kinds. Either
    all its other rows stand before this one, k <= place + 1, and the last lies in a gap g <= limit,
    limit being the whole part of q k (n + 1) / m. Or some stand after it, and g + 1 <= limit.

    Parameters
    ----------
    counts : int array
        New rows by gap.
    n, m : int
        Reference rows, and all new rows.
    """

    def __init__(self, counts: IntArray, n: int, m: int) -> None:
        self.counts = counts
        self.upto = np.cumsum(counts)
        self.before = self.upto - counts
        self._levels = [self._level(*level.as_integer_ratio(), n, m) for level in LEVELS]

    def _level(self, top: int, bottom: int, n: int, m: int) -> tuple[int, IntArray, IntArray]:
        """The longest list of the second kind; by gap where the first kind begins; that before."""
        some, gap = self.counts > 0, np.arange(len(self.counts) + 1)
        # The shortest list whose limit is a gap or more.
        least = -((-gap * m * bottom) // (top * (n + 1)))
        after = some & (self.upto >= np.maximum(least[1:], 2))
        longest = int(self.upto[after].max(initial=0))
        begin = np.maximum(self.before + 2, least[:-1])
        end = np.minimum(self.upto + 1, m)
        ends = np.where(some & (begin <= end), end, 1)
        earlier = np.maximum.accumulate(np.concatenate([[1], ends]))
        return longest, begin, earlier

    def lengths(self, gap: IntArray, place: IntArray) -> IntArray:
        """Lengths for rows in these gaps, with so many rows before them, added up over levels."""
        total = np.zeros(len(gap), dtype=np.int64)
        for longest, begin, earlier in self._levels:
            first = np.where(place + 1 >= begin[gap], place + 1, earlier[gap])
            total += np.where(place < longest, longest, first)
        return total

    @cached_property
    def by_gap(self) -> IntArray:
        """Lengths for the first row of every gap; the last is that of a row after all of these."""
        inside = self.lengths(np.arange(len(self.counts)), self.before)
        beyond = sum(int(earlier[-1]) for _, _, earlier in self._levels)
        return np.append(inside, beyond)

    @cached_property
    def differs(self) -> BoolArray:
        """Whether lengths differ within a gap: they never fall from one row to the next."""
        last = self.lengths(np.arange(len(self.counts)), self.upto - 1)
        return np.asarray((self.counts > 1) & (last != self.by_gap[:-1]))


class ChoiceSurvey(Survey):
    """How the scores of all new rows lie among the calibration scores of every detector.

    The first look counts; where a list may end within a gap, a closer one keeps the scores there.
    A part is its scores by every detector, (detectors, rows).

    Parameters
    ----------
    names : tuple of str
        The detectors.
    references : tuple of float arrays
        The calibration scores of each, in increasing order.
    gaps : bool array, optional
        As in `LowScores`; by default no scores are kept.
    anomalies : float array of shape (detectors, a), optional
        Scores of known anomalies, which stand beside the new rows.
    """

    def __init__(
        self,
        names: tuple[str, ...],
        references: tuple[FloatArray, ...],
        gaps: BoolArray | None = None,
        anomalies: FloatArray | None = None,
    ) -> None:
        self.names, self.references, self.anomalies = names, references, anomalies
        shape = len(names), gaps_of(len(references[0]))
        self.gaps = np.zeros(shape, dtype=np.bool_) if gaps is None else gaps
        self.low = LowScores(len(names), len(references[0]), self.gaps)
        if anomalies is not None:
            self.low.add(references, anomalies)

    def beside(self, part: FloatArray) -> ChoiceSurvey:
        """Let known anomalies count like other new rows."""
        return ChoiceSurvey(self.names, self.references, self.gaps, part)

    def seen(self, part: FloatArray) -> ChoiceSurvey:
        """Count one part by itself."""
        one = ChoiceSurvey(self.names, self.references, self.gaps)
        one.low.add(self.references, part)
        return one

    def merge(self, other: ChoiceSurvey) -> ChoiceSurvey:
        """Add up the counts of two parts."""
        both = copy(self)
        both.low = self.low.merge(other.low)
        return both

    def closer(self) -> ChoiceSurvey | None:
        """Keep the scores in gaps in which the evidence differs from row to row."""
        gaps = self.low.undecided()
        if self.gaps.any() or not gaps.any():
            return None
        return ChoiceSurvey(self.names, self.references, gaps, self.anomalies)

    @cached_property
    def _evidence(self) -> list[_Evidence]:
        low = self.low
        return [
            _Evidence.of(_Lists(counts, low.n, low.m), reference, kept)
            for counts, reference, kept in zip(low.counts, self.references, low.kept, strict=True)
        ]

    def ranks(self, part: FloatArray, *, strictly: bool = False) -> Ranks:
        """Rank the rows of a part, each by the detector that is chosen for it."""
        if strictly:
            raise ReconformError(
                "smoothed p-values cannot be computed for a choice of detectors on a split; use "
                "ties='conservative' or `method='full'`."
            )
        pairs = zip(self.references, part, strict=True)
        found = [np.searchsorted(reference, each, side="right") for reference, each in pairs]
        below = np.array(found, dtype=np.int64).reshape(part.shape)
        evidence = np.array(
            [one.of_rows(*row) for one, *row in zip(self._evidence, below, part, strict=True)]
        )
        chosen = self._choose(evidence)
        ranks = below + 1
        choice = Choice(self.names, chosen, ranks)
        return Ranks(ranks[chosen, np.arange(len(chosen))], None, part[self._shown], choice=choice)

    def _choose(self, evidence: IntArray) -> IndexArray:
        # A split has no detector that compares new rows with each other.
        return choose(evidence, stands_first([False] * len(evidence), self.low.m))

    @cached_property
    def _shown(self) -> int:
        """Whose scores are shown: detectors have different units, and parts of the rows must agree.

        It is the one that is chosen for rows that no detector finds unusual.
        """
        return int(self._choose(np.array([one.by_gap[-1:] for one in self._evidence]))[0])


@dataclass(frozen=True, eq=False)
class _Evidence:
    """The evidence for one detector, by the place of a row.

    Attributes
    ----------
    by_gap : int array
        By gap, where it is the same for all rows of the gap; the last for all rows further up.
    differs : bool array
        By gap, and false for all rows further up.
    scores, lengths : arrays
        Of the rows of the other gaps the scores, in increasing order, and the evidence.
    """

    by_gap: IntArray
    differs: BoolArray
    scores: FloatArray
    lengths: IntArray

    @classmethod
    def of(cls, lists: _Lists, reference: FloatArray, kept: FloatArray) -> _Evidence:
        kept = np.sort(kept)
        gap = np.searchsorted(reference, kept, side="right")
        wanted = lists.differs[gap]
        kept, gap = kept[wanted], gap[wanted]
        # Rows of a gap follow each other: the place of one is counted from the first of them.
        # Equal scores have the place of the first, as the others then count as after it.
        place = lists.before[gap] + np.searchsorted(kept, kept) - np.searchsorted(gap, gap)
        differs = np.append(lists.differs, False)
        return cls(lists.by_gap, differs, kept, lists.lengths(gap, place))

    def of_rows(self, below: IntArray, scores: FloatArray) -> IntArray:
        gap = np.minimum(below, len(self.by_gap) - 1)
        evidence = self.by_gap[gap]
        rows = np.flatnonzero(self.differs[gap])
        evidence[rows] = self.lengths[np.searchsorted(self.scores, scores[rows])]
        return evidence
