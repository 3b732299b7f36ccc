"""A post-hoc certificate: how many of the discoveries in this batch may be false.

The ranks of s normal test rows among n calibration scores have a law that depends on nothing but n
and s: all orders of the n + s scores are equally likely (a Pólya urn). So a curve E(r) can be
computed that N(r), the number of normal rows of rank at most r, stays below for all r at once with
a given confidence. On that event every threshold may be looked at, in any order, and afterwards.

The rows that a list puts first, flagged or not: how many of them may be false.

Who can look at twenty rows wants the best twenty. No false discovery rate is promised for them: the
number was chosen beforehand, and not the level. But something can be said (docs/guarantees).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy import special

from ..arrays import FloatArray, IndexArray, IntArray
from ..errors import ReconformError, check_count
from .exact import exact_fraction
from .fdr import RankCounts
from .thresholds import critical_value, rank_grid, simulation_size

# What was simulated is compared again; its last bit must not decide.
_HAIR = 1 + 1e-12
# Numbers of normal rows are told apart in steps of a tenth: m, 0.9 m, 0.81 m, ...
_STEP = Fraction(9, 10)


def fdp_bound(
    ranks: npt.ArrayLike,
    n: int,
    thresholds: npt.ArrayLike,
    confidence: float | Fraction = 0.95,
    *,
    seed: int = 0,
) -> FloatArray:
    """Bound the false discovery proportion among the rows with p <= threshold.

    With probability at least `confidence` over calibration set and batch, the bounds hold for
    *all* thresholds simultaneously, so a threshold may be chosen after looking at them.

    Parameters
    ----------
    ranks : array-like of int
        Conservative split-conformal ranks 1, ..., n + 1 of the batch.
    n : int
        Number of calibration scores.
    thresholds : array-like of float
        On the scale of the p-values r / (n + 1).
    confidence : float
        At most 0.999.
    seed : int
        The seed of the simulation.

    Returns
    -------
    float array of the shape of `thresholds`
        0 where no row is flagged.

    See Also
    --------
    false_discovery_table : The bounds on the number of false discoveries, for all ranks.

    Examples
    --------
    50 of 500 rows are anomalies with ranks below all 1,000 calibration scores:

    >>> import numpy as np
    >>> normal = np.random.default_rng(0).integers(1, 1002, size=450)
    >>> ranks = np.concatenate([np.ones(50, dtype=int), normal])
    >>> fdp_bound(ranks, 1000, [0.001, 0.01, 0.1]).round(2)
    array([0.1 , 0.2 , 0.55])
    """
    counts = _count(ranks, check_count("n", n, least=1))
    return counted_fdp_bound(counts, thresholds, confidence, seed=seed)


def counted_fdp_bound(
    counts: IntArray,
    thresholds: npt.ArrayLike,
    confidence: float | Fraction = 0.95,
    *,
    seed: int = 0,
) -> FloatArray:
    """Bound the false discovery proportion, as `fdp_bound`, from the counts of the ranks.

    Parameters
    ----------
    counts : int array of shape (n + 2,)
        As `RankCounts` keeps them.
    thresholds, confidence, seed
        As in `fdp_bound`.
    """
    n = len(counts) - 2
    limits = np.asarray(thresholds, dtype=np.float64)
    if np.isnan(limits).any():
        raise ReconformError("thresholds must be numbers; got NaN.")
    table = false_discovery_table(counts, confidence, seed=seed)
    upto = np.cumsum(counts)
    # The largest rank whose p-value, as the float that users see, is within the threshold.
    rank = np.clip(np.floor(limits * (n + 1)), 0, n + 1).astype(np.int64)
    rank -= (rank > 0) & (rank / (n + 1) > limits)
    rank += (rank <= n) & ((rank + 1) / (n + 1) <= limits)
    return np.asarray(table[rank] / np.maximum(upto[rank], 1))


def false_discovery_table(
    counts: npt.ArrayLike, confidence: float | Fraction = 0.95, *, seed: int = 0
) -> IntArray:
    """Bound the number of normal rows of rank at most r, for all r simultaneously.

    Parameters
    ----------
    counts : int array of shape (n + 2,)
        How many rows of the batch have each rank, as `RankCounts` keeps them; entry 0 is unused.
    confidence, seed
        As in `fdp_bound`.

    Returns
    -------
    int array of shape (n + 2,)
        Entry r bounds the false discoveries among the rows of rank at most r. The last entry
        bounds the number of normal rows in the batch.

    Notes
    -----
    This is closed testing (Goeman and Solari 2011), carried out in full for the local test "N(r)
    exceeds E_s(r) for some r" of a set of s rows being normal. Its steps:

    - *The number m0 of normal rows* is unknown. If it is s, then m - R(r), the number of rows of
      rank above r, is at least s - E_s(r) for all r. Numbers s that contradict this are ruled out,
      from m downwards; E_s does not increase on the way.
    - *Interpolation.* From r' to r at most R(r) - R(r') rows are added, so N(r) is at most
      E(r') + R(r) - R(r') for every r' <= r.

    References
    ----------
    J. Goeman, A. Solari, "Multiple testing for exploratory research", Statistical Science 26
    (2011).

    Examples
    --------
    >>> counts = np.zeros(1002, dtype=int)
    >>> counts[1], counts[1001] = 50, 450
    >>> false_discovery_table(counts)[[1, 2, 1001]]
    array([  5,   5, 455])
    """
    array = np.asarray(counts)
    if array.ndim != 1 or len(array) < 3 or not np.issubdtype(array.dtype, np.integer):
        raise ReconformError(
            "counts must be integers, one for each of the ranks 0 .. n + 1; "
            f"got shape {array.shape} and type {array.dtype}."
        )
    risk = 1 - exact_fraction("confidence", confidence)
    n, m = len(array) - 2, int(array.sum())
    upto = np.cumsum(array)
    if m == 0:
        return upto
    sizes = _sizes(m)
    for step in range(len(sizes)):
        envelope = _envelope(n, m, step, risk, seed)
        nulls = int((envelope + m - upto).min())
        below = sizes[step + 1] if step + 1 < len(sizes) else 0
        if nulls > below:
            break
    table = np.minimum.accumulate(envelope - upto) + upto
    return np.asarray(np.minimum(table, nulls))


def null_envelope(
    n: int, nulls: int, confidence: float | Fraction = 0.95, *, seed: int = 0
) -> IntArray:
    """Bound the number of normal rows of rank at most r, for all r, if there are `nulls` of them.

    Parameters
    ----------
    n : int
        Number of calibration scores.
    nulls : int
        Number of normal test rows, s. The bound holds for fewer as well.
    confidence : float
    seed : int

    Returns
    -------
    int array of shape (n + 2,)
        E(0) = 0, E(1), ..., E(n + 1) = s, nondecreasing.

    Notes
    -----
    E(r) is the largest v for which the log-likelihood ratio of the two-by-two table with
    r - 1/2 of n calibration and v - 1/2 of s test scores is at most c, in the lower half of
    the ranks; s in the upper half. This is the two-sample form of the Berk-Jones band of
    `conditional_table`, which it tends to as s grows, and close to taking beta-binomial
    quantiles of one level for all r. c is simulated from the urn, and rounded up such that
    the confidence is missed with probability at most 0.0001 over the simulation.
    The simulation takes about 1.5 s for n = s = 100,000 and 2.5 s for a million each, once for
    every n, s and confidence; a batch with many anomalies takes one for every tenth of the rows
    that is ruled out. Memory is a few arrays of n + 2 entries.

    References
    ----------
    U. Gazin, G. Blanchard, E. Roquain, "Transductive conformal inference with adaptive scores",
    AISTATS (2024).

    Examples
    --------
    >>> null_envelope(1000, 1000)[[1, 10, 100]]
    array([  8,  25, 139])
    """
    n, nulls = check_count("n", n, least=1), check_count("nulls", nulls, least=1)
    risk = 1 - exact_fraction("confidence", confidence)
    return _envelope(n, nulls, 0, risk, seed)


def _count(ranks: npt.ArrayLike, n: int) -> IntArray:
    array = np.asarray(ranks)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ReconformError(
            f"ranks must be integers; got {array.dtype}. Pass ranks, not p-values."
        )
    if array.size and (array.min() < 1 or array.max() > n + 1):
        raise ReconformError(f"ranks must lie in 1 .. {n + 1}; got {array.min()} .. {array.max()}.")
    return np.bincount(array.astype(np.int64).ravel(), minlength=n + 2)


def _sizes(m: int) -> list[int]:
    """The numbers of normal rows that are told apart: m, then a tenth less each, down to 1."""
    sizes = [m]
    while sizes[-1] > 1:
        sizes.append(min(math.ceil(sizes[-1] * _STEP), sizes[-1] - 1))
    return sizes


# --- the curve E ---------------------------------------------------------------------------------


def _envelope(n: int, m: int, step: int, risk: Fraction, seed: int) -> IntArray:
    """E for the step-th of the sizes below m; nowhere above that of the step before.

    Size s serves all numbers of normal rows from the next size up to s, as N(r) can only grow with
    each further row. That E does not increase from step to step is what lets the number of normal
    rows be searched from the top without a look at what is further down.
    """
    nulls = _sizes(m)[step]
    ranks = _grid(n, m)
    envelope = np.full(n + 2, nulls)
    envelope[0] = 0
    cells = np.searchsorted(ranks, np.arange(1, ranks[-1] + 1))
    envelope[1 : ranks[-1] + 1] = _montecarlo(n, m, step, risk, seed)[cells]
    return envelope


def _grid(n: int, m: int) -> IntArray:
    """One grid for all steps: their curves are constant between the same ranks."""
    return rank_grid(n, noise=(n + m) / m)


@lru_cache(maxsize=256)
def _montecarlo(n: int, m: int, step: int, risk: Fraction, seed: int) -> IntArray:
    """E at the ranks of the grid."""
    ranks, nulls = _grid(n, m), _sizes(m)[step]
    limits = np.full(len(ranks), nulls)
    if step:
        limits = np.minimum(limits, _montecarlo(n, m, step - 1, risk, seed))
    critical = _critical_ratio(n, nulls, ranks, limits, risk, seed) * _HAIR
    low, high = np.zeros(len(ranks), dtype=np.int64), limits + 1
    while (high - low > 1).any():  # the ratio of `low` is within the critical one
        middle = (low + high) // 2
        within = _likelihood_ratio(n, nulls, ranks, middle) <= critical
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    # N(r) <= N(r') for r < r', so a curve may be lowered to its values further right.
    envelope = np.minimum.accumulate(low[::-1])[::-1]
    envelope.setflags(write=False)  # it stays in the cache
    return envelope


def _likelihood_ratio(n: int, nulls: int, rank: IntArray | int, below: IntArray) -> FloatArray:
    """The evidence that `below` test scores before the rank-th calibration score are too many.

    Of the first rank + below - 1 scores of the merged order at most rank - 1 belong to the
    calibration set; the halves are the usual correction for continuity. 0 on the other side.
    """
    calibration, test = rank - 0.5, np.maximum(below - 0.5, 0.0)
    share = (calibration + test) / (n + nulls)
    ratio = (
        calibration * np.log(calibration / n / share)
        + (n - calibration) * np.log((1 - calibration / n) / (1 - share))
        + special.xlogy(test, test / nulls / share)
        + (nulls - test) * np.log((1 - test / nulls) / (1 - share))
    )
    return np.where(test * n > calibration * nulls, ratio, 0.0)


def _critical_ratio(
    n: int, nulls: int, ranks: IntArray, limits: IntArray, risk: Fraction, seed: int
) -> float:
    """Simulate the largest ratio over the rank grid; infinite for paths beyond the limits.

    So the confidence is that of staying within both, the critical ratio and the limits. Should
    the limits alone be too much for it, the answer is infinite and the limits stand, which hold
    because they do so for more rows.
    """
    paths = simulation_size(len(ranks), risk, budget=6_000_000)
    rng = np.random.default_rng(np.random.SeedSequence([seed, n, nulls]))
    below, largest, previous = np.zeros(paths, dtype=np.int64), np.zeros(paths), 0
    for rank, limit in zip(ranks.tolist(), limits.tolist(), strict=True):
        # The share, of all that is above the last rank, that lies between it and this one.
        share = rng.beta(rank - previous, n + 1 - rank, size=paths)
        below += rng.binomial(nulls - below, share)
        ratio = _likelihood_ratio(n, nulls, rank, below)
        np.maximum(largest, np.where(below > limit, np.inf, ratio), out=largest)
        previous = rank
    return critical_value(largest, risk)


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
    promised : str
        What the guarantee of the list is about: "false discovery rate".
    broken : bool
        Whether the assumption looks broken.
    """

    tested: int
    promised: str
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
    >>> whole = WholeList(300, "false discovery rate", broken=False)
    >>> print(describe_first(20, 5, 0.01, whole))
    The 20 most unusual rows; 5 of them are flagged. Of 300 normal rows, about 3 would be as
    unusual. The promise on the false discovery rate is about the flagged rows only.
    """
    which = "The most unusual row" if rows == 1 else f"The {rows:,} most unusual rows"
    those = {0: "none of them is flagged", 1: "1 of them is flagged"}.get(
        flagged, f"{flagged:,} of them are flagged"
    )
    if rows == 1:
        those = "it is flagged" if flagged else "it is not flagged"
    head = f"{which}; {those}."
    if of.broken:
        said = (
            f"{head} How many of them are normal cannot be estimated: the assumption looks broken."
            if rows > 1
            else f"{head} Whether it is normal cannot be estimated: the assumption looks broken."
        )
        return FirstRows(rows, flagged, None, None, CONFIDENCE, said, positions)
    estimate = min(float(rows), of.tested * largest_p)
    parts = [head, _estimated(rows, estimate, of)]
    if bound is not None:
        false = "it is not normal" if rows == 1 else f"at most {bound:,} of them are normal"
        parts.append(f"With {CONFIDENCE:.0%} confidence {false}, however many rows are looked at.")
    if 0 < flagged < rows:
        parts.append(f"The promise on the {of.promised} is about the flagged rows only.")
    return FirstRows(rows, flagged, estimate, bound, CONFIDENCE, " ".join(parts), positions)


def _estimated(rows: int, estimate: float, of: WholeList) -> str:
    """Say how many normal rows would be as unusual as those that come first."""
    share = float(f"{estimate:.2g}")
    how_many = "at least as many" if share >= rows else f"about {share:,g}"
    return f"Of {of.tested:,} normal rows, {how_many} would be as unusual."


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
