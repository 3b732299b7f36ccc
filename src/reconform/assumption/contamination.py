"""Anomalies among the reference rows: whether the reference's own extremes hold the list back.

`held_back` is a what-if: if the k most unusual reference rows were not normal, how many new rows
would be flagged, and is that more than chance gives? It is true by computation, but a clean
reference with anomalies that are hard to tell from normal rows looks the same. So it is a hint.

`mixed_neighbours` is better evidence. Anomalies among the reference rows lie where those of
the batch lie. It looks at the most unusual reference rows whose neighbours are mostly new rows:
how many there are, and how many new rows there are in the same places. In a clean reference there
are few, and many more new rows. No test can be exact here (docs/assumptions): it is no verdict.

Every clean reference has extremes, and without them more would be flagged. So where unusual new
rows lie close together and hardly any reference row is among them, `held_back` is said only of
an empty list, with that in its words: they are normal extremes, or anomalies of another kind.

Its distances are measured in units that a contamination of up to 5 % cannot stretch, the range of
the central 90 % of a column. Quartiles would not do: a column that is nearly constant but for a
fifth of the rows would have large differences only, and drown the columns in which the anomalies
differ. Below 400 reference rows the outer 5 % are too few to measure by, and there quartiles are
the units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import FloatArray, IndexArray, IntArray
from ..statistics.chances import at_least_before, unlikely_counts
from ..statistics.fdr import RankCounts
from .closeness import in_units, squares
from .verdict import Finding

# How a list is decided again: Benjamini-Hochberg at a level, or from counts to a number of rows.
Level = float | Callable[[RankCounts], int]

ADVICE = "If they are anomalies, take them out of the reference with `reconform clean`."
ADVICE_ON_ONE = "If it is an anomaly, take it out of the reference with `reconform clean`."
ELSEWHERE = (
    " Hardly any unusual new rows lie nearby: these are normal extremes, or anomalies of another "
    "kind."
)

# At most this share of the reference is asked what if it were not normal.
MOST_CONTAMINATION = 0.05
# A hint needs as many new rows beyond the k-th reference row as have at most this chance in a batch
# without anomalies. Over all k such a batch gets a hint in 8 to 21 % of draws (measured, n from 106
# to 1,500): the k are nested, and Bonferroni's correction would make it 4 to 7 %, and miss some.
HINT_CHANCE = 0.07
# A hint must promise at least so many rows, and so many times as many as are flagged now: twice as
# many are flagged without the extremes of nearly half of all clean references.
LEAST_GAIN = 3
LEAST_FACTOR = 3
# `mixed_neighbours` looks at this share of the reference, the most unusual rows, ...
TAIL = 0.02
# ... and at so many neighbours of each, as a share of the reference, within limits, ...
NEIGHBOURS = 0.027
FEWEST_NEIGHBOURS, MOST_NEIGHBOURS = 10, 40
# ... of which more must be new rows than have this chance anywhere.
CHANCE = 0.02
# The verdict: share of the reference with such neighbours, and its rate against that of the
# new rows there.
LEAST_SHARE = 0.0025
LEAST_RATIO = 0.12
LEAST_ROWS = 4
# The other way round: so many new rows there, and at most half the rate that a contamination of 2 %
# has beside 10 % of anomalies, speak against anomalies of their kind.
ELSEWHERE_ROWS = 5
ELSEWHERE_RATIO = 0.1
# Below so many reference rows 2 % are too few to tell from chance.
LEAST_REFERENCE = 400
# Rows that distances are measured to.
ANCHORS = 400


@dataclass(frozen=True)
class HeldBack:
    """What would be flagged if the k most unusual reference rows were not normal.

    Attributes
    ----------
    k : int
    flagged, would_be : int
        Now, and without the k rows.
    by_chance : float
        Number of new rows beyond the k-th that a batch without anomalies has on average.
    p : float
        The chance of so many new rows beyond the k-th in a batch without anomalies; of this k, not
        corrected for its choice.
    """

    k: int
    flagged: int
    would_be: int
    by_chance: float
    p: float

    def finding(self, how: str = "", where: str = "") -> Finding:
        """Say it in plain words.

        `how` names the measure if it is not the detector's score, `where` says where they lie.
        """
        one = self.k == 1
        rows = "most unusual reference row" if one else f"{self.k:,} most unusual reference rows"
        sentence = (
            f"Without the {rows}{how}, {self.would_be:,} new rows would be flagged instead of "
            f"{self.flagged:,}; by chance about {self.by_chance:.0f} would be as unusual.{where}"
        )
        return Finding("reference extremes", "note", sentence, ADVICE_ON_ONE if one else ADVICE)


@dataclass(frozen=True)
class MixedNeighbours:
    """Unusual reference rows among new rows.

    Attributes
    ----------
    reference_rows : int array
        Positions of unusual reference rows whose neighbours are mostly new rows.
    new_rows : int
        Unusual new rows of which the same is true.
    share : float
        Of the reference.
    ratio : float
        Rate among reference rows over rate among new rows: 0.2 if 2 % of the reference and 10 %
        of the batch are such anomalies; about 0 where the reference is clean.
    doubtful : bool
    """

    reference_rows: IndexArray
    new_rows: int
    share: float
    ratio: float
    doubtful: bool

    @property
    def elsewhere(self) -> bool:
        """Whether the reference's extremes do not lie where unusual new rows lie."""
        return self.new_rows >= ELSEWHERE_ROWS and self.ratio < ELSEWHERE_RATIO

    def finding(self) -> Finding:
        """Say it in plain words."""
        sentence = (
            f"{len(self.reference_rows):,} unusual reference rows lie among unusual new rows, not "
            "among reference rows: the reference may hold anomalies of the same kind, and then too "
            "little is found."
        )
        # Where anomalies overlap with normal rows, clean references look like this, too.
        return Finding("contamination", "note", sentence, ADVICE)


def some_k(n: int) -> IntArray:
    """Numbers of reference rows to try, growing by about 1.4.

    Examples
    --------
    >>> some_k(100), some_k(1500)
    (array([1, 2, 3, 4, 5]), array([ 1,  2,  3,  4,  6,  8, 12, 17, 23, 33, 47, 67, 75]))
    """
    most = max(3, int(MOST_CONTAMINATION * n))
    found = np.unique(np.append((1.42 ** np.arange(40)).round().astype(np.int64), most))
    return found[found <= min(most, n - 1)]


def flagged_without(counts: RankCounts, k: int, level: Level) -> int:
    """Benjamini-Hochberg at `level` when the k most unusual reference rows are left out.

    Parameters
    ----------
    counts : RankCounts
        Of the new rows.
    k : int
    level : float or callable

    Returns
    -------
    int
        How many new rows it flags.

    Examples
    --------
    >>> counts = RankCounts(100, "").add([3, 3, 90, 95])  # two reference rows are in the way
    >>> flagged_without(counts, 0, 0.05), flagged_without(counts, 2, 0.05)
    (0, 2)
    """
    left = RankCounts(counts.n_calibration - k, counts.fingerprint)
    left.counts[1:] = counts.counts[k + 1 :]
    left.counts[1] += counts.counts[: k + 1].sum()
    return level(left) if callable(level) else left.decide(level).count


def held_back(counts: RankCounts, flagged: int, level: Level) -> HeldBack | None:
    """Say whether leaving out the reference's extremes would make the list three times as long.

    Parameters
    ----------
    counts : RankCounts
        Of the new rows.
    flagged : int
        Number of rows flagged now.
    level : float or callable
        Of Benjamini-Hochberg; or what decides instead.

    Returns
    -------
    HeldBack or None
        The k with the smallest p-value; None without a reason for a hint.
    """
    n, m = counts.n_calibration, counts.rows
    if n < 2 or not m:
        return None
    ks = some_k(n)
    # New rows beyond all reference rows but k: beta-binomial with k + 1 and n - k.
    beyond = np.cumsum(counts.counts)[ks + 1]
    p = np.array(
        [
            at_least_before(count, m, k + 1, n)
            for count, k in zip(beyond.tolist(), ks.tolist(), strict=True)
        ]
    )
    possible = p <= HINT_CHANCE
    for best in np.argsort(np.where(possible, p, np.inf), kind="stable")[: possible.sum()]:
        k = int(ks[best])
        would_be = flagged_without(counts, k, level)
        if would_be >= max(LEAST_GAIN, LEAST_FACTOR * flagged):
            return HeldBack(k, flagged, would_be, m * (k + 1) / (n + 1), float(p[best]))
    return None


def unusual(
    reference: FloatArray, new: FloatArray, anchors: IndexArray
) -> tuple[FloatArray, FloatArray]:
    """How far rows are from reference rows: distance to the (5 % + 1)-st nearest anchor.

    So many neighbours that anomalies among the reference rows, up to 5 %, cannot make each other
    normal. Anchors do not count as their own neighbours.

    Parameters
    ----------
    reference, new : float arrays of shape (n, d), (m, d)
    anchors : int array
        Positions of reference rows, a sample by content.

    Returns
    -------
    of_reference, of_new : float arrays
    """
    k = int(np.ceil(MOST_CONTAMINATION * len(anchors)))  # the (k + 1)-st nearest
    centre = reference.mean(axis=0)
    A = reference[anchors] - centre
    to = squares(reference - centre, A)
    to[anchors, np.arange(len(anchors))] = np.inf
    k = min(k, len(anchors) - 2)
    to_new = squares(new - centre, A)
    to.partition(k, axis=1)
    to_new.partition(k, axis=1)
    return np.sqrt(to[:, k], dtype=np.float64), np.sqrt(to_new[:, k], dtype=np.float64)


def mixed_neighbours(
    reference: FloatArray,
    new: FloatArray,
    of_reference: FloatArray,
    of_new: FloatArray,
    order: IndexArray,
) -> MixedNeighbours:
    """Look at the neighbours of the most unusual rows of both files.

    Parameters
    ----------
    reference, new : float arrays of shape (n, d), (m, d)
        In the same units, without missing numbers.
    of_reference, of_new : float arrays
        As `unusual` gives them.
    order : int array
        An order of all n + m rows that has nothing to do with the files: settles which of
        equally near rows are neighbours.

    Returns
    -------
    MixedNeighbours
    """
    n, m = len(reference), len(new)
    tail = max(3, int(TAIL * n))
    cut = np.partition(of_reference, n - tail)[n - tail]
    ours, theirs = np.flatnonzero(of_reference >= cut), np.flatnonzero(of_new >= cut)
    centre = reference.mean(axis=0)
    pooled = np.concatenate([reference, new]) - centre
    rows = np.concatenate([ours, n + theirs])
    place = np.empty(n + m, dtype=np.int64)
    place[order] = np.arange(n + m)
    to = squares(pooled[rows], pooled[order])
    to[np.arange(len(rows)), place[rows]] = np.inf
    k = min(max(round(NEIGHBOURS * n), FEWEST_NEIGHBOURS), MOST_NEIGHBOURS, n + m - 2)
    near = np.argpartition(to, k - 1, axis=1)[:, :k]
    new_ones = (order[near] >= n).sum(axis=1)
    among_new = new_ones > unlikely_counts(CHANCE, k, m / (n + m))
    a, b = int(among_new[: len(ours)].sum()), int(among_new[len(ours) :].sum())
    ratio = (a / n) / max(b / m, 1 / m)
    doubtful = (
        n >= LEAST_REFERENCE
        and a >= LEAST_ROWS
        and a / n >= LEAST_SHARE
        and ratio >= LEAST_RATIO
        and b > 0
    )
    return MixedNeighbours(ours[among_new[: len(ours)]], b, a / n, ratio, bool(doubtful))


def contamination_finding(
    rows: tuple[FloatArray, FloatArray] | None,
    counts: RankCounts | None,
    flagged: int,
    level: Level,
) -> list[Finding]:
    """Look for anomalies among the reference rows.

    Parameters
    ----------
    rows : pair of float arrays of shape (n, d), (m, d), or None
        Samples of reference and new rows, in an order that has nothing to do with what the rows
        hold; missing numbers are NaN. None where distances are not measured.
    counts : RankCounts or None
        Of the detector's ranks of all new rows.
    flagged : int
        Number of rows flagged now.
    level : float or callable
        Of Benjamini-Hochberg; or what decides instead.
    """
    where = ""
    if rows is not None and len(rows[0]) < LEAST_REFERENCE:  # too few for neighbours
        found = _held_back_by_distance(*rows, flagged, level)
        if found is not None:
            return [found]
    elif rows is not None:
        near = _neighbours(*rows)
        if near.doubtful:
            return [near.finding()]
        if near.elsewhere and flagged:
            return []
        where = ELSEWHERE if near.elsewhere else ""
    held = None if counts is None else held_back(counts, flagged, level)
    return [] if held is None else [held.finding(where=where)]


def _held_back_by_distance(
    reference: FloatArray, new: FloatArray, flagged: int, level: Level
) -> Finding | None:
    """By distance, which no cluster of anomalies can fool, in place of the detector's score."""
    n = len(reference)
    of_reference, of_new = unusual(*in_units(reference, new), np.arange(min(ANCHORS, n)))
    ranks = 1 + n - np.searchsorted(np.sort(of_reference), of_new, side="left")
    held = held_back(RankCounts(n, "distances").add(ranks), flagged, level)
    return None if held is None else held.finding(", by distance from the others")


def _neighbours(reference: FloatArray, new: FloatArray) -> MixedNeighbours:
    n, m = len(reference), len(new)
    reference, new = in_units(reference, new, MOST_CONTAMINATION)
    of_reference, of_new = unusual(reference, new, np.arange(min(ANCHORS, n)))
    order = np.random.default_rng(0).permutation(n + m)
    return mixed_neighbours(reference, new, of_reference, of_new, order)
