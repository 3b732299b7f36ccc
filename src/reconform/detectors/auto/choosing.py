"""The rule by which a detector is chosen for a new row.

For new row j let E be the reference and x_j as one set. Every detector ranks the *other* new rows
among E, and its evidence is how many of them Benjamini-Hochberg would then find, added up over a
few levels. A detector stands first, by the numbers of rows alone; another one is chosen where its
evidence is larger by more than chance explains. The choice does not know which row of E is new, so
the p-value of x_j is as exact as without a choice (docs/guarantees). The levels are fixed: p-values
do not depend on the level of the list, and q-values mean what they say.

`weigh`, which is compiled, counts the evidence for some new rows.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from ...arrays import FloatArray, IndexArray, IntArray, RankArray
from ...compiled import njit
from ...statistics.conditional_calibration import StepUp, longest_list

LEVELS = (Fraction(1, 20), Fraction(1, 10), Fraction(3, 20), Fraction(1, 5))

# With fewer new rows than this there are seldom enough anomalies for a row to have several among
# its nearest new rows, and a detector that compares new rows with each other does not stand first.
ENOUGH_NEW = 300

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


def stands_first(uses_batch: list[bool], m: int) -> int:
    """Say which of several detectors is used where nothing speaks for another one.

    Parameters
    ----------
    uses_batch : list of bool
        Which of them compare new rows with each other.
    m : int
        New rows.

    Examples
    --------
    >>> stands_first([False, False, True], 100), stands_first([False, False, True], 1000)
    (0, 2)
    """
    return uses_batch.index(True) if m >= ENOUGH_NEW and any(uses_batch) else 0


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
        As in `reconform.ensemble.Sight`.
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
