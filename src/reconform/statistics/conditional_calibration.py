"""Conditional calibration: from exact ranks to a list whose false discovery rate is a theorem.

World w exchanges the new row x_j with row w of E_j, the reference and x_j together. If j is
normal, all n + 1 worlds are equally likely given E_j and the other new rows. In every world
Benjamini-Hochberg is run with limits on ranks that are fixed beforehand, and

    e_j = b_j(actual) / mean of b_j over all worlds,   b_j(w) = 1{row at j is found}

is an e-value. Worlds are not enumerated: Benjamini-Hochberg finds the row at place j iff its rank
is within the limit of a list of K rows, K its length if that row had rank 0, so an e-value is a
count.

Nothing here knows of detectors: an ensemble gives the e-value of a row (`Ensemble.e_values`), and
`certify` makes the list. The proof is in docs/guarantees. Scores: small = anomalous.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import BoolArray, FloatArray, IntArray, RankArray
from ..compiled import njit
from .evalues import closed_e_bh
from .exact import exact_fraction, rows_counted, usual
from .fdr import Outcome, RankCounts
from .joint import JointGrid, JointStepUp
from .ranks import RankedBatch

# Limits up to this one are averaged where lists differ in length from row to row.
GRADED = 6

# --- one new row ---------------------------------------------------------------------------------


def step_up_limits(
    level: float | Fraction, n: int, m: int, counted: Callable[[int], Fraction] = Fraction
) -> RankArray:
    """The largest ranks that lists of 0, 1, ..., m rows hold: the whole parts of a k (n + 1) / m.

    With `counted`, what that says of k stands for k.

    Examples
    --------
    >>> step_up_limits(0.1, 99, 4)
    array([ 0,  2,  5,  7, 10])
    """
    step = exact_fraction("level", level) * (n + 1) / max(m, 1)
    return np.array([int(counted(k) * step) for k in range(m + 1)], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class StepUp:
    """Benjamini-Hochberg as it is run in every world, in ranks.

    Attributes
    ----------
    limits : int array of shape (m + 1,)
        A list of k rows holds ranks up to ``limits[k]``, nondecreasing, fixed by n, m and the
        level alone.
    rows : int
        n + 1.
    graded : bool
        Whether e-values are graded, see `graded_e_value`.
    """

    limits: RankArray
    rows: int
    graded: bool = False

    @classmethod
    def at(cls, level: float | Fraction, n: int, m: int) -> StepUp:
        """Lay the line for n reference rows and m new rows.

        At the level itself where lists are short, a little below where they are not.

        Examples
        --------
        >>> StepUp.at(0.1, 99, 40).limits[[4, 8, 9]]
        array([1, 1, 2])
        """
        return cls(step_up_limits(level, n, m, rows_counted), n + 1)

    def count(self, ranks: RankArray) -> int:
        """Count what the procedure finds among rows of these ranks and one more, of rank 0.

        Examples
        --------
        >>> StepUp.at(0.1, 99, 4).count(np.array([1, 8, 80]))
        2
        """
        upto = 1 + np.searchsorted(np.sort(ranks), self.limits[1:], side="right")
        return int(np.flatnonzero(upto >= np.arange(1, len(self.limits)))[-1]) + 1

    def e_value(self, own: FloatArray, length: int) -> Fraction:
        """e_j of a list of so many rows, by the scores of E_j; see the functions of this name."""
        limit = int(self.limits[length])
        return graded_e_value(own, limit) if self.graded else e_value(own, limit)


@njit(cache=True, nogil=True)
def longest_list(counts: IntArray, limits: RankArray) -> int:
    """`StepUp.count` of ranks that were counted, for compiled code.

    Parameters
    ----------
    counts : int array
        How many rows have rank 0, 1, ...; ranks that no list holds may be left out.
    limits : int array of shape (m + 1,)
        As in `StepUp`.

    Examples
    --------
    >>> int(longest_list(np.bincount([1, 8]), StepUp.at(0.1, 99, 4).limits))
    2
    """
    length, upto, rank = 0, 1, -1
    for k in range(1, len(limits)):
        while rank < limits[k] and rank < len(counts) - 1:
            rank += 1
            upto += counts[rank]
        if upto >= k:
            length = k
    return length


def e_value(own: FloatArray, limit: int) -> Fraction:
    """e_j, where the worlds that find the row at place j are those of rank at most `limit`.

    Parameters
    ----------
    own : float array of shape (n + 1,)
        Scores of the rows of E_j, all treated alike; x_j comes last.
    limit : int
        That of a list whose length is a function of E_j, as one set, and the other new rows.
    """
    ordered = np.sort(own)
    if np.searchsorted(ordered, own[-1], side="right") > limit:
        return Fraction(0)
    # Ranks up to the limit belong to the scores below the next one: ties go together.
    found = np.searchsorted(ordered, ordered[limit]) if limit < len(own) else len(own)
    return Fraction(len(own), int(found))


def graded_e_value(own: FloatArray, limit: int) -> Fraction:
    """e_j as an average over limits up to this one, for lists whose length differs by row.

    A row of rank 1 then has a little more than its list needs, and can do with a shorter list. The
    average gives a limit l the weight l^3; from `GRADED` on, limits are close to each other, and
    the last one counts alone.

    Examples
    --------
    >>> own = np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.1])
    >>> e_value(own, 2), graded_e_value(own, 2)
    (Fraction(4, 1), Fraction(40, 9))
    """
    if limit > GRADED:
        return e_value(own, limit)
    total = Fraction(0)
    for less in range(1, limit + 1):
        total += less**3 * e_value(own, less)
    return 4 * total / max(1, limit * (limit + 1)) ** 2


def e_value_of_one_model(own: FloatArray, others: FloatArray, step: StepUp) -> Fraction:
    """e_j where one model, fitted on E_j, scores everything.

    In every world that finds the row at place j the list has the same length, and w is found iff
    its rank is within the limit of that length (docs/guarantees): no world is looked at.

    Parameters
    ----------
    own : float array of shape (n + 1,)
        As in `e_value`.
    others : float array of shape (m - 1,)
        Scores of the other new rows, in any way that does not depend on which row of E_j is the
        new one.
    step : StepUp

    Examples
    --------
    >>> own = np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.1])
    >>> e_value_of_one_model(own, np.array([0.2, 0.35, 0.9]), StepUp.at(0.4, 7, 4))
    Fraction(4, 1)
    """
    ranks = np.searchsorted(np.sort(own), others, side="right")
    return step.e_value(own, step.count(ranks))


# --- the list ------------------------------------------------------------------------------------


def cost_sentence(certified: BoolArray, plain: BoolArray) -> str:
    """Say what the certificate cost against the plain list at the same level.

    Examples
    --------
    >>> cost_sentence(np.array([True, False, True]), np.array([True, True, False]))
    'Certified 1 of the 2 rows that Benjamini-Hochberg finds, and 1 more.'
    """
    more = int((certified & ~plain).sum())
    return (
        f"Certified {int((certified & plain).sum()):,} of the {int(plain.sum()):,} rows that "
        f"Benjamini-Hochberg finds{f', and {more:,} more' if more else ''}."
    )


def certify(batch: RankedBatch, level: Fraction) -> Outcome:
    """Certify a list: the false discovery rate is at most `level`, by conditional calibration.

    Parameters
    ----------
    batch : RankedBatch
        With `e_values`.
    level : Fraction

    Returns
    -------
    Outcome
        With e-values, and the plain list at the same level beside it. The q-values are those of
        plain Benjamini-Hochberg, hence nominal: e-values depend on the level, lists at two levels
        are two procedures, and the union of such lists has no bound.
    """
    assert batch.e_values is not None
    ranks, n = batch.ranks.at_most, batch.n_calibration
    step: StepUp | JointStepUp
    if batch.joint is None:
        grid = usual(n)
        step = StepUp.at(level, n, len(ranks))
        # All others have an e-value of 0, or are given it, which is always allowed.
        candidates = np.flatnonzero(ranks <= step.limits[-1])
    else:
        grid = JointGrid.of([usual(size) for size in batch.joint.sizes.tolist()])
        step = JointStepUp(level, batch.joint.sizes, len(ranks))
        groups, within = batch.joint.apart(ranks)
        candidates = np.flatnonzero(step.needed(groups, within) <= len(ranks))
    e_values = [Fraction(0)] * len(ranks)
    for row, found in batch.e_values(candidates, step):
        e_values[row] = found
    counts = RankCounts(n, batch.calibration.fingerprint).add(ranks)
    plain = counts.decide(fdr=level, grid=grid)
    return Outcome(
        mask=closed_e_bh(e_values, level),
        q_values=plain.q_values(ranks),
        e_values=np.array([float(value) for value in e_values]),
        plain=plain.mask(ranks),
    )
