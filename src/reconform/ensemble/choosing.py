"""Several detectors at once: each is fitted as it would be alone, and a row is ranked by one.

For new row j let E be the reference and x_j as one set. Every detector ranks the *other* new rows
among E, and its evidence is how many of them Benjamini-Hochberg would then find, added up over a
few levels. A detector stands first, by the numbers of rows alone; another one is chosen where its
evidence is larger by more than chance explains. The choice does not know which row of E is new, so
the p-value of x_j is as exact as without a choice (docs/guarantees). The levels are fixed: p-values
do not depend on the level of the list, and q-values mean what they say.

`weigh`, which is compiled, counts the evidence for some new rows.

On a split the models are fixed, so the evidence for a detector follows from how the scores of the
new rows lie among those of the reference. Nearly all of it follows from counts: how many new rows
lie between two neighbouring reference scores, in a *gap*. Only in the few gaps in which a list may
end does it matter which new row of the gap comes first, and only there scores are needed. Counts
and scores of parts of the rows merge to those of all rows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain

import numpy as np

from .. import forecast
from ..arrays import BoolArray, FloatArray, IndexArray, Int32Array, IntArray, RankArray
from ..compiled import njit
from ..errors import ReconformError
from ..parallel import run_blocks, run_threads, track
from ..statistics.conditional_calibration import Exchanges, StepUp, exchanges_at, longest_list
from ..statistics.ranks import Calibration, Choice, Ranks
from . import (
    AugmentedScores,
    Ensemble,
    ResampledEnsemble,
    Survey,
    WithinGroups,
    blocks_of,
    worlds_by_scores,
)
from .refitting import FullRefit

LEVELS = (Fraction(1, 20), Fraction(1, 10), Fraction(3, 20), Fraction(1, 5))

# Another detector must find more than the first, by more than 5/4 of the square root of what that
# finds plus FEW: six rows at least, which a few anomalies do not bring about by chance.
MARGIN, FEW = 5, 16


def limits_for(n: int, m: int) -> RankArray:
    """The largest ranks that lists of 0, 1, ..., m rows hold, for every level: (levels, m + 1).

    Parameters
    ----------
    n, m : int
        Reference rows that are ranked among, and new rows.

    Examples
    --------
    >>> limits_for(99, 4)
    array([[ 0,  1,  2,  3,  5],
           [ 0,  2,  5,  7, 10],
           [ 0,  3,  7, 11, 15],
           [ 0,  5, 10, 15, 20]])
    """
    return np.array([StepUp.at(level, n, m).limits for level in LEVELS])


def stands_first(enough: Sequence[int | None], m: int) -> int:
    """Say which of several detectors is used where nothing speaks for another one.

    Parameters
    ----------
    enough : sequence of int or None
        `Ensemble.enough_new` of each: the last for which m new rows are enough stands first.
    m : int
        New rows.

    Examples
    --------
    >>> stands_first([None, 300, 100], 99), stands_first([None, 300, 100], 400)
    (0, 2)
    """
    return max((k for k, least in enumerate(enough) if least is not None and m >= least), default=0)


def choose(evidence: IntArray, first: int) -> IndexArray:
    """Choose a detector for every row: the one with most evidence, if it beats the first clearly.

    Parameters
    ----------
    evidence : int array of shape (detectors, rows)
    first : int

    Returns
    -------
    int array of shape (rows,)

    Examples
    --------
    >>> choose(np.array([[4, 40, 40], [8, 60, 80], [16, 50, 90]]), 0)
    array([0, 0, 2])
    """
    gain = evidence - evidence[first]
    levels = len(LEVELS)  # evidence is a sum over them; the rule is about their mean
    enough = levels * gain * gain > MARGIN * MARGIN * (evidence[first] + levels * FEW)
    clear = (gain > 0) & enough
    best = np.argmax(np.where(clear, gain, 0), axis=0)
    return np.asarray(np.where(clear.any(axis=0), best, first), dtype=np.intp)


@njit(cache=True, nogil=True)
def weigh(
    own: FloatArray,
    others: FloatArray,
    rows: IndexArray,
    limits: RankArray,
    start: int,
    stop: int,
    evidence: IntArray,
    ranks: RankArray,
) -> None:
    """Weigh what a detector finds among the other new rows, for some new rows.

    Parameters
    ----------
    own, others, rows : arrays of shape (b, n + 1), (b, m) and (b,)
        As in `reconform.ensemble.AugmentedScores`.
    limits : int array of shape (levels, m + 1)
    start, stop : int
        Which of the rows.
    evidence, ranks : int arrays of shape (b,)
        Written: the lengths of the lists, added up over the levels, and the rank of x_j in E.
    """
    n = own.shape[1] - 1
    highest = min(int(limits[:, -1].max()), n + 1)
    counts = np.empty(highest + 1, dtype=np.int64)
    for r in range(start, stop):
        mine = own[r, n]
        rank_of_mine = 0
        for i in range(n + 1):
            rank_of_mine += own[r, i] <= mine
        ranks[r] = rank_of_mine
        # Ranks up to `highest` are told apart by the scores up to that place.
        if highest <= n:
            low = np.sort(np.partition(own[r], highest)[: highest + 1])
        else:
            low = np.sort(own[r])
        counts[:] = 0
        # Most rows score higher than all of these, and one look says so.
        edge = low[-1] if highest <= n else np.inf
        for other in range(others.shape[1]):
            if other != rows[r] and not (highest <= n and others[r, other] >= edge):
                rank = np.searchsorted(low, others[r, other], side="right")
                if rank <= highest:
                    counts[rank] += 1
        evidence[r] = 0
        for level in range(len(limits)):
            evidence[r] += longest_list(counts, limits[level])


@njit(cache=True, nogil=True)
def rank_others(
    own: FloatArray,
    others: FloatArray,
    rows: IndexArray,
    limits: RankArray,
    highest: int,
    evidence: IntArray,
    ranks: Int32Array,
    held: Int32Array,
    start: int,
    stop: int,
) -> None:
    """As `weigh`; writes the rank of every other row in E, and how many lists hold it.

    Ranks that no list holds, and none up to `highest`, may be anything beyond.
    """
    n = own.shape[1] - 1
    highest = min(max(int(limits[:, -1].max()), highest), n)
    counts = np.empty(highest + 1, dtype=np.int64)
    for r in range(start, stop):
        low = np.sort(np.partition(own[r], highest)[: highest + 1])
        counts[:] = 0
        for other in range(others.shape[1]):
            ranks[r, other] = np.searchsorted(low, others[r, other], side="right")
            if other != rows[r] and ranks[r, other] <= highest:
                counts[ranks[r, other]] += 1
        evidence[r], held[r] = 0, 0
        for level in range(len(limits)):
            length = longest_list(counts, limits[level])
            evidence[r] += length
            for other in range(others.shape[1]):
                held[r, other] += ranks[r, other] <= limits[level, length]


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
        return choose(evidence, 0)

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


# So many triples of a detector, a new row and any row take some seconds; it is then worth a few
# milliseconds to say how many.
FORETELL = 50_000_000


@dataclass(eq=False)
class ChoiceEnsemble(Ensemble):
    """Several detectors, fitted by one plan on the same rows.

    Attributes
    ----------
    calibration : Calibration
        That of the first detector.
    names : tuple of str
        What to call the detectors.
    fitted : list of Ensemble
    n_jobs, verbose : int
    """

    calibration: Calibration
    names: tuple[str, ...]
    fitted: list[Ensemble]
    n_jobs: int | None = None
    verbose: int = 0

    @property
    def ranks_rows(self) -> str:
        """Which detector ranks a row depends on the other new rows."""
        return "batch"

    @property
    def candidates(self) -> tuple[str, ...]:
        """All of them."""
        return self.names

    def ranks(self, X: FloatArray, *, variant: str | None = None, strictly: bool = False) -> Ranks:
        """Rank new rows, each by itself, by the first detector."""
        return self.fitted[0].ranks(X, variant=variant, strictly=strictly)

    @abstractmethod
    def chosen_for(self, X: FloatArray, rows: IndexArray) -> IndexArray:
        """Choose a detector for some new rows."""

    @abstractmethod
    def augmented_by_chosen(
        self, X: FloatArray, rows: IndexArray, chosen: IndexArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows by the detectors that were chosen for some new rows."""

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by the detector that is chosen for each new row."""
        return self.augmented_by_chosen(X, rows, self.chosen_for(X, rows))

    def worlds_of_choice(
        self, X: FloatArray, rows: IndexArray, step: StepUp, choice: Choice
    ) -> Iterator[tuple[int, Exchanges]]:
        """Go through all worlds of some rows, as `worlds`, for which the choice is known."""
        return worlds_by_scores(self.augmented_by_chosen(X, rows, choice.chosen[rows]), step)


# --- full-conformal ------------------------------------------------------------------------------


class FullChoice(ChoiceEnsemble):
    """Every detector full-conformal; each row is ranked by the one that is chosen for it.

    What detectors learn before they are fitted (units, bandwidths), they learn from the pool.
    """

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank every row by the detector that finds most among the others; see `choosing`."""
        rows = np.arange(len(X)) if rows is None else rows
        pooled = self._pooled(X)
        choice = self._choice(pooled, rows)
        at_most, below = np.empty((2, len(rows)), dtype=np.int64)
        scores, clustered = np.empty(len(rows)), np.zeros(len(rows), dtype=np.bool_)
        for k, (ensemble, measured) in enumerate(pooled):
            mine = np.flatnonzero(choice.chosen == k)
            if not len(mine):
                continue
            found = ensemble.batch_ranks(measured, rows=rows[mine], strictly=strictly)
            at_most[mine] = choice.ranks[k, mine] = found.at_most
            scores[mine] = found.scores
            if found.below is not None:
                below[mine] = found.below
            if found.clustered is not None:
                clustered[mine] = found.clustered
        # Scores of different detectors have different units: those of one are shown for all rows.
        if len(np.unique(choice.chosen)) > 1:
            scores = self.fitted[0].ranks(X[rows]).scores
        return Ranks(
            at_most, below if strictly else None, scores, clustered=clustered, choice=choice
        )

    def ranks_within(
        self,
        X: FloatArray,
        groups: IndexArray,
        members: Sequence[IndexArray],
        *,
        together: bool = False,
        strictly: bool = False,
    ) -> Ranks:
        """Rank every row in its group by the detector that finds most among all other rows."""
        if not together:
            return self.fitted[0].ranks_within(X, groups, members, strictly=strictly)
        found = [WithinGroups(groups, members) for _ in self.fitted]
        chosen = self._choice(
            self._pooled(X), np.arange(len(X)), lambda k, augmented: found[k].add(augmented)
        ).chosen
        each = [one.ranks(strictly, clusters=True) for one in found]
        return chosen_ranks(self.names, chosen, each, strictly)

    def chosen_for(self, X: FloatArray, rows: IndexArray) -> IndexArray:
        """Ask all detectors."""
        return self._choice(self._pooled(X), rows).chosen

    def augmented_by_chosen(
        self, X: FloatArray, rows: IndexArray, chosen: IndexArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows by the models of the chosen detectors."""
        for k in np.unique(chosen):
            ensemble, measured = self.fitted[k].for_pool(X)
            yield from ensemble.augmented_scores(measured, rows[chosen == k])

    def worlds_of_choice(
        self, X: FloatArray, rows: IndexArray, step: StepUp, choice: Choice
    ) -> Iterator[tuple[int, Exchanges]]:
        """Go through all worlds of some rows; lists have the length that a choice for all gives.

        The detector that stands first is chosen for nearly all rows: if it knows the lists of
        every world (kNN does), rows that it ranks have these.
        """
        pooled, chosen = self._pooled(X), choice.chosen[rows]
        first, _ = pooled[stands_first([one.enough_new for one, _ in pooled], len(X))]
        exact = np.zeros(len(rows), dtype=np.bool_)
        for k, (ensemble, measured) in enumerate(pooled):
            if ensemble is first and type(ensemble).worlds is not Ensemble.worlds:
                exact = chosen == k
                yield from ensemble.worlds(measured, rows[exact], step)
        rows, chosen = rows[~exact], chosen[~exact]
        lengths = dict(zip(rows.tolist(), self._lengths(pooled, rows, step), strict=True))
        for augmented in self.augmented_by_chosen(X, rows, chosen):
            for j, own in zip(augmented.rows.tolist(), augmented.own, strict=True):
                yield j, exchanges_at(own, lengths[j], step)

    def _lengths(
        self, pooled: list[tuple[Ensemble, FloatArray]], rows: IndexArray, step: StepUp
    ) -> Iterator[int]:
        """How long the list is that finds a row, if every other row is ranked as in that world.

        A row that is ranked by itself leaves the lists that hold it. So the evidence for it is
        that of world j with the row at j found, and less by the lists that hold the row; the
        detector that is chosen so ranks it.
        """
        m = len(pooled[0][1])
        limits = limits_for(len(self.calibration), m)
        first = stands_first([one.enough_new for one, _ in pooled], m)
        for block in blocks_of(rows, len(pooled) * m):
            ranks, held = np.empty((2, len(pooled), len(block), m), dtype=np.int32)
            evidence = np.empty((len(pooled), len(block)), dtype=np.int64)
            for k, (ensemble, measured) in enumerate(pooled):
                done = 0
                for augmented in ensemble.augmented_scores(measured, block):
                    at = slice(done, done := done + len(augmented.rows))
                    given = augmented.own, augmented.others, augmented.rows, limits, step.highest
                    out = evidence[k, at], ranks[k, at], held[k, at]
                    kernel = partial(rank_others, *given, *out)
                    run_blocks(kernel, len(augmented.rows), n_jobs=self.n_jobs)
            for r, j in enumerate(block):
                chosen = choose(evidence[:, r, None] + len(LEVELS) - held[:, r], first)
                yield step.count(np.delete(ranks[chosen, r, np.arange(m)], j))

    def _pooled(self, X: FloatArray) -> list[tuple[Ensemble, FloatArray]]:
        """Every detector, and the batch as it sees it."""
        return [one.for_pool(X) for one in self.fitted]

    def _choice(
        self,
        pooled: list[tuple[Ensemble, FloatArray]],
        rows: IndexArray,
        look: Callable[[int, AugmentedScores], None] | None = None,
    ) -> Choice:
        """Ask all detectors; `look` is shown what each of them sees."""
        n, m = len(self.calibration), len(pooled[0][1])
        limits = limits_for(n, m)
        evidence, ranks = np.empty((2, len(pooled), len(rows)), dtype=np.int64)
        place = np.empty(m, dtype=np.intp)
        place[rows] = np.arange(len(rows))

        def ask(k: int, some: IndexArray) -> None:
            ensemble, measured = pooled[k]
            for augmented in ensemble.augmented_scores(measured, some):
                at = place[augmented.rows]
                evidence[k, at], ranks[k, at] = _weighed(augmented, limits, self.n_jobs)
                if look is not None:
                    look(k, augmented)

        pairs = len(rows) * (n + m) * len(pooled)
        long = pairs > FORETELL and len(rows) >= 10
        left = self._foretold(ask, rows, m) if long and forecast.is_asked() else rows
        # Compiled code lets another thread run; refits of other detectors share their processes.
        compiled = [k for k, (one, _) in enumerate(pooled) if not isinstance(one, FullRefit)]
        others = [k for k in range(len(pooled)) if k not in compiled]
        calls = ((k, left) for k in compiled)
        steps = chain(
            run_threads(ask, calls, total=len(compiled), n_jobs=self.n_jobs),
            run_threads(ask, ((k, left) for k in others), total=len(others), n_jobs=1),
        )
        total, label = len(pooled), "asking detectors"
        for _ in track(steps, total=total, label=label, verbose=self.verbose, least=total):
            pass
        first = stands_first([one.enough_new for one, _ in pooled], m)
        return Choice(self.names, choose(evidence, first), ranks)

    def _foretold(
        self, ask: Callable[[int, IndexArray], None], rows: IndexArray, m: int
    ) -> IndexArray:
        """Ask all detectors about a few rows, say how long the others will take, return these.

        A detector takes some time to start and then so much per row. The first question lets it
        prepare; the next two, about a few rows and about three times as many, tell these apart.
        """
        few = -(-len(rows) // 200)
        seconds = 0.0
        for k in range(len(self.fitted)):
            ask(k, rows[:few])
            times = [forecast.clock()]
            for some in (rows[few : 2 * few], rows[2 * few : 5 * few]):
                ask(k, some)
                times.append(forecast.clock())
            short, long = times[1] - times[0], times[2] - times[1]
            seconds += short + max(0.0, long - short) / (2 * few) * len(rows)
        what = f"{len(self.fitted)} detectors on {len(self.calibration):,} and {m:,} rows"
        forecast.foretell(seconds, what)
        return rows[5 * few :]


def chosen_ranks(
    names: tuple[str, ...], chosen: IndexArray, each: Sequence[Ranks], strictly: bool
) -> Ranks:
    """Take the ranks of every row from the detector that was chosen for it."""
    every = np.arange(len(chosen))
    at_most = np.array([ranks.at_most for ranks in each])
    # Scores of different detectors have different units: those of one are shown for all rows.
    one = chosen[0] if len(np.unique(chosen)) == 1 else 0
    below = np.array([ranks.below for ranks in each]) if strictly else None
    clustered = [np.zeros(len(chosen), bool) if r.clustered is None else r.clustered for r in each]
    return Ranks(
        at_most[chosen, every],
        None if below is None else below[chosen, every],
        each[one].scores,
        clustered=np.array(clustered)[chosen, every],
        choice=Choice(names, chosen, at_most),
    )


def _weighed(
    augmented: AugmentedScores, limits: RankArray, n_jobs: int | None
) -> tuple[IntArray, RankArray]:
    evidence, ranks = np.empty((2, len(augmented.rows)), dtype=np.int64)

    def kernel(start: int, stop: int) -> None:
        weigh(augmented.own, augmented.others, augmented.rows, limits, start, stop, evidence, ranks)

    run_blocks(kernel, len(augmented.rows), n_jobs=n_jobs)
    return evidence, ranks


# --- one model each, on a part of the rows -------------------------------------------------------


class SplitChoice(ChoiceEnsemble):
    """One model of every detector, calibrated on the same rows; scores are all that is needed."""

    @property
    def models(self) -> list[ResampledEnsemble]:
        """The detectors, as what scores."""
        return [model for model in self.fitted if isinstance(model, ResampledEnsemble)]

    def scores(self, X: FloatArray) -> FloatArray:
        """Scores of rows by every detector: (detectors, m)."""
        return np.array([model.full_scores(X) for model in self.models])

    @property
    def ranks_rows(self) -> str:
        """By the scores of all new rows, which may come in parts."""
        return "pool"

    @property
    def takes_notes(self) -> bool:
        """Scores are all that it needs of rows."""
        return True

    def notes(self, X: FloatArray) -> FloatArray:
        """Scores of rows by every detector."""
        return self.scores(X)

    def survey(self) -> ChoiceSurvey:
        """Begin to count scores."""
        references = tuple(model.calibration.sorted_scores for model in self.models)
        return ChoiceSurvey(self.names, references)

    def ranks_within(
        self,
        X: FloatArray,
        groups: IndexArray,
        members: Sequence[IndexArray],
        *,
        together: bool = False,
        strictly: bool = False,
    ) -> Ranks:
        """Rank every row in its group by the detector that finds most among all other rows."""
        if not together:
            return self.fitted[0].ranks_within(X, groups, members, strictly=strictly)
        chosen = self.chosen_for(X, np.arange(len(X)))
        each = [model.ranks_within(X, groups, members, strictly=strictly) for model in self.models]
        return chosen_ranks(self.names, chosen, each, strictly)

    def chosen_for(self, X: FloatArray, rows: IndexArray) -> IndexArray:
        """Choose by the scores of the whole batch."""
        choice = self.batch_ranks(X, rows=rows).choice
        assert choice is not None
        return choice.chosen

    def augmented_by_chosen(
        self, X: FloatArray, rows: IndexArray, chosen: IndexArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows by the chosen detectors: no model changes."""
        scores = self.scores(X)
        for k, model in enumerate(self.models):
            for block in blocks_of(rows[chosen == k], len(self.calibration) + len(X)):
                shape = (len(block), 1)
                own = np.hstack([np.tile(model.calibration.scores, shape), scores[k, block, None]])
                yield AugmentedScores(block, own, np.tile(scores[k], shape))
