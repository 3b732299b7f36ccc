"""The rows that a list puts first, flagged or not: how many of them may be false.

Who can look at twenty rows wants the best twenty. No false discovery rate is promised for them: the
number was chosen beforehand, and not the level. But something can be said (docs/guarantees).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ..arrays import IndexArray
from .bounds import false_discovery_table
from .fdr import RankCounts

CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class FirstRows:
    """What is known of the rows that come first.

    Attributes
    ----------
    rows : int
        How many they are; fewer than asked for where there are no more.
    flagged : int
        Those of them that are flagged.
    estimate : float or None
        How many of them are normal, at most and on average: so many rows as unusual as the last of
        them there would be if all were normal. None where the assumption looks broken.
    bound : int or None
        With `confidence`, at most so many are normal, for every number of rows at once; None where
        there is no such bound, or none below `rows`.
    confidence : float
    sentence : str
        All of it in words, and what is not promised.
    positions : int array or None
        The rows, where they are in memory.
    """

    rows: int
    flagged: int
    estimate: float | None
    bound: int | None
    confidence: float
    sentence: str
    positions: IndexArray | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.sentence


def bound_on_first(counts: RankCounts, last: int, below: int, rows: int) -> int | None:
    """Bound the number of normal rows among those that come first, after one split.

    Parameters
    ----------
    counts : RankCounts
        Of all new rows.
    last : int
        The largest rank among the first rows.
    below : int
        How many of them have a smaller rank.
    rows : int
        How many they are.

    Returns
    -------
    int or None
        None if it would not be below `rows`.

    Examples
    --------
    50 of 500 rows are more unusual than all 1,000 calibration rows; which 20 come first does not
    matter for what is known of them:

    >>> counts = RankCounts(1000, "").add([1] * 50 + [1001] * 450)
    >>> bound_on_first(counts, last=1, below=0, rows=20)
    5
    """
    table = false_discovery_table(counts.counts, CONFIDENCE)
    # Those of the last rank may all be normal; those before it are a list of their own.
    bound = min(int(table[last]), int(table[last - 1]) + rows - below)
    return bound if bound < rows else None


@dataclass(frozen=True)
class WholeList:
    """What is known of all rows of the list, for `describe_first`.

    Attributes
    ----------
    tested : int
        All rows.
    method : str
        For the sentence.
    promised : str
        What the guarantee of the list is about: "false discovery rate".
    bounded : bool
        Whether there can be a bound with this method.
    broken : bool
        Whether the assumption looks broken.
    """

    tested: int
    method: str
    promised: str
    bounded: bool
    broken: bool


def describe_first(
    rows: int,
    flagged: int,
    largest_p: float,
    of: WholeList,
    *,
    bound: int | None = None,
    positions: IndexArray | None = None,
) -> FirstRows:
    """Put together what is known of the rows that come first.

    Parameters
    ----------
    rows, flagged : int
        Rows that come first, and those of them that are flagged.
    largest_p : float
        The largest p-value among them.
    of : WholeList
    bound : int or None
        From `bound_on_first`.
    positions : int array, optional

    Returns
    -------
    FirstRows

    Examples
    --------
    >>> whole = WholeList(300, "full", "false discovery rate", bounded=False, broken=False)
    >>> print(describe_first(20, 5, 0.01, whole))
    The 20 rows that come first, by p-value and then by score; 5 of them are flagged. About 3 of
    them are false, by estimate: so many of 300 normal rows would be as unusual. There is no bound
    with confidence for full. What is said of the false discovery rate is about the flagged rows,
    not about these 20.
    """
    which = "The row that comes first" if rows == 1 else f"The {rows:,} rows that come first"
    those = {0: "none of them is flagged", 1: "1 of them is flagged"}.get(
        flagged, f"{flagged:,} of them are flagged"
    )
    if rows == 1:
        those = "it is flagged" if flagged else "it is not flagged"
    head = f"{which}, by p-value and then by score; {those}."
    if of.broken:
        said = (
            f"{head} No estimate and no bound of the false ones among them: the assumption that "
            "these need looks broken."
            if rows > 1
            else f"{head} No estimate of whether it is false: the assumption that this needs looks "
            "broken."
        )
        return FirstRows(rows, flagged, None, None, CONFIDENCE, said, positions)
    estimate = min(float(rows), of.tested * largest_p)
    parts = [head, _estimated(rows, estimate, of)]
    if not of.bounded:
        parts.append(f"There is no bound with confidence for {of.method}.")
    elif bound is None:
        parts.append(f"With {CONFIDENCE:.0%} confidence there is no bound below {rows:,}.")
    else:
        false = "it is not false" if rows == 1 else f"at most {bound:,} of them are false"
        parts.append(f"With {CONFIDENCE:.0%} confidence {false}, however many rows are looked at.")
    these = "this one" if rows == 1 else f"these {rows:,}"
    parts.append(f"What is said of the {of.promised} is about the flagged rows, not about {these}.")
    return FirstRows(rows, flagged, estimate, bound, CONFIDENCE, " ".join(parts), positions)


def _estimated(rows: int, estimate: float, of: WholeList) -> str:
    """Say how many of the rows that come first are false, by estimate."""
    share = float(f"{estimate:.2g}")
    normal = f"of {of.tested:,} normal rows would be as unusual"
    if rows == 1:
        return (
            f"Perhaps it is false, by estimate: one or more {normal}."
            if share >= 1
            else f"About {share:g} {normal}, by estimate."
        )
    if share >= rows:
        return f"Perhaps all of them are false, by estimate: as many {normal}."
    return f"About {share:,g} of them are false, by estimate: so many {normal}."


def last_of_first(counts: RankCounts, rows: int) -> tuple[int, int]:
    """Find the largest rank among so many rows of the smallest ranks, and how many are below it.

    Examples
    --------
    >>> last_of_first(RankCounts(9, "").add([1, 1, 4, 4, 4, 9]), 3)
    (4, 2)
    """
    upto = np.cumsum(counts.counts)
    last = int(np.searchsorted(upto, rows))
    return last, int(upto[last - 1])
