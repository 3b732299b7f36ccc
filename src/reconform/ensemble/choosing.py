"""Several detectors at once: each is fitted as it would be alone, and a row is ranked by one.

For new row j let E be the reference and x_j as one set. Every detector ranks the *other* new rows
among E, and its evidence is how many of them Benjamini-Hochberg would then find, added up over a
few levels. A detector stands first, by the numbers of rows alone; another one is chosen where its
evidence is larger by more than chance explains. The choice does not know which row of E is new, so
the p-value of x_j is as exact as without a choice (docs/guarantees). The levels are fixed: p-values
do not depend on the level of the list, and q-values mean what they say.

`weigh`, which is compiled, counts the evidence for some new rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain

import numpy as np

from ..arrays import FloatArray, IndexArray, IntArray, RankArray
from ..compiled import njit
from ..parallel import run_blocks, run_threads, track
from ..statistics.conditional_calibration import StepUp, longest_list, step_up_limits
from ..statistics.ranks import Calibration, Choice, Ranks
from . import (
    AugmentedScores,
    Ensemble,
    RanksWithin,
    Within,
    e_values_by_scores,
)
from .refitting import FullRefit

LEVELS = (Fraction(1, 20), Fraction(1, 10), Fraction(3, 20), Fraction(1, 5))

# Another detector must find more than the first, by more than 5/4 of the square root of what that
# finds plus FEW: six rows at least, which a few anomalies do not bring about by chance.
MARGIN, FEW = 5, 16

# Certified lists of several detectors count as one row less for every 16, two at most, where they
# have more rows than these.
UNCHANGED = 8


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
    return np.array([step_up_limits(level, n, m) for level in LEVELS])


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


def lowest_scores(own: FloatArray, highest: int) -> FloatArray:
    """The lowest scores of every world in order, up to the one of place `highest` where there is.

    By NumPy: in compiled code, selecting and sorting took a sixth of all time to compile.

    Examples
    --------
    >>> lowest_scores(np.array([[3.0, 1.0, 2.0]]), 1), lowest_scores(np.array([[3.0, 1.0]]), 9)
    (array([[1., 2.]]), array([[1., 3.]]))
    """
    if highest + 1 < own.shape[1]:
        own = np.partition(own, highest, axis=1)[:, : highest + 1]
    return np.sort(own, axis=1)


@njit(cache=True, nogil=True)
def _at_most(low: FloatArray, score: float) -> int:
    """How many of some sorted numbers are at most so large."""
    begin, end = 0, len(low)
    while begin < end:
        middle = (begin + end) // 2
        if low[middle] <= score:
            begin = middle + 1
        else:
            end = middle
    return begin


@njit(cache=True, nogil=True)
def weigh(
    own: FloatArray,
    low: FloatArray,
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
    low : float array of shape (stop - start, ...)
        `lowest_scores` of these new rows alone, up to the highest of all limits.
    limits : int array of shape (levels, m + 1)
    start, stop : int
        Which of the rows.
    evidence, ranks : int arrays of shape (b,)
        Written: the lengths of the lists, added up over the levels, and the rank of x_j in E.
    """
    n, most = own.shape[1] - 1, low.shape[1]
    counts = np.empty(most + 1, dtype=np.int64)
    for r in range(start, stop):
        mine = own[r, n]
        rank_of_mine = 0
        for i in range(n + 1):
            rank_of_mine += own[r, i] <= mine
        ranks[r] = rank_of_mine
        counts[:] = 0
        lowest = low[r - start]
        # Most rows score higher than all of these, and one look says so.
        for other in range(others.shape[1]):
            score = others[r, other]
            if other != rows[r] and (score < lowest[-1] or most > n):
                counts[_at_most(lowest, score)] += 1
        evidence[r] = 0
        for level in range(len(limits)):
            evidence[r] += longest_list(counts, limits[level])


@dataclass(eq=False)
class FullChoice(Ensemble):
    """Several detectors, each full-conformal; every row is ranked by the one chosen for it.

    What detectors learn before they are fitted (units, bandwidths), they learn from the pool.

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

    def batch_ranks(
        self, X: FloatArray, *, rows: IndexArray | None = None, strictly: bool = False
    ) -> Ranks:
        """Rank every row by the detector that finds most among the others; see `choosing`."""
        rows = np.arange(len(X)) if rows is None else rows
        pooled = self._pooled(X)
        choice = self._choice(pooled, rows)
        at_most, below = np.empty((2, len(rows)), dtype=np.int64)
        scores, clustered = np.empty(len(rows)), np.zeros(len(rows), dtype=np.bool_)
        learned = False
        for k, (ensemble, measured) in enumerate(pooled):
            mine = np.flatnonzero(choice.chosen == k)
            if not len(mine):
                continue
            found = ensemble.batch_ranks(measured, rows=rows[mine], strictly=strictly)
            at_most[mine] = choice.ranks[k, mine] = found.at_most
            scores[mine], learned = found.scores, learned or found.learned
            if found.below is not None:
                below[mine] = found.below
            if found.clustered is not None:
                clustered[mine] = found.clustered
        # Scores of different detectors have different units: those of one are shown for all rows.
        if len(np.unique(choice.chosen)) > 1:
            scores = self.fitted[0].ranks(X[rows]).scores
        return Ranks(
            at_most,
            below if strictly else None,
            scores,
            clustered=clustered,
            choice=choice,
            learned=learned,
        )

    def ranks_within(self, X: FloatArray, within: Within) -> Ranks:
        """Rank every row in its group by the detector that finds most among all other rows."""
        if not within.together:
            return self.fitted[0].ranks_within(X, within)
        found = [RanksWithin(within) for _ in self.fitted]
        chosen = self._choice(
            self._pooled(X), np.arange(len(X)), lambda k, augmented: found[k].add(augmented)
        ).chosen
        each = [one.ranks(clusters=True) for one in found]
        return chosen_ranks(self.names, chosen, each, within.strictly)

    def augmented_scores(self, X: FloatArray, rows: IndexArray) -> Iterator[AugmentedScores]:
        """Score all rows by the detector that is chosen for each new row."""
        return self.augmented_by_chosen(X, rows, self._choice(self._pooled(X), rows).chosen)

    def augmented_by_chosen(
        self, X: FloatArray, rows: IndexArray, chosen: IndexArray
    ) -> Iterator[AugmentedScores]:
        """Score all rows by the models of the chosen detectors."""
        for k in np.unique(chosen):
            ensemble, measured = self.fitted[k].for_pool(X)
            yield from ensemble.augmented_scores(measured, rows[chosen == k])

    def e_values_of_choice(
        self, X: FloatArray, rows: IndexArray, step: StepUp, choice: Choice
    ) -> Iterator[tuple[int, Fraction]]:
        """Find the e-values of some rows, each by the detector that is chosen for it.

        The detector that stands first is chosen for nearly all rows: if it can be fitted anew,
        rows that it ranks have the lists that it makes then. Lists of several detectors are less
        alike from row to row: these are made a little shorter, and their e-values graded, so that
        rows agree on one.
        """
        pooled, chosen = self._pooled(X), choice.chosen[rows]
        first, _ = pooled[stands_first([one.enough_new for one, _ in pooled], len(X))]
        exact = np.zeros(len(rows), dtype=np.bool_)
        for k, (ensemble, measured) in enumerate(pooled):
            if ensemble is first and ensemble.fitted_on is not None:
                exact = chosen == k
                yield from ensemble.e_values(measured, rows[exact], replace(step, graded=True))
        length = np.arange(len(step.limits))
        fewer = length - np.minimum(-(-length // 16), 2)
        less = np.maximum(np.minimum(length, UNCHANGED), fewer)
        others = self.augmented_by_chosen(X, rows[~exact], chosen[~exact])
        yield from e_values_by_scores(others, StepUp(step.limits[less], step.rows, graded=True))

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

        # Compiled code lets another thread run; refits of other detectors share their processes.
        compiled = [k for k, (one, _) in enumerate(pooled) if not isinstance(one, FullRefit)]
        others = [k for k in range(len(pooled)) if k not in compiled]
        calls = ((k, rows) for k in compiled)
        steps = chain(
            run_threads(ask, calls, total=len(compiled), n_jobs=self.n_jobs),
            run_threads(ask, ((k, rows) for k in others), total=len(others), n_jobs=1),
        )
        total, label = len(pooled), "asking detectors"
        for _ in track(steps, total=total, label=label, verbose=self.verbose):
            pass
        first = stands_first([one.enough_new for one, _ in pooled], m)
        return Choice(self.names, choose(evidence, first), ranks)


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

    highest = int(limits[:, -1].max())

    def kernel(start: int, stop: int) -> None:
        own, others = augmented.own, augmented.others
        low = lowest_scores(own[start:stop], highest)
        weigh(own, low, others, augmented.rows, limits, start, stop, evidence, ranks)

    run_blocks(kernel, len(augmented.rows), n_jobs=n_jobs)
    return evidence, ranks
