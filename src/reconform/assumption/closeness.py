"""Copies and clusters: new rows that are too close to each other or to reference rows.

How many new rows may be nearer to each other than to the reference by chance is in
`statistics.chances`. `cluster_finding` looks for them in a sample, for every list. A detector that
compares new rows with each other looks for them itself, once for every row (`guard_limits` there),
as its p-values are exact only if that is a function of the reference and this row as one set;
`unused_batch` says what followed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from ..arrays import BoolArray, FloatArray, IntArray
from ..statistics.chances import GUARD_SHARE, at_least_before, close_rows_allowed, unlikely_counts
from .sample import LookedUp, Occurrences
from .shift import TOLERATED
from .verdict import Finding

# False-alarm rate of copies; more than so large a share of the new rows must be copies.
DOUBTFUL = 5e-3
COPIES_MARGIN = 0.02
# Neighbours that the search for clusters looks at, of how many new and reference rows.
CLUSTER_NEIGHBOURS = 5
CLUSTER_ROWS, CLUSTER_PROBES = 200, 100
# Up to so many rows of both the closest pairs are looked at, too: so many of them.
PAIRED_ROWS, PAIRS = 600, (4, 8, 16, 32, 64)
# Numbers beyond this are taken for it, and scaled ones beyond that: squares stay finite.
LARGEST = 1e150
FARTHEST = 1e6
# Squares of distances are off by this much, as a share of the squares of the rows.
BLUR = 1e-5


def in_units(
    reference: FloatArray, new: FloatArray, tail: float = 0.25
) -> tuple[FloatArray, FloatArray]:
    """Both samples in units of the reference's spread, missing numbers at its median.

    Parameters
    ----------
    reference, new : float arrays of shape (n, d), (m, d)
    tail : float, default=0.25
        The spread of a column is the range of its numbers without this share at either end.

    Examples
    --------
    >>> import numpy as np
    >>> in_units(np.array([[0.0], [1.0], [2.0], [3.0], [4.0]]), np.array([[8.0], [np.nan]]))[1]
    array([[3.],
           [0.]])
    """
    known, seen = (np.clip(X, -LARGEST, LARGEST) for X in (reference, new))
    ordered = np.sort(known.T, axis=1)  # missing numbers last
    present = len(known) - np.isnan(known).sum(axis=0)
    middle, low, high = (_quantile(ordered, present, share) for share in (0.5, tail, 1 - tail))
    known, seen = (np.where(np.isnan(X), middle, X) for X in (known, seen))
    spread = high - low
    flat = spread <= 0
    spread[flat] = known[:, flat].std(axis=0)
    spread[spread <= 0] = 1.0
    scaled = (np.clip((X - middle) / spread, -FARTHEST, FARTHEST) for X in (known, seen))
    return next(scaled), next(scaled)


def _quantile(ordered: FloatArray, present: IntArray, share: float) -> FloatArray:
    """Quantiles of the first `present` numbers of each row; 0 where there are none."""
    at = share * np.maximum(present - 1, 0)
    below, rows = np.floor(at).astype(np.intp), np.arange(len(ordered))
    low, high = ordered[rows, below], ordered[rows, np.ceil(at).astype(np.intp)]
    return np.asarray(np.where(present > 0, low + (at - below) * (high - low), 0.0))


def squares(A: FloatArray, B: FloatArray) -> npt.NDArray[np.float32]:
    """Squared distances, by one product of matrices; centre the rows first.

    For looking, not for ranks: in single precision, and equal distances may differ in the last
    bits.

    Examples
    --------
    >>> import numpy as np
    >>> squares(np.zeros((1, 2)), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[25.,  1.]], dtype=float32)
    """
    a, b = A.astype(np.float32), B.astype(np.float32)
    found: npt.NDArray[np.float32] = a @ b.T
    found *= -2.0  # in place: fresh memory costs more than the arithmetic
    found += np.einsum("ij,ij->i", a, a)[:, None]
    found += np.einsum("ij,ij->i", b, b)
    np.maximum(found, 0.0, out=found)
    return found


def copy_findings(
    reference: Sequence[Hashable],
    new: Sequence[Hashable],
    *,
    looked_up: LookedUp | None = None,
    sampled: bool = False,
) -> list[Finding]:
    """Look for rows that occur twice, by digests of the rows.

    Copies of reference rows among the new rows, more than reference rows are copies of each
    other; and new rows that are copies of new rows only.

    Parameters
    ----------
    reference, new : sequences of anything hashable
    looked_up : LookedUp, optional
        Where `reference` is a sample: which new rows can be looked up among all reference rows.
        Copies are then counted among these. Rows are 64-bit digests.
    sampled : bool, default=False
        Whether there are more reference rows than these, so that copies of others are not seen.

    Returns
    -------
    list of Finding

    Examples
    --------
    >>> print(*copy_findings(range(100), range(90, 110)))
    10 of 20 new rows are exact copies of reference rows, and no two reference rows are equal. The
    detector has seen them: leave them out of the reference or of the new rows.
    """
    times, here = Counter(reference), Counter(new)
    known, told = Occurrences.of(times), here
    which, whose = f"of {len(new):,} new rows", "reference rows"
    if looked_up is not None:
        digests = np.array(new, dtype=np.uint64)
        known, told = looked_up.occurrences, Counter(looked_up.among(digests).tolist())
        which = f"of {told.total():,} new rows that were looked up"
    elif sampled:
        whose = f"the {len(reference):,} reference rows that were looked at, and likely more of all"
        whose += " of them"
    found = [_copied(times, known, told, which=which, whose=whose), _doubled(times, here)]
    return [finding for finding in found if finding is not None]


def _copied(
    times: Container[Hashable],
    known: Occurrences,
    here: Counter[Hashable],
    *,
    which: str,
    whose: str,
) -> Finding | None:
    """More copies of reference rows than reference rows are copies of each other."""
    n, m, twins = known.rows, here.total(), known.twins
    copies = sum(count for row, count in here.items() if row in times)
    # A group of equal rows counts once, too: its rows come and go together.
    groups = sum(row in times for row in here)
    counted = (copies, m, twins, n), (groups, len(here), known.repeated, known.contents)
    for b, of, a, among in counted:
        # P(at least b of so many) where a of n reference rows are so: one more is counted for it.
        if not b or a >= among or at_least_before(b, of, a + 1, among) > DOUBTFUL:
            return None
    if copies / m <= twins / n + COPIES_MARGIN:
        return None
    also = (
        f"while {twins / n:.0%} of the reference rows have a copy among themselves"
        if twins
        else "and no two reference rows are equal"
    )
    sentence = f"{copies:,} {which} are exact copies of {whose}, {also}."
    advice = "The detector has seen them: leave them out of the reference or of the new rows."
    return Finding("copies", "doubtful", sentence, advice)


def _doubled(times: Counter[Hashable], here: Counter[Hashable]) -> Finding | None:
    """New rows that are copies of each other, and of no reference row."""
    n, m = times.total(), here.total()
    copies = sum(count for row, count in here.items() if row in times)
    doubled = sum(count for row, count in here.items() if count > 1 and row not in times)
    # A row with copies has none of them in the reference with a chance of m / (n + m) at most.
    by_chance = unlikely_counts(DOUBTFUL / 5, doubled + copies, m / (n + m))
    if not doubled or doubled <= by_chance:
        return None
    level = "doubtful" if doubled > by_chance + TOLERATED * m else "note"
    sentence = (
        f"{doubled:,} of {m:,} new rows are exact copies of each other, and of no reference row."
    )
    return Finding("duplicates", level, sentence, "Are they one event, recorded several times?")


def cluster_finding(reference: FloatArray, new: FloatArray) -> list[Finding]:
    """Look for new rows that are nearer to each other than to the reference rows around them.

    Only rows among reference rows count: those whose k-th nearest reference row is not farther than
    is usual for reference rows. Clusters of anomalies elsewhere are what a detector is for.

    Parameters
    ----------
    reference, new : float arrays of shape (n, d), (m, d)
        Scaled as the detector sees them; without missing numbers.

    Returns
    -------
    list of Finding
        One at most.
    """
    n, m = len(reference), len(new)
    k = min(CLUSTER_NEIGHBOURS, n - 1, m - 2)
    if k < 1:
        return []
    # Evenly spaced rows; a caller with an order by content may sort before.
    some = new[:: max(1, -(-m // CLUSTER_ROWS))]
    at = np.arange(m)[:: max(1, -(-m // CLUSTER_ROWS))]
    centre = reference.mean(axis=0)
    D, T, S = reference - centre, new - centre, some - centre
    to_normal = squares(S, D)
    to_new = squares(S, T)
    to_new[np.arange(len(S)), at] = np.inf
    first = to_normal.min(axis=1)
    to_normal.partition(k - 1, axis=1)
    last = to_normal[:, k - 1]
    to_new.partition(k - 1, axis=1)
    near_new = np.sort(to_new[:, :k], axis=1)
    probe = D[:: max(1, -(-n // CLUSTER_PROBES))]
    own = squares(probe, D)
    own.partition(k, axis=1)  # itself is the first
    inside = last <= np.median(own[:, k])
    # Rounding of distances that are equal must not look like a cluster.
    blur = BLUR * ((S**2).sum(axis=1) + (D**2).sum(axis=1).mean())
    close = near_new[inside] < (first[inside] - blur[inside])[:, None]
    rows = int(inside.sum())
    share = (m - 1) / (n + m - 1)
    allowed = close_rows_allowed(np.array([rows]), share, k, TOLERATED)[:, 0]
    for c in range(1, k + 1):
        nearer = int(close[:, c - 1].sum())
        if nearer > allowed[c - 1]:
            sentence = (
                f"{nearer / rows:.0%} of the new rows that lie among reference rows have {c} "
                f"other new row{'s' if c > 1 else ''} nearer than any reference row; by chance "
                f"at most {share**c:.0%} would. Are they repeated measurements of one thing?"
            )
            return [Finding("clusters", "doubtful", sentence, "Keep one row of each.")]
    return _pair_finding(np.vstack([D, T]), n, k) if n + m <= PAIRED_ROWS else []


def _pair_finding(rows: FloatArray, n: int, k: int) -> list[Finding]:
    """Look for new rows among the closest pairs: few rows are too few to count those nearby.

    Two rows are a pair if each is nearest to the other. Pairs have no row in common, so that by
    chance each is one of two new rows with a probability of (m / (n + m))^2 at most, however close.
    Of rows at equal distances reference rows come first, which can only hide pairs of new rows.
    """
    m, i = len(rows) - n, np.arange(len(rows))
    norms = (rows**2).sum(axis=1)
    apart = norms[:, None] + norms - 2 * (rows @ rows.T)
    apart[i, i] = np.inf
    last = np.partition(apart[:, :n], k - 1, axis=1)[:, k - 1]
    inside = last <= np.quantile(last[:n], 0.75)  # most rows are needed, anomalies are not
    near = apart.argmin(axis=1)
    first = i[(near[near] == i) & (i < near) & inside & inside[near]]
    first = first[np.argsort(apart[first, near[first]], kind="stable")]
    both_new = np.cumsum((first >= n) & (near[first] >= n))
    for count in PAIRS:
        if count > len(first):
            break
        by_chance = unlikely_counts(DOUBTFUL / len(PAIRS), count, (m / (n + m)) ** 2)
        if both_new[count - 1] > by_chance + GUARD_SHARE * inside[n:].sum() / 2:
            sentence = (
                f"{both_new[count - 1]} of the {count} closest pairs of rows, reference and new "
                f"rows together, are pairs of new rows; by chance at most {by_chance:.0f} would "
                "be. Are they repeated measurements of one thing?"
            )
            return [Finding("clusters", "doubtful", sentence, "Keep one row of each.")]
    return []


def unused_batch(clustered: BoolArray) -> tuple[Finding, ...]:
    """Say that the batch was not used for some rows, and why.

    Parameters
    ----------
    clustered : bool array of shape (m,)
        `Ranks.clustered`.

    Returns
    -------
    tuple of Finding
        None or one: a note if no row was ranked by the others, so that the list is that of a
        detector that looks at reference rows only; doubt if some were.

    Examples
    --------
    >>> import numpy as np
    >>> print(*unused_batch(np.ones(60, dtype=bool)))
    All 60 rows are compared with reference rows only: too many new rows lie closer to each other
    than to any reference row (copies, repeated measurements), and comparing them with each other
    would flag them for that alone.
    """
    if not clustered.any():
        return ()
    count, m = int(clustered.sum()), len(clustered)
    which = f"All {m:,} rows" if count == m else f"{count:,} of {m:,} rows"
    said = (
        f"{which} {'is' if count == 1 else 'are'} compared with reference rows only: too many new "
        "rows lie closer to each other than to any reference row (copies, repeated measurements), "
        "and comparing them with each other would flag them for that alone."
    )
    if count == m:
        return (Finding("batch", "note", said),)
    advice = (
        "For the other rows the promise rests on an assumption that looks broken; use a detector "
        "that compares with reference rows only, such as `detector='knn'`."
    )
    return (Finding("batch", "doubtful", said, advice),)
