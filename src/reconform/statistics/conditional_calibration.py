"""Conditional calibration: from exact ranks to a list whose false discovery rate is a theorem.

World w exchanges the new row x_j with row w of E_j, the reference and x_j together. If j is
normal, all n + 1 worlds are equally likely given E_j and the other new rows. In every world
Benjamini-Hochberg is run at a level a that is fixed beforehand, and

    e_j = b_j(actual) / mean of b_j over all worlds,   b_j(w) = 1{row at j is found} / list length

is an e-value. Worlds are not enumerated. Benjamini-Hochberg finds the row at place j iff its rank
is at most a K (n + 1) / m, K the length of the list if that row had rank 0, and then the list has
K rows. So a world is two integers, the rank of w and K, and an e-value is a few counts.

Nothing here knows of detectors: an ensemble says what the worlds of a row are (`Ensemble.worlds`),
and `certify` makes the list. The proof is in docs/guarantees. Scores: small = anomalous.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..arrays import BoolArray, FloatArray, IntArray, RankArray
from ..compiled import njit
from .evalues import closed_e_bh
from .exact import exact_fraction, usual
from .fdr import Outcome, RankCounts
from .joint import JointGrid, JointStepUp
from .ranks import RankedBatch

# Lists are a little shorter in worlds whose reference holds x_j; this much slack pays for it.
SLACK = Fraction(19, 20)


def inner_level(fdr: float | Fraction, m: int) -> Fraction:
    """The level of Benjamini-Hochberg in every world: fixed by the level of the list and m alone.

    Examples
    --------
    >>> inner_level(0.1, 600)
    Fraction(19, 200)
    """
    level = exact_fraction("fdr", fdr)
    return level if m == 1 else level * SLACK


# --- one new row, all its worlds -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StepUp:
    """Benjamini-Hochberg at a level fixed beforehand, in ranks.

    Attributes
    ----------
    limits : int array of shape (m + 1,)
        A list of k rows holds ranks up to ``limits[k]``, the whole part of a k (n + 1) / m.
    rows : int
        n + 1.
    """

    limits: RankArray
    rows: int

    @classmethod
    def at(cls, level: float | Fraction, n: int, m: int) -> StepUp:
        """Lay the line for n reference rows and m new rows.

        Parameters
        ----------
        level : float or Fraction
            a; a float is read as the decimal number it prints as.
        n, m : int

        Returns
        -------
        StepUp

        Examples
        --------
        >>> StepUp.at(0.1, 99, 4).limits
        array([ 0,  2,  5,  7, 10])
        """
        top, bottom = (exact_fraction("level", level) * (n + 1) / max(m, 1)).as_integer_ratio()
        limits = np.array([k * top // bottom for k in range(m + 1)], dtype=np.int64)
        return cls(limits, n + 1)

    @property
    def highest(self) -> int:
        """No row of a larger rank is ever found."""
        return int(self.limits[-1])

    def count(self, ranks: RankArray) -> int:
        """Count what the procedure finds among rows of these ranks and one more, of rank 0.

        Examples
        --------
        >>> StepUp.at(0.1, 99, 4).count(np.array([1, 8, 80]))
        2
        """
        upto = 1 + np.searchsorted(np.sort(ranks), self.limits[1:], side="right")
        return int(np.flatnonzero(upto >= np.arange(1, len(self.limits)))[-1]) + 1


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


@dataclass(frozen=True)
class Exchanges:
    """What all worlds of one new row come to.

    Attributes
    ----------
    rank : int
        That of the new row among E_j.
    count : int
        Length of the list in the actual world, if it finds the row; else 0.
    lists : tuple of (int, int)
        (K, how many worlds find the row at place j in a list of length K).
    rows : int
        All worlds, n + 1.
    """

    rank: int
    count: int
    lists: tuple[tuple[int, int], ...]
    rows: int

    @property
    def e_value(self) -> Fraction:
        """b(actual) / mean of b over all worlds."""
        if not self.count:
            return Fraction(0)
        total = sum((Fraction(worlds, length) for length, worlds in self.lists), Fraction(0))
        return self.rows / (self.count * total)


def count_exchanges(reference: FloatArray, others: FloatArray, step: StepUp) -> Exchanges:
    """Count all worlds of a new row where one model, fitted on E_j, scores everything.

    In every world that finds the row at place j the list has the same length, and w is found iff
    its rank is within the limit of that length (docs/guarantees): no world is looked at.

    Parameters
    ----------
    reference : float array of shape (n + 1,)
        Scores of the rows of E_j, all treated alike; x_j comes last.
    others : float array of shape (m - 1,)
        Scores of the other new rows, in any way that does not depend on which row of E_j is the
        new one.
    step : StepUp

    Returns
    -------
    Exchanges

    Examples
    --------
    >>> reference = np.array([0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.1])
    >>> worlds = count_exchanges(reference, np.array([0.2, 0.35, 0.9]), StepUp.at(0.4, 7, 4))
    >>> worlds
    Exchanges(rank=1, count=3, lists=((3, 2),), rows=8)
    >>> worlds.e_value
    Fraction(4, 1)
    """
    ranks = np.searchsorted(np.sort(reference), others, side="right")
    return exchanges_at(reference, step.count(ranks), step)


def exchanges_at(reference: FloatArray, length: int, step: StepUp) -> Exchanges:
    """Count all worlds of a new row where every list that finds it has so many rows.

    The length may be any function of E_j, as one set, and of the other new rows.
    """
    ordered = np.sort(reference)
    limit = int(step.limits[length])
    # Ranks up to the limit belong to the scores below the next one: ties go together.
    found = int(np.searchsorted(ordered, ordered[limit])) if limit < step.rows else step.rows
    rank = int(np.searchsorted(ordered, reference[-1], side="right"))
    lists = ((length, found),) if found else ()
    return Exchanges(rank, length if rank <= limit else 0, lists, step.rows)


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
        With `worlds`.
    level : Fraction

    Returns
    -------
    Outcome
        With e-values, and the plain list at the same level beside it. The q-values are those of
        plain Benjamini-Hochberg, hence nominal: e-values depend on the level, lists at two levels
        are two procedures, and the union of such lists has no bound.
    """
    assert batch.worlds is not None
    ranks, n = batch.ranks.at_most, batch.n_calibration
    inner = inner_level(level, len(ranks))
    step: StepUp | JointStepUp
    if batch.joint is None:
        grid = usual(n)
        step = StepUp.at(inner, n, len(ranks))
        # All others have an e-value of 0, or are given it, which is always allowed.
        candidates = np.flatnonzero(ranks <= step.highest)
    else:
        grid = JointGrid.of([usual(size) for size in batch.joint.sizes.tolist()])
        step = JointStepUp(inner, batch.joint.sizes, len(ranks))
        groups, within = batch.joint.apart(ranks)
        candidates = np.flatnonzero(step.needed(groups, within) <= len(ranks))
    e_values = [Fraction(0)] * len(ranks)
    for row, worlds in batch.worlds(candidates, step):
        e_values[row] = worlds.e_value
    counts = RankCounts(n, batch.calibration.fingerprint).add(ranks)
    plain = counts.decide(fdr=level, grid=grid)
    return Outcome(
        mask=closed_e_bh(e_values, level),
        q_values=plain.q_values(ranks),
        e_values=np.array([float(value) for value in e_values]),
        plain=plain.mask(ranks),
    )
